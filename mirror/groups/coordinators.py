"""Calls about groups: those of different coordinators in parallel, few at a time of each.

A coordinator that does not answer delays its own groups only, and a round once: until its call has ended, nothing more
is asked of it.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Final, Generic, TypeVar

from mirror.errors import KafkaError, KafkaTimeout
from mirror.timing import Clock

K = TypeVar("K")
V = TypeVar("V")

_UNKNOWN_COORDINATORS: Final = 16


def spread(group: str) -> int:
    """Return a number below 0 in place of the coordinator of a group that no broker has listed.

    Groups of different numbers do not wait for each other.
    """
    return -1 - zlib.crc32(group.encode()) % _UNKNOWN_COORDINATORS


class CoordinatorCalls(Generic[K, V]):
    """Runs calls, by the coordinator that answers each. Use it in one thread."""

    def __init__(self, clock: Clock, *, at_once: int, patience_ms: int) -> None:
        """``at_once`` calls are in flight per coordinator.

        One that has not answered any for ``patience_ms`` is not waited for.
        """
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
        nodes = [_Coordinator[K, V](node, deque(keys), now) for node, keys in work.items()]
        for one in nodes:
            late = {future for future in self._late.pop(one.node, ()) if not future.done()}
            if late:
                self._late[one.node] = late
                found.update(dict.fromkeys(one.give_up(), self._error()))
        while True:
            for one in nodes:
                one.begin(submit, self._at_once)
            pending = [future for one in nodes for future in one.running]
            if not pending:
                return found
            longest_ms = min(one.heard_ms for one in nodes if one.running) + self._patience_ms - self._clock.now()
            wait(pending, max(0, longest_ms) / 1000, FIRST_COMPLETED)
            now = self._clock.now()
            for one in nodes:
                found.update(one.take_done(now))
                if one.running and now - one.heard_ms >= self._patience_ms:
                    self._late[one.node] = set(one.running)
                    found.update(dict.fromkeys(one.give_up(), self._error()))

    def _error(self) -> KafkaError:
        return KafkaTimeout(f"the coordinator has not answered for {self._patience_ms} ms")


class _Coordinator(Generic[K, V]):
    """The calls of one coordinator."""

    def __init__(self, node: int, waiting: deque[K], now: int) -> None:
        self.node: Final = node
        self.running: Final[dict[Future[V], K]] = {}
        self.heard_ms = now
        """When the last call ended."""
        self._waiting: Final = waiting

    def begin(self, submit: Callable[[K], Future[V]], at_once: int) -> None:
        while self._waiting and len(self.running) < at_once:
            key = self._waiting.popleft()
            self.running[submit(key)] = key

    def take_done(self, now: int) -> dict[K, V | KafkaError]:
        done = [future for future in self.running if future.done()]
        self.heard_ms = now if done else self.heard_ms
        found: dict[K, V | KafkaError] = {}
        for future in done:
            error = future.exception()
            found[self.running.pop(future)] = future.result() if error is None else _kafka_error(error)
        return found

    def give_up(self) -> list[K]:
        keys = [*self.running.values(), *self._waiting]
        self.running.clear()
        self._waiting.clear()
        return keys


def _kafka_error(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    raise error
