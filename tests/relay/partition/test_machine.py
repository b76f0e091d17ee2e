"""The copy of one partition: how it begins, what it sends, when it commits, and how it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import AuthorizationFailed, FlowError, KafkaTimeout, RecordRejected
from mirror.relay.model.policy import MAX_TRANSACTION_BYTES
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.states import CopyState
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import TRANSACTIONAL
from tests.fakes.record_batches import ABORT, batch, build, build_marker
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TIMES


def test_a_range_is_copied_and_complete() -> None:
    run = CopyHarness(5).opened(0)
    run.fetch(made(0, 2), made(2, 3), stable_end=5)
    assert run.sent == [[b"0", b"1"]], "nothing follows the first batch before its answer"
    run.ack(0)
    assert run.sent == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert run.committing == 5
    run.ack(1)
    progress = run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.start, result.end, result.records, result.batches, result.error) == (0, 5, 5, 2, None)
    assert result.bytes == sum(sent.size for sent in run.writer.sent)
    assert (progress.offset, progress.leader_epoch) == (5, 0)
    assert (progress.source_cluster_id, progress.topic_id) == ("paris", "the-id")
    assert progress.time_ms == run.clock.unix_ms()
    assert (result.retries, result.expiries, result.stuck_since_ms) == (0, [], None)


def test_source_is_read_only_after_the_target_is_opened() -> None:
    run = CopyHarness(5)
    assert run.copy.state is CopyState.OPENING
    assert run.writer.open_timeout_ms == TIMES.delivery_timeout_ms
    assert run.context.read_position is None
    assert not run.copy.wants_more
    run.opened(0)
    assert run.context.read_position == (0, None)
    assert run.copy.wants_more


def test_copy_resumes_at_the_target_s_progress_not_at_the_planned_start() -> None:
    for planned in (0, 3, 9):
        run = CopyHarness(10, start=planned).opened(7)
        assert run.context.read_position == (7, None)
        run.fetch(made(7, 3))
        run.ack_all()
        run.commit()
        result = run.ended_with(Outcome.COMPLETE)
        assert (result.start, result.end, result.records) == (7, 10, 3)


def test_copy_without_progress_commits_its_start_before_the_first_record() -> None:
    run = CopyHarness(10, start=4).opened_with(None)
    assert run.copy.state is CopyState.RESOLVING_PROGRESS
    run.resolved()
    assert run.committing == 4
    run.fetch(made(4, 2))
    assert not run.sent
    assert run.commit().leader_epoch is None
    assert run.sent == [[b"4", b"5"]]


def test_at_least_once_copy_without_progress_commits_its_start_before_the_first_record() -> None:
    run = CopyHarness(10, start=4, atomic=False).opened_with(None).resolved()
    assert run.committing == 4
    assert not run.copy.wants_more
    run.fetch(made(4, 2))
    assert not run.sent
    run.commit()
    assert run.sent == [[b"4", b"5"]]


@pytest.mark.parametrize("atomic", [True, False])
def test_copy_that_may_not_commit_progress_sends_nothing(atomic: bool) -> None:
    run = CopyHarness(10, atomic=atomic).opened_with(None).resolved()
    run.commit(AuthorizationFailed("no Read on the group", 30))
    if not atomic:
        assert len(run.writer.commits) == 1, "a refused commit is not retried"
    result = run.ended_with(Outcome.FAILED)
    assert result.error == "paris.t-0: progress was not committed: no Read on the group"
    assert run.sent == []
    assert run.copy.recorder.committed_progress is None, "the progress topic gets no record"


def test_progress_restored_from_the_progress_topic_is_committed() -> None:
    run = CopyHarness(10).opened_with(None).resolved(progress_at(6), target_end=99)
    assert run.committing == 6
    assert run.copy.recorder.committed_progress is None, "it is not committed yet"
    assert run.context.read_position == (6, None)
    run.commit()
    assert run.copy.recorder.committed_progress is not None
    assert (run.copy.recorder.committed_progress[0].offset, run.copy.recorder.committed_progress[1]) == (6, 99)


@pytest.mark.parametrize("error", [FlowError("progress-lost: ..."), ValueError("odd")])
def test_lost_progress_fails_the_copy_with_its_error(error: Exception) -> None:
    run = CopyHarness(10).opened_with(None)
    run.context.start_lookups[-1].set_exception(error)
    run.context.run_until_idle()
    assert str(error) in str(run.ended_with(Outcome.FAILED).error)
    assert run.sent == []


def test_target_that_does_not_report_its_end_expires() -> None:
    run = CopyHarness(10).opened_with(None)
    run.context.start_lookups[-1].set_exception(KafkaTimeout("no leader"))
    run.context.run_until_idle()
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert (expiry["phase"], expiry["last_error"]) == ("metadata", "no leader")


def test_progress_of_another_source_cluster_fails_the_copy() -> None:
    run = CopyHarness(10).opened(3, cluster="rome")
    result = run.ended_with(Outcome.FAILED)
    assert "another source cluster (rome, not paris)" in str(result.error)
    assert result.end == 0, "the progress is one of other offsets"
    assert run.writer.commits == []


@pytest.mark.parametrize("offset", [3, 10])
def test_progress_of_another_source_topic_fails_the_copy(offset: int) -> None:
    run = CopyHarness(10).opened(offset, topic="other")
    result = run.ended_with(Outcome.FAILED)
    assert "is the copy of source topic other, and its name is now that of source topic" in str(result.error)
    assert run.writer.commits == []


def test_empty_range_is_complete_and_commits_its_progress_again() -> None:
    run = CopyHarness(7, start=7).opened(7)
    assert run.context.read_position is None
    assert run.committing == 7
    run.commit()
    assert run.ended_with(Outcome.COMPLETE).records == 0


def test_retry_after_success_copies_nothing() -> None:
    run = CopyHarness(7, start=2).opened(9)
    run.source_checked(end=9)
    assert run.commit().offset == 9
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.start, result.end, result.records, result.gaps) == (9, 9, 0, {})


# --- commits


def test_caught_up_copy_commits_immediately_but_not_below_the_minimum_interval() -> None:
    run = CopyHarness(10**6).opened(0)
    run.clock.advance(TIMES.commit_min_interval_ms)
    run.fetch(made(0), stable_end=1)
    assert run.committing == 1, "without waiting for the acknowledgement"
    run.ack()
    run.commit()
    run.clock.advance(1)
    run.fetch(made(1), stable_end=2)
    assert run.committing is None
    run.advance(TIMES.commit_min_interval_ms - 2)
    assert run.committing is None
    run.advance(1)
    assert run.committing == 2


def test_copy_that_catches_up_commits_after_its_interval() -> None:
    run = CopyHarness(10**6).opened(0)
    run.fetch(made(0), stable_end=1_000)
    run.ack()
    run.advance(TIMES.commit_interval_ms - 1)
    assert run.committing is None
    run.advance(1)
    assert run.committing == 1


def test_large_transaction_is_committed_before_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_TRANSACTION_BYTES == 64 * 1024 * 1024
    limit = 3 * made(0).size
    monkeypatch.setattr("mirror.relay.partition.attempts.commits.MAX_TRANSACTION_BYTES", limit)
    run = CopyHarness(10**6).opened(0)
    for offset in range(3):
        assert run.committing is None
        run.fetch(made(offset))
        run.ack()
    assert run.committing == 3
    run.commit()
    run.fetch(made(3))
    assert run.committing is None


def test_at_least_once_sends_any_number_of_bytes_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.relay.partition.attempts.commits.MAX_TRANSACTION_BYTES", made(0).size)
    run = CopyHarness(10**6, atomic=False).opened(0)
    for offset in range(4):
        run.fetch(made(offset), stable_end=1_000)
        run.ack()
    assert (len(run.sent), run.committing) == (4, None)
    run.advance(TIMES.commit_interval_ms)
    assert run.committing == 4


def test_nothing_is_sent_while_a_transaction_ends() -> None:
    run = CopyHarness(10**6).opened(0)
    run.fetch(made(0), stable_end=1_000)
    run.advance(TIMES.commit_interval_ms)
    assert run.committing == 1
    assert not run.copy.wants_more
    run.fetch(made(1), stable_end=1_000)
    run.ack()
    assert len(run.sent) == 1
    run.commit()
    assert len(run.sent) == 2


def test_at_least_once_commits_only_what_is_acknowledged() -> None:
    run = CopyHarness(10**6, atomic=False).opened(0)
    run.fetch(made(0), made(1), made(2), stable_end=1_000)
    run.ack(0)
    assert len(run.sent) == 3
    run.ack(2)
    run.advance(TIMES.commit_interval_ms)
    assert run.committing == 1
    run.fetch(made(3), stable_end=1_000)
    assert len(run.sent) == 4, "it sends while a commit is in flight"
    run.commit()
    assert run.copy.result.records == 1
    run.ack(1)
    run.advance(TIMES.commit_interval_ms)
    assert run.committing == 3


@given(st.permutations(range(1, 6)))
def test_at_least_once_progress_is_the_contiguous_prefix_whatever_the_order_of_answers(order: list[int]) -> None:
    run = CopyHarness(10**6, atomic=False).opened(0)
    run.fetch(*(made(n) for n in range(6)), stable_end=1_000)
    run.ack(0)
    answered = {0}
    for number in order:
        run.ack(number)
        answered.add(number)
        prefix = next(n for n in range(7) if n not in answered)
        run.advance(TIMES.commit_interval_ms)
        if run.committing is not None:
            assert run.commit().offset == prefix
        assert (run.copy.result.end, run.copy.result.records) == (prefix, prefix)


def test_at_least_once_next_commit_includes_one_that_failed() -> None:
    run = CopyHarness(2, atomic=False).opened(0)
    run.fetch(made(0), made(1))
    run.ack(0)
    run.advance(TIMES.commit_interval_ms)
    run.commit(KafkaTimeout("the coordinator does not answer"))
    assert run.copy.result.records == 0
    run.ack(1)
    assert run.commit().offset == 2
    assert run.ended_with(Outcome.COMPLETE).records == 2


def test_only_committed_records_are_counted() -> None:
    run = CopyHarness(10**6).opened(0)
    run.fetch(made(0, 3), made(5, 2), stable_end=1_000)
    run.ack_all()
    assert (run.copy.result.records, run.copy.result.gaps, run.copy.result.end) == (0, {}, 0)
    run.advance(TIMES.commit_interval_ms)
    run.commit()
    assert (run.copy.result.records, run.copy.result.gaps, run.copy.result.end) == (5, {"compacted": 2}, 7)


@pytest.mark.parametrize("opened", [False, True])
def test_copy_that_is_released_before_its_end_closes_its_writer(opened: bool) -> None:
    """Its task has failed. Otherwise the producer of its transactions would stay, with its thread and connections."""
    run = CopyHarness(10)
    if opened:
        run.opened(0).fetch(made(0, 2))
    run.copy.release()
    assert run.writer.closed is not None


def test_copy_that_is_released_while_its_attempt_ends_closes_its_writer_once() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0, 2))
    run.fail(0, RecordRejected("odd", 87))
    assert run.writer.closed is not None
    run.copy.release()


def test_gaps_that_were_read_and_not_committed_are_not_counted_twice() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0, 2), made(4, 2), made(8, 2))
    run.ack(0)
    run.fail(1, RecordRejected("odd", 87))
    run.closed()
    assert run.copy.result.gaps == {}
    run.opened(0)
    run.fetch(made(0, 2), made(4, 2), made(8, 2))
    run.ack_all()
    assert run.commit().offset == 2
    result = run.ended_with(Outcome.FAILED)
    assert (result.gaps, result.end) == ({}, 2)
    assert result.error == "t-0, the batch at offset 4: odd"


# --- the source's batches


def test_range_that_ends_inside_a_gap_is_complete_at_its_end() -> None:
    """Compaction has removed the range's last records: the log's next batch begins behind its end."""
    run = CopyHarness(10).opened(0)
    run.fetch(made(0, 2), made(15))
    run.ack_all()
    assert run.commit().offset == 10
    assert run.ended_with(Outcome.COMPLETE).records == 2


def test_batches_behind_the_end_are_left_to_the_next_range() -> None:
    run = CopyHarness(3).opened(0)
    run.fetch(*(made(n) for n in range(6)))
    run.ack_all()
    assert run.commit().offset == 3
    assert run.ended_with(Outcome.COMPLETE).records == 3


def test_batch_across_the_end_is_trimmed() -> None:
    """The next range begins inside that batch, and copies the rest."""
    run = CopyHarness(3).opened(0)
    run.fetch(made(0, 5))
    run.ack_all()
    assert run.sent == [[b"0", b"1", b"2"]]
    assert run.commit().offset == 3
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, result.records, result.deep) == (3, 3, {"trimmed": 1})


def test_copy_that_begins_inside_a_batch_sends_the_rest_of_it() -> None:
    run = CopyHarness(6, start=2).opened(2)
    run.fetch(made(0, 4), made(4, 2))
    run.ack_all()
    assert run.sent == [[b"2", b"3"], [b"4", b"5"]]
    run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.records, result.deep, result.gaps) == (4, {"trimmed": 1}, {})


def test_batches_without_records_are_skipped_and_counted_and_progress_passes_them() -> None:
    """aborted_and_control_batches_move_progress: the lag behind them is zero."""
    transactional = {"attributes": TRANSACTIONAL, "producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    marker = batch(build_marker(9, 0, ABORT, base_offset=3))
    empty = batch(build((), base_offset=4, last_offset_delta=5))
    run = CopyHarness(10).opened(0)
    run.fetch(made(0), made(1, 2, **transactional), marker, empty, aborted=(AbortedTransaction(9, 1),))
    run.ack_all()
    assert run.commit().offset == 10
    result = run.ended_with(Outcome.COMPLETE)
    assert result.skipped == {"aborted": 1, "control": 1, "empty": 1}
    assert result.gaps == {"markers": 1, "compacted": 6}
    assert (result.records, result.batches) == (1, 1)


@pytest.mark.parametrize("atomic", [True, False])
def test_range_of_control_batches_is_complete_without_sending(atomic: bool) -> None:
    run = CopyHarness(2, atomic=atomic).opened(0)
    run.fetch(*(batch(build_marker(9, 0, ABORT, base_offset=n)) for n in range(2)))
    assert run.commit().offset == 2
    run.ended_with(Outcome.COMPLETE)
    assert run.sent == []


def test_progress_has_the_leader_epoch_of_the_last_batch() -> None:
    run = CopyHarness(2).opened(0)
    run.fetch(made(0, leader_epoch=4), made(1, leader_epoch=6))
    run.ack_all()
    assert run.commit().leader_epoch == 6


@pytest.mark.parametrize("offset", [0, 3])
def test_fetch_that_does_not_continue_the_last_one_fails_the_copy_behind_what_was_read(offset: int) -> None:
    run = CopyHarness(5).opened(0)
    run.fetch(made(0, 2))
    run.fetch(made(offset, 2), offset=offset)
    assert run.context.read_position is None
    run.ack()
    assert run.commit().offset == 2
    assert (
        run.ended_with(Outcome.FAILED).error
        == f"t-0: the source was read up to offset 2, and the next fetch is from offset {offset}:"
        " nothing from offset 2 on was copied; the next attempt reads it again"
    )


def test_followed_copy_reads_again_after_a_fetch_that_does_not_continue_the_last_one() -> None:
    run = CopyHarness(OPEN_END).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(3), offset=3)
    run.closed()
    run.back_off()
    run.opened(0)
    run.fetch(made(0, 4))
    assert run.sent == [[b"0", b"1", b"2", b"3"]]
