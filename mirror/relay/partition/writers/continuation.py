"""A partition that stays on its host between two epochs: the next attempt continues the one before.

The attempt of the ended epoch copies on under its lease. It stops sending, waits until nothing is unanswered, and
yields its exact position. By sequences it also yields its identity and the next sequence: for the brokers both are one
attempt, nothing is fenced, and nothing has to be searched for.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from mirror.producer.batch.queue import AdoptedState
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import NO_TOTALS, Progress, ProgressChanged
from mirror.relay.progress.position import FoundPosition

FENCE_VALID_MS: Final = 3_600_000
"""How old the fence of an attempt may be at most. Each fence renews the transactional id, which the coordinator forgets
after ``transactional.id.expiration.ms``: another fence would then get another producer id, and not shut this attempt
out. It also writes the claim: see :func:`fence_valid_ms`."""
CEDE_WITHIN_MS: Final = 1_000
"""How long an attempt that is asked to yield waits for its last answers. Otherwise the next one fences; at least once,
it resumes at the committed progress."""


@dataclass(frozen=True, slots=True)
class YieldedFence:
    """The fence of an attempt by sequences, which sends nothing more under it."""

    state: AdoptedState
    claim_epoch: int
    """The producer epoch of its claim (``Progress.attempt``)."""
    written_ms: int
    """When it was written (ms since 1970)."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """What an attempt of the epoch before leaves to the next one on its host."""

    progress: Progress
    """Behind everything that it has appended; its unreported counts are those since its epoch has ended."""
    fence: YieldedFence | None
    """None at least once: there is no fence."""

    def follows(self, opened: Progress | None, resolved: Progress) -> bool:
        """Whether its progress is that of the same copy, and not behind what the attempt that begins has read.

        ``opened`` is the progress that this attempt has read, ``resolved`` where it would begin.
        """
        if opened is None or self.progress.offset < max(opened.offset, resolved.offset):
            return False
        copies = (opened, resolved, self.progress)
        return len({(one.generation, one.topic_id, one.source_cluster_id) for one in copies}) == 1


class NothingToContinue(Exception):
    """The attempt of the epoch before has left nothing that serves: the next one fences before it sends."""


def fence_valid_ms(renew_ms: int) -> int:
    """Return for how many ms an attempt may send, or be continued, under its fence.

    Only a fence renews the claim, which is due when it is ``renew_ms`` old (0: never).
    """
    return min(FENCE_VALID_MS, renew_ms) if renew_ms > 0 else FENCE_VALID_MS


Earlier = Callable[[], "Future[Continuation | None]"]
"""Asks the attempt of the epoch before, on this host, to yield. None: it cannot, and has to be fenced; or, at least
once, it has ended or ends with its next commit."""


def base_of(opened: Progress | None, resolved: Progress, found: Progress | None) -> Progress:
    """Return where an attempt begins that has read the progress again, and ``found`` it.

    That is ``resolved``, if nothing has changed since the attempt ``opened``; otherwise an attempt of before has copied
    on meanwhile, and it is what was found. Raises ProgressChanged if one of them has started over.
    """
    if found == opened:
        return resolved
    if found is None or opened is None or not found.generation == opened.generation == resolved.generation:
        raise ProgressChanged
    target = resolved.target if found.target is None else found.target
    return replace(found, target=target, time_ms=resolved.time_ms, claimed_ms=0, claimed_by=None)


def found_at(earlier: Continuation, opened: Progress | None, resolved: Progress, valid_ms: int) -> FoundPosition | None:
    """Return where to continue ``earlier``; None if its fence does not serve the attempt that begins.

    ``opened`` is the progress that this attempt has read, ``resolved`` where it would begin: the claim must still be
    the one under which ``earlier`` was fenced, and both be younger than ``valid_ms``.
    """
    fence = earlier.fence
    if fence is None or opened is None or not earlier.follows(opened, resolved):
        return None
    producer_id = fence.state.identity.producer_id
    if opened.way is not Way.SEQUENCES or opened.claim != (producer_id, fence.claim_epoch) or opened.ended:
        return None
    claimed_ms = opened.claimed_ms or opened.time_ms
    if resolved.time_ms < fence.written_ms or resolved.time_ms - min(fence.written_ms, claimed_ms) >= valid_ms:
        return None
    base = replace(
        earlier.progress,
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
