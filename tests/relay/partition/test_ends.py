"""How a copy ends with its task, or with its assignment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import BrokerError, DeliveryTimeout
from mirror.errors import OffsetOutOfRange as OutOfRange
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.states import CopyState
from mirror.relay.partition.waiting import ENDED
from mirror.relay.progress.target_log import TargetMark
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TIMES

MARKED = replace(progress_at(2), target=TargetMark(topic_id="", end=2, leader_epoch=4))


def _wind_up(run: CopyHarness, *, immediately: bool = False) -> None:
    run.copy.wind_up(run.clock.now(), immediately=immediately)
    run.context.run_until_idle()


@pytest.mark.parametrize("atomic", [True, False])
def test_acknowledged_batches_are_committed_at_the_end(atomic: bool) -> None:
    run = CopyHarness(10**6, atomic=atomic).opened(0)
    run.fetch(made(0), stable_end=10**6)
    run.ack()
    _wind_up(run)
    assert run.commit().offset == 1
    result = run.ended_with(Outcome.UNFINISHED)
    assert (result.end, result.stuck_since_ms) == (1, None)


def test_undelivered_batch_at_the_end_reports_since_when_it_waits() -> None:
    run = CopyHarness(10**6).opened(0)
    run.advance(100)
    sent_at = run.clock.unix_ms()
    run.fetch(made(0), stable_end=10**6)
    run.advance(500)
    _wind_up(run)
    assert run.committing == 1, "it may still succeed"
    _wind_up(run, immediately=True)
    result = run.ended_with(Outcome.UNFINISHED)
    assert (result.end, result.stuck_since_ms) == (0, sent_at)


def test_batch_in_flight_at_the_end_is_committed_after_its_acknowledgement() -> None:
    run = CopyHarness(10**6).opened(0)
    run.fetch(made(0), stable_end=10**6)
    _wind_up(run)
    assert (run.committing, run.writer.closed) == (1, None)
    run.ack()
    run.commit()
    result = run.ended_with(Outcome.UNFINISHED)
    assert (result.end, result.records, result.stuck_since_ms) == (1, 1, None)


def test_hanging_commit_at_the_end_reports_since_when_it_waits() -> None:
    run = CopyHarness(10**6).opened(0)
    began = run.clock.unix_ms()
    run.fetch(made(0), stable_end=1)
    run.advance(100)
    run.ack()
    assert run.committing == 1
    commit_began = began + TIMES.commit_min_interval_ms
    run.advance(700)
    _wind_up(run)
    assert run.committing == 1, "it may still succeed"
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms == commit_began


@pytest.mark.parametrize("state", [CopyState.OPENING, CopyState.RESOLVING_PROGRESS, CopyState.CHECKING_SOURCE])
def test_copy_ends_in_every_state(state: CopyState) -> None:
    run = CopyHarness(10)
    began = run.clock.unix_ms()
    if state is CopyState.RESOLVING_PROGRESS:
        run.opened_with(None)
    elif state is CopyState.CHECKING_SOURCE:
        run.opened(0)
        run.fetch_fails(OutOfRange("gone", 1))
    assert run.copy.state is state
    run.advance(300)
    awaits_target = state is not CopyState.CHECKING_SOURCE
    _wind_up(run)
    assert run.copy.state is (state if awaits_target else CopyState.ABORTING), "it may still complete its opening"
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms == (began if awaits_target else None)


def test_copy_that_waits_for_its_turn_to_fence_is_not_stuck() -> None:
    """Many others fence before it."""
    run = CopyHarness(10, acquires=False)
    run.advance(600_000)
    _wind_up(run)
    assert (run.copy.state, run.writer.open_timeout_ms) == (CopyState.OPENING, None)
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms is None


def test_timeout_of_a_fence_begins_with_its_turn() -> None:
    run = CopyHarness(10, acquires=False)
    run.advance(600_000)
    run.context.acquires = True
    run.copy.step(run.clock.now())
    began = run.clock.unix_ms()
    assert run.writer.open_timeout_ms == TIMES.delivery_timeout_ms
    assert run.context.acquiring == [run.writer.opened]
    run.advance(300)
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms == began


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (CopyState.OPENING, "it waited for the target's transaction coordinator: topic 'a.t' does not exist"),
        (CopyState.RESOLVING_PROGRESS, "it waited for the leader of the target partition: topic 'a.t' does not exist"),
        (CopyState.CHECKING_SOURCE, "it waited for the source, to learn why it does not have what comes next"),
        (CopyState.COPYING, "it waited for the end of its transaction: topic 'a.t' does not exist"),
    ],
)
def test_unfinished_copy_reports_what_it_waited_for(state: CopyState, reason: str) -> None:
    """A target topic that does not exist, and cannot be created, would have no other reason in any result."""
    run = CopyHarness(10)
    run.context.no_leader_text = ": topic 'a.t' does not exist"
    if state is CopyState.RESOLVING_PROGRESS:
        run.opened_with(None)
    elif state is not CopyState.OPENING:
        run.opened(0)
    if state is CopyState.CHECKING_SOURCE:
        run.fetch_fails(OutOfRange("gone", 1))
    elif state is CopyState.COPYING:
        run.fetch(made(0), stable_end=1)
        run.ack()
    assert run.copy.state is state
    _wind_up(run)
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).error == f"{ENDED}: {reason}"


def test_unfinished_copy_that_was_to_be_retried_reports_its_error() -> None:
    run = CopyHarness(1).opened(0)
    run.fetch(made(0))
    run.fail(0, BrokerError("unknown producer id", 49))
    run.closed()
    _wind_up(run)
    assert "unknown producer id" in str(run.ended_with(Outcome.UNFINISHED).error)


@pytest.mark.parametrize(
    ("atomic", "awaited"), [(True, "the end of its transaction"), (False, "the target's acknowledgements")]
)
def test_a_stream_s_copy_reports_what_a_batch_waits_for_once_it_is_stuck(atomic: bool, awaited: str) -> None:
    """A period is summed up meanwhile, and would have no other reason."""
    run = CopyHarness(OPEN_END, atomic=atomic).opened(0)
    run.fetch(made(0), stable_end=1)
    sent_at = run.clock.unix_ms()
    run.advance(2 * TIMES.commit_interval_ms)
    now = run.copy.result_at(run.clock.now())
    assert (now.outcome, now.error, now.stuck_since_ms) == (Outcome.COMPLETE, None, None)
    run.advance(1)
    now = run.copy.result_at(run.clock.now())
    assert (now.outcome, now.stuck_since_ms) == (Outcome.UNFINISHED, sent_at)
    assert now.error == f"it waited for {awaited}"


def test_copy_without_an_end_is_unfinished_without_the_target_s_leader() -> None:
    """Whether anything is to be copied is known only once it reads: its plan may be of days ago."""
    run = CopyHarness(OPEN_END, source_end=2).found(progress_at(2))
    assert run.copy.state is CopyState.RESOLVING_PROGRESS
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).end == 2


def test_copy_that_has_committed_everything_is_complete_although_a_new_leader_does_not_answer() -> None:
    run = CopyHarness(OPEN_END).opened_with(MARKED)
    run.fetch(made(2), stable_end=3)
    run.ack()
    run.advance(TIMES.commit_min_interval_ms)
    run.context.leader = (2, 5)
    run.commit()
    run.copy.step(run.clock.now())
    assert len(run.context.comparisons) == 1
    _wind_up(run)
    assert run.copy.state is CopyState.COPYING, "the leader may still answer"
    _wind_up(run, immediately=True)
    assert run.ended_with(Outcome.COMPLETE).end == 3


def test_copy_that_may_not_commit_before_a_new_leader_answers_is_unfinished() -> None:
    run = CopyHarness(OPEN_END).opened_with(MARKED)
    run.context.leader = (2, 5)
    run.fetch(made(2), stable_end=3)
    run.ack()
    _wind_up(run)
    assert run.committing is None
    _wind_up(run, immediately=True)
    result = run.ended_with(Outcome.UNFINISHED)
    assert result.end == 2
    assert result.error == f"{ENDED}: it waited for the leader of the target partition"


def test_copy_opening_at_the_end_reads_nothing() -> None:
    """The plan was made before another one has copied on: by the plan alone, the copy would be unfinished."""
    run = CopyHarness(OPEN_END)
    _wind_up(run)
    run.opened_with(progress_at(2))
    assert run.context.read_position is None
    assert run.ended_with(Outcome.COMPLETE).end == 2


def test_copy_resolving_progress_at_the_end_commits_its_start() -> None:
    run = CopyHarness(OPEN_END).opened_with(None)
    _wind_up(run)
    assert run.copy.state is CopyState.RESOLVING_PROGRESS
    run.resolved()
    assert run.commit().offset == 0
    assert run.ended_with(Outcome.COMPLETE).start == 0


def test_copy_that_backs_off_ends_in_order_and_keeps_its_outcome() -> None:
    run = CopyHarness(10).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(0))
    run.fail(0, DeliveryTimeout("late"))
    run.closed()
    run.context.retries_allowed = False
    _wind_up(run)
    run.ended_with(Outcome.EXPIRED)
