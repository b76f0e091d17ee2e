"""The history of a partition over a stream's periods: joined and bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirror.relay.model.ranges import RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.telemetry.report.history import MAX_EVENTS, MAX_EXPIRIES, PartitionHistory

BASE = 1_000_000


def period(number: int, **more: Any) -> RangeResult:
    """Each copies a hundred records of 10 bytes in a minute, and leaves five."""
    at, first = BASE + number * 60_000, number * 100
    curve = [[at + step * 1_000, first + 2 * step, first + 105, 20 * step] for step in range(51)]
    timeline = CopyTimeline(
        began_ms=at,
        ended_ms=at + 60_000,
        lag_before=105,
        lag_after=5,
        late_before_ms=900,
        late_after_ms=40,
        phases={"producing": 30_000, "idle": 10_000},
        curve=curve,
        commits=50,
        commit_ms=500,
        commit_max_ms=20 + number,
        throttled_ms=3,
        traces=[f"trace-{number}"],
        events=[{"time_ms": at + 7, "name": "mirror.retry"}],
    )
    return RangeResult(
        flow="f", topic="t", target_topic="a.t", partition=0, start=first, end=first + 100, records=100, bytes=1_000,
        **{"timeline": timeline, **more},
    )  # fmt: skip


def test_epochs_are_joined_into_one_timeline() -> None:
    history = PartitionHistory(max_points=400)
    for number in range(3):
        history.add(period(number))
    timeline = history.timeline()
    assert timeline is not None
    assert (timeline.began_ms, timeline.ended_ms) == (BASE, BASE + 180_000)
    assert (timeline.lag_before, timeline.lag_after, timeline.late_before_ms, timeline.late_after_ms) == (
        105,
        5,
        900,
        40,
    )
    assert timeline.phases == {"producing": 90_000, "idle": 30_000}
    assert (timeline.commits, timeline.commit_ms, timeline.commit_max_ms, timeline.throttled_ms) == (150, 1_500, 22, 9)
    assert timeline.traces == ["trace-0", "trace-1", "trace-2"]
    assert [event["time_ms"] for event in timeline.events] == [BASE + 7, BASE + 60_007, BASE + 120_007]
    assert len(timeline.curve) == 153
    assert timeline.curve[0] == [BASE, 0, 105, 0]
    assert timeline.curve[-1] == [BASE + 170_000, 300, 305, 3_000], "the bytes of earlier periods are counted"
    assert [point[3] for point in timeline.curve] == sorted(point[3] for point in timeline.curve)


def test_repeated_expiry_is_listed_once() -> None:
    history = PartitionHistory(max_points=10)
    expiry = {"time_ms": 5, "cause": "no leader"}
    history.add(period(0, expiries=[expiry]))
    history.add(period(1, expiries=[expiry, {"time_ms": 6, "cause": "backlog"}]))
    assert [one["time_ms"] for one in history.expiries()] == [5, 6]


def test_history_of_a_long_stream_is_bounded() -> None:
    history = PartitionHistory(max_points=50)
    for number in range(300):
        expiries = [{"time_ms": number * 60_000, "cause": "no leader"}]
        history.add(period(number, expiries=expiries))
    timeline = history.timeline()
    assert timeline is not None
    assert len(timeline.curve) <= 100
    assert timeline.curve[0] == [BASE, 0, 105, 0]
    assert timeline.curve[-1][:2] == [BASE + 299 * 60_000 + 50_000, 30_000]
    assert (len(timeline.events), timeline.events_left_out) == (MAX_EVENTS, 300 - MAX_EVENTS)
    assert len(history.expiries()) == MAX_EXPIRIES
    assert history.expiries()[-1]["time_ms"] == 299 * 60_000


def test_overlapping_attempts_make_one_curve() -> None:
    """A fenced twin reported the same time: the curve does not go back."""
    history = PartitionHistory(max_points=400)
    history.add(period(0))
    history.add(replace(period(0), end=130))
    times = [point[0] for point in (history.timeline() or CopyTimeline()).curve]
    assert times == sorted(times)


def test_history_without_timelines_has_none() -> None:
    history = PartitionHistory(max_points=10)
    history.add(period(0, timeline=None))
    assert (history.timeline(), history.expiries()) == (None, [])
    history.add(period(0, timeline=None), [{"time_ms": 3, "name": "mirror.earlier_attempt"}])
    timeline = history.timeline()
    assert timeline is not None
    assert timeline.events == [{"time_ms": 3, "name": "mirror.earlier_attempt"}]


def test_curve_starts_with_the_lag_at_the_beginning() -> None:
    """The first commit keeps the place, before the source has said how far it goes."""
    curve = [[BASE + 700, 40, 40, 0], [BASE + 900, 90, 140, 500], [BASE + 1_300, 140, 140, 1_000]]
    timeline = CopyTimeline(began_ms=BASE, ended_ms=BASE + 1_300, lag_before=100, curve=curve)
    history = PartitionHistory(max_points=10)
    history.add(period(0, timeline=timeline))
    assert [(time - BASE, left) for time, left, _, _ in history.points()] == [
        (0, 100),
        (700, 100),
        (900, 50),
        (1_300, 0),
    ]


def test_catch_up_is_an_event() -> None:
    span = {"name": "mirror.catch_up", "began_ms": BASE, "ended_ms": BASE + 1_300, "records": 5, "bytes": 70}
    other = {"name": "mirror.attempt", "began_ms": BASE, "ended_ms": BASE + 3, "attempt": 1, "error": "x"}
    history = PartitionHistory(max_points=10)
    history.add(period(0, timeline=CopyTimeline(began_ms=BASE, spans=[other, span])))
    timeline = history.timeline()
    assert timeline is not None
    about = {"took_ms": 1_300, "records": 5, "bytes": 70}
    assert timeline.events == [{"time_ms": BASE + 1_300, "name": "mirror.catch_up", **about}]
