"""A partition that is copied by sequences: one fence for each attempt, then plain batches and lazy progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirror.errors import BrokerError, Fenced, KafkaTimeout, OffsetOutOfRange, OutOfOrderSequence
from mirror.relay.batches.exactly_once_way import HOLD_MS, WayRules
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.attempts import commits
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import (
    Progress,
    ProgressChanged,
    ProgressTotals,
    Searched,
)
from mirror.relay.progress.position import TargetLogCut
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.records import CONTROL
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TIMES, TOPIC_ID

DAY_MS = 86_400_000
MARK = TargetMark(topic_id="a", end=50, leader_epoch=3, producer_id=7)


def rules(mode: str = "auto") -> WayRules:
    return WayRules(mode=mode, expiration_ms=DAY_MS)


def harness(end: int = OPEN_END, mode: str = "auto", **options: Any) -> CopyHarness:
    return CopyHarness(end, rules=rules(mode), **options)


def claimed(offset: int) -> Progress:
    return replace(progress_at(offset), way=Way.SEQUENCES, generation=5, target=MARK)


def young(run: CopyHarness, base: int, count: int = 1) -> Any:
    return made(base, count, timestamp=run.clock.unix_ms())


def wait(run: CopyHarness, ms: int) -> None:
    """Let time pass in which the source answers, and has nothing more."""
    until = run.clock.now() + ms
    while run.clock.now() < until:
        run.advance(1_000)
        run.source_answers()


def test_attempt_with_nothing_to_send_does_not_fence() -> None:
    run = harness().opened_with(claimed(4))
    run.fetch(stable_end=4)
    wait(run, 60_000)
    assert run.copy.state is CopyState.COPYING
    assert not run.writer.acquisitions
    assert not run.writer.commits


PLANNED: dict[str, Any] = {"progress": claimed(4), "start": 4}


def test_the_first_attempt_of_a_quiet_partition_begins_with_the_planned_progress() -> None:
    run = harness(**PLANNED)
    assert run.writer.planned == claimed(4)
    run.opened_with(run.writer.planned)
    assert run.context.start_continues, "only another leader of the target is asked"
    assert run.context.read_position == (4, None)
    run.fetch(stable_end=4)
    wait(run, 60_000)
    assert not run.writer.acquisitions


@pytest.mark.parametrize("other", [{"end": 9}, {"stuck_since_ms": 77}, {"progress": None}], ids=str)
def test_the_planned_progress_is_of_use_only_for_a_partition_that_is_followed_and_well(other: dict[str, Any]) -> None:
    assert harness(**{**PLANNED, **other}).writer.planned is None


def test_planned_progress_is_a_lower_bound_also_if_its_attempt_has_ended() -> None:
    """Another one may have copied since, and retention may have deleted what that has read."""
    run = harness(**{**PLANNED, "progress": replace(claimed(4), ended=True)})
    assert run.writer.planned is not None
    assert not run.writer.planned.exact


def test_another_attempt_reads_the_progress_again() -> None:
    run = harness(**PLANNED)
    run.opened_with(run.writer.planned)
    run.fetch(young(run, 4))
    run.writer.acquisitions[0][1].set_exception(ProgressChanged())
    run.context.run_until_idle()
    run.closed()
    assert len(run.context.writers) == 2
    assert run.writer.planned is None
    run.opened_with(claimed(6))
    assert not run.context.start_continues
    assert run.context.read_position == (6, None)


def test_nothing_is_sent_before_the_partition_is_acquired() -> None:
    run = harness().opened_with(claimed(4))
    run.fetch(young(run, 4))
    assert run.writer.acquisitions[0][0].offset == 4
    assert not run.sent
    run.acquired()
    assert run.sent == [[b"4"]]
    run.ack()
    run.advance(1_000)
    assert run.committing == 5, "lazily, after the interval"
    run.commit()
    run.fetch(young(run, 5))
    assert run.sent == [[b"4"], [b"5"]], "one fence is enough for an attempt"
    assert len(run.writer.acquisitions) == 1


def test_copy_that_waits_for_its_turn_does_not_expire() -> None:
    """Many others acquire their partitions before it."""
    run = harness().opened_with(claimed(4))
    run.context.acquires = False
    run.fetch(young(run, 4))
    wait(run, 600_000)
    assert not run.writer.acquisitions
    run.context.acquires = True
    run.copy.step(run.clock.now())
    assert run.writer.acquisitions[0][1] in run.context.acquiring
    run.acquired()
    assert run.sent == [[b"4"]]


def test_copy_that_has_only_to_commit_is_quiet_until_it_has_a_record() -> None:
    run = harness()
    run.context.acquires = False
    run.opened_with(None).resolved()
    assert run.context.quiet == [True]
    run.fetch(young(run, 0))
    assert not run.context.quiet[-1]


def test_copy_whose_range_ends_without_records_is_quiet() -> None:
    run = harness(50).opened_with(claimed(0))
    run.context.acquires = False
    run.fetch(young(run, 60))
    assert set(run.context.quiet) == {True}


def test_lazy_progress_says_only_what_is_acknowledged() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    run.fetch(young(run, 1), young(run, 2))
    run.ack(1)
    run.advance(1_000)
    assert run.committing == 2
    mark = run.writer.commits[-1].progress.target
    assert mark is not None
    assert mark.end == 1_002, "behind the acknowledged records"


def test_progress_says_that_its_attempt_has_ended_once_it_has_sent_its_last_batch() -> None:
    run = harness(2).opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    run.advance(1_000)
    assert not run.commit().ended, "the range goes on"
    run.fetch(young(run, 1))
    run.advance(1_000)
    assert run.committing is None, "the last batch has no answer"
    run.ack()
    assert run.commit().ended
    run.ended_with(Outcome.COMPLETE)
    assert len(run.writer.commits) == 2


def test_ended_attempt_sends_nothing_more_before_the_way_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last commit takes long, and the clock is set back meanwhile, so that the next batch is young again."""
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0), made(1, timestamp=run.clock.unix_ms() - DAY_MS))
    run.acquired()
    run.ack()
    assert run.writer.commits[-1].progress.ended
    before_ms = run.clock.unix_ms() - DAY_MS
    monkeypatch.setattr(run.clock, "unix_ms", lambda: before_ms)
    wait(run, 2 * HOLD_MS)
    run.copy.step(run.clock.now())
    assert run.sent == [[b"0"]]


def test_attempt_with_a_batch_in_doubt_has_not_ended() -> None:
    run = second_sent()
    run.fail(1, Fenced("another attempt", 47))
    assert not run.commit().ended


def test_attempt_that_ends_early_says_so() -> None:
    run = harness(mode="sequences").opened_with(claimed(0))
    run.fetch(young(run, 0), made(1, timestamp=run.clock.unix_ms() - DAY_MS))
    run.acquired()
    run.ack()
    assert not run.commit().ended, "what follows an error of the source may be read again"
    assert run.commit().ended


def test_how_far_the_log_was_searched_is_committed_soon_though_nothing_is_sent() -> None:
    run = harness().opened_with(claimed(4))
    run.fetch(young(run, 4))
    run.acquired(replace(claimed(4), searched=Searched(end=52, leader_epoch=3)))
    assert run.committing is None, "no batch waits for it"
    assert run.sent == [[b"4"]]
    run.advance(1_000)
    committed = run.commit()
    assert (committed.offset, committed.searched) == (4, Searched(end=52, leader_epoch=3))


def test_nothing_is_sent_while_the_progress_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt would have to read and compare all of it."""
    monkeypatch.setattr(commits, "MAX_UNCONFIRMED_BYTES", 1)
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0), young(run, 1), young(run, 2))
    run.acquired()
    run.ack()
    assert run.sent == [[b"0"]]
    run.advance(1_000)
    run.commit(KafkaTimeout("the coordinator is away"))
    run.closed()
    assert run.copy.result.expiries[0]["phase"] == "committing"


def test_sending_goes_on_once_the_progress_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MAX_UNCONFIRMED_BYTES", 1)
    run = harness().opened_with(claimed(0))
    run.fetch(*(young(run, number) for number in range(3)))
    run.acquired()
    for number in range(3):
        assert len(run.sent) == number + 1
        run.ack_all()
        run.advance(1_000)
        run.commit()


def test_search_that_reads_on_does_not_expire() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    for _ in range(3):
        run.advance(6_000)
        run.writer.advanced_ms = run.clock.now()
    assert run.writer.closed is None
    run.advance(10_000)
    assert run.writer.closed is not None


def test_target_that_is_cut_while_it_is_searched_is_resolved_again() -> None:
    """Then it has a named error, as before each attempt."""
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.writer.acquisitions[0][1].set_exception(TargetLogCut("paris.t-0 ends before offset 50 now"))
    run.context.run_until_idle()
    run.closed()
    assert run.copy.state is CopyState.OPENING


def test_copy_resumes_behind_what_an_earlier_attempt_has_appended() -> None:
    run = harness().opened_with(claimed(4))
    run.fetch(young(run, 4), young(run, 5), young(run, 6))
    found = replace(claimed(6), target=replace(MARK, end=60))
    run.acquired(found, ProgressTotals(2, 1, 100))
    assert run.context.read_position == (6, None)
    assert run.committing == 6, "the position is committed before anything is sent behind it"
    assert not run.sent
    run.commit()
    run.fetch(young(run, 6))
    assert run.sent == [[b"6"]]
    assert (run.copy.result.records, run.copy.result.bytes) == (2, 100), "no result has counted them"


def test_first_progress_is_a_claim_under_the_fence() -> None:
    run = harness(10).opened_with(None).resolved()
    assert len(run.writer.acquisitions) == 1, "before anything was read"
    claim = run.writer.acquisitions[0][0]
    assert claim.offset == 0
    assert claim.generation == run.clock.unix_ms()
    run.acquired()
    assert run.committing == 0


def test_range_without_records_moves_the_progress_under_a_fence() -> None:
    run = harness(2).opened_with(claimed(0))
    run.fetch(made(0, attributes=CONTROL), made(1, attributes=CONTROL))
    assert not run.copy.done
    run.acquired()
    run.commit()
    assert run.ended_with(Outcome.COMPLETE).end == 2


def test_range_that_lies_in_a_gap_moves_the_progress_under_a_fence() -> None:
    run = harness(50).opened_with(claimed(0))
    run.fetch(young(run, 60))
    assert run.copy.state is CopyState.COPYING
    run.acquired()
    assert run.commit().offset == 50
    assert run.ended_with(Outcome.COMPLETE).end == 50


def test_markers_behind_an_attempt_that_has_ended_need_no_fence() -> None:
    """Two flows that feed each other would answer each other's fences with fences."""
    run = harness(2).opened_with(replace(claimed(0), ended=True))
    run.fetch(made(0, attributes=CONTROL), made(1, attributes=CONTROL))
    run.advance(1_000)
    assert not run.writer.acquisitions
    committed = run.commit()
    assert (committed.offset, committed.ended, committed.generation) == (2, True, 5)
    assert run.ended_with(Outcome.COMPLETE).end == 2


def test_what_follows_markers_is_sent_under_a_fence() -> None:
    run = harness().opened_with(replace(claimed(0), ended=True))
    run.fetch(made(0, attributes=CONTROL))
    run.advance(1_000)
    assert run.commit().offset == 1
    run.fetch(made(1, attributes=CONTROL), young(run, 2))
    assert not run.sent
    run.acquired(claimed(1))
    assert run.sent == [[b"2"]]
    run.ack()
    run.advance(1_000)
    assert run.commit().offset == 3


def test_fence_that_takes_too_long_expires() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.advance(10_000)
    assert run.copy.state is CopyState.ABORTING
    run.closed()
    assert "fencing" in run.copy.result.expiries[0]["phase"]
    assert "the test does not answer" in str(run.copy.result.error)  # what the writer waited for


def test_fence_that_times_out_expires() -> None:
    run = harness(1).opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.writer.acquisitions[0][1].set_exception(KafkaTimeout("no coordinator"))
    run.context.run_until_idle()
    assert run.ended_with(Outcome.EXPIRED).expiries[0]["phase"] == "fencing"


def test_progress_that_another_attempt_has_changed_is_read_again() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.writer.acquisitions[0][1].set_exception(ProgressChanged())
    run.context.run_until_idle()
    run.closed()
    assert run.copy.state is CopyState.OPENING
    assert len(run.context.writers) == 2


@pytest.mark.parametrize("code", [45, 59])
def test_batch_out_of_order_opens_the_partition_again(code: int) -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.fail(0, BrokerError("odd", code))
    run.closed()
    while run.copy.state is CopyState.BACKING_OFF:
        run.back_off()
    run.opened_with(claimed(0))
    run.fetch(young(run, 0))
    assert len(run.context.writers) == 2
    assert run.writer.acquisitions, "the next attempt finds out what was appended"


def test_fenced_attempt_ends() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.fail(0, Fenced("another attempt", 47))
    run.ended_with(Outcome.FENCED)


def test_old_batch_goes_in_a_transaction_after_all_before_it_is_committed() -> None:
    """CONFORMANCE: old_or_compacted_goes_in_transactions."""
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0), made(1, timestamp=run.clock.unix_ms() - DAY_MS))
    run.acquired()
    assert run.sent == [[b"0"]]
    run.ack()
    assert run.committing == 1, "at once: the change waits for it"
    run.commit()
    run.closed()
    assert run.writer.way is Way.TRANSACTIONS
    assert run.copy.result.retries == 0, "a change of the way is no failure"
    run.writer.acquired = False  # the claim says that plain batches may follow it
    run.opened_with(claimed(1))
    run.fetch(made(1, timestamp=run.clock.unix_ms() - DAY_MS))
    assert not run.sent
    run.acquired()
    assert run.sent == [[b"1"]]


def test_partition_goes_by_sequences_again_after_a_minute_without_old_batches() -> None:
    run = harness().opened_with(progress_at(0))
    old = run.clock.unix_ms() - DAY_MS
    run.fetch(made(0, timestamp=old))
    run.closed()
    assert run.writer.way is Way.TRANSACTIONS
    run.opened_with(progress_at(0))
    run.fetch(made(0, timestamp=old))
    run.ack()
    run.advance(1_000)
    run.commit()
    run.fetch(young(run, 1))
    assert run.writer.way is Way.TRANSACTIONS, "too early"
    run.ack()
    run.advance(1_000)
    run.commit()
    wait(run, HOLD_MS)
    run.fetch(young(run, 2))
    run.closed()
    assert [writer.way for writer in run.context.writers] == [Way.SEQUENCES, Way.TRANSACTIONS, Way.SEQUENCES]


def test_flow_that_demands_sequences_names_the_batch_that_is_too_old() -> None:
    run = harness(3, mode="sequences").opened_with(claimed(0))
    run.fetch(young(run, 0), made(1, timestamp=run.clock.unix_ms() - DAY_MS), young(run, 2))
    run.acquired()
    run.ack()
    run.advance(1_000)
    run.commit()
    run.commit()
    result = run.ended_with(Outcome.FAILED)
    assert result.end == 1, "what is before it is copied"
    assert "offset 1" in (result.error or "")


def test_task_ends_while_the_partition_is_acquired() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.copy.wind_up(run.clock.now(), immediately=False)
    run.context.run_until_idle()
    assert run.ended_with(Outcome.UNFINISHED).end == 0


def test_copy_that_waits_for_its_turn_is_unfinished_at_the_end() -> None:
    """What it has fetched was not sent."""
    run = harness().opened_with(claimed(4))
    run.context.acquires = False
    run.fetch(young(run, 4))
    run.copy.wind_up(run.clock.now(), immediately=True)
    result = run.ended_with(Outcome.UNFINISHED)
    assert "the target's transaction coordinator" in (result.error or "")


def test_what_is_in_flight_during_a_commit_is_counted_with_a_later_one() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    run.fetch(young(run, 1), young(run, 2))
    run.ack(1)
    run.advance(1_000)
    assert run.commit().offset == 2, "the last batch is in flight"
    assert run.copy.result.records == 2
    run.ack()
    run.advance(1_000)
    assert run.commit().offset == 3
    assert run.copy.result.records == 3


def test_copy_that_has_only_passed_offsets_is_complete_at_the_end() -> None:
    """Their commit may not be due yet: the next copy passes them again."""
    run = harness().opened_with(replace(claimed(0), ended=True))
    run.fetch(made(0, attributes=CONTROL))
    run.copy.wind_up(run.clock.now(), immediately=True)
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, run.writer.commits) == (0, [])


def test_fence_that_may_be_forgotten_sends_nothing_more() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    run.writer.valid_until_ms = run.clock.unix_ms()
    run.fetch(young(run, 1))
    assert len(run.sent) == 1
    run.commit()
    run.closed()
    assert len(run.context.writers) == 2, "another attempt fences again"
    assert run.copy.result.retries == 0


@pytest.mark.parametrize("mode", ["auto", "transactions"])
def test_what_is_gone_at_the_source_may_have_been_appended(mode: str) -> None:
    """Earlier attempts have appended it, and have not committed their progress."""
    run = harness(mode=mode).found(claimed(100))
    run.writer.acquired = False
    run.resolved(claimed(100), mark=MARK)
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    claim = run.writer.acquisitions[-1][0]
    assert (claim.offset, claim.way, claim.generation) == (100, Way.SEQUENCES, 5)
    run.acquired(claimed(150), ProgressTotals(50, 1, 100))
    assert run.commit().offset == 150
    assert run.context.read_position == (150, None)
    assert run.copy.result.gaps == {}


@pytest.mark.parametrize(("found", "gone"), [(100, "offsets 100 to 149"), (120, "offsets 120 to 149")])
def test_gap_begins_behind_what_was_appended(found: int, gone: str) -> None:
    run = harness().opened_with(claimed(100))
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    run.acquired(claimed(found), ProgressTotals(found - 100, 0, 0))
    run.commit()
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    result = run.ended_with(Outcome.FAILED)
    assert f"{gone} are gone and were never copied" in (result.error or "")
    assert result.end == found


def test_gap_is_skipped_from_the_exact_position_on() -> None:
    run = harness(mode="transactions", on_gap="skip").found(claimed(100))
    run.writer.acquired = False
    run.resolved(claimed(100), mark=MARK)
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    run.acquired(claimed(120), ProgressTotals(20, 1, 100))
    run.commit()
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    assert run.commit().offset == 150
    assert run.copy.result.gaps == {"retention": 30}


def test_gap_behind_an_attempt_that_has_ended_is_certain_once_the_log_was_searched() -> None:
    """The commits of later attempts may be lost."""
    run = harness().opened_with(replace(claimed(100), ended=True))
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    run.acquired(claimed(100))
    run.commit()
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(earliest=150, end=1_000)
    assert "offsets 100 to 149" in (run.ended_with(Outcome.FAILED).error or "")


@pytest.mark.parametrize(("topic_id", "resumed"), [(TOPIC_ID, 60), ("another", 0)], ids=["cut back", "recreated"])
def test_loss_of_the_source_needs_no_exact_position(topic_id: str, resumed: int) -> None:
    """The source lacks records before any such position: what was appended could not be compared."""
    run = harness().opened_with(claimed(100))
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(end=60, topic_id=topic_id)
    assert not run.writer.acquisitions
    assert run.ended_with(Outcome.FAILED).end == 100
    run = harness(on_gap="skip").opened_with(claimed(100))
    run.fetch_fails(OffsetOutOfRange("t-0: gone"))
    run.source_checked(end=60, topic_id=topic_id)
    ((claim, _),) = run.writer.acquisitions
    assert claim.offset == resumed


def second_sent() -> CopyHarness:
    """The first batch is acknowledged and not committed, the second one has no answer."""
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.acquired()
    run.ack()
    run.fetch(young(run, 1))
    return run


def test_batch_that_is_out_of_order_leaves_nothing_committed() -> None:
    """The leader may lack what it had acknowledged: a commit would say that it is there."""
    run = second_sent()
    run.fail(1, OutOfOrderSequence("t-0", 45))
    assert not run.writer.commits


def test_writer_is_closed_beside_the_final_commit() -> None:
    run = second_sent()
    run.fail(1, Fenced("another attempt", 47))
    assert run.committing == 1
    assert run.writer.closed is not None, "its other batches are not sent any more"


def test_fence_long_after_an_attempt_that_had_acquired_is_of_another_run() -> None:
    """The attempt ends while the source is checked: by then its own late requests were executed, or never are."""
    run = harness().opened_with(claimed(0))
    run.context.retries_allowed = True
    run.fetch(young(run, 0))
    run.writer.fences_in_doubt = 1
    run.acquired()
    run.ack_all()
    run.fetch_fails(OffsetOutOfRange("t-0: out of range", 1))
    run.commit()
    run.context.source_lookups[-1].set_exception(KafkaTimeout("no leader"))
    run.context.run_until_idle()
    run.closed()
    run.back_off()
    run.opened_with(claimed(1))
    run.fetch(young(run, 1))
    run.acquired()
    run.fail(0, Fenced("another run", 47))
    run.closed()
    assert run.copy.state is CopyState.BACKING_OFF, "the control record is read before the next fence"


def test_late_requests_of_an_attempt_may_fence_it_only_for_a_while_after_it_has_acquired() -> None:
    run = harness().opened_with(claimed(0))
    run.context.retries_allowed = True
    run.fetch(young(run, 0))
    run.writer.fences_in_doubt = 1
    run.acquired()
    wait(run, TIMES.request_timeout_ms)
    run.fail(0, Fenced("another run", 47))
    run.commit()
    assert run.copy.state is CopyState.BACKING_OFF, "the control record is read before the next fence"


def test_fence_by_a_late_request_of_its_own_is_retried() -> None:
    run = harness().opened_with(claimed(0))
    run.fetch(young(run, 0))
    run.writer.fences_in_doubt = 1
    run.acquired()
    run.fail(0, Fenced("a late request", 47))
    run.closed()
    assert run.copy.state is CopyState.OPENING
