"""A switch between two clusters in memory: its operators are killed at any step, and others go on with it."""

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
    precondition,
    rule,
    run_state_machine_as_test,
)

from mirror.switch.machine import Act
from mirror.switch.operator import Operator
from mirror.switch.record import State
from tests.examples import examples
from tests.switch.world import BACK, EXPECTED, FLOW, TERMS, TOPICS, Killed, Site, World, operator

_KILLS: Final = (*[""] * 12, "before store", "after store", "before act", "after act", "half", "stall")
_EVENTS: Final = (
    *(
        "",
        "propagate",
        "copy",
        "late",
        "start",
        "start and roll back",
        "start until ready",
        "seconds 6",
        "seconds 25",
        "produce t",
    ),
    *("produce u", "bypass", "read", "members", "transaction", "runs", "source away", "target away"),
    *("ann holds", "ann holds back", "ann releases"),
)


class Switch(RuleBasedStateMachine):
    """What happens between the clusters, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(set())
        self.operators: list[tuple[Operator, Site]] = []
        self.late: list[tuple[int, Any]] = []
        self.started = 0

    @initialize(
        denied=st.sampled_from([set(), set(), {"t"}]),
        denied_there=st.sampled_from([set(), {"u"}]),
        copies=st.booleans(),
        undisturbed=st.integers(0, 24),
        runs=st.booleans(),
    )
    def begin(self, denied: set[str], denied_there: set[str], copies: bool, undisturbed: int, runs: bool) -> None:
        """So many turns of a first operator come first: all states are begun with about as often."""
        self.world = World(denied)
        self.world.copies_acls, self.world.runs = copies, runs
        self.world.target.denied = set(denied_there)
        for number in range(3):
            self.world.produce("t", number % 2)
            self.world.append()
        self.start(rollback=False)
        for _ in range(undisturbed):
            self.world.propagate()
            self.go_on(0, "produce u", "")

    # --- the operators

    def start(self, rollback: bool, until: State = State.DONE) -> None:
        self.started += 1
        try:
            terms = replace(TERMS, rollback=rollback, until=until)
            self.operators.append(operator(self.world, self.started, terms))
        except EXPECTED:
            return

    @precondition(lambda self: self.operators)
    @rule(which=st.integers(0, 1), event=st.sampled_from(_EVENTS), kill=st.sampled_from(_KILLS))
    def go_on(self, which: int, event: str, kill: str) -> None:
        """Something happens, then an operator has a turn, in which it may be killed."""
        if not self.operators:
            return
        self.world.now_ms += 1_500
        self.happens(event)
        made, site = self.operators[which % len(self.operators)]
        site.kill = kill
        self._turn(made, site)

    def _turn(self, made: Operator, site: Site) -> bool:
        try:
            seen = made.turn()
            if seen.act is Act.END:
                made.leave()
                self.operators.remove((made, site))
                return False
        except EXPECTED as error:
            self.late += site.late
            if isinstance(error, Killed) or not isinstance(error, TimeoutError):
                self.operators.remove((made, site))
            return False
        return True

    # --- the others

    @rule(event=st.sampled_from(_EVENTS))
    def happens(self, event: str) -> None:  # noqa: C901 - one case for each event
        world = self.world
        match event.split():
            case ["produce", topic]:
                world.produce(topic, world.number % 2)
                world.append()
            case ["bypass"]:
                world.bypass("u")
            case ["seconds", passed]:
                world.now_ms += int(passed) * 1000
            case ["copy"]:
                world.copy(2)
            case ["late"]:
                self._end_late()
            case ["read"]:
                world.members = True
                world.consume()
            case ["start", *how] if len(self.operators) < 2:
                self.start(rollback="back" in how, until=State.READY if "until" in how else State.DONE)
            case ["propagate"]:
                world.propagate()
            case [name, "away"]:
                getattr(world, name).away = not getattr(world, name).away
            case ["ann", *does]:
                world.ann(*does)
            case ["transaction"]:
                world.transaction = "" if world.transaction else "t"
            case ["members" | "runs"]:
                setattr(world, event, not getattr(world, event))

    def _end_late(self) -> None:
        """What an operator had begun, which is gone now, reaches the brokers."""
        while self.late:
            until_ms, do = self.late.pop(0)
            if self.world.now_ms <= until_ms:
                with contextlib.suppress(*EXPECTED):
                    do()

    # --- what always holds

    @invariant()
    def nothing_acknowledged_is_missing_behind_open(self) -> None:
        record = self.world.record
        if record is None or not record.state.is_open:
            return
        for topic in TOPICS:
            assert self.world.target.logs[topic][: self._length(topic)] == self.world.source.logs[topic]

    def _length(self, topic: str) -> int:
        return len(self.world.source.logs[topic])

    @invariant()
    def the_fence_stays_behind_open(self) -> None:
        record = self.world.record
        if record is not None and record.state.is_open:
            assert set(TOPICS) <= self.world.source.denied

    @invariant()
    def one_direction_is_active(self) -> None:
        record, latches = self.world.record, self.world.latches
        if record is not None and record.state.is_open:
            assert latches[FLOW].is_held
            assert latches[FLOW].by == TERMS.by
        if self.world.switched:
            assert record is not None
            assert record.state.is_open

    @invariant()
    def groups_are_where_they_were(self) -> None:
        record = self.world.record
        if record is not None and record.state.is_open:
            assert self.world.group_there == self.world.group_at_open

    @invariant()
    def a_rollback_leaves_the_acls_as_they_were(self) -> None:
        record, world = self.world.record, self.world
        if record is not None and record.state is State.ROLLED_BACK and not self.late:
            assert world.source.denied == set(world.denied_before)
            assert not any(one.is_held and one.by == TERMS.by for one in world.latches.values())

    def teardown(self) -> None:
        """Whatever has happened, an operator that is left alone comes to an end."""
        world = self.world
        world.source.away = world.target.away = world.members = False
        world.transaction, self.operators, self.late = "", [], []
        world.ann("releases")
        made, site = operator(world, 99)
        for _ in range(400):
            world.now_ms += 2_000
            world.propagate()
            world.copy(10)
            site.kill = ""
            if made.turn().act is Act.END:
                break
        made.leave()
        assert made.record.state in {State.DONE, State.ROLLED_BACK}
        for check in (
            self.nothing_acknowledged_is_missing_behind_open,
            self.the_fence_stays_behind_open,
            self.one_direction_is_active,
            self.a_rollback_leaves_the_acls_as_they_were,
        ):
            check()
        if made.record.state is State.DONE:
            assert world.group_there == world.group_at_open
            assert not world.latches[BACK].is_held
            assert not world.target.denied


def test_operators_that_are_killed_anywhere_lose_nothing() -> None:
    run_state_machine_as_test(Switch, settings=settings(max_examples=examples(150, 2_000), stateful_step_count=25))
