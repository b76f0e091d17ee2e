"""What stands in for threads, waits and the wall's clock in a :mod:`tests.relay.simulation`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from mirror.client import Consumer
from mirror.consumer.fetched import Fetched
from mirror.errors import ClientClosed
from mirror.relay.batches.reencode import ReencodeResult, Steps
from mirror.relay.futures import done, failed
from mirror.relay.progress import flow_topic
from mirror.relay.progress.lookup.lookups import ClusterLookups
from mirror.relay.task import copy_context, copy_ranges, topic_rules, workers
from mirror.relay.task.task import Task
from mirror.runtime import thread
from mirror.runtime.clock import SystemClock
from mirror.runtime.memory.send_claim import UnansweredSends
from mirror.runtime.thread import NetworkThread
from mirror.timing import deadline
from tests.fakes.network import FakeNetwork

if TYPE_CHECKING:
    from tests.relay.simulation import Process, Simulation

T = TypeVar("T")

_MOST_OWN_TURNS = 20


class TurnedNetwork(FakeNetwork):
    """A poll moves what can be moved, and never lets time pass; ``due_ms`` is when it wants to be polled next."""

    simulation: Simulation
    due_ms = 0
    moved = False

    def _open(self, link: Any, now: int) -> bool:
        opened = super()._open(link, now)
        self.simulation.owners[self._cluster.cluster_id, link.server.id] = self._settings.client_id
        return opened

    def poll(self, timeout_ms: int) -> None:
        now = self._clock.now()
        self.moved = self._turn(now)
        self.due_ms = min(deadline(now, timeout_ms), self._next_ms(now))

    def wakeup(self) -> None:
        self.due_ms = 0

    def serve(self, now: int) -> None:
        """The brokers handle what they were sent, although the client does not listen."""
        for link in self._links.values():
            if link.server is not None:
                link.server.step(now)

    def abandon(self) -> None:
        """The client is gone: nothing of it is called any more."""
        for link in self._links.values():
            if link.server is not None:
                link.server.abandon()
        self._links.clear()


class TurnedThread(NetworkThread):
    """A network thread that makes a turn when the simulation has it make one."""

    simulation: Simulation
    network: TurnedNetwork  # type: ignore[assignment]  # the part of its face that a thread uses
    _turning = False

    def start(self) -> None:
        self.simulation.threads.append(self)

    @property
    def is_current(self) -> bool:
        return self._turning

    def turn(self) -> bool:
        """Whether anything moved."""
        self._turning = True
        try:
            self.loop.run_once()
        finally:
            self._turning = False
        return self.network.moved or self.network.due_ms <= self.clock.now()

    def wait(self, future: Future[T], stuck_ms: int, look_s: float = 1.0) -> T:
        del stuck_ms, look_s
        self.check_may_wait()
        for _ in range(_MOST_OWN_TURNS):
            if future.done() or not self.simulation.within_turn:
                break
            self.turn()
        return self.simulation.wait(future)

    def stop(self) -> None:
        self.simulation.threads.remove(self)
        self._cause = cause = ClientClosed("the client is closed")
        self.loop.fail(cause)
        self.network.close()


class Begun(Exception):
    """A task is about to make its first turn; ``stack`` closes its clients when it has ended."""

    def __init__(self, begun: Task) -> None:
        self.task = begun
        self.stack = ExitStack()


class _KeptOpen(ExitStack):
    """Stays open when the task is taken out."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        if isinstance(error, Begun):
            error.stack = self.pop_all()
            return False
        return bool(super().__exit__(kind, error, trace))


class _Jobs(Executor):
    """Lookups of a task: each is done between two turns, and blocks only the tasks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._process.jobs.append(partial(_fulfil, future, fn, *args, **kwargs))
        return future


class _Inline(Executor):
    """Runs everything in the calling thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        _fulfil(future, fn, *args, **kwargs)
        return future


def _fulfil(future: Future[T], fn: Callable[..., T], *args: Any, **kwargs: Any) -> None:
    try:
        value = fn(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - as an executor does
        future.set_exception(error)
    else:
        future.set_result(value)


class _InlineEncoder:
    """Encodes in the calling thread, in no time."""

    def submit(self, key: object, begin: Callable[[], Steps]) -> Future[ReencodeResult]:
        del key
        steps = begin()
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return done(end.value)
        except Exception as error:  # noqa: BLE001 - as the encoder does
            return failed(error)

    def close(self) -> None:
        """Nothing runs."""


class _InstantEvent(threading.Event):
    """The event that a task waits for: the wait notes until when it would last, and is over."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._process.until_ms = self._process.simulation.clock.now() + max(1, round(timeout * 1000))
        return self.is_set()


def install(simulation: Simulation, patch: pytest.MonkeyPatch) -> None:
    """Replace threads, waits and clocks by those of ``simulation``, until ``patch`` is undone."""
    _replace_network(simulation, patch)
    _replace_waits(simulation, patch)
    patch.setattr(SystemClock, "now", lambda _: simulation.clock.now())
    patch.setattr(SystemClock, "unix_ms", lambda _: simulation.clock.unix_ms())
    patch.setattr(copy_context, "threading", SimpleNamespace(Event=lambda: _InstantEvent(simulation.present)))
    patch.setattr(workers, "ThreadPoolExecutor", lambda *_, **__: _Jobs(simulation.present))
    patch.setattr(workers, "Encoder", lambda _: _InlineEncoder())
    patch.setattr(topic_rules, "ThreadPoolExecutor", lambda *_: _Inline())
    patch.setattr(copy_ranges, "bound_heap", lambda _: None)
    patch.setattr(copy_ranges, "collect_ended_tasks", lambda: None)  # 70 ms for each task
    patch.setattr(copy_ranges, "ExitStack", _KeptOpen)

    def turn(begun: Task, now: int) -> None:
        del now
        raise Begun(begun)

    patch.setattr(Task, "_turn", turn)


def _replace_network(simulation: Simulation, patch: pytest.MonkeyPatch) -> None:
    def network(settings: Any, clock: Any, rng: Any) -> TurnedNetwork:
        del clock
        is_source = settings.bootstrap[0][0].startswith("source")
        made = TurnedNetwork(simulation.source if is_source else simulation.target, settings, rng)
        made.simulation = simulation
        return made

    simulated = type("SimulatedThread", (TurnedThread,), {"simulation": simulation})
    patch.setattr(thread.network_threads, "new_thread", lambda settings: simulated(settings, None, network))
    for module in (thread, copy_ranges):
        patch.setattr(module, "process_rng", lambda: random.Random(simulation.rng.random()))


def _replace_waits(simulation: Simulation, patch: pytest.MonkeyPatch) -> None:
    poll, result = Consumer.poll, Future.result

    def poll_at_once(
        consumer: Consumer, timeout_ms: int | None = None, *, max_bytes: int | None = None
    ) -> list[Fetched]:
        if not simulation.within_turn or timeout_ms is None:
            return poll(consumer, timeout_ms, max_bytes=max_bytes)
        present = simulation.present
        present.until_ms = deadline(simulation.clock.now(), timeout_ms)
        return [] if simulation.stays_in_poll and not present.in_poll else poll(consumer, 0, max_bytes=max_bytes)

    def result_in_time(future: Future[T], timeout: float | None = None) -> T:
        return result(future, timeout) if future.done() else simulation.wait(future)

    def answered_in_time(sends: UnansweredSends, left: list[object], timeout_ms: int, clock: Any) -> int:
        del clock
        return simulation.wait_while(lambda: sum(key in sends.now() for key in left), timeout_ms)

    patch.setattr(Consumer, "poll", poll_at_once)
    patch.setattr(UnansweredSends, "wait", answered_in_time)
    patch.setattr(Future, "result", result_in_time)
    patch.setattr(flow_topic, "wait", simulation.wait_for_all)
    defaults = ClusterLookups.__init__.__kwdefaults__
    assert defaults is not None
    patch.setitem(defaults, "pause", simulation.pause)
    patch.setitem(defaults, "now", lambda: simulation.clock.now() / 1000)


def forget_threads(simulation: Simulation) -> None:
    """Remove its threads from those of this process."""
    registry = thread.network_threads.threads
    for key, one in list(registry.items()):
        if isinstance(one, TurnedThread) and one.simulation is simulation:
            del registry[key]
