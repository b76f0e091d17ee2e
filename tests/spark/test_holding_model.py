"""Hold and release among runs, a schedule that goes on, lost answers and kills, by a model: what is real decides.

Each run is a driver, whose commits of the control record arrive late or never, and one task. One step of any of them,
or of the command, comes after the other; hold, release, the latch's check, the drivers' and the task's side of the
control record are the code itself. A command that was killed is repeated.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mirror.errors import FlowHeld, LatchMoved
from mirror.relay.progress.control_record import ControlWatch, RunControl, control_partition, from_offset
from mirror.relay.progress.latch import Latch, Role, changed, check
from mirror.spark import run_control
from mirror.spark.holding import Ending
from mirror.spark.run_control import RunControlClient
from tests.examples import examples

if TYPE_CHECKING:
    from mirror.cluster.types import OffsetAndMetadata, TopicPartition

FLOW = "f"
WIND_UP_MS = 15_000
LATE_MS = 10_000
"""A commit arrives within the time-out of its call, or never."""


EVENTS = [
    *("schedule", "schedule", "step", "step", "arrive", "kill", "time", "time", "time"),
    *("hold", "hold", "release", "the command is killed"),
]


class Target:
    """What the target stores."""

    def __init__(self) -> None:
        self.latch = Latch()
        self.control: OffsetAndMetadata | None = None


class Link:
    """The admin client of one process. A commit that is ``late`` waits to arrive."""

    def __init__(self, target: Target, *, late: bool) -> None:
        self._target, self._late = target, late
        self.waiting: OffsetAndMetadata | None = None

    def group_offsets(self, _group: str, _tps: object, **_: object) -> dict[TopicPartition, OffsetAndMetadata]:
        found = self._target.control
        return {} if found is None else {control_partition(FLOW)[1]: found}

    def commit_group_offsets(self, _: str, offsets: dict[Any, OffsetAndMetadata], **__: object) -> None:
        (self.waiting,) = offsets.values()
        if not self._late:
            self.arrive()

    def arrive(self) -> None:
        self._target.control, self.waiting = self.waiting, None


@dataclass
class Run:
    """A driver, and its task from when it has begun."""

    link: Link
    client: RunControlClient
    state: str = "starting"
    """``starting``, ``claiming``, ``copying``, ``ending`` or ``ended``; a dead driver has left only its task."""
    began: int = 0
    """The generation of the latch under which it began."""
    sent_ms: int = 0
    task: ControlWatch | None = None
    stops_ms: int | None = None
    """When the task ends that was stopped."""
    lives: bool = True


class Holding(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(run_control, "_unix_ms", lambda: self.now_ms)
        self.target = Target()
        self.runs: list[Run] = []
        self.ending: Ending | None = None
        """The command that holds the flow, until it returns."""
        self.is_released = False
        """Whether that command is to release the flow at its end."""
        self.has_returned = False
        """Whether hold has returned, and the flow is not released."""
        self.returned = 0
        """The generation of the last hold that has returned."""

    def teardown(self) -> None:
        self.patched.undo()

    # --- runs

    @rule(what=st.sampled_from(EVENTS), number=st.integers(0, 3), seconds=st.sampled_from([1, 5, 13, 16, 75]))
    def happens(self, what: str, number: int, seconds: int) -> None:
        """What happens next: one rule, because Hypothesis leaves some of several rules out of each example."""
        alive = [run for run in self.runs if run.lives and run.state != "ended"]
        waiting = [run for run in self.runs if run.link.waiting is not None]
        match what:
            case "schedule":
                self.schedule(number)
            case "step" if alive:
                self._step(alive[number % len(alive)])
            case "kill" if alive:  # its task goes on until it notices; what it has sent may arrive still
                alive[number % len(alive)].lives = False
            case "arrive" if waiting:
                waiting[number % len(waiting)].link.arrive()
            case "time":
                self.passes(seconds)
            case "hold" | "release":
                self.hold(release=what == "release")
            case "the command is killed":
                self.ending = None

    def schedule(self, steps: int) -> None:
        """Another run begins, whatever the others do, and takes some steps at once: it reads the latch first."""
        if len([run for run in self.runs if run.state != "ended" or run.task is not None]) > 3:
            return
        link = Link(self.target, late=True)
        run = Run(link, RunControlClient(cast("Any", link), FLOW, f"run-{len(self.runs)}"))
        self.runs.append(run)
        self._check(run, None)
        for _ in range(steps):
            if run.link.waiting is not None:
                run.link.arrive()
            else:
                self._step(run)

    def _check(self, run: Run, began: int | None) -> None:
        try:
            run.began = check(self.target.latch, FLOW, began)
        except (FlowHeld, LatchMoved):
            self._end(run)

    def _end(self, run: Run) -> None:
        """The driver has its task end, and says so then."""
        run.state = "ending"
        if run.task is not None and run.stops_ms is None:
            run.stops_ms = self.now_ms + WIND_UP_MS
        if run.task is not None or run.link.waiting is not None:
            return
        if run.client.wanted.generation and not run.client.wanted.ended:
            run.client.want(ended=True)
            run.client.end({run.client.run})
            run.sent_ms = self.now_ms
        if run.link.waiting is None:
            run.state = "ended"

    def _step(self, run: Run) -> None:
        if run.link.waiting is not None:
            return
        match run.state:
            case "starting":
                run.client.claim()
                run.state, run.sent_ms = "claiming", self.now_ms
            case "claiming":
                self._check(run, run.began)
                if run.state == "claiming":
                    run.state = "copying"
                    run.task = self._task(run)
            case "copying":
                self._renew(run)
            case "ending":
                self._end(run)

    def _task(self, run: Run) -> ControlWatch:
        def read() -> Future[RunControl | None]:
            found: Future[RunControl | None] = Future()
            found.set_result(from_offset(self.target.control))
            return found

        return ControlWatch(read, run.client.run, 0, self.now_ms, generation=run.client.wanted.generation)

    def _renew(self, run: Run) -> None:
        decision = run.client.sync()
        run.sent_ms = self.now_ms
        if decision.fenced_by is not None or decision.stop:
            self._end(run)

    def passes(self, seconds: int) -> None:
        """Time passes: each second drivers, tasks and the command take a step; late commits arrive, or are lost."""
        for _ in range(seconds):
            self.now_ms += 1_000
            for run in self.runs:
                if run.link.waiting is not None and self.now_ms - run.sent_ms >= LATE_MS:
                    run.link.arrive() if run.lives else setattr(run.link, "waiting", None)
                if run.lives and run.state in {"copying", "ending"}:
                    self._step(run)
                self._poll(run)
            if self.ending is not None:
                self._wait(self.ending)

    def _poll(self, run: Run) -> None:
        if run.task is None or run.stops_ms is not None:
            if run.stops_ms is not None and self.now_ms >= run.stops_ms:
                run.task = run.stops_ms = None
            return
        command = run.task.poll(self.now_ms)
        if command is not None and command.stop is not None:
            run.stops_ms = self.now_ms + WIND_UP_MS

    @invariant()
    def nothing_writes_while_it_is_held(self) -> None:
        if self.has_returned:
            writing = [run.client.run for run in self.runs if run.task is not None]
            assert not writing, f"{writing} write although hold has returned"

    @invariant()
    def nothing_of_before_a_hold_that_returned_writes(self) -> None:
        for run in self.runs:
            assert run.task is None or run.began >= self.returned, f"{run.client.run} is of an earlier generation"

    # --- the commands

    def hold(self, *, release: bool) -> None:
        """Hold the flow, or repeat that: what is stored first is the latch, then the first step of the wait."""
        self.is_released = release and self.target.latch.is_held
        self.target.latch = changed(self.target.latch, Role.HELD, reason="r", by="b", now_ms=self.now_ms)
        self.ending = Ending(
            RunControlClient(cast("Any", Link(self.target, late=False)), FLOW), self.now_ms, WIND_UP_MS
        )
        self._wait(self.ending)

    def _wait(self, ending: Ending) -> None:
        if ending.step(self.now_ms):
            return
        self.ending, self.has_returned, self.returned = None, not self.is_released, self.target.latch.generation
        if self.is_released:
            self.target.latch = changed(self.target.latch, Role.ACTIVE, reason="", by="b", now_ms=self.now_ms)
            RunControlClient(cast("Any", Link(self.target, late=False)), FLOW).resume()


def test_no_task_writes_after_hold_has_returned() -> None:
    run_state_machine_as_test(Holding, settings=settings(max_examples=examples(150, 400), stateful_step_count=14))
