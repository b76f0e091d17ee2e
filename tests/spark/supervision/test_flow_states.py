"""The states of a supervised flow: what has gone wrong is tried again by itself, and no event is unexpected."""

from __future__ import annotations

import itertools
import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.backoff import Backoff
from mirror.spark.supervision.flow_states import (
    KILLED_MS,
    MAX_BACKOFF_MS,
    MIN_BACKOFF_MS,
    NEW,
    STABLE_MS,
    TABLE,
    Action,
    Began,
    Due,
    Edited,
    Event,
    FlowState,
    Held,
    JobEnded,
    Latched,
    Lost,
    OtherRunClaimed,
    Refused,
    Resumed,
    StopAsked,
    Supervised,
    WrongEdit,
    is_due,
    next_state,
)

BACKOFF: Final = Backoff(MIN_BACKOFF_MS, MAX_BACKOFF_MS, random.Random(1))
WAITING: Final = (FlowState.BACKING_OFF, FlowState.REFUSED, FlowState.HELD)
ACTIVE: Final = (FlowState.PREPARING, FlowState.RUNNING)

AWAY: Final = Lost("cluster b does not answer", outage=True)
OTHER: Final = OtherRunClaimed("run2", "host2")

events = st.one_of(
    st.builds(Due),
    st.builds(Began),
    st.builds(JobEnded, st.sampled_from(["in order", "cut short"])),
    st.builds(Lost, st.text(max_size=3), st.booleans()),
    st.builds(Refused, st.text(max_size=3), st.none() | st.integers(1_000, 60_000)),
    st.builds(Edited, st.booleans()),
    st.builds(WrongEdit, st.text(max_size=3)),
    st.builds(Held),
    st.builds(Latched, st.text(max_size=3)),
    st.builds(OtherRunClaimed, st.text(max_size=3), st.text(max_size=3)),
    st.builds(Resumed),
    st.builds(StopAsked, st.booleans()),
)
steps = st.lists(st.tuples(events, st.integers(0, 2 * STABLE_MS)), max_size=12)
SAMPLES: Final[tuple[Event, ...]] = (
    *(Due(), Began(), JobEnded("in order"), AWAY, Refused("no topic", 60_000), Edited(), WrongEdit("wrong")),
    *(Held(), Latched("held since"), OTHER, Resumed(), StopAsked()),
)


class Flow:
    """One flow, to which events happen one second after the other."""

    def __init__(self) -> None:
        self.now = NEW
        self.unix_ms = 0

    def after(self, *happened: Event, ms: int = 1_000) -> Action:
        """Return the action of the last of these events."""
        action: Action = "none"
        for event in happened:
            self.unix_ms += ms
            self.now, action = next_state(self.now, event, self.unix_ms, BACKOFF)
        return action

    @property
    def state(self) -> FlowState:
        return self.now.state


@pytest.fixture
def flow() -> Flow:
    return Flow()


def reached(steps: list[tuple[Event, int]]) -> Supervised:
    now, unix_ms = NEW, 0
    for event, ms in steps:
        unix_ms += ms
        now, _ = next_state(now, event, unix_ms, BACKOFF)
    return now


@given(steps)
def test_every_state_but_ended_is_left_and_no_event_raises(steps: list[tuple[Event, int]]) -> None:
    now = reached(steps)
    unix_ms = 2 * STABLE_MS * (len(steps) + 1)
    followers = {next_state(now, event, unix_ms, BACKOFF)[0].state for event in SAMPLES}
    assert (followers == {FlowState.ENDED}) == (now.state is FlowState.ENDED)


@given(steps, events)
def test_what_is_done_agrees_with_the_state(steps: list[tuple[Event, int]], event: Event) -> None:
    """A job is begun only where none runs, only a running one is ended, and a flow that ends stays so."""
    before = reached(steps)
    now, action = next_state(before, event, 0, BACKOFF)
    starts_again = before.state in ACTIVE and now.state is FlowState.PREPARING and before.then is FlowState.PREPARING
    starts = before.state in WAITING and now.state is FlowState.PREPARING
    assert (action == "run") == (starts or (starts_again and now.then is None))
    assert action not in {"stop", "cancel"} or (before.state in ACTIVE and now.state in ACTIVE and now.then is not None)
    assert (action == "end") == (before.state is not FlowState.ENDED and now.state is FlowState.ENDED)
    assert now.then is None or now.state in ACTIVE


@given(steps, st.sampled_from([AWAY, Refused("no topic", 60_000)]))
def test_a_cause_that_goes_away_ends_by_itself(steps: list[tuple[Event, int]], cause: Event) -> None:
    before = reached(steps)
    now, _ = next_state(before, cause, 0, BACKOFF)
    over = {FlowState.HELD, FlowState.ENDED}
    if before.state in over or before.then in over:
        assert now.state in {FlowState.HELD, FlowState.ENDED}
        return
    if now.state is FlowState.PREPARING:
        return  # it was edited meanwhile
    assert is_due(now, MAX_BACKOFF_MS)
    assert next_state(now, Due(), MAX_BACKOFF_MS, BACKOFF)[1] == "run"


def test_the_table_has_a_rule_for_each_event_and_state() -> None:
    assert set(TABLE) == {type(event) for event in SAMPLES}
    assert {len(rules) for rules in TABLE.values()} == {len(FlowState)}


def test_waits_grow_from_one_second_to_a_minute_and_begin_again_after_ten_minutes(flow: Flow) -> None:
    waits = []
    for _ in range(12):
        flow.after(Due(), Began(), AWAY)
        assert flow.now.until_ms is not None
        waits.append(flow.now.until_ms - flow.unix_ms)
        assert not is_due(flow.now, flow.now.until_ms - 1)
        assert is_due(flow.now, flow.now.until_ms)
    assert 800 <= waits[0] <= 1_200
    assert all(first < second for first, second in itertools.pairwise(waits[:6]))
    assert max(waits) <= MAX_BACKOFF_MS
    assert flow.now.failures == 12
    flow.after(Due(), Began())
    flow.after(AWAY, ms=STABLE_MS)
    assert flow.now.failures == 1


def test_since_is_when_the_flow_ceased_to_run(flow: Flow) -> None:
    flow.after(Due(), AWAY, Due(), AWAY, Due(), Refused("no topic", 60_000), Due())
    assert (flow.state, flow.now.since_ms) == (FlowState.PREPARING, 0)
    assert flow.now.reason == "no topic", "it is still why the flow does not run"
    flow.after(Began())
    assert (flow.now.since_ms, flow.now.reason) == (flow.unix_ms, "")


def test_a_running_flow_that_is_edited_ends_in_order_and_starts_again(flow: Flow) -> None:
    flow.after(Due(), Began())
    assert flow.after(Edited(changed=False)) == "none", "nothing of it has changed"
    assert flow.after(Edited()) == "stop"
    assert flow.after(Edited()) == "none", "it is ending already"
    assert flow.after(JobEnded("in order")) == "run"
    assert (flow.state, flow.now.then) == (FlowState.PREPARING, None)


def test_after_copies_that_were_cut_short_an_edit_waits_until_spark_has_killed_them(flow: Flow) -> None:
    flow.after(Due(), Began(), Edited(), JobEnded("cut short"))
    assert (flow.state, flow.now.until_ms) == (FlowState.BACKING_OFF, flow.unix_ms + KILLED_MS)


def test_a_wrong_edit_leaves_a_flow_as_it_is_until_the_file_is_corrected(flow: Flow) -> None:
    flow.after(Due(), Began())
    assert flow.after(WrongEdit("no such key")) == "none"
    assert (flow.state, flow.now.edit_refused) == (FlowState.RUNNING, "no such key")
    assert flow.after(Edited(changed=False)) == "none"
    assert flow.now.edit_refused == ""


@pytest.mark.parametrize("trouble", [AWAY, Refused("no topic", None)])
def test_an_edit_starts_a_flow_at_once_that_does_not_run(flow: Flow, trouble: Event) -> None:
    flow.after(Due(), trouble)
    flow.after(Edited(changed=False), ms=0)
    assert not is_due(flow.now, flow.unix_ms)
    assert flow.after(Edited()) == "run"
    assert (flow.state, flow.now.failures) == (FlowState.PREPARING, 0)


def test_a_flow_that_was_refused_while_it_was_edited_starts_again(flow: Flow) -> None:
    flow.after(Due())
    assert flow.after(Edited()) == "stop"
    assert flow.after(Refused("no topic", 60_000)) == "run"


@pytest.mark.parametrize("event", [Held(), OTHER])
def test_a_flow_is_held_until_it_is_resumed_also_if_it_is_edited(flow: Flow, event: Event) -> None:
    flow.after(Due(), Began())
    assert flow.after(event) == "stop"
    assert flow.after(event) == "none", "the control says it each second"
    flow.after(Edited(), JobEnded("in order"), Due(), AWAY, Refused("no topic", None))
    assert flow.state is FlowState.HELD
    assert not is_due(flow.now, flow.unix_ms + 10 * STABLE_MS)
    assert flow.now.by_other_run == isinstance(event, OtherRunClaimed)
    assert flow.after(Resumed()) == "run"


@pytest.mark.parametrize("last", [AWAY, Refused("no topic", None), JobEnded("cut short")])
def test_a_flow_is_held_however_its_job_ends(flow: Flow, last: Event) -> None:
    flow.after(Due(), Began(), Edited(), Held(), Began(), last)
    assert (flow.state, flow.now.reason) == (FlowState.HELD, "mirror stop has stopped it")


@pytest.mark.parametrize("before", [(), (Began(),), (Began(), Held()), (Edited(),)])
def test_a_flow_that_its_latch_holds_is_held_until_it_is_released(flow: Flow, before: tuple[Event, ...]) -> None:
    flow.after(Due(), *before, Latched("held since 8"))
    assert (flow.state, flow.now.reason, flow.now.by_latch) == (FlowState.HELD, "held since 8", True)
    assert flow.after(Held(), Edited(), Held()) == "none"
    assert flow.after(Resumed()) == "run"
    assert not flow.now.by_latch


@pytest.mark.parametrize("before", [(AWAY,), (Began(), Held("held since 8"), AWAY), (Held("held since 8"),)])
def test_a_flow_whose_latch_its_control_finds_is_held_by_it_whatever_ends_its_job(
    flow: Flow, before: tuple[Event, ...]
) -> None:
    flow.after(Due(), *before, Held("held since 8"), JobEnded("in order"))
    assert (flow.state, flow.now.reason, flow.now.by_latch) == (FlowState.HELD, "held since 8", True)


def test_a_flow_that_its_latch_holds_while_it_ends_has_ended(flow: Flow) -> None:
    assert flow.after(Due(), Began(), StopAsked(), Latched("held since 8")) == "end"


def test_a_flow_that_is_to_end_ends_once_its_job_has(flow: Flow) -> None:
    flow.after(Due(), Began())
    assert flow.after(StopAsked()) == "stop"
    assert flow.after(StopAsked(at_once=True)) == "cancel"
    assert flow.after(AWAY) == "end"
    assert flow.state is FlowState.ENDED


def test_a_flow_that_ends_before_it_is_held_does_not_end_for_that_reason(flow: Flow) -> None:
    """A reason of a flow that prepares is why it did not run: the summary would have it as an error."""
    flow.after(Due(), Held(), StopAsked())
    assert (flow.now.then, flow.now.reason) == (FlowState.ENDED, "")


def test_a_flow_that_is_added_again_while_it_ends_starts_again(flow: Flow) -> None:
    flow.after(Due(), Began(), StopAsked(), Edited(changed=False), JobEnded("in order"))
    assert flow.state is FlowState.PREPARING


def test_a_job_that_ends_unasked_is_started_again(flow: Flow) -> None:
    flow.after(Due(), Began(), JobEnded("in order"))
    assert flow.state is FlowState.BACKING_OFF
    assert flow.after(Due()) == "run"
