"""Builds a period's tree of spans from its plan and its results. Pure.

::

    mirror.period ─┬─ mirror.plan
                  └─ mirror.task ─── mirror.partition ─┬─ mirror.catch_up
                     (an executor)                     └─ mirror.attempt (each attempt that did not complete)

A record that was copied late has its way in the trace of its producer, if that is sampled::

    (its producer's span) ─── mirror.record ─┬─ mirror.record.fetch    in the source, until it was fetched
                                            ├─ mirror.record.hold     in the task, until it was sent
                                            └─ mirror.record.append   until the target acknowledged it

Attributes named ``messaging.*`` follow OpenTelemetry's semantic conventions for Kafka; ``mirror.*`` are ours and are
documented in config/dashboards/README.md, "Traces". The names of times end in ``_ms``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.relay.model.observer import SlowRecord
from mirror.relay.model.ranges import SEVERITY, Outcome, Range, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.telemetry.traces.ids import SpanId, partition_id, plan_id, subspan_id, task_id

Value = str | int | float | bool

PERIOD: Final = "mirror.period"
PLAN: Final = "mirror.plan"
TASK: Final = "mirror.task"
PARTITION: Final = "mirror.partition"
RECORD: Final = "mirror.record"
EXPIRED: Final = "mirror.delivery.expired"

_ERRORS: Final = frozenset({Outcome.EXPIRED, Outcome.FAILED})


class Kind(enum.IntEnum):
    """OTLP's numbers. Backends draw who sends to whom by the producers and consumers."""

    INTERNAL = 1
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event at ``time_ms`` since 1970."""

    name: str
    time_ms: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A link to a related span."""

    to: SpanId
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A finished span. Times are ms since 1970."""

    name: str
    id: SpanId
    parent: SpanId | None
    began_ms: int
    ended_ms: int
    attributes: Mapping[str, Value]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None
    """One line, or None if the operation succeeded."""
    kind: Kind = Kind.INTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodFacts:
    """The content of a period's span."""

    id: SpanId
    flow: str
    run: str
    period: int
    source: str
    target: str
    began_ms: int
    ended_ms: int
    planned_ms: int | None
    """How long planning took; None if it is not known."""
    results: tuple[RangeResult, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of all partitions."""
        return max((result.outcome for result in self.results), key=SEVERITY.index, default=Outcome.COMPLETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Where and when an attempt of a task ran."""

    period: SpanId
    flow: str
    task: int
    attempt: int
    host: str
    pid: int
    began_ms: int
    ended_ms: int

    @property
    def id(self) -> SpanId:
        """The id of the task's span."""
        return task_id(self.period, self.task, self.attempt)


def period_spans(facts: PeriodFacts) -> Iterator[Span]:
    """Return the period's root span and the span of its planning."""
    results = facts.results
    yield Span(
        name=PERIOD,
        id=facts.id,
        parent=None,
        began_ms=facts.began_ms,
        ended_ms=facts.ended_ms,
        attributes=_present(
            {
                "mirror.flow": facts.flow,
                "mirror.run": facts.run,
                "mirror.period": facts.period,
                "mirror.source": facts.source,
                "mirror.target": facts.target,
                "mirror.outcome": facts.outcome.value,
                "mirror.partitions": len(results),
                "mirror.partitions.incomplete": sum(result.outcome is not Outcome.COMPLETE for result in results),
                "mirror.expiries": sum(len(result.expiries) for result in results),
                "mirror.expired": any(result.expiries for result in results) or None,
                "mirror.records": sum(result.records for result in results),
                "mirror.bytes": sum(result.bytes for result in results),
                "mirror.lag.before": _sum(result.timeline.lag_before for result in results if result.timeline),
                "mirror.lag.after": _sum(result.timeline.lag_after for result in results if result.timeline),
            }
        ),
        error=_first_error(results),
    )
    if facts.planned_ms is not None:
        yield Span(
            name=PLAN,
            id=plan_id(facts.id),
            parent=facts.id,
            began_ms=facts.began_ms,
            ended_ms=min(facts.ended_ms, facts.began_ms + facts.planned_ms),
            attributes={"mirror.flow": facts.flow, "mirror.partitions": len(facts.results)},
        )


def task_span(facts: TaskFacts, results: Iterable[RangeResult]) -> Span:
    """Return the span of one attempt of a task."""
    results = list(results)
    return Span(
        name=TASK,
        id=facts.id,
        parent=facts.period,
        began_ms=facts.began_ms,
        ended_ms=facts.ended_ms,
        attributes={
            "mirror.flow": facts.flow,
            "mirror.task": facts.task,
            "mirror.task.attempt": facts.attempt,
            "host.name": facts.host,
            "process.pid": facts.pid,
            "mirror.partitions": len(results),
            "mirror.records": sum(result.records for result in results),
            "mirror.bytes": sum(result.bytes for result in results),
        },
        error=_first_error(results),
    )


def is_idle(result: RangeResult) -> bool:
    """Return whether nothing happened to the partition. Of a stream's thousands, idle ones have no span."""
    read = result.records or result.skipped or result.aside
    quiet = result.outcome is Outcome.COMPLETE and not (read or result.expiries)
    return quiet and not (result.timeline and (result.timeline.events or result.timeline.spans))


def partition_span(facts: TaskFacts, result: RangeResult) -> Span:
    """Return the span of one partition's copy in this task."""
    timeline = result.timeline or CopyTimeline()
    return Span(
        name=PARTITION,
        id=partition_id(facts.period, result.topic, result.partition, facts.attempt),
        parent=facts.id,
        began_ms=timeline.began_ms or facts.began_ms,
        ended_ms=timeline.ended_ms or facts.ended_ms,
        attributes=_present(
            {
                **_result_attributes(result),
                **_timeline_attributes(result, timeline),
                **_health_attributes(facts.period, result, timeline),
            }
        ),
        events=(*_expiries(result), *_timeline_events(timeline)),
        links=(*_health_links(timeline), *_record_links(timeline)),
        error=_error(result),
    )


def _error(result: RangeResult) -> str | None:
    """Return the error of a result.

    A partition of a stream that expired has an error also if the period ended before its retry did.
    """
    if result.outcome in _ERRORS:
        return result.error or result.outcome.value
    if result.outcome is Outcome.COMPLETE or not result.expiries:
        return None
    last = result.expiries[-1]
    why = f"{last.get('cause', 'unknown')} ({last.get('phase', 'unknown')})"
    times = "once" if len(result.expiries) == 1 else f"{len(result.expiries)} times"
    return f"{result.target_topic}-{result.partition}: expired {times}, the last: {why}"


def _first_error(results: Iterable[RangeResult]) -> str | None:
    return next((error for result in results if (error := _error(result))), None)


def _result_attributes(result: RangeResult) -> dict[str, Value | None]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "mirror",
        "messaging.operation.type": "process",
        "messaging.destination.name": result.topic,
        "messaging.destination.partition.id": str(result.partition),
        "messaging.kafka.offset": result.start,
        "messaging.batch.message_count": result.records,
        "mirror.flow": result.flow,
        "mirror.topic": result.topic,
        "mirror.target_topic": result.target_topic,
        "mirror.partition": result.partition,
        "mirror.start": result.start,
        "mirror.end": result.end,
        "mirror.outcome": result.outcome.value,
        "mirror.way": result.way or None,
        "mirror.way.reason": result.way_reason or None,
        "mirror.error": result.error,
        "mirror.records": result.records,
        "mirror.batches": result.batches,
        "mirror.bytes": result.bytes,
        "mirror.batches.deep": sum(result.deep.values()),
        "mirror.batches.shallow": max(0, result.batches - sum(result.deep.values())),
        **{f"mirror.deep.{_key(reason)}": count for reason, count in result.deep.items()},
        **{f"mirror.skipped.{_key(reason)}": count for reason, count in result.skipped.items()},
        **{f"mirror.gap.{_key(kind)}": count for kind, count in result.gaps.items()},
        **{f"mirror.aside.{_key(reason)}": count for reason, count in result.aside.items()},
        "mirror.target_losses": len(result.target_losses) or None,
        "mirror.retries": result.retries,
        "mirror.expiries": len(result.expiries),
        # Some stores (Zipkin) search for equal values only, and do not search events.
        "mirror.expired": bool(result.expiries) or None,
    }


def _timeline_attributes(result: RangeResult, timeline: CopyTimeline) -> dict[str, Value | None]:
    seconds = max(0.001, (timeline.ended_ms - timeline.began_ms) / 1000)
    phases = timeline.phases
    total_ms = sum(phases.values())
    return {
        "mirror.lag.before": timeline.lag_before,
        "mirror.lag.after": timeline.lag_after,
        "mirror.lag.before_bytes": _estimated_bytes(timeline.lag_before, result),
        "mirror.lag.after_bytes": _estimated_bytes(timeline.lag_after, result),
        "mirror.lag.before_ms": timeline.late_before_ms,
        "mirror.lag.after_ms": timeline.late_after_ms,
        "mirror.rate.records": round(result.records / seconds, 3),
        "mirror.rate.bytes": round(result.bytes / seconds, 3),
        **{f"mirror.phase.{phase}_ms": ms for phase, ms in phases.items()},
        **{f"mirror.phase.{phase}.share": round(ms / total_ms, 4) for phase, ms in phases.items() if total_ms},
        "mirror.commits": timeline.commits,
        "mirror.commit.mean_ms": round(timeline.commit_ms / timeline.commits, 3) if timeline.commits else None,
        "mirror.commit.max_ms": timeline.commit_max_ms if timeline.commits else None,
        "mirror.throttled_ms": timeline.throttled_ms,
        "mirror.events.left_out": timeline.events_left_out or None,
    }


def _estimated_bytes(records: int | None, result: RangeResult) -> int | None:
    """Estimate the size of ``records``: those that were copied had the same mean size."""
    if records is None or (records and not result.records):
        return None
    return round(records * result.bytes / result.records) if records else 0


def _health_attributes(period: SpanId, result: RangeResult, timeline: CopyTimeline) -> dict[str, Value | None]:
    """Return attributes with the same value in all periods in which a partition stays unhealthy, the first included.

    One search for that value finds all of these periods.
    """
    first = SpanId.parse(timeline.sick_trace) if timeline.sick_trace else None
    if first is not None:
        return {"mirror.sick.since_ms": timeline.sick_since_ms, "mirror.sick.trace": first.trace_hex}
    # The next period will call such a partition unhealthy (mirror.spark.ledger.partition_health).
    begins = result.outcome in _ERRORS or result.stuck_since_ms is not None
    return {"mirror.sick.trace": period.trace_hex if begins else None}


def _expiries(result: RangeResult) -> Iterator[SpanEvent]:
    for expiry in result.expiries:
        attributes = {f"mirror.expiry.{name}": value for name, value in expiry.items() if name != "time_ms"}
        yield SpanEvent(EXPIRED, expiry["time_ms"], _present(attributes))


def _timeline_events(timeline: CopyTimeline) -> Iterator[SpanEvent]:
    for event in timeline.events:
        attributes = {f"mirror.{name}": value for name, value in event.items() if name not in {"time_ms", "name"}}
        yield SpanEvent(event["name"], event["time_ms"], _present(attributes))


def _health_links(timeline: CopyTimeline) -> Iterator[SpanLink]:
    """Link to the period in which the partition became unhealthy, and to the previous one."""
    seen = set()
    for name, text in (("first", timeline.sick_trace), ("previous", timeline.last_trace)):
        link = SpanId.parse(text) if text else None
        if link is not None and link not in seen:
            seen.add(link)
            yield SpanLink(link, {"mirror.link": f"sick.{name}"})


def _record_links(timeline: CopyTimeline) -> Iterator[SpanLink]:
    for text in timeline.traces:
        link = SpanId.parse(text)
        if link is not None:
            yield SpanLink(link, {"mirror.link": "record"})


def subspan(partition: SpanId, flow: str, entry: Mapping[str, Any]) -> Span:
    """Return the span for an ``entry`` of :attr:`mirror.relay.model.timeline.CopyTimeline.spans`."""
    attributes = {f"mirror.{key}": value for key, value in entry.items() if key not in {"name", "began_ms", "ended_ms"}}
    error = entry.get("error")
    return Span(
        name=entry["name"],
        id=subspan_id(partition, entry["name"], entry["began_ms"]),
        parent=partition,
        began_ms=entry["began_ms"],
        ended_ms=entry["ended_ms"],
        attributes=_present({"mirror.flow": flow, **attributes}),
        error=str(error) if error else None,
    )


def record_spans(partition: SpanId, range_: Range, record: SlowRecord) -> Iterator[Span]:
    """Return the way of a record in the trace of its producer; ``partition`` is the span of its copy, which is linked.

    Clocks of brokers and tasks differ: no part has a negative duration.
    """
    producer = SpanId.parse(record.trace)
    if producer is None:
        return
    flow, topic, number = range_.flow, range_.topic, range_.partition
    own = producer.derive(RECORD, flow, topic, number, record.offset, record.acknowledged_ms)
    began_ms = min(record.appended_ms, record.received_ms)
    source: dict[str, Value | None] = {
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(number),
        "messaging.kafka.offset": record.offset,
    }
    target = source | {
        "messaging.destination.name": range_.target_topic,
        "messaging.kafka.offset": record.target_offset,
    }
    ours: dict[str, Value | None] = {"mirror.flow": flow, "mirror.topic": topic, "mirror.partition": number}
    yield Span(
        name=RECORD,
        id=own,
        parent=producer,
        began_ms=began_ms,
        ended_ms=record.acknowledged_ms,
        attributes=_present(
            source
            | ours
            | {
                "messaging.operation.name": "mirror",
                "messaging.operation.type": "process",
                "mirror.target_topic": range_.target_topic,
                "mirror.latency_ms": record.acknowledged_ms - record.appended_ms,
            }
        ),
        links=(SpanLink(partition, {"mirror.link": "partition"}),),
        kind=Kind.CONSUMER,
    )
    fetch, append = {"messaging.operation.name": "fetch"}, {"messaging.operation.name": "produce"}
    for part, part_began_ms, part_ended_ms, attributes, kind in (
        ("fetch", began_ms, record.received_ms, source | fetch | {"messaging.operation.type": "receive"}, Kind.CLIENT),
        ("hold", record.received_ms, record.sent_ms, {}, Kind.INTERNAL),
        (
            "append",
            record.sent_ms,
            record.acknowledged_ms,
            target | append | {"messaging.operation.type": "send"},
            Kind.PRODUCER,
        ),
    ):
        yield Span(
            name=f"{RECORD}.{part}",
            id=own.derive(f"{own.span:x}", part),
            parent=own,
            began_ms=part_began_ms,
            ended_ms=max(part_began_ms, part_ended_ms),
            attributes=_present(attributes | ours),
            kind=kind,
        )


def task_spans(facts: TaskFacts, results: Iterable[RangeResult]) -> Iterator[Span]:
    """Return the spans of one attempt of a task, of its partitions, and those below them."""
    results = list(results)
    yield task_span(facts, results)
    for result in results:
        span = partition_span(facts, result)
        yield span
        if result.timeline is not None:
            yield from (subspan(span.id, result.flow, entry) for entry in result.timeline.spans)


def _key(text: str) -> str:
    return text.replace(" ", "_")


def _sum(values: Iterable[int | None]) -> int | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


def _present(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}
