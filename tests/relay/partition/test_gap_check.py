"""Gaps in the source: detected, refused or skipped, counted and committed."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from mirror.errors import KafkaError, KafkaTimeout, LogTruncated, TopicRecreated
from mirror.errors import OffsetOutOfRange as OutOfRange
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.states import CopyState
from mirror.relay.progress.committed import latest_of
from tests.relay.copy_harness import CopyHarness, made, progress_at
from tests.relay.hand_context import TOPIC_ID


def test_retention_gap_fails_the_copy_and_names_the_lost_offsets() -> None:
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
        (LogTruncated("recreated"), {"topic_id": "another", "earliest": 0}, 0, {"recreated": 0}),
    ],
)
def test_gap_is_skipped_if_the_flow_allows_it_and_counted_after_its_commit(
    error: OutOfRange | LogTruncated, state: dict[str, int], resume: int, gaps: dict[str, int]
) -> None:
    run = CopyHarness(50, on_gap="skip").opened(5)
    run.fetch_fails(error)
    run.source_checked(**state)  # type: ignore[arg-type]
    assert (run.committing, run.copy.result.gaps) == (resume, {})
    committed = run.commit()
    assert run.copy.result.gaps == gaps
    assert committed.topic_id == state.get("topic_id", TOPIC_ID)
    if "end" not in state:
        assert (run.context.read_position, run.context.read_topic_id) == (
            (resume, None),
            state.get("topic_id", TOPIC_ID),
        )
        run.fetch(made(resume, 50 - resume))
        run.ack_all()
        run.commit()
    assert run.ended_with(Outcome.COMPLETE).end == state.get("end", 50)


def test_the_topic_that_is_read_is_the_new_one_once_a_deleted_one_is_skipped() -> None:
    run = CopyHarness(50, on_gap="skip").opened(5)
    assert run.copy.recorder.topic_id == TOPIC_ID
    run.fetch_fails(LogTruncated("recreated"))
    run.source_checked(topic_id="another", earliest=0)
    run.commit()
    assert run.copy.recorder.topic_id == "another"


def test_gap_whose_commit_failed_is_counted_once() -> None:
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


@pytest.mark.parametrize(
    ("end", "earliest", "epochs", "again"),
    [(3, 0, (None, None), True), (3, 0, (1, None), True), (3, 0, (1, 2), False), (60, 40, (None, None), False)],
    ids=["moved back", "epochs no more", "the epochs reveal it", "moved on"],
)
def test_anchors_of_a_log_without_epochs_that_was_cut_back_are_void(
    end: int, earliest: int, epochs: tuple[int | None, int | None], again: bool
) -> None:
    """They would resume behind records that the source has now, and the target has not."""
    run = CopyHarness(50, on_gap="skip")
    run.opened_with(replace(progress_at(5), leader_epoch=epochs[0], series=7))
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(earliest=earliest, end=end, leader_epoch=epochs[1])
    assert (run.commit().series != 7) is again


def test_topic_recreated_between_two_runs_is_detected_by_its_id() -> None:
    run = CopyHarness(50).opened(5, topic_id="the-former")
    run.source_checked()
    assert "deleted and made again" in str(run.ended_with(Outcome.FAILED).error)
    assert run.sent == []


def test_recreated_topic_is_named_never_resumed() -> None:
    """A stream retries again and again: it must not forget which topic its progress belongs to."""
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
    assert not any(writer.sent or writer.commits for writer in run.context.writers)


@pytest.mark.parametrize("state", [CopyState.OPENING, CopyState.COPYING, CopyState.CHECKING_SOURCE])
def test_failure_is_reported_if_the_epoch_ends_during_the_next_attempt(state: CopyState) -> None:
    run = CopyHarness(OPEN_END)
    run.context.retries_allowed = True
    run.opened(5)
    run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    run.source_checked(topic_id="another", end=100)
    run.closed()
    run.back_off()
    if state is not CopyState.OPENING:
        run.opened(5)
        run.copy.on_fetch_skipped(run.clock.now() + 1)
    if state is CopyState.CHECKING_SOURCE:
        run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    assert run.copy.state is state
    run.copy.wind_up(run.clock.now(), immediately=True)
    assert "recreated: copied up to offset 5" in str(run.ended_with(Outcome.FAILED).error)


def test_renewed_progress_has_the_topic_id_it_had() -> None:
    run = CopyHarness(OPEN_END, renew_ms=1)
    run.context.retries_allowed = True
    for _ in range(2):
        run.opened_with(progress_at(5))
        assert run.commit().topic_id == TOPIC_ID
        run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
        run.source_checked(topic_id="another", end=100)
        run.closed()
        run.back_off()


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_planned_id_of_a_former_topic_is_not_committed(on_gap: str) -> None:
    run = CopyHarness(50, on_gap=on_gap).opened(5, topic_id="another")
    run.source_checked(topic_id="another", end=50)
    assert run.context.read_topic_id == "another"
    run.fetch(made(5, 45))
    run.ack_all()
    assert run.commit().topic_id == "another"
    run.ended_with(Outcome.COMPLETE)


def test_first_copy_reads_only_the_planned_topic() -> None:
    run = CopyHarness(50, start=5).opened_with(None).resolved()
    assert run.context.read_topic_id == TOPIC_ID
    run.commit()
    run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    run.source_checked(topic_id="another", end=100)
    assert "recreated: copied up to offset 5" in str(run.ended_with(Outcome.FAILED).error)


def test_progress_without_a_topic_id_belongs_to_the_planned_topic() -> None:
    run = CopyHarness(50).opened(5, topic_id="")
    assert run.context.read_topic_id == TOPIC_ID
    run.fetch_fails(TopicRecreated("the topic was deleted and made again"))
    run.source_checked(topic_id="another", end=100)
    assert f"(topic id {TOPIC_ID}, now another)" in str(run.ended_with(Outcome.FAILED).error)


def test_topic_id_of_the_fetched_data_is_committed() -> None:
    """Neither the progress nor the plan has a topic id."""
    run = CopyHarness(50)
    run.copy.recorder.topic_id = ""
    run.opened(5, topic_id="")
    assert run.context.read_topic_id == ""
    run.fetch(made(5, 45), topic_id=uuid.UUID(int=7))
    run.ack_all()
    assert run.commit().topic_id == str(uuid.UUID(int=7))
    run.ended_with(Outcome.COMPLETE)


@pytest.mark.parametrize(("start", "epoch"), [(5, 3), (0, None)])
def test_first_copy_behind_the_log_start_commits_the_planned_leader_epoch(start: int, epoch: int | None) -> None:
    run = CopyHarness(50, start=start, source_epoch=3).opened_with(None).resolved()
    assert run.context.read_position == (start, epoch)
    committed = run.commit()
    assert (committed.offset, committed.leader_epoch) == (start, epoch)


def test_skipped_gap_is_committed_with_the_source_s_leader_epoch() -> None:
    """Without it, a log that is truncated below the offset and grows again would not be detected."""
    run = CopyHarness(50, on_gap="skip").opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    run.source_checked(earliest=40, leader_epoch=3)
    committed = run.commit()
    assert (committed.offset, committed.leader_epoch) == (40, 3)
    assert run.context.read_position == (40, 3)


@pytest.mark.parametrize("on_gap", ["fail", "skip"])
def test_source_truncated_below_progress_and_plan_is_a_gap(on_gap: str) -> None:
    """The plan was made with the new end: nothing seemed to be left to copy."""
    run = CopyHarness(7, on_gap=on_gap).opened(9)
    run.source_checked(end=7)
    if on_gap == "fail":
        assert "the source's log was cut back to 7" in str(run.ended_with(Outcome.FAILED).error)
        assert run.writer.commits == []
        return
    assert run.commit().offset == 7
    result = run.ended_with(Outcome.COMPLETE)
    assert (result.end, result.gaps) == (7, {"truncated": 2})


@pytest.mark.parametrize(
    ("error", "state", "begins"),
    [
        (OutOfRange("gone", 1), {"earliest": 140, "end": 200}, False),
        (OutOfRange("gone", 1), {"end": 40}, True),
        (LogTruncated("cut back", 40), {"leader_epoch": 4}, True),
        (TopicRecreated("recreated"), {"topic_id": "another", "earliest": 0}, True),
        (TopicRecreated("recreated"), {"topic_id": "another", "earliest": 140, "end": 200}, True),
    ],
)
def test_lazy_progress_of_a_log_that_the_copy_has_left_does_not_count(
    error: KafkaError, state: dict[str, Any], *, begins: bool
) -> None:
    """A flow that goes by sequences again later would resume behind records that it has not copied."""
    exact = replace(progress_at(100), leader_epoch=3, generation=5)
    lazy = replace(exact, offset=150, way=Way.SEQUENCES, producer_id=7, attempt=1)
    run = CopyHarness(OPEN_END, on_gap="skip").opened_with(exact)
    run.fetch_fails(error)
    run.source_checked(**state)
    skipped = run.commit()
    assert (skipped.generation != exact.generation) is begins
    run.fetch(made(skipped.offset, 2))
    run.ack_all()
    run.advance(1_000)
    copied = run.commit()
    assert copied.generation == skipped.generation
    claim = replace(copied, way=Way.SEQUENCES, producer_id=7, attempt=2)
    assert latest_of(claim, lazy).offset == (copied.offset if begins else 150)


def test_out_of_range_error_without_a_gap_is_retried_a_few_times() -> None:
    run = CopyHarness(50).opened(5)
    for checks in range(4):
        assert len(run.context.source_lookups) == checks
        run.fetch_fails(OutOfRange("gone", 1))
        run.source_checked()
    assert run.ended_with(Outcome.FAILED).error == "gone"


def test_batches_before_a_gap_are_committed_first() -> None:
    run = CopyHarness(50).opened(0)
    run.fetch(made(0, 5))
    run.fetch_fails(OutOfRange("gone", 1))
    assert run.copy.state is CopyState.COPYING
    run.ack()
    assert run.commit().offset == 5
    run.source_checked(earliest=40)
    assert run.ended_with(Outcome.FAILED).end == 5


@pytest.mark.parametrize("error", [KafkaTimeout("slow"), ValueError("odd")])
def test_failed_source_lookup_fails_the_copy(error: Exception) -> None:
    run = CopyHarness(50).opened(5)
    run.fetch_fails(OutOfRange("gone", 1))
    run.context.source_lookups[-1].set_exception(error)
    run.context.run_until_idle()
    assert str(error) in str(run.ended_with(Outcome.FAILED).error)
