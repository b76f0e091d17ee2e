"""Sample results as tasks report them."""

from __future__ import annotations

from typing import Any

from mirror.errors import DeliveryCause, DeliveryPhase, DeliveryTimeout
from mirror.meters import Histogram, NetworkSnapshot, RequestMeter
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline, EventName, SpanName
from mirror.telemetry.task_report import TaskReport

AT_MS = 1_800_000_000_000
"""The begin of every sample, ms since 1970."""


def result(partition: int, outcome: Outcome = Outcome.COMPLETE, **more: Any) -> RangeResult:
    values: dict[str, Any] = {
        "flow": "f",
        "topic": "orders",
        "target_topic": "a.orders",
        "partition": partition,
        "start": 10,
        "end": 110,
        "records": 100,
        "batches": 10,
        "bytes": 5_000,
        "seconds": 2.0,
        "outcome": outcome,
        "timeline": CopyTimeline(began_ms=AT_MS + 100, ended_ms=AT_MS + 2_100, lag_before=100, lag_after=0),
    }
    return RangeResult(**{**values, **more})


def expired(partition: int, **more: Any) -> RangeResult:
    error = DeliveryTimeout(
        "too late",
        topic="a.orders",
        partition=partition,
        age_ms=6_000,
        queued_ms=1_000,
        in_flight_ms=5_000,
        attempts=3,
        phase=DeliveryPhase.IN_FLIGHT,
        cause=DeliveryCause.NOT_ENOUGH_REPLICAS,
        may_have_been_written=True,
    )
    timeline = CopyTimeline(
        began_ms=AT_MS + 100,
        ended_ms=AT_MS + 7_100,
        lag_before=100,
        lag_after=60,
        late_before_ms=9_000,
        late_after_ms=16_000,
        phases={"fencing": 100, "producing": 6_900},
        events=[
            {"time_ms": AT_MS + 6_200, "name": EventName.RETRY.value, "attempt": 2, "error": "e", "backoff_ms": 90}
        ],
        spans=[
            {"name": SpanName.ATTEMPT.value, "began_ms": AT_MS + 100, "ended_ms": AT_MS + 6_100, "error": "too late"}
        ],
        **more,
    )
    return result(
        partition,
        Outcome.EXPIRED,
        records=40,
        end=50,
        error="too late",
        expiries=[{**error.describe(), "time_ms": AT_MS + 6_100, "start": 50, "end": 60}],
        retries=1,
        failures={"expired": 1},
        timeline=timeline,
    )


def a_task(task: int = 0, attempt: int = 0, **more: Any) -> TaskReport:
    meter = RequestMeter(lost=1, throttled_ms=500)
    meter.took.add(7)
    commits = Histogram()
    commits.add(30)
    latency = Histogram()
    latency.add(40, 140)
    values: dict[str, Any] = {
        "task": task,
        "attempt": attempt,
        "host": "worker-1",
        "pid": 4711,
        "began_ms": AT_MS + 50,
        "ended_ms": AT_MS + 7_200,
        "networks": {"source": NetworkSnapshot({}, 100), "target": NetworkSnapshot({"Produce": meter}, 715)},
        "commits": commits,
        "latency": latency,
        "peaks": {"buffer": 1_000, "buffer_size": 2_000, "in_flight": 500, "held": 700},
        "phases": {"fencing": 100, "producing": 6_900},
    }
    return TaskReport(**{**values, **more})
