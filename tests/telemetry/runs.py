"""Sample runs for reports, with unhealthy partitions of each kind."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from mirror.errors import BrokerError, DeliveryCause, DeliveryPhase, DeliveryTimeout, Fenced
from mirror.groups.summary import GroupsSummary, HeldGroup
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.timeline import CopyPhase, CopyTimeline, EventName
from mirror.relay.progress.gaps import Gap, GapKind
from mirror.telemetry.report.model import FlowReportData

BEGAN_MS: Final = int(datetime(2026, 11, 20, 22, 0, tzinfo=UTC).timestamp() * 1000)
SECOND: Final = 1_000
HOSTILE: Final = "</script><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"


def expiry(cause: DeliveryCause, phase: DeliveryPhase, time_ms: int, at: int, **more: Any) -> dict[str, Any]:
    """As the relay tells one."""
    values = {"age_ms": 120_041, "queued_ms": 88_012, "in_flight_ms": 32_029, "attempts": 4, "record_count": 512}
    error = DeliveryTimeout("late", cause=cause, phase=phase, **{**values, **more})
    return {**error.describe(), "time_ms": time_ms, "start": at, "end": at + 512}


def happened(what: EventName, time_ms: int, **about: Any) -> dict[str, Any]:
    return {"time_ms": time_ms, "name": what.value, **about}


def copied(
    topic: str,
    partition: int,
    records: int,
    *,
    seconds: float,
    after_s: float = 0.0,
    stalls: tuple[tuple[float, float], ...] = (),
    points: int = 100,
    start: int = 0,
    upto: float = 1.0,
    record_bytes: int = 230,
) -> RangeResult:
    """One that catches up from ``start``; within ``stalls`` (shares of its time) it stands still. ``upto``: how far."""
    began = BEGAN_MS + int(after_s * SECOND)
    end, curve = start + records, list[list[int]]()
    moves = [0.0 if any(low <= number / points < high for low, high in stalls) else 1.0 for number in range(points)]
    whole = sum(moves) or 1.0
    done = 0.0
    for number in range(points + 1):
        offset = start + int(records * upto * done / whole)
        time_ms = began + int(seconds * SECOND * number / points)
        curve.append([time_ms, offset, end, (offset - start) * record_bytes])
        done += moves[min(number, points - 1)]
    last = curve[-1][1]
    ms = int(seconds * SECOND)
    phases = {
        CopyPhase.FENCING: 130,
        CopyPhase.FETCHING: ms // 5,
        CopyPhase.PRODUCING: ms // 2,
        CopyPhase.COMMITTING: ms // 8,
    }
    timeline = CopyTimeline(
        began_ms=began,
        ended_ms=began + ms,
        lag_before=records,
        lag_after=end - last,
        late_before_ms=3_600_000,
        late_after_ms=0 if last == end else 600_000,
        phases={phase.value: spent for phase, spent in phases.items()},
        curve=curve,
        commits=max(1, int(seconds)),
        commit_ms=int(seconds * 40),
        commit_max_ms=212,
        traces=["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] if partition == 0 else [],
    )
    return RangeResult(
        flow="paris-berlin",
        topic=topic,
        target_topic=f"paris.{topic}",
        partition=partition,
        start=start,
        end=last,
        records=last - start,
        batches=math.ceil((last - start) / 500),
        bytes=(last - start) * record_bytes,
        seconds=seconds,
        outcome=Outcome.COMPLETE,
        timeline=timeline,
    )


def timeline_of(one: RangeResult) -> CopyTimeline:
    """Its timeline, which must exist."""
    assert one.timeline is not None
    return one.timeline


def healthy(partition: int = 0) -> RangeResult:
    """A backlog, caught up; some of it re-encoded."""
    one = copied("orders", partition, 1_800_000 + 90_000 * partition, seconds=46 + 5 * partition, stalls=((0.4, 0.45),))
    one.deep, one.gaps = {"small batches": 310, "offset gaps": 12}, {"compacted": 40, "markers": 9}
    one.skipped = {"control": 9}
    return one


def expired() -> RangeResult:
    """Two expiries: the first is got over, the second is not."""
    one = copied("orders", 3, 2_400_000, seconds=300, stalls=((0.1, 0.5), (0.62, 1.0)), upto=0.37, start=51_000)
    its, at = timeline_of(one), BEGAN_MS
    last_error = BrokerError("Produce to paris.orders-3: NOT_LEADER_OR_FOLLOWER (error 6)", 6)
    one.expiries = [
        expiry(DeliveryCause.NO_ANSWER, DeliveryPhase.IN_FLIGHT, at + 146_000, 207_512, may_have_been_written=True),
        expiry(DeliveryCause.NO_LEADER, DeliveryPhase.METADATA, at + 296_100, 927_488, last_error=last_error),
    ]
    one.outcome, one.retries = Outcome.EXPIRED, 1
    one.error = (
        "orders-3, the batch at offset 927488: paris.orders-3: a batch of 512 records was not acknowledged within"
        " 120000 ms (age 120041 ms, 32029 ms of it in flight, 4 attempts; metadata, no leader): Produce to"
        " paris.orders-3: NOT_LEADER_OR_FOLLOWER (error 6)"
    )
    its.events = [
        happened(EventName.LEADER_CHANGE, at + 31_000, side="target", leader_epoch=8, node=2),
        happened(EventName.RETRY, at + 146_400, attempt=1, error=str(last_error), backoff_ms=870),
        happened(EventName.LEADER_CHANGE, at + 151_000, side="target", leader_epoch=9, node=1),
    ]
    its.phases = {"fencing": 900, "fetching": 9_000, "producing": 241_000, "aborting": 4_100, "resting": 44_000}
    return one


def fenced() -> RangeResult:
    one = copied("payments", 1, 300_000, seconds=21, upto=0.6)
    one.outcome, one.error = Outcome.FENCED, "InitProducerId for mirror.paris-berlin.paris.payments.1: PRODUCER_FENCED"
    timeline_of(one).events = [happened(EventName.FENCED, timeline_of(one).ended_ms, error=str(Fenced(one.error, 90)))]
    return one


def with_a_gap() -> RangeResult:
    """The source had deleted what comes next; the flow goes on behind it."""
    one = copied("clicks", 0, 900_000, seconds=33, start=44_000)
    one.gaps = {"retention": 12_400, "markers": 3}
    timeline_of(one).events = [happened(EventName.GAP, BEGAN_MS + 400, kind="retention", offsets=12_400)]
    return one


def failed_by_a_gap() -> RangeResult:
    one = copied("clicks", 1, 100_000, seconds=1.2, upto=0.0, start=900)
    gap = Gap(GapKind.RETENTION, 900, 44_100, 43_200)
    return replace(one, outcome=Outcome.FAILED, error=f"clicks-1: {gap}; {gap.advice()}")


def throttled() -> RangeResult:
    one = copied("audit.log", 0, 700_000, seconds=190, stalls=((0.2, 0.3), (0.5, 0.7)))
    its = timeline_of(one)
    its.throttled_ms = 61_000
    its.events = [happened(EventName.THROTTLED, BEGAN_MS + each * SECOND, throttle_ms=12_200) for each in (40, 96, 130)]
    its.phases = {"fencing": 200, "fetching": 11_000, "memory": 61_000, "producing": 109_000, "committing": 8_000}
    return one


def idle() -> RangeResult:
    """Nothing was to be done: the planner settled it."""
    return RangeResult(
        flow="paris-berlin", topic="config", target_topic="paris.config", partition=0, start=17, end=17,
        outcome=Outcome.COMPLETE,
    )  # fmt: skip


def small(partition: int, rng: random.Random) -> RangeResult:
    """One of thousands."""
    records = rng.randrange(200, 60_000)
    return copied(
        f"devices.{partition // 50:02}",
        partition % 50,
        records,
        seconds=rng.uniform(2, 60),
        after_s=rng.uniform(0, 60),
        points=rng.randrange(4, 60),
        record_bytes=rng.randrange(80, 900),
    )


def one_of_each() -> list[RangeResult]:
    each = [
        healthy(0),
        healthy(1),
        healthy(2),
        expired(),
        fenced(),
        with_a_gap(),
        failed_by_a_gap(),
        throttled(),
        idle(),
    ]
    return sorted(each, key=lambda one: (one.topic, one.partition))


def view(partitions: list[RangeResult], **more: Any) -> FlowReportData:
    """A run of five minutes."""
    values: dict[str, Any] = {
        "flow": "paris-berlin",
        "outcome": Outcome.EXPIRED,
        "started_ms": BEGAN_MS - 800,
        "ended_ms": BEGAN_MS + 303 * SECOND,
        "partitions": partitions,
    }
    return FlowReportData(**{**values, **more})


def sick_run() -> FlowReportData:
    return view(one_of_each())


def large_run(partitions: int = 2_000) -> FlowReportData:
    """The same sick ones among thousands."""
    rng = random.Random(8)
    many = [small(number, rng) for number in range(partitions - len(one_of_each()))]
    return view(sorted([*one_of_each(), *many], key=lambda one: (one.topic, one.partition)))


def long_stream() -> FlowReportData:
    """A stream of ten hours: four minutes of catch-up, then a little lag now and then."""
    partitions = [healthy(number) for number in range(3)]
    for one in partitions:
        first = timeline_of(one)
        offset, _, size = first.curve[-1][1:]
        hours = [BEGAN_MS + number * 600_000 for number in range(1, 61)]
        later = [[time_ms, offset + 20 * at, offset + 20 * at + at % 3, size + at] for at, time_ms in enumerate(hours)]
        one.timeline = replace(first, curve=[*first.curve, *later])
    return view(partitions, outcome=Outcome.COMPLETE, periods=200, covered_periods=200, ended_ms=BEGAN_MS + 36_000_000)


def hostile_run() -> FlowReportData:
    """Every text that comes from outside tries to be more than a text."""
    bad = replace(expired(), topic=HOSTILE, target_topic=HOSTILE, error=HOSTILE, flow=HOSTILE)
    bad.expiries = [{**one, "cause": HOSTILE, "last_error": HOSTILE, HOSTILE: HOSTILE} for one in bad.expiries]
    bad.deep, bad.gaps = {HOSTILE: 1}, {HOSTILE: 2}
    bad.timeline = replace(
        timeline_of(bad), phases={HOSTILE: 9_000}, events=[{"time_ms": BEGAN_MS, "name": HOSTILE, "error": HOSTILE}]
    )
    return view([bad, healthy(1)], flow=HOSTILE, error=HOSTILE)


def groups(count: int = 3, **changes: Any) -> GroupsSummary:
    """The longest is late by three minutes; the name of the last one is hostile."""
    names = [*(f"g{number}" for number in range(count - 1)), HOSTILE]
    held = tuple(
        HeldGroup(group=name, reasons=("not-copied-yet",), detail=f"orders-{number}", age_ms=185_000 - number)
        for number, name in enumerate(names)
    )
    values = {"total": 40, "in_step": 30, "by_reason": {"not-copied-yet": 10}, "oldest_ms": 185_000, "held": held}
    return GroupsSummary(**{**values, "time_ms": BEGAN_MS + 300 * SECOND, **changes})
