"""The table of a copy's states: what may happen in each, that each is reached and left, and that a copy goes by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mirror.errors import AuthorizationFailed, CorruptBatch, DeliveryTimeout, Fenced, KafkaTimeout, OffsetOutOfRange
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.limits import FAILURE_BACKOFF_MS
from mirror.relay.partition.machine import copy_machine
from mirror.relay.partition.states import (
    FIRST,
    TRANSITIONS,
    CopyAction,
    CopyEvent,
    CopyState,
    Transition,
    UnknownEvent,
    following,
)
from mirror.relay.progress.committed import ProgressTotals
from mirror.relay.progress.target_log import TargetMark
from tests.relay.copy_harness import CopyHarness, made, progress_at

Taken = set[tuple[CopyState, CopyEvent]]


def _reached_from(state: CopyState) -> set[CopyState]:
    reached, new = set[CopyState](), {state}
    while new:
        reached |= new
        new = {one.state for known in new for one in TRANSITIONS[known].values()} - reached
    return reached


def test_every_state_is_reached_and_each_but_the_last_has_a_way_to_the_end() -> None:
    assert _reached_from(FIRST.state) == set(CopyState) == set(TRANSITIONS)
    assert all(CopyState.DONE in _reached_from(state) for state in CopyState)
    assert _reached_from(CopyState.DONE) == {CopyState.DONE}


def test_every_event_and_action_is_used_and_each_state_takes_what_comes_from_outside() -> None:
    assert {event for known in TRANSITIONS.values() for event in known} == set(CopyEvent)
    used = {one.action for known in TRANSITIONS.values() for one in known.values()}
    assert used | {FIRST.action} == set(CopyAction)
    for known in TRANSITIONS.values():
        assert {CopyEvent.STOP, CopyEvent.STOP_NOW} <= known.keys()


def test_each_state_takes_an_error_and_a_few_errors_lead_to_one_that_waits() -> None:
    """Nothing that one copy raises may reach the others of its task, or keep it from ending its step."""
    for state in CopyState:
        for _ in range(2):
            state = following(state, CopyEvent.FAILED).state  # noqa: PLW2901 - the next error follows
        assert state in {CopyState.BACKING_OFF, CopyState.DONE}
        assert following(state, CopyEvent.FAILED) in {
            Transition(CopyState.BACKING_OFF, CopyAction.PAUSE),
            Transition(CopyState.DONE, CopyAction.GO_ON),
        }


def test_an_event_that_a_state_does_not_know_is_raised() -> None:
    unknown = [(state, event) for state in CopyState for event in CopyEvent if event not in TRANSITIONS[state]]
    assert unknown
    for state, event in unknown:
        with pytest.raises(UnknownEvent, match=state.value):
            following(state, event)


# --- a copy goes by the table


def _opening() -> CopyHarness:
    return CopyHarness(10)


def _resolving() -> CopyHarness:
    return _opening().opened_with(None)


def _copying() -> CopyHarness:
    return _opening().opened(0)


def _checking() -> CopyHarness:
    run = _copying()
    run.fetch_fails(OffsetOutOfRange("not here", 1))
    return run


def _aborting() -> CopyHarness:
    run = _copying()
    run.fetch(made(0, 2))
    run.fail(0, DeliveryTimeout("late"))
    return run


def _backing_off() -> CopyHarness:
    run = _copying()
    run.context.retries_allowed = True
    run.fetch(made(0, 2))
    run.fail(0, DeliveryTimeout("late"))
    run.closed()
    return run


def _done() -> CopyHarness:
    run = _aborting()
    run.closed()
    return run


_IN: dict[CopyState, Callable[[], CopyHarness]] = {
    CopyState.OPENING: _opening,
    CopyState.RESOLVING_PROGRESS: _resolving,
    CopyState.COPYING: _copying,
    CopyState.CHECKING_SOURCE: _checking,
    CopyState.ABORTING: _aborting,
    CopyState.BACKING_OFF: _backing_off,
    CopyState.DONE: _done,
}


class _Fault:
    def __bool__(self) -> bool:
        raise ValueError("a fault of the copy")


def _by_sequences() -> CopyHarness:
    claimed = replace(progress_at(4), way=Way.SEQUENCES, target=TargetMark(topic_id="a", end=50, producer_id=7))
    return CopyHarness(OPEN_END, rules=WayRules(mode="auto", expiration_ms=86_400_000)).opened_with(claimed)


def _shrinks() -> None:
    run = _copying()
    run.fetch(made(0))
    run.ack()
    run.fetch(made(1))
    run.ack(1, base_offset=5)  # the target's log had reached further
    run.closed()
    assert len(run.context.writers) == 2


def _opens() -> None:
    _opening().opened(10)  # nothing is left
    _opening().opened(11)  # the source's log may have been cut back
    run = _opening()
    run.writer.opened.set_exception(KafkaTimeout("no coordinator"))
    run.context.run_until_idle()


def _resolves() -> None:
    _resolving().resolved()
    _opening().opened(5, topic_id="another")
    run = _resolving()
    run.context.start_lookups[-1].set_exception(KafkaTimeout("no leader"))
    run.context.run_until_idle()


def _copies() -> None:
    run = _by_sequences()
    run.fetch(made(4, timestamp=run.clock.unix_ms()))
    run.acquired(replace(run.writer.acquisitions[0][0], offset=5), ProgressTotals(1, 1, 100))
    _copying().fetch_fails(CorruptBatch("damaged"))
    _copying().fetch_fails(AuthorizationFailed("no Read on the topic", 29))
    _aborting()


def _checks() -> None:
    _checking().source_checked()
    run = _checking()
    run.context.source_lookups[-1].set_exception(KafkaTimeout("no leader"))
    run.context.run_until_idle()


def _aborts() -> None:
    run = CopyHarness(10, atomic=False).opened(0)
    run.fetch(made(0))
    run.ack()
    run.fetch(made(1), made(2))
    run.advance(1_000)  # the first record is being committed
    run.ack(1)
    run.copy.wind_up(run.clock.now(), immediately=True)
    run.commit()
    run.commit()
    run.closed()
    run = _by_sequences()
    run.fetch(made(4, timestamp=1))  # it is old, and goes in a transaction
    run.closed()
    _shrinks()
    run = _aborting()
    run.context.retries_allowed = _Fault()  # type: ignore[assignment]
    run.closed()
    assert run.result.outcome is Outcome.FAILED


def _finishes() -> None:
    run = _aborting()
    run.context.keep_segments = _raise  # type: ignore[method-assign, assignment]
    run.closed()


def _raise(*_: object) -> None:
    raise ValueError("a fault of the copy")


def _backs_off() -> None:
    _backing_off().back_off()
    run = CopyHarness(OPEN_END).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(0, 2))
    run.fail(0, Fenced("another attempt"))
    run.closed()
    run.advance(FAILURE_BACKOFF_MS)
    assert run.copy.state is CopyState.BACKING_OFF, "the control record was not read since"
    run = _backing_off()
    run.context.retries_allowed = _Fault()  # type: ignore[assignment]
    run.back_off()
    assert run.copy.state is CopyState.BACKING_OFF


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    found: Taken = set()

    def follow(state: CopyState, event: CopyEvent) -> Transition:
        found.add((state, event))
        return following(state, event)

    monkeypatch.setattr(copy_machine, "following", follow)
    return found


@pytest.mark.parametrize("state", CopyState)
def test_a_copy_may_be_stopped_in_each_state(state: CopyState) -> None:
    for immediately in (False, True):
        run = _IN[state]()
        assert run.copy.state is state
        run.copy.wind_up(run.clock.now(), immediately=immediately)
        expected = TRANSITIONS[state][CopyEvent.STOP_NOW if immediately else CopyEvent.STOP]
        ended = {CopyState.BACKING_OFF: CopyState.DONE, CopyState.COPYING: CopyState.ABORTING}
        assert run.copy.state in {expected.state, ended.get(expected.state)}


def test_a_copy_takes_each_transition_of_the_table(taken: Taken) -> None:
    for scenario in (_opens, _resolves, _copies, _checks, _aborts, _backs_off, _finishes):
        scenario()
    for make in _IN.values():
        for immediately in (False, True):
            run = make()
            run.copy.wind_up(run.clock.now(), immediately=immediately)
    missing = {(state, event) for state, known in TRANSITIONS.items() for event in known} - taken
    assert not missing
