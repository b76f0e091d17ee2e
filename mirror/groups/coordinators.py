"""Calls about groups: those of different coordinators in parallel, few at a time of each.

A coordinator that does not answer delays its own groups only. A call is shorter than the patience of a round: if it is
about many groups, those that are answered have their result, though another one's coordinator cannot be found.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from mirror.client import Outcomes
from mirror.errors import KafkaError, KafkaTimeout
from mirror.timing import Clock

K = TypeVar("K")
V = TypeVar("V")

_UNKNOWN_COORDINATORS: Final = 16
_PATIENCE_MS: Final = 2_000
CALL_MS: Final = 1_500
"""The time of a call about groups, in ms."""


def spread(group: str) -> int:
    """Return a number below 0 in place of the coordinator of a group that no broker has listed.

    Groups of different numbers do not wait for each other.
    """
    return -1 - zlib.crc32(group.encode()) % _UNKNOWN_COORDINATORS


def answers_any(outcomes: Outcomes[Any, Any]) -> bool:
    """Whether something of a call was answered, be it with a refusal."""
    return bool(outcomes) or any(not isinstance(error, KafkaTimeout) for error in outcomes.failed.values())


# Invariant: A coordinator or a leader that does not answer delays a round once, and holds up its own groups and
#   partitions only.
# Test: tests/groups/test_coordinators.py::test_a_coordinator_that_hangs_delays_a_round_once
# Test: tests/groups/test_unread_offsets_on_fakes.py::test_a_group_whose_coordinator_cannot_be_found_delays_no_other
# Test: tests/groups/test_sick_leaders_on_fakes.py::test_a_leader_that_does_not_answer_holds_up_its_own_partitions_only
# Test: tests/groups/test_sick_leaders_on_fakes.py::test_a_leader_that_has_not_answered_is_asked_again_after_its_rest
class CoordinatorCalls(Generic[K, V]):
    """Runs calls, by the coordinator that answers each. Use it in one thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        at_once: int,
        patience_ms: int = _PATIENCE_MS,
        is_answer: Callable[[V], bool] = lambda _: True,
    ) -> None:
        """``at_once`` calls are in flight per coordinator.

        One that has not answered any for ``patience_ms`` is not waited for: a KafkaTimeout is no answer, nor is a
        result that is not ``is_answer``. Until its calls have ended, nothing more is asked of it.
        """
        self._is_answer: Final = is_answer
        self._clock: Final = clock
        self._at_once: Final = at_once
        self._patience_ms: Final = patience_ms
        self._late: dict[int, set[Future[V]]] = {}

    def run(self, work: Mapping[int, Iterable[K]], submit: Callable[[K], Future[V]]) -> dict[K, V | KafkaError]:
        """Return the outcome of each call in ``work``, which is by coordinator; never raises a KafkaError.

        ``submit`` begins a call, whose future fails with KafkaError only.
        """
        now = self._clock.now()
        found: dict[K, V | KafkaError] = {}
        ended = SimpleQueue[Future[V]]()
        nodes = [_Coordinator[K, V](node, deque(keys), now) for node, keys in work.items()]
        for one in nodes:
            late = {future for future in self._late.pop(one.node, ()) if not future.done()}
            if late:
                self._late[one.node] = late
                found.update(dict.fromkeys(one.give_up(), self._error()))
        while True:
            for one in nodes:
                one.begin(submit, self._at_once, ended.put)
            heard_ms = [one.heard_ms for one in nodes if one.running]
            if not heard_ms:
                return found
            futures = _ended(ended, min(heard_ms) + self._patience_ms - self._clock.now())
            now = self._clock.now()
            for one in nodes:
                done = one.take(futures)
                if any(self._has_answered(outcome) for outcome in done.values()):
                    one.heard_ms = now
                found.update(done)
                if not one.is_done and now - one.heard_ms >= self._patience_ms:
                    self._late[one.node] = set(one.running)
                    found.update(dict.fromkeys(one.give_up(), self._error()))

    def _has_answered(self, outcome: V | KafkaError) -> bool:
        if isinstance(outcome, KafkaError):
            return not isinstance(outcome, KafkaTimeout)
        return self._is_answer(outcome)

    def _error(self) -> KafkaError:
        return KafkaTimeout(f"the coordinator has not answered for {self._patience_ms} ms")


class _Coordinator(Generic[K, V]):
    """The calls of one coordinator."""

    def __init__(self, node: int, waiting: deque[K], now: int) -> None:
        self.node: Final = node
        self.running: Final[dict[Future[V], K]] = {}
        self.heard_ms = now
        """When it has answered last."""
        self._waiting: Final = waiting

    @property
    def is_done(self) -> bool:
        return not (self.running or self._waiting)

    def begin(self, submit: Callable[[K], Future[V]], at_once: int, when_ended: Callable[[Future[V]], object]) -> None:
        while self._waiting and len(self.running) < at_once:
            key = self._waiting.popleft()
            future = submit(key)
            self.running[future] = key
            future.add_done_callback(when_ended)

    def take(self, ended: Iterable[Future[V]]) -> dict[K, V | KafkaError]:
        """Return the outcomes of those of ``ended`` that are calls of this coordinator."""
        found: dict[K, V | KafkaError] = {}
        for future in ended:
            if future not in self.running:
                continue
            error = future.exception()
            found[self.running.pop(future)] = future.result() if error is None else _kafka_error(error)
        return found

    def give_up(self) -> list[K]:
        keys = [*self.running.values(), *self._waiting]
        self.running.clear()
        self._waiting.clear()
        return keys


def _ended(ended: SimpleQueue[Future[V]], timeout_ms: int) -> list[Future[V]]:
    """Return the calls that have ended; if there is none, wait for the first one.

    Futures put themselves there. Waiting for any of them costs more, the more are in flight (:func:`wait`).
    """
    found = []
    with contextlib.suppress(Empty):
        found.append(ended.get(timeout=max(0, timeout_ms) / 1000))
        while True:
            found.append(ended.get_nowait())
    return found


def _kafka_error(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    raise error
