"""The copies of ended epochs that still run in this process, so that the next epoch's attempts can continue them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from mirror.cluster.types import TopicPartition
from mirror.relay.futures import done

if TYPE_CHECKING:
    from mirror.relay.partition.machine import PartitionCopy
    from mirror.relay.partition.writers.continuation import Continuation, Earlier


class CedeRequests:
    """What a task is asked for by tasks that began later; any thread asks, and the task's thread takes."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Final = wake
        self._lock: Final = threading.Lock()
        self._waiting: list[tuple[TopicPartition, Future[Continuation | None]]] = []
        self._asked: list[Future[Continuation | None]] = []
        self._ended = False
        self.since_ms: Final = time.monotonic_ns() // 1_000_000
        """When the task began, by the clock that all processes of the host share."""

    def ask(self, target: TopicPartition) -> Future[Continuation | None]:
        """Ask the copy of ``target`` to yield. The future never fails, and is done at the latest when the task ends."""
        answer: Future[Continuation | None] = Future()
        with self._lock:
            if self._ended:
                return done(None)
            self._waiting.append((target, answer))
            self._asked.append(answer)
        self._wake()
        return answer

    def take(self) -> list[tuple[TopicPartition, Future[Continuation | None]]]:
        """Return what was asked for since the last call."""
        if not self._waiting:
            return []
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken

    def pass_on(
        self, copies: Mapping[TopicPartition, PartitionCopy], active: Collection[PartitionCopy], now: int
    ) -> list[PartitionCopy]:
        """Ask those of the ``active`` copies that were asked for; return them, to be stepped.

        ``copies`` are all of the task, by target partition: with each of thousands in turn, none may be searched for.
        """
        ceding: list[PartitionCopy] = []
        for target, answer in self.take():
            copy = copies.get(target)
            if copy is None or copy not in active:
                answer.set_result(None)
            else:
                copy.cede(answer, now)
                ceding.append(copy)
        return ceding

    def end(self) -> None:
        """Answer everything, also what is asked for later: no copy of the task runs any more."""
        with self._lock:
            self._ended = True
            asked, self._asked, self._waiting = self._asked, [], []
        for answer in asked:
            with suppress(InvalidStateError):
                answer.set_result(None)


class RunningCopies:
    """Which task of this process copies a target partition under the lease of an ended epoch."""

    def __init__(self) -> None:
        self.known: Final[dict[tuple[Hashable, str, TopicPartition], CedeRequests]] = {}
        """By target cluster, flow and target partition."""
        self._clusters: Final[set[Hashable]] = set()
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock, and forget all, after a fork: their threads do not exist in this process."""
        self._lock = threading.Lock()
        self.known.clear()
        self._clusters.clear()

    def add(self, cluster: Hashable, flow: str, targets: Iterable[TopicPartition], requests: CedeRequests) -> None:
        """The task behind ``requests`` copies on, of ``flow``, to these partitions of the target ``cluster``."""
        with self._lock:
            self._clusters.add(cluster)
            for target in targets:
                self.known[cluster, flow, target] = requests

    def remove(self, requests: CedeRequests) -> None:
        """The task behind ``requests`` has ended."""
        with self._lock:
            for key in [key for key, known in self.known.items() if known is requests]:
                del self.known[key]

    @property
    def any(self) -> bool:
        """Whether a copy runs on that was not asked to yield."""
        return bool(self.known)

    def held(self, flow: str) -> dict[TopicPartition, int]:
        """Return the target partitions of ``flow``, and when the task that copies each began (monotonic ms)."""
        with self._lock:
            return {key[2]: requests.since_ms for key, requests in self.known.items() if key[1] == flow}

    def ask(self, flow: str, target: TopicPartition) -> Future[Continuation | None]:
        """Ask the copy of ``target`` to yield to another process; None if there is none."""
        with self._lock:
            keys = [key for cluster in self._clusters if (key := (cluster, flow, target)) in self.known]
            asked = [self.known.pop(key) for key in keys]
        return asked[0].ask(target) if len(asked) == 1 else done(None)

    def take(self, cluster: Hashable, flow: str, target: TopicPartition) -> Earlier | None:
        """Return a function that asks the copy which runs on to yield; None if there is none. Once for each copy."""
        with self._lock:
            requests = self.known.pop((cluster, flow, target), None)
        return None if requests is None else lambda: requests.ask(target)


running_copies: Final = RunningCopies()
os.register_at_fork(after_in_child=running_copies.renew_lock)
