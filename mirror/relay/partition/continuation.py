"""A partition that stays on its host between two epochs: the next attempt continues the fence of the one before.

The attempt of the ended epoch copies on under its lease. It stops sending, waits until nothing is unanswered, and
yields its identity, the next sequence and its exact position. For the brokers both are one attempt: nothing is fenced,
and nothing has to be searched for.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from mirror.producer.batch.queue import AdoptedState
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import NO_TOTALS, Progress
from mirror.relay.progress.position import FoundPosition

FENCE_VALID_MS: Final = 3_600_000
"""How old the fence of an attempt may be at most. Each fence renews the transactional id, which the coordinator forgets
after ``transactional.id.expiration.ms``: another fence would then get another producer id, and not shut this attempt
out. It also writes the claim: see :func:`fence_valid_ms`."""
CEDE_WITHIN_MS: Final = 1_000
"""How long an attempt that is asked to yield waits for its last answers. Otherwise the next one fences."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """What an attempt of the epoch before leaves to the next one on its host."""

    state: AdoptedState
    progress: Progress
    """Behind everything that it has appended; its unreported counts are those since its epoch has ended."""
    claim_epoch: int
    """The producer epoch of its claim (``Progress.attempt``)."""
    fenced_ms: int
    """When its fence was written (ms since 1970)."""


class NothingToContinue(Exception):
    """The attempt of the epoch before has left nothing that serves: the next one fences before it sends."""


def fence_valid_ms(renew_ms: int) -> int:
    """Return for how many ms an attempt may send, or be continued, under its fence.

    Only a fence renews the claim, which is due when it is ``renew_ms`` old (0: never).
    """
    return min(FENCE_VALID_MS, renew_ms) if renew_ms > 0 else FENCE_VALID_MS


Earlier = Callable[[], "Future[Continuation | None]"]
"""Asks the attempt of the epoch before, on this host, to yield. None: it cannot, and has to be fenced."""


def found_at(earlier: Continuation, opened: Progress | None, resolved: Progress, valid_ms: int) -> FoundPosition | None:
    """Return where to continue ``earlier``; None if its fence does not serve the attempt that begins.

    ``opened`` is the progress that this attempt has read, ``resolved`` where it would begin: the claim must still be
    the one under which ``earlier`` was fenced, and both be younger than ``valid_ms``.
    """
    progress, producer_id = earlier.progress, earlier.state.identity.producer_id
    if opened is None or opened.way is not Way.SEQUENCES or opened.claim != (producer_id, earlier.claim_epoch):
        return None
    flows = {(one.generation, one.topic_id, one.source_cluster_id) for one in (opened, resolved, progress)}
    if len(flows) > 1 or opened.ended or progress.offset < max(opened.offset, resolved.offset):
        return None
    claimed_ms = opened.claimed_ms or opened.time_ms
    if resolved.time_ms < earlier.fenced_ms or resolved.time_ms - min(earlier.fenced_ms, claimed_ms) >= valid_ms:
        return None
    base = replace(
        progress,
        ended=False,
        way=Way.SEQUENCES,
        producer_id=producer_id,
        claimed_ms=claimed_ms,
        claimed_by=opened.claim,
    )
    return FoundPosition(base, NO_TOTALS)


class Ceding:
    """One attempt that was asked to yield, until it has, or cannot."""

    def __init__(self, answer: Future[Continuation | None], now: int) -> None:
        self.until_ms: Final = now + CEDE_WITHIN_MS
        self._answer: Final = answer

    def answer_with(self, yielded: Future[Continuation | None]) -> Future[None]:
        """Pass on what the attempt has ``yielded``; if that has failed, the next one has to fence.

        The returned future is done once that was answered: the task must not end before.
        """
        answered: Future[None] = Future()

        def pass_on(ended: Future[Continuation | None]) -> None:
            self._set(None if ended.exception() is not None else ended.result())
            answered.set_result(None)

        yielded.add_done_callback(pass_on)
        return answered

    def refuse(self) -> None:
        """Answer that the next attempt has to fence, unless it was answered."""
        self._set(None)

    def _set(self, value: Continuation | None) -> None:
        with suppress(InvalidStateError):
            self._answer.set_result(value)
