"""The timeline that a copy records."""

from __future__ import annotations

from mirror.errors import DeliveryCause, DeliveryPhase, DeliveryTimeout
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.timeline import (
    MAX_EVENTS,
    MAX_POINTS,
    CopyPhase,
    CopyTimeline,
    EventName,
    ProgressCurve,
    SpanName,
    TimelineRecorder,
)
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import batch, build
from tests.relay.copy_harness import CopyHarness, made
from tests.relay.hand_context import TARGET


def timeline_of(run: CopyHarness) -> CopyTimeline:
    timeline = run.result.timeline
    assert timeline is not None
    return timeline


def test_phases_add_up_to_the_time_of_the_copy() -> None:
    run = CopyHarness(4)
    run.clock.advance(70)
    run.opened()
    run.clock.advance(200)
    run.fetch(made(0, 2), stable_end=4)
    run.clock.advance(30)
    run.ack_all()
    run.clock.advance(100)
    run.fetch(made(2, 2), stable_end=4)
    run.clock.advance(12)
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)
    timeline = timeline_of(run)
    assert timeline.phases == {
        CopyPhase.FENCING: 70,
        CopyPhase.FETCHING: 300,
        CopyPhase.PRODUCING: 30,
        CopyPhase.COMMITTING: 12,  # begun with the last batch, and its acknowledgement is part of it
    }
    assert timeline.ended_ms - timeline.began_ms == sum(timeline.phases.values()), (
        "nothing is left out, nothing counted twice"
    )


def test_lag_before_and_after_is_in_records_and_time() -> None:
    run = CopyHarness(2).opened()
    wall = run.clock.unix_ms()
    old = batch(build([b"0", b"1"], timestamp=wall - 5_000))
    run.fetch(old, stable_end=10)
    run.ack_all()
    run.clock.advance(1_000)
    run.commit()
    run.ended_with(Outcome.COMPLETE)
    timeline = timeline_of(run)
    assert (timeline.lag_before, timeline.late_before_ms) == (10, 5_000)
    assert (timeline.lag_after, timeline.late_after_ms) == (8, 6_000), "as old as the last one copied, a second later"
    assert [point[1:3] for point in timeline.curve] == [[0, 10], [2, 10]]
    assert (timeline.commits, timeline.commit_ms, timeline.commit_max_ms) == (1, 1_000, 1_000)


def test_lag_without_a_commit_is_the_initial_lag_grown_older() -> None:
    """Otherwise an epoch's total would show no lag exactly when something is wrong."""
    run = CopyHarness(2).opened()
    run.fetch(batch(build([b"0", b"1"], timestamp=run.clock.unix_ms() - 5_000)), stable_end=10)
    run.clock.advance(2_000)
    run.fetch(made(2, 1), stable_end=13)
    timeline = run.copy.recorder.timeline.snapshot(run.clock.now())
    assert (timeline.lag_before, timeline.late_before_ms) == (10, 5_000)
    assert (timeline.lag_after, timeline.late_after_ms) == (13, 7_000)


def test_commit_before_the_first_response_does_not_set_the_lag() -> None:
    run = CopyHarness(2).opened_with(None).resolved()
    run.commit()
    run.clock.advance(300)
    run.fetch(made(0, 2), stable_end=2)
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)
    timeline = timeline_of(run)
    assert (timeline.commits, timeline.lag_before, timeline.lag_after) == (2, 2, 0)
    assert [point[1:3] for point in timeline.curve] == [[0, 2], [2, 2]]
    assert [span["name"] for span in timeline.spans] == [SpanName.CATCH_UP]


def test_catch_up_span_ends_when_the_lag_is_zero() -> None:
    run = CopyHarness(2).opened()
    run.fetch(made(0, 2), stable_end=2)
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)
    (span,) = run.context.observer.spans
    assert span["name"] == SpanName.CATCH_UP
    assert span["records"] == 2
    assert timeline_of(run).spans == [span]
    assert run.context.observer.results == [run.result]


def test_retry_event_has_error_and_backoff() -> None:
    run = CopyHarness(1)
    run.context.retries_allowed = True
    run.opened()
    run.fetch(made(0), stable_end=1)
    error = DeliveryTimeout(
        "too late",
        topic=TARGET.topic,
        partition=TARGET.partition,
        age_ms=10_000,
        attempts=3,
        phase=DeliveryPhase.IN_FLIGHT,
        cause=DeliveryCause.NO_ANSWER,
    )
    run.writer.sent[-1].answer(error)
    run.context.run_until_idle()
    run.closed()
    assert run.copy.recorder.timeline.phase is CopyPhase.BACKING_OFF
    run.clock.advance(2_000)
    run.copy.step(run.clock.now())
    run.opened()
    run.fetch(made(0), stable_end=1)
    run.ack_all()
    run.commit()
    run.ended_with(Outcome.COMPLETE)
    timeline = timeline_of(run)
    (retry,) = timeline.events
    assert retry["name"] == EventName.RETRY
    assert retry["attempt"] == 2
    assert "too late" in retry["error"]
    assert 0 < retry["backoff_ms"] <= 2_000
    assert [span["name"] for span in timeline.spans] == [SpanName.ATTEMPT, SpanName.CATCH_UP]
    assert "too late" in timeline.spans[0]["error"]


def test_leader_change_is_an_event_but_the_first_leader_is_not() -> None:
    chronicle = a_chronicle()
    chronicle.leader_observed("target", 4, 1)
    chronicle.leader_observed("target", 4, 1)
    chronicle.leader_observed("source", None)
    assert chronicle.snapshot(0).events == []
    chronicle.leader_observed("target", 5, 2)
    (event,) = chronicle.snapshot(0).events
    assert (event["name"], event["side"], event["leader_epoch"], event["node"]) == (
        EventName.LEADER_CHANGE,
        "target",
        5,
        2,
    )


def test_consecutive_throttling_is_one_event() -> None:
    chronicle = a_chronicle()
    for _ in range(3):
        chronicle.throttled(200)
    chronicle.throttled(0)
    timeline = chronicle.snapshot(0)
    (event,) = timeline.events
    assert event["throttle_ms"] == timeline.throttled_ms == 600


def test_events_are_bounded_and_dropped_ones_are_counted() -> None:
    chronicle = a_chronicle()
    for number in range(MAX_EVENTS + 7):
        chronicle.add_event(EventName.RETRY, attempt=number)
    timeline = chronicle.snapshot(0)
    assert len(timeline.events) == MAX_EVENTS
    assert timeline.events_left_out == 7
    assert timeline.events[-1]["attempt"] == MAX_EVENTS + 6


def test_curve_is_bounded_and_keeps_its_ends() -> None:
    curve = ProgressCurve()
    for number in range(100_000):
        curve.add(number * 50, number, 100_000, number * 10)
    points = curve.points()
    assert len(points) <= MAX_POINTS + 2
    assert points[0] == [0, 0, 100_000, 0]
    assert points[-1] == [99_999 * 50, 99_999, 100_000, 999_990]
    assert points == sorted(points)


def a_chronicle() -> TimelineRecorder:
    return TimelineRecorder(FakeClock().unix_ms, 0, lambda _: None)
