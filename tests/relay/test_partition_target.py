"""What one copy makes of its target's log: at its beginning, and when it changes while records are on their way."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from mirror.errors import AuthorizationFailed, FlowError, KafkaTimeout
from mirror.producer.batch.batches import Callback, RecordMetadata
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.records import Batch
from tests.relay.copy_harness import TARGET, TIMES, CopyHarness, made, progress_at

MARK = TargetMark(topic_id="its-id", end=1_000, leader_epoch=4, producer_id=6)
KEPT = replace(progress_at(0), target=MARK)


def _run(end: int = 10) -> CopyHarness:
    run = CopyHarness(end)
    run.context.leader = (1, 4)
    return run.opened_with(KEPT)


def test_nothing_is_read_before_the_target_was_asked() -> None:
    run = CopyHarness(10).found(KEPT)
    assert (run.copy.state, run.context.read_position) == (CopyState.RESOLVING_PROGRESS, None)
    assert run.context.start_requests == [(KEPT, MARK)]
    run.resolved(KEPT, mark=MARK)
    assert run.context.read_position == (0, None)
    run.fetch(made(0, 10))
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)


def test_what_the_target_lost_fails_the_copy_by_name() -> None:
    run = CopyHarness(10).found(KEPT)
    run.context.start_lookups[-1].set_exception(FlowError("target-truncated: ..."))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "target-truncated: ..."


def test_a_commit_says_how_far_the_target_reaches_with_what_is_under_way() -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.ack_all()
    run.fetch(made(3, 4))
    run.clock.advance(1_000)
    run.copy.step(run.clock.now())
    assert run.committing == 7
    kept = run.writer.commits[-1].progress.target
    assert kept == replace(MARK, end=1_007, producer_id=7)
    run.ack_all()
    assert run.commit().target == kept


def test_a_duplicate_whose_offset_is_not_told_counts() -> None:
    run = _run(3)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_at(-1))
    run.context.run_until_idle()
    target = run.commit().target
    assert target is not None
    assert target.end == 1_003


def _at(offset: int) -> RecordMetadata:
    return RecordMetadata(TARGET, offset)


def test_an_acknowledgement_below_the_known_end_is_never_followed_by_more() -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_at(0))
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits
    run.closed()
    run.found(None)
    assert run.context.start_requests[-1] == (None, MARK), (
        "what this copy knew, also where the progress went with the topic"
    )
    run.context.start_lookups[-1].set_exception(FlowError("target-recreated: ..."))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "target-recreated: ..."


def test_it_is_named_also_where_the_log_looks_whole_again() -> None:
    run = _run()
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_at(900))
    run.context.run_until_idle()
    run.closed()
    run.opened_with(KEPT)
    error = run.ended_with(Outcome.FAILED).error or ""
    assert error.startswith("target-truncated: target paris.t-0 ")
    assert "100 offsets are missing" in error


def test_nothing_is_committed_before_a_new_leader_of_the_target_has_said_that_it_has_all() -> None:
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    run.ack_all()
    run.advance(1_500)
    assert run.committing is None, "a commit would hide what the new leader lost"
    ((asked, answer),) = run.context.comparisons
    assert asked == MARK
    answer.set_result(replace(MARK, leader_epoch=5))
    run.context.run_until_idle()
    assert run.commit().target == TargetMark(topic_id="its-id", end=1_003, leader_epoch=5, producer_id=7)
    run.fetch(made(3, 3))
    run.ack_all()
    run.advance(1_000)
    assert run.commit().target == TargetMark(topic_id="its-id", end=1_006, leader_epoch=5, producer_id=7)
    assert len(run.context.comparisons) == 1


def test_a_new_leader_that_lacks_something_ends_the_attempt_before_a_commit() -> None:
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    run.ack_all()
    run.context.comparisons[-1][1].set_result(None)
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits
    run.closed()
    run.found(KEPT)
    run.context.start_lookups[-1].set_exception(FlowError("target-truncated: ..."))
    run.context.run_until_idle()
    run.ended_with(Outcome.FAILED)


def test_a_comparison_without_an_answer_comes_again() -> None:
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


def test_a_note_that_is_read_only_later_still_names_what_was_there() -> None:
    later = _never()
    run = CopyHarness(10).found(None).resolved(None, mark=replace(MARK, end=0), later=later)
    run.commit()
    run.fetch(made(0, 3))
    later.set_exception(FlowError("target-recreated: ..."))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.FAILED).error == "target-recreated: ..."


def test_notes_that_may_not_be_read_stop_nothing_that_has_begun(caplog: pytest.LogCaptureFixture) -> None:
    later = _never()
    run = CopyHarness(10).found(None).resolved(None, mark=replace(MARK, end=0), later=later)
    run.commit()
    later.set_exception(AuthorizationFailed("no Read on the notes", 29))
    run.fetch(made(0, 10))
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)
    assert "no Read on the notes" in caplog.text


def _never() -> Future[None]:
    return Future()


def test_whoever_starts_over_begins_where_the_flow_does_and_not_at_the_progress() -> None:
    run = CopyHarness(10, start=4, first=1)
    run.found(replace(KEPT, offset=4)).resolved(None, 1_000, mark=MARK)
    assert run.commit().offset == 1
    assert run.context.read_position == (1, None)


def test_a_range_with_nothing_to_copy_does_not_need_the_targets_leader() -> None:
    run = CopyHarness(4).found(replace(KEPT, offset=4))
    assert not run.context.start_lookups
    run.commit()
    assert run.ended_with(Outcome.COMPLETE).end == 4


def test_after_a_doubt_the_target_is_asked_also_where_nothing_is_left_to_copy() -> None:
    run = _run(3)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_at(0))
    run.context.run_until_idle()
    run.closed()
    run.found(replace(KEPT, offset=3))
    assert run.context.start_requests[-1] == (replace(KEPT, offset=3), MARK)


def test_who_follows_and_has_nothing_to_copy_waits_for_the_targets_leader_without_an_expiry() -> None:
    run = CopyHarness(OPEN_END).found(KEPT)
    for asked in (1, 2, 3):
        assert len(run.context.start_lookups) == asked
        run.clock.advance(TIMES.delivery_timeout_ms)
        run.context.start_lookups[-1].set_exception(KafkaTimeout("no leader"))
        run.context.run_until_idle()
    run.copy.wind_up(run.clock.now(), immediately=True)
    assert run.ended_with(Outcome.COMPLETE).expiries == []


def test_whoever_has_something_to_copy_expires_where_the_targets_leader_is_away() -> None:
    run = CopyHarness(10).found(KEPT)
    run.clock.advance(TIMES.delivery_timeout_ms)
    run.context.start_lookups[-1].set_exception(KafkaTimeout("no leader"))
    run.context.run_until_idle()
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert expiry["phase"] == "metadata"


def test_at_least_once_a_commit_says_only_what_is_acknowledged_of_the_target() -> None:
    """What is under way may never arrive: the next run would miss it in the target's log."""
    run = CopyHarness(100, atomic=False)
    run.context.leader = (1, 4)
    run.opened_with(KEPT)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_at(1_000))
    run.context.run_until_idle()
    run.fetch(made(3, 4))
    run.advance(TIMES.commit_interval_ms)
    assert len(run.writer.sent) == 2
    assert run.committing == 3
    target = run.commit().target
    assert target == replace(MARK, end=1_003, producer_id=7, batch=(0, 1)), "the batch that ends there is known, too"


def test_at_least_once_nothing_is_committed_behind_an_acknowledgement_below_the_known_end() -> None:
    """A last commit would keep the end that the log had, which what was sent since may reach again."""
    run = CopyHarness(100, atomic=False)
    run.context.leader = (1, 4)
    run.opened_with(KEPT)
    run.fetch(made(0, 3))
    run.writer.sent[0].answer(_at(900))
    run.context.run_until_idle()
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits


def test_nothing_is_complete_before_a_new_leader_of_the_target_has_said_that_it_has_all() -> None:
    """The leader changes while the last commit is under way: it may have acknowledged what that waited for."""
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
    run.found(replace(KEPT, offset=3))
    assert run.context.start_requests[-1][1] == MARK
    run.context.start_lookups[-1].set_exception(FlowError("target-truncated: ..."))
    run.context.run_until_idle()
    run.ended_with(Outcome.FAILED)


@pytest.mark.parametrize("committed", [False, True])
def test_what_waits_for_a_comparison_expires_and_does_not_hang(committed: bool) -> None:
    run = _run(3 if committed else 100)
    run.fetch(made(0, 3))
    run.context.leader = (2, 5)
    run.ack_all()
    if committed:
        run.commit()
    for asked in (1, 2):
        assert len(run.context.comparisons) == asked
        assert run.copy.state is CopyState.COPYING
        run.clock.advance(TIMES.stall_ms)
        run.context.comparisons[-1][1].set_exception(KafkaTimeout("no leader"))
        run.context.run_until_idle()
    (expiry,) = run.ended_with(Outcome.EXPIRED).expiries
    assert (expiry["phase"], expiry["start"]) == ("metadata", 3 if committed else 0)


def test_where_nothing_waits_for_a_comparison_it_is_asked_again() -> None:
    run = CopyHarness(OPEN_END)
    run.context.leader = (1, 4)
    run.opened_with(KEPT)
    run.context.leader = (2, 5)
    run.copy.step(run.clock.now())
    for asked in range(1, 6):
        assert len(run.context.comparisons) == asked
        run.clock.advance(TIMES.stall_ms)
        run.copy.on_source_response(run.clock.now())
        run.context.comparisons[-1][1].set_exception(KafkaTimeout("no leader"))
        run.context.run_until_idle()
    assert run.copy.state is CopyState.COPYING


def test_what_is_acknowledged_below_the_known_end_as_it_is_sent_is_not_committed() -> None:
    run = _run(3)
    send = run.writer.send

    def answered(batch: Batch, created_ms: int | None, callback: Callback) -> None:
        send(batch, created_ms, callback)
        run.writer.sent[-1].answer(_at(900))

    run.writer.send = answered  # type: ignore[method-assign]
    run.fetch(made(0, 3))
    assert run.copy.state is CopyState.ABORTING
    assert not run.writer.commits


def test_who_winds_up_waits_for_a_comparison_until_it_has_to_end() -> None:
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


def test_a_leader_epoch_that_is_heard_of_late_is_compared_once() -> None:
    """What was described may be newer than what the producer goes by, until its metadata is due."""
    run = _run(100)
    run.context.leader = (1, 3)
    run.fetch(made(0, 3))
    ((_, answer),) = run.context.comparisons
    answer.set_result(MARK)
    run.context.run_until_idle()
    assert len(run.context.comparisons) == 1
    run.ack_all()
    run.advance(1_000)
    assert run.commit().target == replace(MARK, end=1_003, producer_id=7)
    run.context.leader = (1, 4)
    run.fetch(made(3, 3))
    assert len(run.context.comparisons) == 1
    run.context.leader = (2, 5)
    run.fetch(made(6, 3))
    assert len(run.context.comparisons) == 2


def test_a_description_that_is_behind_is_no_reason_to_compare_again() -> None:
    """The leader was asked in the epoch that the client knows: one of an earlier epoch would have refused."""
    run = _run(100)
    run.context.leader = (2, 5)
    run.fetch(made(0, 3))
    run.context.comparisons[-1][1].set_result(MARK)
    run.context.run_until_idle()
    assert len(run.context.comparisons) == 1
    run.ack_all()
    run.advance(1_000)
    assert run.commit().target == replace(MARK, end=1_003, leader_epoch=5, producer_id=7)
