"""A failover in memory: its operators are killed at any step, the source comes and goes, copies outlive their run."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from mirror.switch.machine import Act
from mirror.switch.operator import Operator
from mirror.switch.record import State
from tests.examples import examples
from tests.switch.world import EXPECTED, TOPICS, Killed
from tests.switch_failover.world import OTHER, TERMS, Site, World, operator

_KILLS: Final = (*[""] * 10, "before store", "after store", "before act", "after act", "half", "stall")
_EVENTS: Final = (
    *("", "propagate", "copy", "copy", "late", "write t", "write u", "begin t", "begin u", "outlive t", "leave open"),
    *(
        "start",
        "start --although-reachable",
        "start --rollback",
        "seconds 6",
        "seconds 25",
        "source away",
        "source away",
    ),
    *("target away", "refuse", "hold", "release", "other holds", "other releases", "other releases"),
)


class Failover(RuleBasedStateMachine):
    """What happens between the clusters, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(set(), set())
        self.operators: list[tuple[Operator, Site]] = []
        self.late: list[tuple[int, Any]] = []
        self.started = 0
        self.option = ""

    @initialize(
        held=st.booleans(),
        denied=st.sampled_from([set(), set(), {"t"}]),
        denied_there=st.sampled_from([set(), {"u"}]),
        away=st.booleans(),
        undisturbed=st.integers(0, 12),
        although=st.booleans(),
    )
    def begin(
        self, held: bool, denied: set[str], denied_there: set[str], away: bool, undisturbed: int, although: bool
    ) -> None:
        world = self.world = World(denied, denied_there)
        for topic in TOPICS:
            world.write(topic)
            world.write(topic)
            world.begin_copy(topic, outlives=topic == "t")
        world.copy()
        world.copy()
        if held:
            world.set_latch(held=True, by=OTHER)
        world.source.away = away
        self.option = "--although-reachable" if although else ""
        self.start(self.option)
        for _ in range(undisturbed):
            world.propagate()
            self.go_on(0, "", "")

    # --- the operators

    def start(self, option: str) -> None:
        self.started += 1
        terms = replace(TERMS, although_reachable="reachable" in option, rollback="rollback" in option)
        with contextlib.suppress(*EXPECTED):
            self.operators.append(operator(self.world, self.started, terms))

    @rule(which=st.integers(0, 1), event=st.sampled_from(_EVENTS), kill=st.sampled_from(_KILLS))
    def go_on(self, which: int, event: str, kill: str) -> None:
        """Something happens, then an operator has a turn, in which it may be killed; another one goes on then."""
        self.world.now_ms += 1_500
        self.happens(event)
        if not self.operators:
            self.world.now_ms += TERMS.takeover_ms
            self.start(self.option)
        if not self.operators:
            return
        made, site = self.operators[which % len(self.operators)]
        site.kill = kill
        try:
            if made.turn().act is Act.END:
                made.leave()
                self.operators.remove((made, site))
        except EXPECTED as error:
            self.late += site.late
            if isinstance(error, Killed) or not isinstance(error, TimeoutError):
                self.operators.remove((made, site))

    # --- the others

    @rule(event=st.sampled_from(_EVENTS))
    def happens(self, event: str) -> None:  # noqa: C901, PLR0912 - one case for each event
        world = self.world
        match event.split():
            case ["write", topic]:
                world.write(topic)
            case ["begin" | "outlive" as how, topic]:
                world.begin_copy(topic, outlives=how == "outlive")
            case ["copy"]:
                world.copy()
            case ["leave", "open"]:
                world.leave_open()
            case ["seconds", passed]:
                world.now_ms += int(passed) * 1000
            case ["late"]:
                self._end_late()
            case ["start", *how] if len(self.operators) < 2:
                self.start(" ".join(how))
            case ["propagate"]:
                world.propagate()
            case [name, "away"]:
                getattr(world, name).away = not getattr(world, name).away
            case ["refuse"]:
                world.fails_to_fence = True
            case ["hold"]:
                world.set_latch(held=True, by="alice")
            case ["release"] if not world.is_open:
                world.set_latch(held=False, by="alice")
            case ["other", "holds"]:
                world.set_latch(held=True, by=OTHER)
            case ["other", "releases"] if world.latch.by == OTHER:
                world.set_latch(held=False, by=OTHER)

    def _end_late(self) -> None:
        """What an operator had begun, which is gone now, reaches the brokers."""
        while self.late:
            until_ms, do = self.late.pop(0)
            if self.world.now_ms <= until_ms:
                with contextlib.suppress(*EXPECTED):
                    do()

    # --- what always holds

    @invariant()
    def nothing_is_copied_behind_open(self) -> None:
        world = self.world
        if world.is_open:
            assert world.record is not None
            assert world.latch.is_held
            assert not world.open
            for topic in TOPICS:
                assert world.copied(topic) == world.at_open[topic]
                assert world.record.copied[topic] == (len(world.at_open[topic]),)

    @invariant()
    def no_copy_is_alive_behind_open(self) -> None:
        world = self.world
        if world.is_open:
            assert not [one for one in world.copies if one.has_checked and one.epoch == world.epochs[one.topic]]
        assert world.is_open or not world.switched

    @invariant()
    def a_source_that_answered_is_fenced(self) -> None:
        assert not self.world.opened_unfenced

    @invariant()
    def a_rollback_leaves_the_acls_as_they_were(self) -> None:
        record, world = self.world.record, self.world
        if record is not None and record.state is State.ROLLED_BACK and not self.late:
            assert world.source.denied == set(world.denied_before)
            assert not (world.latch.is_held and world.latch.by == TERMS.by)

    def teardown(self) -> None:
        """Whatever has happened, an operator that is left alone comes to an end."""
        world = self.world
        world.source.away = world.target.away = False
        self.operators, self.late = [], []
        made, site = operator(world, 99, replace(TERMS, although_reachable=True))
        for _ in range(100):
            world.now_ms += 2_000
            world.propagate()
            world.copy()
            site.kill = ""
            if made.turn().act is Act.END:
                break
        made.leave()
        assert made.record.state in {State.DONE, State.ROLLED_BACK}
        self.nothing_is_copied_behind_open()
        self.no_copy_is_alive_behind_open()
        self.a_rollback_leaves_the_acls_as_they_were()
        if made.record.state is State.DONE:
            assert world.switched
            assert not world.target.denied


def test_operators_that_are_killed_anywhere_open_one_side() -> None:
    run_state_machine_as_test(Failover, settings=settings(max_examples=examples(120, 2_000), stateful_step_count=25))
