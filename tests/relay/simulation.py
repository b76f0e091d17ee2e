"""Whole copies on fake clusters in one thread: processes whose network threads and tasks are turned by hand.

Everything from ``copy_ranges`` down is the real code, except what would start a thread or wait for the wall's clock
(:mod:`tests.relay.stand_ins`). A process can be killed or suspended between any two turns; time passes when nothing can
move.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from mirror.errors import MirrorError
from mirror.relay.model.observer import NullObserver
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.task import copy_ranges
from mirror.relay.task.reporting import SendReport
from mirror.relay.task.task import Task
from mirror.timing import FOREVER_MS, deadline
from tests.fakes.cluster import FakeCluster
from tests.relay.stand_ins import Begun, TurnedThread, forget_threads

T = TypeVar("T")

_MOST_ROUNDS = 200_000


class Process:
    """A process that runs an attempt of a task. ``results`` are there when it has ended by itself."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        ranges: Sequence[Range],
        policy: CopyPolicy,
        send: SendReport | None = None,
        flow: str = "",
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.ranges = ranges
        self.policy = policy
        self.send = send
        self.flow = flow
        self.began_ms = simulation.clock.now()
        self.results: list[RangeResult] | None = None
        self.until_ms = 0
        self.suspended = self.killed = self.in_poll = self._closing = False
        self.task: Task | None = None
        self.jobs: list[Callable[[], None]] = []
        self.stands_until_ms = 0
        """Until then its task stands still, while its network threads go on."""
        self._stack = ExitStack()
        self._turn = simulation.task_turn
        self._begin(policy)

    def _begin(self, policy: CopyPolicy) -> None:
        sim = self.simulation
        source, target = sim.options(self.name)
        with sim.on_behalf_of(self):
            try:
                self._end(
                    copy_ranges._copy(
                        self.ranges,
                        source,
                        target,
                        policy,
                        sim.clock,  # type: ignore[arg-type]
                        NullObserver(),
                        send=self.send,
                        flow=self.flow,
                    )
                )
            except Begun as begun:
                self.task, self._stack = begun.task, begun.stack
            except MirrorError as error:
                self._end([RangeResult.initial(one, one.start, "failed", str(error)) for one in self.ranges])  # type: ignore[arg-type]

    def _end(self, results: list[RangeResult]) -> None:
        self.results = results

    @property
    def threads(self) -> list[TurnedThread]:
        return [one for one in self.simulation.threads if one.settings.client_id == self.name]

    @property
    def running(self) -> bool:
        return not (self.suspended or self.ended or self._closing)

    @property
    def ended(self) -> bool:
        return self.killed or self.results is not None

    @property
    def due_ms(self) -> int:
        """When its task wants to make its next turn."""
        return self.stands_until_ms if self.simulation.clock.now() < self.stands_until_ms else self.until_ms

    def wants_turn(self, now: int) -> bool:
        assert self.task is not None
        context = self.task._context
        return self.until_ms <= now or context.wake_event.is_set() or bool(context.to_step)

    def turn(self) -> None:
        """One turn of the task's loop."""
        assert self.task is not None
        now = self.simulation.clock.now()
        with self.simulation.on_behalf_of(self), self.simulation.turning():
            if self.simulation.stays_in_poll:
                self._return_from_poll(self.task, now)
            self._turn(self.task, now)
        if not self.task._goes_on:
            self._closing = True
            with self.simulation.on_behalf_of(self):
                results = self.task.run()  # which makes no more turns
                self._stack.close()
            self._end(results)

    def _return_from_poll(self, task: Task, now: int) -> None:
        """Take what was fetched since the last turn ended: before anything else, as what waited in the poll."""
        waiting = list(task._context.to_step)
        task._context.to_step.clear()
        self.in_poll = True
        task._wait(now)
        self.in_poll = False
        task._context.to_step.extendleft(reversed(waiting))

    def kill(self) -> None:
        """As by SIGKILL: its connections break, and nothing of it runs any more."""
        for one in self.threads:
            one.network.abandon()
            self.simulation.threads.remove(one)
        self.jobs.clear()
        self.killed = True


class Simulation:
    """``source`` and ``target`` share a clock; ``processes`` are all that were started, in order."""

    def __init__(self, source: FakeCluster, target: FakeCluster, *, seed: int = 0, **options: object) -> None:
        """``options`` are the target's dotted keys; those of any client are the source's, too."""
        self.source, self.target = source, target
        source.clock = target.clock
        for broker in source.brokers.values():
            broker.host = f"source-{broker.node}.fake"
        self.clock = target.clock
        self.threads: list[TurnedThread] = []
        self.processes: list[Process] = []
        self.owners: dict[tuple[str, int], str] = {}
        """The client.id of each connection, by cluster and number."""
        self.task_turn = Task._turn
        self.within_turn = False
        self.stays_in_poll = False
        """Whether other processes and all networks go on while a task waits in a poll: what it has fetched by then it
        takes before what it was asked for meanwhile."""
        self._present: Process | None = None
        self._options = options
        self.rng = random.Random(seed)

    def options(self, name: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
        own: dict[str, object] = {"client.id": name, **self._options}
        source = copy_ranges.cluster_options(own)
        return (
            {**source, "bootstrap.servers": self.source.bootstrap},
            {**own, "bootstrap.servers": self.target.bootstrap},
        )

    def start(
        self,
        name: str,
        ranges: Sequence[Range],
        policy: CopyPolicy,
        send: SendReport | None = None,
        flow: str = "",
    ) -> Process:
        self.processes.append(Process(self, name, ranges, policy, send, flow))
        return self.processes[-1]

    # --- time

    def run(
        self, rounds: int = _MOST_ROUNDS, until: Callable[[], object] = lambda: False, ms: int = FOREVER_MS
    ) -> None:
        """Turn everything ``rounds`` times, at most until ``until()``, or until ``ms`` have passed."""
        end_ms = deadline(self.clock.now(), ms)
        for _ in range(rounds):
            if until() or self.clock.now() >= end_ms:
                return
            if not self._round() and not self._pass(end_ms, [one.due_ms for one in self.processes if one.running]):
                return
        assert rounds < _MOST_ROUNDS, "it never ends"

    def wait(self, future: Future[T]) -> T:
        """What blocks waits here: the networks go on, and no task does, unless those stay in their polls."""
        for _ in range(_MOST_ROUNDS):
            if future.done():
                return future.result()
            assert self._go_on(FOREVER_MS), "a call blocks, and nothing can happen any more"
        raise AssertionError("a call blocks for ever")

    def pause(self, seconds: float) -> None:
        self.wait_for_all((), seconds, forever=True)

    def wait_while(self, left: Callable[[], int], timeout_ms: int) -> int:
        """Wait until nothing is ``left``, for ``timeout_ms`` at most; return what is."""
        until = self.clock.now() + timeout_ms
        while left() and self.clock.now() < until:
            self._go_on(until)
        return left()

    def wait_for_all(self, futures: Iterable[Future[Any]], timeout: float, *, forever: bool = False) -> None:
        """Wait for all of ``futures``, or (``forever``) for the ``timeout`` in seconds."""
        until = self.clock.now() + round(timeout * 1000)
        waited = list(futures)
        while self.clock.now() < until and (forever or not all(one.done() for one in waited)):
            self._go_on(until)

    def _go_on(self, end_ms: int) -> bool:
        """What happens while a call blocks: a job of a task, or the beginning or the end of a process."""
        if self.within_turn or not self.stays_in_poll:
            return self._turn_threads() or self._pass(end_ms, [])
        return self._round() or self._pass(end_ms, [one.due_ms for one in self.processes if one.running])

    def _round(self) -> bool:
        """Whether anything moved."""
        moved = self._turn_threads()
        for process in self.processes:
            if not process.running:
                continue
            if self.clock.now() < process.stands_until_ms:
                process.until_ms = min(process.until_ms, process.stands_until_ms)  # what has moved meanwhile is noticed
                continue
            jobs, process.jobs = process.jobs, []
            for job in jobs:
                with self.on_behalf_of(process):
                    job()
            if not process.running:  # it has ended while its job blocked
                continue
            if moved or jobs or process.wants_turn(self.clock.now()):
                woken = process.wants_turn(self.clock.now())
                process.turn()
                moved = moved or bool(jobs) or woken
        return moved

    def _turn_threads(self) -> bool:
        now = self.clock.now()
        stopped = {one.name for one in self.processes if one.suspended}
        moved = self.target.run_due(now) | self.source.run_due(now)
        for one in list(self.threads):
            if one.settings.client_id in stopped:
                one.network.serve(now)
            elif one in self.threads:
                moved = one.turn() or moved
        return moved

    def _pass(self, end_ms: int, dues: list[int]) -> bool:
        """Jump to the next moment at which something happens; whether there is one."""
        now = self.clock.now()
        stopped = {one.name for one in self.processes if one.suspended}
        dues += [one.network.due_ms for one in self.threads if one.settings.client_id not in stopped]
        dues += [due for due in (self.source.next_due_ms(), self.target.next_due_ms()) if due is not None]
        then = min([end_ms, *dues])
        if then == FOREVER_MS:
            return False
        self.clock.jump_to(max(now + 1, then))
        return True

    # --- on whose behalf

    @property
    def present(self) -> Process:
        """The process that runs."""
        assert self._present is not None
        return self._present

    @contextmanager
    def on_behalf_of(self, process: Process) -> Iterator[None]:
        before, self._present = self._present, process
        try:
            yield
        finally:
            self._present = before

    @contextmanager
    def turning(self) -> Iterator[None]:
        """While a task makes a turn: what it calls does not wait."""
        self.within_turn = True
        try:
            yield
        finally:
            self.within_turn = False

    def close(self) -> None:
        """End all processes, and forget their threads."""
        for process in self.processes:
            if not process.ended:
                process.kill()
        forget_threads(self)
