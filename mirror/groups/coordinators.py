"""Calls about groups: those of different coordinators in parallel, few at a time of each.

A coordinator that does not answer delays its own groups only. A call is shorter than the patience of a round: if it is
about many groups, those that are answered have their result, though another one's coordinator cannot be found.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
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
        """``at_once`` calls are in flight per coordinator; once half of them have ended, more are begun.

        So neither this thread nor the network thread wakes up for each call.

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
        found: dict[K, V | KafkaError] = {}
        wake = threading.Event()
        nodes = [_Coordinator[K, V](node, deque(keys), self._clock, wake) for node, keys in work.items()]
        for one in nodes:
            late = {future for future in self._late.pop(one.node, ()) if not future.done()}
            if late:
                self._late[one.node] = late
                found.update(dict.fromkeys(one.give_up(), self._error()))
        while True:
            for one in nodes:
                one.begin(submit, self._at_once)
            if not any(one.running for one in nodes):
                return found
            longest_ms = min(one.heard_ms for one in nodes if one.running) + self._patience_ms - self._clock.now()
            wake.wait(max(0, longest_ms) / 1000)
            wake.clear()
            now = self._clock.now()
            for one in nodes:
                for key, outcome, ended_ms in one.take_done():
                    found[key] = outcome
                    if self._has_answered(outcome):
                        one.heard_ms = max(one.heard_ms, ended_ms)
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

    def __init__(self, node: int, waiting: deque[K], clock: Clock, wake: threading.Event) -> None:
        self.node: Final = node
        self.running: Final[dict[Future[V], K]] = {}
        """The calls that have not been taken with :meth:`take_done`."""
        self.heard_ms = clock.now()
        """When it has answered last."""
        self._waiting: Final = waiting
        self._clock: Final = clock
        self._wake: Final = wake
        self._ended: Final[deque[tuple[Future[V], int]]] = deque()
        """Calls that have ended, and when; the network thread appends to it."""
        self._enough = 1
        """So many calls have to end before the next ones are begun, or none is left."""

    @property
    def is_done(self) -> bool:
        return not (self.running or self._waiting)

    def begin(self, submit: Callable[[K], Future[V]], at_once: int) -> None:
        if len(self.running) <= at_once // 2:
            while self._waiting and len(self.running) < at_once:
                key = self._waiting.popleft()
                future = submit(key)
                self.running[future] = key
                future.add_done_callback(self._end)
        self._enough = max(1, len(self.running) - (at_once // 2 if self._waiting else 0))
        if len(self._ended) >= self._enough:  # they have ended since they were begun
            self._wake.set()

    def _end(self, future: Future[V]) -> None:
        """Take the end of a call, in the network thread."""
        self._ended.append((future, self._clock.now()))
        if len(self._ended) >= self._enough:
            self._wake.set()

    def take_done(self) -> Iterator[tuple[K, V | KafkaError, int]]:
        """Yield the calls that have ended, with their outcomes and when that was."""
        while self._ended:
            future, ended_ms = self._ended.popleft()
            key = self.running.pop(future, None)
            if key is not None:
                error = future.exception()
                yield key, future.result() if error is None else _kafka_error(error), ended_ms

    def give_up(self) -> list[K]:
        keys = [*self.running.values(), *self._waiting]
        self.running.clear()
        self._waiting.clear()
        return keys


def _kafka_error(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    raise error
