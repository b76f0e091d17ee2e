"""How a copy checks its target's log: before it begins, and when the log's leader changes while it copies."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from mirror.errors import AuthorizationFailed, FlowError, KafkaTimeout
from mirror.producer.batch.batches import Callback, RecordMetadata
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.target_log import TargetLogTracker, TargetMark
from mirror.wire.records import Batch
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TARGET, TIMES

MARK = TargetMark(topic_id="its-id", end=1_000, leader_epoch=4, producer_id=6)
COMMITTED = replace(progress_at(0), target=MARK)


def _run(end: int = 10) -> CopyHarness:
    run = CopyHarness(end)
    run.context.leader = (1, 4)
    return run.opened_with(COMMITTED)


def test_source_is_read_only_after_the_target_s_log_was_checked() -> None:
    run = CopyHarness(10).found(COMMITTED)
    assert (run.copy.state, run.context.read_position) == (CopyState.RESOLVING_PROGRESS, None)
    assert run.context.start_requests == [(COMMITTED, MARK)]
    run.resolved(COMMITTED, mark=MARK)
    assert run.context.read_position == (0, None)
    run.fetch(made(0, 10))
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)


def test_records_lost_by_the_target_fail_the_copy() -> None:
    run = CopyHarness(10).found(COMMITTED)
    run.context.start_lookups[-1].set_exception(FlowError("target-truncated: ..."))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "target-truncated: ..."


def test_commit_stores_the_target_s_end_including_batches_in_flight() -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.ack_all()
    run.fetch(made(3, 4))
    run.clock.advance(1_000)
    run.copy.step(run.clock.now())
    assert run.committing == 7
    mark = run.writer.commits[-1].progress.target
    assert mark == replace(MARK, end=1_007, producer_id=7, since=1_003)
    run.ack_all()
    assert run.commit().target == mark


@pytest.mark.parametrize(("since", "stored"), [(1_000, 1_000), (990, None), (None, None)])
def test_commit_of_batches_in_flight_stores_the_exact_end_before_them_if_that_is_known(
    since: int | None, stored: int | None
) -> None:
    run = CopyHarness(10)
    run.context.leader = (1, 4)
    run.opened_with(replace(COMMITTED, target=replace(MARK, since=since)))
    run.fetch(made(0, 3))
    run.advance(1_000)
    mark = run.writer.commits[-1].progress.target
    assert mark == replace(MARK, end=1_003, producer_id=7, since=stored)


def test_exact_end_that_the_search_has_found_is_stored_with_the_next_batches() -> None:
    """Others have written to the target: the transaction that has stored the progress ends at 1,020."""
    short = replace(COMMITTED, target=replace(MARK, since=990))
    run = CopyHarness(10)
    run.context.leader = (1, 4)
    run.found(short).resolved(short, 1_050, mark=short.target)
    run.fetch(made(0, 3))
    assert not run.writer.sent, "the log is longer than the progress says"
    run.acquired(replace(short, target=replace(MARK, end=1_020, since=1_020)))
    run.advance(1_000)
    mark = run.writer.commits[-1].progress.target
    assert mark == replace(MARK, end=1_023, producer_id=7, since=1_020)


def test_duplicate_without_offset_counts_in_the_target_s_end() -> None:
    run = _run(3)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(-1))
    run.context.run_until_idle()
    target = run.commit().target
    assert target is not None
    assert target.end == 1_003


def _appended_at(offset: int) -> RecordMetadata:
    return RecordMetadata(TARGET, offset)


@pytest.mark.parametrize("way", [Way.SEQUENCES, None])
def test_duplicate_without_offset_counts_in_the_mark_of_what_is_acknowledged(way: Way | None) -> None:
    """Otherwise the loss of its records would not be noticed."""
    rules = WayRules(mode="sequences", expiration_ms=86_400_000)
    run = CopyHarness(6, rules=rules) if way is Way.SEQUENCES else CopyHarness(6, atomic=False)
    run.context.leader = (1, 4)
    run.opened_with(replace(COMMITTED, way=way or COMMITTED.way))
    run.fetch(made(0, 3, timestamp=run.clock.unix_ms()))
    if way is Way.SEQUENCES:
        run.acquired()
    run.writer.sent[0].answer(_appended_at(-1))
    run.context.run_until_idle()
    run.advance(TIMES.commit_interval_ms)
    target = run.commit().target
    assert target is not None
    assert target.end == 1_003
    run.fetch(made(3, 3, timestamp=run.clock.unix_ms()))
    run.writer.sent[1].answer(_appended_at(1_002))
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING, "the log has lost one of the three records"


@pytest.mark.parametrize("offset", [0, 999])
def test_acknowledgement_below_the_known_end_ends_the_attempt_without_a_commit(offset: int) -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(offset))
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits
    run.closed()
    run.found(None)
    assert run.context.start_requests[-1] == (None, MARK), (
        "the mark outlives the progress, which was deleted with the topic"
    )
    run.context.start_lookups[-1].set_exception(FlowError("target-recreated: ..."))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "target-recreated: ..."


def test_truncation_is_reported_even_if_the_log_has_grown_again() -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(900))
    run.context.run_until_idle()
    run.closed()
    run.opened_with(COMMITTED)
    error = run.ended_with(Outcome.FAILED).error or ""
    assert error.startswith("target-truncated: target paris.t-0 ")
    assert "100 offsets are missing" in error


def test_commit_waits_until_a_new_target_leader_is_known_to_have_all_records() -> None:
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    run.ack_all()
    run.advance(1_500)
    assert run.committing is None, "a commit would hide what the new leader lacks"
    ((mark, answer),) = run.context.comparisons
    assert mark == MARK
    answer.set_result(replace(MARK, leader_epoch=5))
    run.context.run_until_idle()
    assert run.commit().target == TargetMark(topic_id="its-id", end=1_003, leader_epoch=5, producer_id=7, since=1_003)
    run.fetch(made(3, 3))
    run.ack_all()
    run.advance(1_000)
    assert run.commit().target == TargetMark(topic_id="its-id", end=1_006, leader_epoch=5, producer_id=7, since=1_006)
    assert len(run.context.comparisons) == 1


def test_new_target_leader_that_lacks_records_ends_the_attempt_without_a_commit() -> None:
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    run.ack_all()
    run.context.comparisons[-1][1].set_result(None)
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits
    run.closed()
    run.found(COMMITTED)
    run.context.start_lookups[-1].set_exception(FlowError("target-truncated: ..."))
    run.context.run_until_idle()
    run.ended_with(Outcome.FAILED)


def test_comparison_without_an_answer_is_retried() -> None:
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    for count in (1, 2, 3):
        assert len(run.context.comparisons) == count
        run.context.comparisons[-1][1].set_exception(KafkaTimeout("no answer"))
        run.context.run_until_idle()
        assert run.copy.state is CopyState.COPYING
    run.context.comparisons[-1][1].set_exception(AuthorizationFailed("no Describe", 29))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "no Describe"


def test_progress_record_that_is_read_late_still_detects_a_recreated_target() -> None:
    record_check = _pending()
    run = CopyHarness(10).found(None).resolved(None, mark=replace(MARK, end=0), deferred_check=record_check)
    run.commit()
    run.fetch(made(0, 3))
    record_check.set_exception(FlowError("target-recreated: ..."))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "target-recreated: ..."


def test_unreadable_progress_topic_does_not_stop_a_copy_that_has_begun(caplog: pytest.LogCaptureFixture) -> None:
    record_check = _pending()
    run = CopyHarness(10).found(None).resolved(None, mark=replace(MARK, end=0), deferred_check=record_check)
    run.commit()
    record_check.set_exception(AuthorizationFailed("no Read on the notes", 29))
    run.fetch(made(0, 10))
    run.ack_all()
    assert run.commit().target == replace(MARK, end=10, producer_id=7), "it was stored before the data had offsets"
    assert run.commit().target == replace(MARK, end=1_010, producer_id=7, since=1_010), (
        "another commit stores the true end"
    )
    run.ended_with(Outcome.COMPLETE)
    assert "no Read on the notes" in caplog.text


def _pending() -> Future[None]:
    return Future()


def test_copy_that_starts_over_begins_at_the_flow_s_start() -> None:
    run = CopyHarness(10, start=4, first=1)
    run.found(replace(COMMITTED, offset=4)).resolved(None, 1_000, mark=MARK)
    assert run.commit().offset == 1
    assert run.context.read_position == (1, None)


def test_empty_range_does_not_need_the_target_s_leader() -> None:
    run = CopyHarness(4).found(replace(COMMITTED, offset=4))
    assert not run.context.start_lookups
    run.commit()
    assert run.ended_with(Outcome.COMPLETE).end == 4


def test_empty_range_is_checked_after_an_acknowledgement_below_the_known_end() -> None:
    run = _run(3)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(0))
    run.context.run_until_idle()
    run.closed()
    run.found(replace(COMMITTED, offset=3))
    assert run.context.start_requests[-1] == (replace(COMMITTED, offset=3), MARK)


@pytest.mark.parametrize("end", [10, OPEN_END])
def test_copy_expires_without_a_target_leader(end: int) -> None:
    """The plan of a copy without an end is of days ago: that it had nothing to copy says nothing of what waits now."""
    run = CopyHarness(end, source_end=COMMITTED.offset).found(COMMITTED)
    run.clock.advance(TIMES.delivery_timeout_ms)
    run.context.start_lookups[-1].set_exception(KafkaTimeout("no leader"))
    run.context.run_until_idle()
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert expiry["phase"] == "metadata"


def test_at_least_once_commit_stores_only_the_acknowledged_end_of_the_target() -> None:
    """A batch in flight may never arrive: the next run would miss it in the target's log."""
    run = CopyHarness(100, atomic=False)
    run.context.leader = (1, 4)
    run.opened_with(COMMITTED)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(1_000))
    run.context.run_until_idle()
    run.fetch(made(3, 4))
    run.advance(TIMES.commit_interval_ms)
    assert len(run.writer.sent) == 2
    assert run.committing == 3
    target = run.commit().target
    assert target == replace(MARK, end=1_003, producer_id=7, batch=(0, 1)), "the mark names the batch that ends there"


def test_at_least_once_acknowledgement_below_the_known_end_is_not_committed() -> None:
    """A final commit would store the end that the log had, which record_check records may reach again."""
    run = CopyHarness(100, atomic=False)
    run.context.leader = (1, 4)
    run.opened_with(COMMITTED)
    run.fetch(made(0, 3), made(3, 3))
    run.writer.sent[0].answer(_appended_at(900))
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits
    assert len(run.sent) == 1, "nothing more is appended behind the loss"


@pytest.mark.parametrize("way", [Way.TRANSACTIONS, None])
def test_new_leader_is_compared_with_all_that_was_acknowledged(way: Way | None) -> None:
    """The next commit would say that it is in the log, also what only the last leader had."""
    run = CopyHarness(100, atomic=way is Way.TRANSACTIONS)
    run.context.leader = (1, 4)
    run.opened_with(COMMITTED)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(1_000))
    run.context.leader = (2, 5)
    run.context.run_until_idle()
    ((mark, answer),) = run.context.comparisons
    assert mark == replace(MARK, end=1_003, producer_id=7, batch=(0, 1))
    answer.set_result(None)
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits


def test_progress_record_does_not_reach_behind_its_progress() -> None:
    """What is acknowledged while its commit is in flight would be missing behind a restored progress."""
    run = CopyHarness(100, atomic=False)
    run.opened_with(COMMITTED)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_appended_at(1_000))
    run.context.run_until_idle()
    run.advance(TIMES.commit_interval_ms)
    run.fetch(made(3, 4))
    run.writer.sent[1].answer(_appended_at(1_003))
    run.context.run_until_idle()
    run.commit()
    recorded = run.copy.recorder.committed_progress
    assert recorded is not None
    assert (recorded[0].offset, recorded[1]) == (3, 1_003)


def test_completion_waits_until_a_new_target_leader_is_known_to_have_all_records() -> None:
    """The leader changes during the last commit: the new one may have acknowledged what it waited for."""
    run = _run(3)
    run.fetch(made(0, 3))
    run.context.run_until_idle()
    assert run.committing == 3
    run.context.leader = (2, 5)
    run.ack_all()
    run.commit()
    ((_, answer),) = run.context.comparisons
    assert run.writer.closed is None
    answer.set_result(None)
    run.context.run_until_idle()
    run.closed()
    run.found(replace(COMMITTED, offset=3))
    assert run.context.start_requests[-1][1] == MARK
    run.context.start_lookups[-1].set_exception(FlowError("target-truncated: ..."))
    run.context.run_until_idle()
    run.ended_with(Outcome.FAILED)


@pytest.mark.parametrize("committed", [False, True])
def test_copy_that_waits_for_a_comparison_expires(committed: bool) -> None:
    run = _run(3 if committed else 100)
    run.fetch(made(0, 3))
    run.context.leader = (2, 5)
    run.ack_all()
    if committed:
        run.commit()
    for lookups in (1, 2):
        assert len(run.context.comparisons) == lookups
        assert run.copy.state is CopyState.COPYING
        run.clock.advance(TIMES.stall_ms)
        run.context.comparisons[-1][1].set_exception(KafkaTimeout("no leader"))
        run.context.run_until_idle()
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert (expiry["phase"], expiry["start"]) == ("metadata", 3 if committed else 0)


def test_comparison_that_delays_nothing_is_retried_without_an_expiry() -> None:
    run = CopyHarness(OPEN_END)
    run.context.leader = (1, 4)
    run.opened_with(COMMITTED)
    run.context.leader = (2, 5)
    run.copy.step(run.clock.now())
    for lookups in range(1, 6):
        assert len(run.context.comparisons) == lookups
        run.clock.advance(TIMES.stall_ms)
        run.source_answers()
        run.context.comparisons[-1][1].set_exception(KafkaTimeout("no leader"))
        run.context.run_until_idle()
    assert run.copy.state is CopyState.COPYING


def test_acknowledgement_below_the_known_end_during_the_send_is_not_committed() -> None:
    run = _run(3)
    send = run.writer.send

    def answered(batch: Batch, callback: Callback, log_end: int) -> None:
        send(batch, callback, log_end)
        run.writer.sent[-1].answer(_appended_at(900))

    run.writer.send = answered  # type: ignore[method-assign]
    run.fetch(made(0, 3))
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits


def test_winding_up_waits_for_a_comparison_until_it_must_end() -> None:
    for holds in (True, False):
        run = _run(3)
        run.fetch(made(0, 3))
        run.context.leader = (2, 5)
        run.copy.wind_up(run.clock.now(), immediately=False)
        run.ack_all()
        run.commit()
        assert run.copy.state is CopyState.COPYING
        if holds:
            run.context.comparisons[-1][1].set_result(replace(MARK, leader_epoch=5))
            run.context.run_until_idle()
            run.ended_with(Outcome.COMPLETE)
        else:
            run.copy.wind_up(run.clock.now(), immediately=True)
            run.ended_with(Outcome.UNFINISHED)


def test_leader_epoch_learned_late_is_compared_once() -> None:
    """The topic description may be newer than the producer's metadata."""
    run = _run(100)
    run.context.leader = (1, 3)
    run.fetch(made(0, 3))
    ((_, answer),) = run.context.comparisons
    answer.set_result(MARK)
    run.context.run_until_idle()
    assert len(run.context.comparisons) == 1
    run.ack_all()
    run.advance(1_000)
    assert run.commit().target == replace(MARK, end=1_003, producer_id=7, since=1_003)
    run.context.leader = (1, 4)
    run.fetch(made(3, 3))
    assert len(run.context.comparisons) == 1
    run.context.leader = (2, 5)
    run.fetch(made(6, 3))
    assert len(run.context.comparisons) == 2


def test_outdated_topic_description_causes_no_second_comparison() -> None:
    """The leader was queried in the epoch of the client's metadata: a leader of an earlier epoch would have refused."""
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    run.context.comparisons[-1][1].set_result(MARK)
    run.context.run_until_idle()
    assert len(run.context.comparisons) == 1
    run.ack_all()
    run.advance(1_000)
    assert run.commit().target == replace(MARK, end=1_003, leader_epoch=5, producer_id=7, since=1_003)


def test_a_target_without_leader_epochs_is_not_compared_and_its_marks_have_none() -> None:
    """Readers take a mark with epoch -1 for one whose log was truncated."""
    mark = replace(MARK, leader_epoch=None)
    run = CopyHarness(10)
    run.context.leader = (1, -1)
    run.opened_with(replace(COMMITTED, target=mark))
    run.fetch(made(0, 10))
    run.context.leader = (2, -1)
    run.ack_all()
    assert not run.context.comparisons
    assert run.commit().target == replace(mark, end=1_010, producer_id=7)


def test_a_mark_of_another_attempt_is_compared_with_a_leader_that_was_compared_before() -> None:
    """It covers more: what the leader had of the former mark says nothing about that."""
    tracker = TargetLogTracker()
    tracker.verified = mark = TargetMark(topic_id="a", end=50, leader_epoch=1)
    assert tracker.mark_to_compare(2) == mark
    assert tracker.on_compared(mark)
    assert tracker.mark_to_compare(2) is None
    tracker.on_committed(replace(tracker.verified, end=55))
    assert tracker.mark_to_compare(2) is None, "its own commit"
    tracker.on_committed(other := replace(mark, end=60))
    assert tracker.mark_to_compare(2) == other
