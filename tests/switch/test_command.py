"""A command that goes on with a switch: what it says, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from mirror.errors import AuthorizationFailed, Fenced, FlowError, FlowHeld, KafkaTimeout
from mirror.switch.command import SwitchCommand, status_of_error
from mirror.switch.facts import Facts, FlowLatch
from mirror.switch.machine import CUTOVER, Act, Next, StepResult
from mirror.switch.operator import Operator
from mirror.switch.record import State, SwitchRecord
from mirror.switch.record_store import SwitchTaken
from tests.switch.test_machine import FENCED, OPEN
from tests.switch.world import FLOW, TERMS, Site, World, operator


def run(world: World, lines: list[str], **terms: object) -> tuple[State, int]:
    """Run a command to its end; each pause takes 2 s, in which the flow copies."""
    wanted = replace(TERMS, **terms)  # type: ignore[arg-type]
    made, _ = operator(world, 1, wanted)

    def pause(_: float) -> None:
        world.now_ms += 2_000
        world.propagate()
        world.copy(10)

    outcome = SwitchCommand(
        made, wanted, lines.append, lambda _: "by x", pause=pause, now_s=lambda: world.now_ms / 1000
    ).run()
    return outcome.record.state, outcome.status


def test_a_command_goes_on_to_the_end() -> None:
    world, lines = World(set()), list[str]()
    world.produce("t", 0)
    world.append()
    assert run(world, lines) == (State.DONE, 0)
    states = [line.removeprefix("switch s: ") for line in lines]
    assert [one for one in states if one in set(State)] == [*State][1:-1]
    assert world.target.logs == world.source.logs


def test_a_command_after_a_cut_over_back_is_no_success() -> None:
    """Weeks later the flow copies again, and producers are at the source."""
    world, lines = World(set()), list[str]()
    assert run(world, lines) == (State.DONE, 0)
    assert run(world, lines) == (State.DONE, 0), "it may be repeated"
    world.latches[FLOW] = FlowLatch(is_held=False, generation=9, by="ann")
    assert run(world, lines) == (State.DONE, 3)


def test_a_bypass_is_named_and_rolled_back() -> None:
    world, lines = World({"t"}), list[str]()
    world.copies_acls = True
    made, _ = operator(world, 1)

    def pause(_: float) -> None:
        world.now_ms += 2_000
        world.propagate()
        world.bypass("u")

    cutover = SwitchCommand(made, TERMS, lines.append, lambda names: f"by x to {names}", pause=pause)
    outcome = cutover.run()
    assert (outcome.record.state, outcome.status) == (State.ROLLED_BACK, 6)
    assert "switch s: written by x to ('u-0',)" in lines
    assert world.source.denied == {"t"}


def test_a_command_stops_where_it_was_asked_to_and_rolls_back() -> None:
    world, lines = World(set()), list[str]()
    assert run(world, lines, until=State.FENCED) == (State.FENCED, 0)
    world.now_ms += 30_000
    assert run(world, lines, rollback=True) == (State.ROLLED_BACK, 6)
    assert world.source.denied == set()


def test_an_outage_is_waited_out_for_a_while() -> None:
    world, lines = World(set()), list[str]()
    made, _ = operator(world, 1)
    assert made.turn().record.state is State.READY
    world.target.away = True

    def pause(_: float) -> None:
        world.now_ms += 2_000
        world.target.away = not lines
        world.propagate()

    cutover = SwitchCommand(made, TERMS, lines.append, lambda _: "", pause=pause, now_s=lambda: world.now_ms / 1000)
    assert cutover.run().record.state is State.DONE
    assert lines[0] == "switch s: the cluster does not answer; trying again"


def test_an_outage_that_lasts_ends_the_command() -> None:
    world, pauses = World(set()), list[float]()
    made, _ = operator(world, 1)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        world.now_ms += 30_000

    def run_on() -> None:
        SwitchCommand(made, TERMS, lambda _: None, lambda _: "", pause=pause, now_s=lambda: world.now_ms / 1000).run()

    world.target.away = True
    with pytest.raises(KafkaTimeout):
        run_on()
    assert pauses == []  # nothing has changed: the command is repeated
    world.target.away = False
    made.turn()
    world.target.away = True
    with pytest.raises(KafkaTimeout):
        run_on()
    assert len(pauses) == 5


def run_failing(failing: Act, errors: list[Exception], last: Exception | None = None) -> tuple[World, SwitchRecord]:
    """Run a command whose act raises ``errors``, then ``last`` for ever, if it is given."""
    world, terms = World(set()), replace(TERMS, deadline_ms=600_000)
    made, site = operator(world, 1, terms)
    act_of = site.act

    def act(act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        if act is failing and (error := errors.pop(0) if errors else last) is not None:
            raise error
        return act_of(act, record, facts)

    def pause(_: float) -> None:
        world.now_ms += 2_000
        world.propagate()
        world.copy(10)

    site.act = act  # type: ignore[method-assign]
    cutover = SwitchCommand(made, terms, lambda _: None, lambda _: "", pause=pause, now_s=lambda: world.now_ms / 1000)
    return world, cutover.run().record


def test_a_round_of_groups_that_is_fenced_is_repeated() -> None:
    _, record = run_failing(Act.MOVE, [Fenced("another round writes the positions", 47)])
    assert record.state is State.DONE


def test_a_step_that_fails_until_the_deadline_is_rolled_back() -> None:
    world, record = run_failing(Act.MOVE, [], FlowHeld("flow ahead is held by ann"))
    assert (record.state, world.source.denied) == (State.ROLLED_BACK, set())
    assert "deadline-seconds (600) have passed" in record.rollback


@pytest.mark.parametrize("act", [Act.FENCE, Act.PROVE, Act.MOVE])
def test_a_step_that_is_refused_is_rolled_back_at_once(act: Act) -> None:
    world, record = run_failing(act, [], AuthorizationFailed("no ALTER on the cluster", 31))
    assert (record.state, record.rollback) == (State.ROLLED_BACK, "no ALTER on the cluster")
    assert world.source.denied == set()


def test_a_check_that_fails_ends_the_command() -> None:
    with pytest.raises(FlowError, match="no such topic"):
        run_failing(Act.CHECK, [], FlowError("no such topic"))


@pytest.mark.parametrize(
    ("fails", "rollback", "status"),
    [(Act.SWITCH, False, 7), (Act.UNFENCE, True, 5)],
)
def test_what_does_not_go_on_ends_at_the_deadline(fails: Act, rollback: bool, status: int) -> None:
    world, calls, lines = World(set()), list[int](), list[str]()
    run(world, lines, until=State.FENCED)
    world.now_ms += 30_000
    terms = replace(TERMS, rollback=rollback)
    made, site = operator(world, 2, terms)
    do = site._do

    def failing(act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        if act is not fails:
            return do(act, record, facts)
        calls.append(world.now_ms)
        return StepResult(ok=False, why="hook x has ended with exit status 1")

    site._do = failing  # type: ignore[method-assign]

    def pause(seconds: float) -> None:
        world.now_ms += int(1000 * seconds)
        world.propagate()
        world.copy(10)

    outcome = SwitchCommand(
        made, terms, lines.append, lambda _: "", pause=pause, now_s=lambda: world.now_ms / 1000
    ).run()
    assert outcome.status == status
    assert "nothing has gone on for 90 s (deadline-seconds): hook x has ended" in outcome.lines[0]
    waits = [(later - earlier) // 1000 for earlier, later in pairwise(calls)]
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def fenced() -> tuple[World, Operator]:
    world = World(set())
    made, _ = operator(world, 1)
    while made.record.state is not State.FENCED:
        made.turn()
        world.now_ms += 1_000
        world.propagate()
    return world, made


def test_a_source_that_stays_away_ends_the_command_behind_the_deadline() -> None:
    (world, made), lines = fenced(), list[str]()
    world.source.away = True

    def pause(_: float) -> None:
        world.now_ms += 2_000

    outcome = SwitchCommand(
        made, TERMS, lines.append, lambda _: "", pause=pause, now_s=lambda: world.now_ms / 1000
    ).run()
    assert (outcome.status, outcome.record.rollback != "") == (5, True)
    assert "the source has to answer" in outcome.lines[0]


def test_a_target_that_stays_away_behind_the_fence_is_rolled_back_on_the_source() -> None:
    (world, made), lines = fenced(), list[str]()
    world.target.away = True

    def pause(_: float) -> None:
        world.now_ms += 2_000

    outcome = SwitchCommand(
        made, TERMS, lines.append, lambda _: "", pause=pause, now_s=lambda: world.now_ms / 1000
    ).run()
    assert (outcome.status, outcome.record.state, world.source.denied) == (6, State.ROLLED_BACK, set())


def test_a_command_ends_when_another_one_goes_on() -> None:
    world = World(set())
    made, _ = operator(world, 1)
    operator(world, 2)
    with pytest.raises(SwitchTaken, match="another operator goes on with the switch: operator 2"):
        SwitchCommand(made, TERMS, lambda _: None, lambda _: "", pause=lambda _: None).run()


def test_the_exit_status_of_an_error_says_what_it_leaves() -> None:
    assert status_of_error(FENCED, 1) == 5
    assert status_of_error(OPEN, 1) == 7
    assert status_of_error(replace(FENCED, fence_ms=0), 1) == 1
    assert status_of_error(replace(FENCED, state=State.ROLLED_BACK), 1) == 1


@pytest.mark.parametrize(("record", "status"), [(FENCED, 5), (OPEN, 3), (SwitchRecord(state=State.READY), 3)])
def test_a_refusal_says_whether_producers_are_fenced(record: SwitchRecord, status: int) -> None:
    world = World(set())

    def refuse(*_: object) -> Next:
        return Next(act=Act.END, record=record, why="no")

    refusing = Operator(Site(world), TERMS, "o", lambda: 0, replace(CUTOVER, decide=refuse))
    assert SwitchCommand(refusing, TERMS, lambda _: None, lambda _: "").run().status == status
