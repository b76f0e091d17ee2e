"""The next step of a switch, by its record and by facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from mirror.switch.facts import Ends, Facts, FlowLatch, Watch
from mirror.switch.machine import Act, StepResult, Terms, applied, decide
from mirror.switch.record import State, SwitchRecord

TERMS: Final = Terms(name="s", quiet_ms=10_000, deadline_ms=60_000)
FREE, OURS = FlowLatch(is_held=False, generation=4, by=""), FlowLatch(is_held=True, generation=5, by="switch s")
FACTS: Final = Facts(
    topics={"t": 1},
    denied={"t"},
    denied_everywhere={"t"},
    denied_on_target=set(),
    ends={"t": (Ends(5, 5),)},
    progress={"t": (5,)},
    is_copying=True,
    busy_groups=set(),
    positions={"g": "at 3"},
    latches={"f": OURS},
    target_ends={"t": (7,)},
)
FENCED: Final = SwitchRecord(
    state=State.FENCED, flows=("f",), fence="acl", topics=("t",), denied=("t",), fence_ms=100_000, shown_ms=100_000
)
DRAINED: Final = replace(FENCED, state=State.DRAINED, ends={"t": (5,)})
PROVED: Final = replace(DRAINED, state=State.PROVED)
MOVED: Final = replace(DRAINED, state=State.MOVED, groups={"g": "at 3"}, latches={"f": 5}, rested={"f": 5})
OPEN: Final = replace(MOVED, state=State.OPEN, open_ms=110_000)


def quiet(since_ms: int = 100_000) -> Watch:
    """A watch that has seen nothing move since then."""
    watch = Watch()
    watch.see(FACTS.ends or {}, since_ms, since_ms)
    return watch


def step(record: SwitchRecord, now_ms: int = 111_000, terms: Terms = TERMS, **changed: Any) -> tuple[Act, SwitchRecord]:
    """The next step with these facts changed."""
    found = decide(record, replace(FACTS, **changed), quiet(), terms, now_ms)
    return found.act, found.record


@pytest.mark.parametrize(
    ("record", "changed", "act", "state"),
    [
        (SwitchRecord(state=State.PLANNED), {}, Act.CHECK, State.PLANNED),
        (SwitchRecord(state=State.READY), {"denied": set()}, Act.FENCE, State.READY),
        (replace(FENCED, state=State.READY), {"denied_everywhere": set()}, Act.WAIT, State.READY),
        (replace(FENCED, state=State.READY), {}, Act.STORE, State.FENCED),
        (FENCED, {}, Act.STORE, State.FENCED),
        (FENCED, {"ends": {"t": (Ends(5, 4),)}}, Act.WAIT, State.FENCED),
        (FENCED, {"open_transactions": {"tx": "t-0"}}, Act.WAIT, State.FENCED),
        (replace(FENCED, ends={"t": (5,)}), {"progress": {"t": (4,)}}, Act.WAIT, State.FENCED),
        (replace(FENCED, ends={"t": (5,)}), {"progress": {}, "is_copying": False}, Act.COPY, State.FENCED),
        (replace(FENCED, ends={"t": (5,)}), {}, Act.STORE, State.DRAINED),
        (DRAINED, {}, Act.PROVE, State.DRAINED),
        (PROVED, {"busy_groups": {"g"}}, Act.WAIT, State.PROVED),
        (PROVED, {}, Act.MOVE, State.PROVED),
        (SwitchRecord(state=State.READY), {"denied": set(), "progress": {"t": (4,)}}, Act.WAIT, State.READY),
        (DRAINED, {"latches": {"f": OURS._replace(by="ann")}}, Act.WAIT, State.DRAINED),
        (MOVED, {"busy_groups": {"g"}}, Act.STORE, State.PROVED),
        (replace(MOVED, ends_ms=101_001), {}, Act.WAIT, State.MOVED),
        (MOVED, {"positions": {"g": "at 4"}, "latches": {"f": FREE}}, Act.STORE, State.PROVED),
        (MOVED, {"latches": {"f": FREE}}, Act.HOLD, State.MOVED),
        (replace(MOVED, rested={}), {}, Act.HOLD, State.MOVED),
        (replace(MOVED, rested={"f": 3}), {}, Act.HOLD, State.MOVED),
        (MOVED, {"latches": {"f": OURS._replace(by="ann")}}, Act.WAIT, State.MOVED),
        (MOVED, {}, Act.STORE, State.MOVED),
        (replace(MOVED, opening=True), {}, Act.STORE, State.OPEN),
        (OPEN, {"denied_on_target": {"t"}}, Act.LIFT, State.OPEN),
        (OPEN, {"read_denied_on_target": {"g"}}, Act.LIFT, State.OPEN),
        (OPEN, {}, Act.STORE, State.REVERSED),
        (replace(OPEN, state=State.REVERSED), {}, Act.STORE, State.DONE),
        (replace(OPEN, state=State.DONE), {}, Act.END, State.DONE),
    ],
)
def test_a_step_follows_from_the_record_and_the_facts(
    record: SwitchRecord, changed: dict[str, Any], act: Act, state: State
) -> None:
    found, after = step(record, **changed)
    assert (found, after.state, after.rollback) == (act, state, "")


@pytest.mark.parametrize(
    ("record", "changed", "now_ms", "why"),
    [
        (FENCED, {}, 160_001, "deadline-seconds (60) have passed since producers were fenced"),
        (replace(FENCED, state=State.READY), {}, 160_001, "deadline-seconds"),
        (FENCED, {"topics": {"t": 1, "u": 1}}, 111_000, "topic u: what the flows select has changed"),
        (FENCED, {"denied_everywhere": set()}, 111_000, "not all brokers show the denial of WRITE any more on topic t"),
        (PROVED, {"ends": {"t": (Ends(6, 6),)}}, 111_000, "partition t-0 written to behind the fence, after the ends"),
        (MOVED, {"ends": {"t": (Ends(5, 5), Ends(0, 0))}}, 111_000, "partition t written to"),
    ],
)
def test_what_cannot_be_opened_is_rolled_back(
    record: SwitchRecord, changed: dict[str, Any], now_ms: int, why: str
) -> None:
    _, after = step(record, now_ms, **changed)
    assert after.rollback.startswith(why) or why in after.rollback


def test_a_bypass_is_rolled_back() -> None:
    watch = quiet()
    watch.see({"t": (Ends(6, 6),)}, 111_000, 100_000)
    found = decide(FENCED, FACTS, watch, TERMS, 111_000)
    assert (found.act, found.record.rollback) == (Act.UNFENCE, "partition t-0 still written to behind the fence")


def test_a_rollback_goes_on_to_its_end_and_touches_what_is_its_own_only() -> None:
    rolling = replace(MOVED, rollback="x", topics=("t", "u"), latches={"f": 5, "h": 9})
    foreign = FlowLatch(is_held=True, generation=9, by="ann")
    assert step(rolling, denied={"t", "u"})[0] is Act.UNFENCE
    assert step(rolling, denied={"u"}, latches={"f": OURS, "h": foreign})[0] is Act.RELEASE
    act, after = step(rolling, denied={"u"}, latches={"f": FREE, "h": foreign})
    assert (act, after.state) == (Act.STORE, State.ROLLED_BACK)
    assert step(rolling, denied=None, source_away="gone")[0] is Act.WAIT


def test_a_switch_says_on_both_clusters_that_it_opens_before_it_does() -> None:
    _, after = step(MOVED)
    assert (after.state, after.opening) == (State.MOVED, True)
    _, back = step(after, positions={"g": "at 4"}, latches={"f": FREE})
    assert (back.state, back.opening) == (State.PROVED, False)


def test_a_rollback_removes_the_fence_without_the_target_and_releases_flows_once_it_answers() -> None:
    away: dict[str, Any] = {"latches": None, "target_away": "gone"}
    assert step(FENCED, **away)[0] is Act.WAIT
    assert step(FENCED, 160_001, **away)[0] is Act.UNFENCE
    rolling = replace(MOVED, rollback="x")
    assert step(rolling, **away)[0] is Act.UNFENCE
    assert step(rolling, denied=set(), **away)[0] is Act.WAIT
    act, after = step(replace(rolling, latches={}), denied=set(), **away)
    assert (act, after.state) == (Act.STORE, State.ROLLED_BACK)


def test_what_is_open_is_never_rolled_back() -> None:
    terms = replace(TERMS, rollback=True)
    for state in (State.OPEN, State.REVERSED, State.DONE):
        act, after = step(replace(OPEN, state=state), 999_999, terms, ends={"t": (Ends(9, 9),)}, denied=set())
        assert act in {Act.STORE, Act.END}
        assert after.rollback == ""


def test_the_list_of_denials_leaves_out_those_that_are_there() -> None:
    _, after = step(SwitchRecord(state=State.READY), topics={"t": 1, "u": 1}, denied={"t"}, denied_on_target={"u"})
    assert (after.topics, after.denied) == (("t", "u"), ("u",))


def test_denials_that_the_target_had_before_are_lifted_when_it_opens() -> None:
    _, fenced = step(SwitchRecord(state=State.READY), denied=set(), denied_on_target={"t"})
    opened = replace(OPEN, topics=fenced.topics, denied=fenced.denied)
    assert step(opened, denied_on_target={"t"})[0] is Act.LIFT


def test_a_check_that_is_old_is_repeated_before_the_fence() -> None:
    ready = SwitchRecord(state=State.PLANNED).entered(State.READY, 100_000)
    assert step(ready, 700_000, denied=set())[0] is Act.FENCE
    act, after = step(ready, 700_001, denied=set())
    assert (act, after.state, after.fence_ms) == (Act.STORE, State.PLANNED, 0)


def test_a_fence_of_consumers_is_removed_exactly_and_only_where_the_switch_created_it() -> None:
    terms = replace(TERMS, deny_read=True)
    known: dict[str, Any] = {"denied": set(), "positions": {"g": "at 3", "h": "at 0"}, "read_denied": {"h"}}
    act, fenced = step(SwitchRecord(state=State.READY), terms=terms, **known)
    assert (act, fenced.denied_groups) == (Act.FENCE, ("g",))
    assert step(fenced, terms=terms, **known | {"denied": {"t"}})[0] is Act.FENCE
    _, shown = step(fenced, terms=terms, **known | {"denied": {"t"}, "read_denied": {"g", "h"}})
    assert shown.state is State.FENCED
    rolling = replace(shown, rollback="x")
    assert step(rolling, denied=set(), read_denied={"g", "h"})[0] is Act.UNFENCE
    assert step(rolling, denied=set(), read_denied={"h"})[1].state is State.ROLLED_BACK
    assert step(SwitchRecord(state=State.READY), **known)[1].denied_groups == ()


def test_producers_are_fenced_once_little_is_left_to_copy() -> None:
    terms = replace(TERMS, lag_records=2)
    ready = SwitchRecord(state=State.READY)
    assert step(ready, terms=terms, denied=set(), progress={"t": (3,)})[1].fence_ms > 0
    far: dict[str, Any] = {"denied": set(), "progress": {"t": (2,)}}
    assert step(ready, terms=terms, **far) == (Act.WAIT, ready)
    assert step(ready, terms=terms, **far, is_copying=False) == (Act.COPY, ready)


def test_the_ends_settle_first_and_the_switch_opens_only_after_quiet_seconds() -> None:
    settled = decide(FENCED, FACTS, quiet(100_000), TERMS, 105_000)
    assert (settled.record.ends, settled.record.ends_ms) == ({"t": (5,)}, 100_000)
    assert decide(FENCED, FACTS, quiet(100_000), TERMS, 104_999).act is Act.WAIT
    assert step(replace(MOVED, ends_ms=100_000), 109_999)[0] is Act.WAIT
    assert step(replace(MOVED, ends_ms=100_000), 110_000)[1].opening


def test_a_hold_that_came_to_nothing_beside_the_proof_is_repeated() -> None:
    _, intended = step(replace(DRAINED, latches={}), latches={"f": FREE})
    assert intended.latches == {"f": 5}
    result = StepResult(ok=True, evidence={"f": "hash"}, held=True)
    assert applied(intended, Act.PROVE, result, 1).rested == {"f": 5}
    again = applied(intended, Act.PROVE, replace(result, held=False), 1)
    assert again.state is State.PROVED
    assert step(replace(again, state=State.MOVED, groups={"g": "at 3"}), latches={"f": OURS})[0] is Act.HOLD


def test_a_rollback_that_waits_for_latches_says_that_producers_are_not_fenced() -> None:
    act, after = step(replace(MOVED, rollback="x"), denied=set(), latches=None, target_away="gone")
    assert (act, after.lifted_ms, after.fences) == (Act.WAIT, 111_000, False)


def test_a_hook_that_may_have_fenced_is_called_to_lift_it() -> None:
    terms = replace(TERMS, fence="hook")
    act, intended = step(SwitchRecord(state=State.READY), terms=terms, denied=None, denied_everywhere=None)
    assert (act, intended.hook_fenced) == (Act.FENCE, True)
    failed = applied(intended, Act.FENCE, StepResult(ok=False, why="it has failed"), 1)
    assert step(failed, terms=terms, denied=None)[0] is Act.UNFENCE
    assert applied(failed, Act.UNFENCE, StepResult(ok=True), 1).hook_fenced is False


def test_a_switch_stops_in_a_state_that_was_asked_for() -> None:
    assert step(DRAINED, terms=replace(TERMS, until=State.DRAINED))[0] is Act.END
    assert step(DRAINED, terms=replace(TERMS, until=State.PROVED))[0] is Act.PROVE


def test_open_transactions_are_aborted_only_if_that_was_asked_for() -> None:
    act, _ = step(FENCED, terms=replace(TERMS, abort_open=True), open_transactions={"tx": "t-0"})
    assert act is Act.ABORT_OPEN


def test_a_failed_proof_rolls_back_and_a_late_group_waits() -> None:
    assert applied(DRAINED, Act.PROVE, StepResult(ok=False, why="differs"), 1).rollback == "differs"
    assert applied(PROVED, Act.MOVE, StepResult(ok=False, why="late", retry=True), 1) == PROVED


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"latches": {"f": FREE}}, "it was done, but since then flow f released: to switch again, give the table"),
        ({"denied_on_target": {"t", "u"}}, "producers are denied on the target, on topic t:"),
    ],
)
def test_a_switch_that_is_done_says_what_does_not_hold_any_more(changed: dict[str, Any], why: str) -> None:
    found = decide(replace(OPEN, state=State.DONE), replace(FACTS, **changed), quiet(), TERMS, 10**9)
    assert (found.act, why in found.why, bool(found.why)) == (Act.END, True, bool(why))
