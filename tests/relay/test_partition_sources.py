"""What goes wrong at the source, and how an epoch ends; each answer given by hand."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from mirror.errors import AuthorizationFailed, BrokerError, DeliveryTimeout, KafkaTimeout, LogTruncated, TopicRecreated
from mirror.errors import OffsetOutOfRange as OutOfRange
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.states import EPOCH_ENDED, MAX_REFETCHES, CopyState
from mirror.relay.progress.committed import NOTHING, ProgressTotals
from mirror.wire.records import Batch
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import batch, build
from tests.relay.copy_harness import TIMES, TOPIC_ID, CopyHarness, made, progress_at

# --- gaps


def test_retention_that_overtook_the_copy_fails_it_and_says_what_is_lost() -> None:
    run = CopyHarness(100).opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(earliest=40)
    result = run.ended_with(Outcome.FAILED)
    assert "offsets 5 to 39 are gone and were never copied" in str(result.error)
    assert 'on-gap = "skip"' in str(result.error)
    assert (result.end, result.gaps) == (5, {})


@pytest.mark.parametrize(
    ("error", "state", "resume", "gaps"),
    [
        (OutOfRange("gone", 1), {"earliest": 40}, 40, {"retention": 35}),
        (OutOfRange("gone", 1), {"end": 3}, 3, {"truncated": 2}),
        (LogTruncated("cut back", 4), {}, 4, {"truncated": 1}),
        (LogTruncated("made anew"), {"topic_id": "another", "earliest": 0}, 0, {"recreated": 0}),
    ],
)
def test_a_gap_is_passed_over_where_the_flow_says_so_and_counted_once_it_is_kept(
    error: OutOfRange | LogTruncated, state: dict[str, int], resume: int, gaps: dict[str, int]
) -> None:
    run = CopyHarness(50, on_gap="skip").opened(5)
    run.fetch_fails(error)
    run.source_checked(**state)  # type: ignore[arg-type]
    assert (run.committing, run.copy.result.gaps) == (resume, {})
    kept = run.commit()
    assert run.copy.result.gaps == gaps
    assert kept.topic_id == state.get("topic_id", TOPIC_ID)
    if "end" not in state:
        assert (run.context.read_position, run.context.read_topic_id) == (
            (resume, None),
            state.get("topic_id", TOPIC_ID),
        )
        run.fetch(made(resume, 50 - resume))
        run.ack_all()
        run.commit()
    assert run.ended_with(Outcome.COMPLETE).end == state.get("end", 50)


def test_a_gap_whose_passing_was_not_kept_is_counted_once() -> None:
    run = CopyHarness(50, on_gap="skip").opened(5)
    run.context.retries_allowed = True
    for _ in range(2):
        run.fetch_fails(OutOfRange("gone", 1))
        run.source_checked(earliest=40)
        if run.copy.result.retries == 0:
            run.commit(KafkaTimeout("..."))
            run.closed()
            run.advance(1_000)
            run.opened(5)
    run.commit()
    assert run.copy.result.gaps == {"retention": 35}


def test_a_topic_made_anew_between_two_runs_is_seen_by_its_id() -> None:
    run = CopyHarness(50).opened(5, topic_id="the-former")
    run.source_checked()
    assert "deleted and made again" in str(run.ended_with(Outcome.FAILED).error)
    assert run.sent == []


def test_recreated_topic_is_named_never_resumed() -> None:
    """A stream tries again and again: it must not forget which topic its progress belongs to."""
    run = CopyHarness(OPEN_END)
    run.context.retries_allowed = True
    errors = set()
    for _ in range(3):
        run.opened(5)
        assert (run.context.read_position, run.context.read_topic_id) == ((5, None), TOPIC_ID)
        run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
        run.source_checked(topic_id="another", end=100)
        run.closed()
        assert run.copy.state is CopyState.BACKING_OFF
        errors.add(run.context.observer.spans[-1]["error"])
        run.back_off()
    assert len(errors) == 1
    assert "recreated: copied up to offset 5" in errors.pop()
    assert not any(carrier.sent or carrier.commits for carrier in run.context.writers)


@pytest.mark.parametrize("stage", [CopyState.OPENING, CopyState.COPYING, CopyState.CHECKING_SOURCE])
def test_what_failed_stays_failed_where_the_epoch_ends_during_another_attempt(stage: CopyState) -> None:
    run = CopyHarness(OPEN_END)
    run.context.retries_allowed = True
    run.opened(5)
    run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    run.source_checked(topic_id="another", end=100)
    run.closed()
    run.back_off()
    if stage is not CopyState.OPENING:
        run.opened(5)
        run.copy.on_fetch_skipped(run.clock.now() + 1)
    if stage is CopyState.CHECKING_SOURCE:
        run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    assert run.copy.state is stage
    run.copy.wind_up(run.clock.now(), immediately=True)
    assert "recreated: copied up to offset 5" in str(run.ended_with(Outcome.FAILED).error)


def test_progress_that_is_kept_again_keeps_its_topic_whatever_was_seen_since() -> None:
    run = CopyHarness(OPEN_END)
    run.context.retries_allowed = True
    for _ in range(2):
        run.opened_with(replace(progress_at(5), left=ProgressTotals(5, 2, 700)))
        assert run.commit().topic_id == TOPIC_ID
        run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
        run.source_checked(topic_id="another", end=100)
        run.closed()
        run.back_off()


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_a_plan_that_knows_the_former_topic_leaves_no_trace_of_it_in_the_progress(on_gap: str) -> None:
    run = CopyHarness(50, on_gap=on_gap).opened(5, topic_id="another")
    run.source_checked(topic_id="another", end=50)
    assert run.context.read_topic_id == "another"
    run.fetch(made(5, 45))
    run.ack_all()
    assert run.commit().topic_id == "another"
    run.ended_with(Outcome.COMPLETE)


def test_a_first_copy_reads_the_planned_topic_and_no_other() -> None:
    run = CopyHarness(50, start=5).opened_with(None).resolved()
    assert run.context.read_topic_id == TOPIC_ID
    run.commit()
    run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    run.source_checked(topic_id="another", end=100)
    assert "recreated: copied up to offset 5" in str(run.ended_with(Outcome.FAILED).error)


def test_progress_without_a_topic_is_taken_for_the_planned_one() -> None:
    run = CopyHarness(50).opened(5, topic_id="")
    assert run.context.read_topic_id == TOPIC_ID
    run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    run.source_checked(topic_id="another", end=100)
    assert f"(topic id {TOPIC_ID}, now another)" in str(run.ended_with(Outcome.FAILED).error)


def test_what_is_read_says_which_topic_goes_into_the_progress() -> None:
    """Neither the progress nor the plan knew it."""
    run = CopyHarness(50)
    run.copy.recorder.topic_id = ""
    run.opened(5, topic_id="")
    assert run.context.read_topic_id == ""
    run.fetch(made(5, 45), topic_id=uuid.UUID(int=7))
    run.ack_all()
    assert run.commit().topic_id == str(uuid.UUID(int=7))
    run.ended_with(Outcome.COMPLETE)


@pytest.mark.parametrize(("start", "epoch"), [(5, 3), (0, None)])
def test_a_first_copy_behind_the_log_s_beginning_keeps_the_planned_epoch(start: int, epoch: int | None) -> None:
    run = CopyHarness(50, start=start, source_epoch=3).opened_with(None).resolved()
    assert run.context.read_position == (start, epoch)
    kept = run.commit()
    assert (kept.offset, kept.leader_epoch) == (start, epoch)


def test_what_is_passed_over_is_kept_with_the_epoch_that_the_source_told() -> None:
    """Else a log that is cut back below it, and grows again, would not be noticed."""
    run = CopyHarness(50, on_gap="skip").opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(earliest=40, leader_epoch=3)
    kept = run.commit()
    assert (kept.offset, kept.leader_epoch) == (40, 3)
    assert run.context.read_position == (40, 3)


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_a_source_that_was_cut_back_below_its_progress_and_its_plan_is_a_gap(on_gap: str) -> None:
    """The plan was made from the new end: there seemed to be nothing left to do."""
    run = CopyHarness(7, on_gap=on_gap).opened(9)
    run.source_checked(end=7)
    if on_gap == "fail":
        assert "the source's log was cut back to 7" in str(run.ended_with(Outcome.FAILED).error)
        assert run.writer.commits == []
        return
    assert run.commit().offset == 7
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, result.gaps) == (7, {"truncated": 2})


def test_a_source_that_errs_about_its_gap_is_asked_a_few_times_and_then_believed() -> None:
    run = CopyHarness(50).opened(5)
    for times in range(4):
        assert len(run.context.source_lookups) == times
        run.fetch_fails(OutOfRange("gone", 1))
        run.source_checked()
    assert run.ended_with(Outcome.FAILED).error == "gone"


def test_what_was_sent_before_a_gap_is_committed_first() -> None:
    run = CopyHarness(50).opened(0)
    run.fetch(made(0, 5))
    run.fetch_fails(OutOfRange("gone", 1))
    assert run.copy.state is CopyState.COPYING
    run.ack()
    assert run.commit().offset == 5
    run.source_checked(earliest=40)
    assert run.ended_with(Outcome.FAILED).end == 5


@pytest.mark.parametrize("error", [KafkaTimeout("slow"), ValueError("odd")])
def test_a_source_that_cannot_be_asked_fails_the_copy(error: Exception) -> None:
    run = CopyHarness(50).opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    run.context.source_lookups[-1].set_exception(error)
    run.context.run_until_idle()
    assert str(error) in str(run.ended_with(Outcome.FAILED).error)


# --- errors and silence


def test_a_source_that_refuses_waits_for_what_was_sent_before() -> None:
    run = CopyHarness(3).opened(0)
    run.fetch(made(0))
    run.fetch_fails(AuthorizationFailed("no Read on topic t", 29))
    assert not run.copy.done
    run.ack()
    assert run.commit().offset == 1
    assert run.ended_with(Outcome.FAILED).error == "no Read on topic t"


@pytest.mark.parametrize("atomic", [True, False])
def test_nothing_behind_a_corrupt_batch_is_copied_or_passed_by_progress(atomic: bool) -> None:
    """The whole range has come: its end must not count as reached."""
    damaged = build((b"1",), base_offset=1)
    damaged[-1] ^= 1
    run = CopyHarness(3, atomic=atomic).opened(0)
    run.fetch(made(0), batch(damaged), made(2))
    run.ack_all()
    assert run.commit().offset == 1
    for _ in range(MAX_REFETCHES):
        assert run.context.read_position == (1, 0)
        run.fetch(batch(damaged), made(2))
    result = run.ended_with(Outcome.FAILED)
    assert (result.end, run.sent) == (1, [[b"0"]])
    error, advice = str(result.error).split("; ")
    where = "t-0: nothing from offset 1 on was copied"
    assert error.startswith(f"{where}: the batch at offset 1 (69 bytes) is corrupt: its CRC-32C is ")
    assert advice == "mend the source's log, or make another replica the leader"


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["the first copy", "a later one"])
def test_what_was_damaged_on_its_way_is_fetched_again(atomic: bool, first: bool) -> None:
    damaged = build((b"1",), base_offset=1)
    damaged[-1] ^= 1
    run = CopyHarness(4, atomic=atomic).opened_with(None if first else progress_at(0))
    if first:
        run.resolved()
        run.commit()
    run.fetch(made(0), batch(damaged), made(2))
    run.ack_all()
    run.commit()
    assert run.copy.wants_more
    run.fetch(made(1), made(2))
    run.ack_all()
    damaged = build((b"3",), base_offset=3)
    damaged[-1] ^= 1
    for _ in range(MAX_REFETCHES):
        run.fetch(batch(damaged))
        run.ack_all()
        if run.committing:
            run.commit()
    run.fetch(made(3))
    run.ack_all()
    assert run.commit().offset == 4
    run.ended_with(Outcome.COMPLETE)
    assert run.sent == [[b"%d" % number] for number in range(4)]


def _damaged(base: int) -> Batch:
    data = build((b"%d" % base,), base_offset=base)
    data[-1] ^= 1
    return batch(data)


def test_what_is_fetched_again_behind_an_epoch_s_end_is_told_with_what_came_before_it() -> None:
    """The attempt counts from nothing then; the result of the epoch was told already."""
    run = CopyHarness(OPEN_END).opened()
    run.fetch(made(0), stable_end=1)
    run.ack_all()
    run.advance(TIMES.commit_interval_ms)
    assert run.commit().left == NOTHING
    assert not run.copy.hold_commits()
    run.copy.hand_over(run.clock.now())
    one = made(1).size
    run.fetch(made(1), _damaged(2), stable_end=3)
    run.ack_all()
    assert run.commit().left == ProgressTotals(1, 1, one)
    run.fetch(made(2), stable_end=3)
    run.ack_all()
    run.advance(TIMES.commit_interval_ms)
    assert run.commit().left == ProgressTotals(2, 2, 2 * one)


def test_what_was_damaged_as_an_epoch_ends_is_left_to_the_next_one() -> None:
    """Nothing would be read any more, and the task wait as long as it may."""
    run = CopyHarness(4).opened()
    run.fetch(made(0), _damaged(1))
    run.ack_all()
    assert run.committing == 1
    run.copy.wind_up(run.clock.now(), immediately=False)
    run.commit()
    assert run.ended_with(Outcome.UNFINISHED).end == 1


def test_what_another_epoch_left_is_kept_anew_also_by_a_second_attempt() -> None:
    """Else the next epoch of an idle partition would count it again."""
    left = replace(progress_at(2), left=ProgressTotals(5, 2, 700))
    run = CopyHarness(OPEN_END).opened_with(left)
    run.commit(error=BrokerError("no", 51))
    run.closed()
    run.advance(run.copy.due_ms(run.clock.now()) - run.clock.now())
    run.opened_with(left)
    assert run.commit().left == NOTHING
    assert run.copy.result.records == 5


def test_a_codec_that_stumbles_ends_the_copy_and_nothing_else() -> None:
    run = CopyHarness(3, headers=(("h", b""),)).opened(0)
    run.context.reencodes_by_hand = True
    run.fetch(made(0))
    run.context.reencodings[-1][2].set_exception(TypeError("odd record"))
    run.context.run_until_idle()
    assert "odd record" in str(run.ended_with(Outcome.FAILED).error)


def test_a_source_that_gives_nothing_is_given_up_with_its_reason() -> None:
    run = CopyHarness(3).opened(0)
    run.context.source_error_text = ": no route"
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.state is CopyState.COPYING
    run.advance(1)
    run.source_checked(end=3)
    assert run.ended_with(Outcome.FAILED).error == "t-0: nothing came from the source for 5000 ms: no route"


def test_a_silent_source_that_ends_before_the_plan_was_cut_back() -> None:
    run = CopyHarness(10).opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=5)
    error = str(run.ended_with(Outcome.FAILED).error)
    assert "the source's log was cut back to 5" in error
    assert 'on-gap = "skip"' in error


def test_the_end_of_a_source_that_was_cut_back_is_lowered_and_what_is_left_before_it_is_copied() -> None:
    run = CopyHarness(10, on_gap="skip").opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    assert run.commit().offset == 5
    assert run.context.read_position == (5, None)
    run.fetch(made(5, 3))
    run.ack_all()
    run.commit()
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, result.records, result.gaps.get("truncated", 0)) == (8, 3, 0)


def test_a_source_that_is_silent_again_below_its_new_end_is_given_up() -> None:
    run = CopyHarness(10, on_gap="skip").opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    run.commit()
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    assert "nothing came from the source" in str(run.ended_with(Outcome.FAILED).error)


def test_a_silence_that_was_explained_is_not_told_of_what_comes_later() -> None:
    run = CopyHarness(10, on_gap="skip").opened(5)
    run.advance(TIMES.stall_ms)
    run.source_checked(end=8)
    run.commit()
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(end=8)
    assert run.copy.state is CopyState.COPYING
    assert run.context.read_position == (5, None)


def test_a_silence_that_ended_an_attempt_is_not_told_of_the_next() -> None:
    """Who follows was given up a second time for it, when the source had answered and there was no gap."""
    run = CopyHarness(OPEN_END).opened(0)
    run.context.retries_allowed = True
    run.advance(TIMES.stall_ms)
    run.source_checked(end=0)
    run.closed()
    run.back_off()
    run.opened(0)
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(end=0)
    assert run.copy.state is CopyState.COPYING
    assert run.context.read_position == (0, None)


@pytest.mark.parametrize("atomic", [True, False])
def test_a_silent_source_is_looked_at_only_when_all_is_committed(atomic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was acknowledged in a transaction that is still open would be sent in it again."""
    monkeypatch.setattr("tests.relay.copy_harness.TIMES", replace(TIMES, commit_interval_ms=2 * TIMES.stall_ms))
    run = CopyHarness(10, atomic=atomic, on_gap="skip").opened(0)
    run.fetch(made(0), stable_end=10)
    run.ack()
    run.advance(2 * TIMES.stall_ms)
    assert run.commit().offset == 1
    if atomic:
        run.advance(TIMES.stall_ms)  # it was not asked while the transaction ended
    run.source_checked(end=1)
    assert run.commit().offset == 1
    assert run.ended_with(Outcome.COMPLETE).records == 1
    assert run.sent == [[b"0"]]


def test_waiting_for_the_target_is_no_stall() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0), stable_end=10)
    run.advance(TIMES.stall_ms * 2 - 500)
    assert run.copy.state is CopyState.COPYING
    run.ack()
    run.commit()
    assert run.copy.state is CopyState.COPYING, "it was not asked all that time"
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.state is CopyState.COPYING
    run.advance(1)
    run.source_checked(end=10)
    run.ended_with(Outcome.FAILED)


def test_a_source_that_is_not_asked_is_not_silent() -> None:
    run = CopyHarness(3).opened(0)
    run.clock.advance(TIMES.stall_ms - 1)
    run.copy.on_source_response(run.clock.now())
    run.advance(TIMES.stall_ms - 1)
    assert run.copy.state is CopyState.COPYING


# --- an epoch's end


def _ends(run: CopyHarness, *, immediately: bool = False) -> None:
    run.copy.wind_up(run.clock.now(), immediately=immediately)
    run.context.run_until_idle()


@pytest.mark.parametrize("atomic", [True, False])
def test_what_is_acknowledged_at_an_epoch_s_end_is_committed(atomic: bool) -> None:
    run = CopyHarness(10**6, atomic=atomic).opened(0)
    run.fetch(made(0), stable_end=10**6)
    run.ack()
    _ends(run)
    assert run.commit().offset == 1
    result = run.ended_with(Outcome.UNFINISHED)
    assert (result.end, result.stuck_since_ms) == (1, None)


def test_what_is_undelivered_at_an_epoch_s_end_hands_on_since_when_it_waits() -> None:
    run = CopyHarness(10**6).opened(0)
    run.advance(100)
    handed_over = run.clock.unix_ms()
    run.fetch(made(0), stable_end=10**6)
    run.advance(500)
    _ends(run)
    assert run.committing == 1, "it may still get through"
    _ends(run, immediately=True)
    result = run.ended_with(Outcome.UNFINISHED)
    assert (result.end, result.stuck_since_ms) == (0, handed_over)


def test_what_was_sent_when_an_epoch_ends_is_committed_once_it_is_acknowledged() -> None:
    run = CopyHarness(10**6).opened(0)
    run.fetch(made(0), stable_end=10**6)
    _ends(run)
    assert (run.committing, run.writer.closed) == (1, None)
    run.ack()
    run.commit()
    result = run.ended_with(Outcome.UNFINISHED)
    assert (result.end, result.records, result.stuck_since_ms) == (1, 1, None)


def test_a_commit_that_hangs_hands_on_since_when_it_waits() -> None:
    run = CopyHarness(10**6).opened(0)
    began = run.clock.unix_ms()
    run.fetch(made(0), stable_end=1)
    run.advance(100)
    run.ack()
    assert run.committing == 1
    asked = began + TIMES.commit_min_interval_ms
    run.advance(700)
    _ends(run)
    assert run.committing == 1, "it may still get through"
    _ends(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms == asked


@pytest.mark.parametrize("stage", [CopyState.OPENING, CopyState.RESOLVING_PROGRESS, CopyState.CHECKING_SOURCE])
def test_an_epoch_ends_whatever_is_waited_for(stage: CopyState) -> None:
    run = CopyHarness(10)
    began = run.clock.unix_ms()
    if stage is CopyState.RESOLVING_PROGRESS:
        run.opened_with(None)
    elif stage is CopyState.CHECKING_SOURCE:
        run.opened(0)
        run.fetch_fails(OutOfRange("gone", 1))
    assert run.copy.state is stage
    run.advance(300)
    waits_for_the_target = stage is not CopyState.CHECKING_SOURCE
    _ends(run)
    assert run.copy.state is (stage if waits_for_the_target else CopyState.ABORTING), "it may still open"
    _ends(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms == (began if waits_for_the_target else None)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (CopyState.OPENING, "it waited for the target's transaction coordinator: topic 'a.t' does not exist"),
        (CopyState.RESOLVING_PROGRESS, "it waited for the leader of the target partition: topic 'a.t' does not exist"),
        (CopyState.CHECKING_SOURCE, "it waited for the source, to learn why it does not have what comes next"),
        (CopyState.COPYING, "it waited for the end of its transaction: topic 'a.t' does not exist"),
    ],
)
def test_what_an_unfinished_copy_waited_for_is_told(stage: CopyState, words: str) -> None:
    """A target topic that is not there, and cannot be made, would have no other reason in any result."""
    run = CopyHarness(10)
    run.context.no_leader_text = ": topic 'a.t' does not exist"
    if stage is CopyState.RESOLVING_PROGRESS:
        run.opened_with(None)
    elif stage is not CopyState.OPENING:
        run.opened(0)
    if stage is CopyState.CHECKING_SOURCE:
        run.fetch_fails(OutOfRange("gone", 1))
    elif stage is CopyState.COPYING:
        run.fetch(made(0), stable_end=1)
        run.ack()
    assert run.copy.state is stage
    _ends(run)
    _ends(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).error == f"{EPOCH_ENDED}: {words}"


def test_an_unfinished_copy_that_was_to_be_begun_again_tells_why() -> None:
    run = CopyHarness(1).opened(0)
    run.fetch(made(0))
    run.fail(0, BrokerError("unknown producer id", 49))
    run.closed()
    _ends(run)
    assert "unknown producer id" in str(run.ended_with(Outcome.UNFINISHED).error)


def test_who_has_just_begun_to_follow_and_had_nothing_due_is_complete_as_the_epoch_ends() -> None:
    """Also where the target does not answer: a stream that is told to stop then has nothing left to copy."""
    run = CopyHarness(OPEN_END)
    assert (run.copy.state, run.copy.range.source_end) == (CopyState.OPENING, run.copy.range.start)
    run.advance(300)
    _ends(run, immediately=True)
    assert run.ended_with(Outcome.COMPLETE).stuck_since_ms is None


def test_who_opens_as_the_epoch_ends_tells_what_the_last_one_left_and_reads_nothing() -> None:
    """The plan was made before that was copied: with it alone, it would be told as unfinished."""
    run = CopyHarness(OPEN_END)
    _ends(run)
    run.opened_with(replace(progress_at(2), left=ProgressTotals(2, 1, 700)))
    assert run.context.read_position is None
    assert run.commit().left == NOTHING
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, result.records) == (2, 2)


def test_who_settles_as_the_epoch_ends_keeps_where_it_begins() -> None:
    run = CopyHarness(OPEN_END).opened_with(None)
    _ends(run)
    assert run.copy.state is CopyState.RESOLVING_PROGRESS
    run.resolved()
    assert run.commit().offset == 0
    assert run.ended_with(Outcome.COMPLETE).start == 0


def test_the_time_of_a_stuck_batch_goes_on_over_epochs_and_each_tries_at_least_once() -> None:
    clock = FakeClock()
    stuck_since = clock.unix_ms() - 4_000
    run = CopyHarness(10, clock=clock, stuck_since_ms=stuck_since)
    assert run.writer.open_timeout_ms == TIMES.delivery_timeout_ms - 4_000
    run.opened(0)
    run.fetch(made(0))
    assert run.writer.sent[0].created_ms == stuck_since
    _ends(run, immediately=True)
    assert run.ended_with(Outcome.UNFINISHED).stuck_since_ms == stuck_since
    run = CopyHarness(10, clock=clock, stuck_since_ms=clock.unix_ms() - 60_000)
    assert run.writer.open_timeout_ms == TIMES.request_timeout_ms
    run.opened(0)
    run.fetch(made(0))
    assert run.writer.sent[0].created_ms == clock.unix_ms() - TIMES.delivery_timeout_ms + TIMES.request_timeout_ms


def test_a_stuck_batch_that_got_through_is_stuck_no_more() -> None:
    clock = FakeClock()
    run = CopyHarness(10**6, clock=clock, stuck_since_ms=clock.unix_ms() - 4_000).opened(0)
    run.fetch(made(0), stable_end=1)
    run.ack()
    run.advance(TIMES.commit_min_interval_ms)
    run.commit()
    run.fetch(made(1), stable_end=2)
    assert run.writer.sent[1].created_ms is None


def test_a_resting_copy_ends_with_its_epoch_as_what_it_was() -> None:
    run = CopyHarness(10).opened(0)
    run.context.retries_allowed = True
    run.fetch(made(0))
    run.fail(0, DeliveryTimeout("late"))
    run.closed()
    run.context.retries_allowed = False
    _ends(run)
    run.ended_with(Outcome.EXPIRED)
