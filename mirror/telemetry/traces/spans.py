"""An epoch as a tree of spans, made from what was planned and what came of it. Pure.

::

    mirror.epoch ─┬─ mirror.plan
                  └─ mirror.task ─── mirror.partition ─┬─ mirror.catch_up
                     (an executor)                     └─ mirror.attempt (each that did not come to its end)

Names and units of the attributes: ``messaging.*`` as OpenTelemetry's semantic conventions for Kafka have them,
``mirror.*`` are ours (README: "Traces"). Times end in ``_ms``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.relay.model.ranges import SEVERITY, Outcome, RangeResult
from mirror.relay.model.timeline import CopyTimeline
from mirror.telemetry.traces.ids import SpanId, part_id, partition_id, plan_id, task_id

Value = str | int | float | bool

EPOCH: Final = "mirror.epoch"
PLAN: Final = "mirror.plan"
TASK: Final = "mirror.task"
PARTITION: Final = "mirror.partition"
EXPIRED: Final = "mirror.delivery.expired"

_WRONG: Final = frozenset({Outcome.EXPIRED, Outcome.FAILED})


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something at one moment, in ms since 1970."""

    name: str
    time_ms: int
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span that this one has to do with."""

    to: SpanId
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Times are ms since 1970; ``error`` is one line, or None where all went well."""

    name: str
    id: SpanId
    parent: SpanId | None
    began_ms: int
    ended_ms: int
    attributes: Mapping[str, Value]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFacts:
    """What an epoch's span tells. ``planned_ms`` is how long planning took, None where it is not known."""

    id: SpanId
    flow: str
    run: str
    epoch: int
    source: str
    target: str
    began_ms: int
    ended_ms: int
    planned_ms: int | None
    results: tuple[RangeResult, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of its partitions'."""
        return max((one.outcome for one in self.results), key=SEVERITY.index, default=Outcome.COMPLETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """Where an attempt of a task ran, and when."""

    epoch: SpanId
    flow: str
    task: int
    attempt: int
    host: str
    pid: int
    began_ms: int
    ended_ms: int

    @property
    def id(self) -> SpanId:
        """Its span's."""
        return task_id(self.epoch, self.task, self.attempt)


def epoch_spans(facts: EpochFacts) -> Iterator[Span]:
    """The root, and the planning."""
    yield Span(
        name=EPOCH,
        id=facts.id,
        parent=None,
        began_ms=facts.began_ms,
        ended_ms=facts.ended_ms,
        attributes=_known(
            {
                "mirror.flow": facts.flow,
                "mirror.run": facts.run,
                "mirror.epoch": facts.epoch,
                "mirror.source": facts.source,
                "mirror.target": facts.target,
                "mirror.outcome": facts.outcome.value,
                "mirror.partitions": len(facts.results),
                "mirror.partitions.incomplete": sum(one.outcome is not Outcome.COMPLETE for one in facts.results),
                "mirror.expiries": sum(len(one.expiries) for one in facts.results),
                "mirror.expired": any(one.expiries for one in facts.results) or None,
                "mirror.records": sum(one.records for one in facts.results),
                "mirror.bytes": sum(one.bytes for one in facts.results),
                "mirror.lag.before": _sum(one.story.lag_before for one in facts.results if one.story),
                "mirror.lag.after": _sum(one.story.lag_after for one in facts.results if one.story),
            }
        ),
        error=_first_error(facts.results),
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
    """One attempt of a task."""
    told = list(results)
    return Span(
        name=TASK,
        id=facts.id,
        parent=facts.epoch,
        began_ms=facts.began_ms,
        ended_ms=facts.ended_ms,
        attributes={
            "mirror.flow": facts.flow,
            "mirror.task": facts.task,
            "mirror.task.attempt": facts.attempt,
            "host.name": facts.host,
            "process.pid": facts.pid,
            "mirror.partitions": len(told),
            "mirror.records": sum(one.records for one in told),
            "mirror.bytes": sum(one.bytes for one in told),
        },
        error=_first_error(told),
    )


def partition_span(facts: TaskFacts, result: RangeResult) -> Span:
    """One partition's catch-up in this task."""
    story = result.story or CopyTimeline()
    began_ms = story.began_ms or facts.began_ms
    return Span(
        name=PARTITION,
        id=partition_id(facts.epoch, result.topic, result.partition, facts.attempt),
        parent=facts.id,
        began_ms=began_ms,
        ended_ms=story.ended_ms or facts.ended_ms,
        attributes=_known({**_what(result), **_how(result, story), **_sick(facts.epoch, result, story)}),
        events=(*_expiries(result), *_happenings(story)),
        links=(*_story_links(story), *_record_links(story)),
        error=_error(result),
    )


def _error(result: RangeResult) -> str | None:
    """What is wrong; also where a stream's epoch ended for one that had expired, and is tried again in the next."""
    if result.outcome in _WRONG:
        return result.error or result.outcome.value
    if result.outcome is Outcome.COMPLETE or not result.expiries:
        return None
    last = result.expiries[-1]
    why = f"{last.get('cause', 'unknown')} ({last.get('phase', 'unknown')})"
    times = "once" if len(result.expiries) == 1 else f"{len(result.expiries)} times"
    return f"{result.target_topic}-{result.partition}: expired {times}, the last: {why}"


def _first_error(results: Iterable[RangeResult]) -> str | None:
    return next((error for one in results if (error := _error(one))), None)


def _what(result: RangeResult) -> dict[str, Value | None]:
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
        "mirror.error": result.error,
        "mirror.records": result.records,
        "mirror.batches": result.batches,
        "mirror.bytes": result.bytes,
        "mirror.batches.deep": sum(result.deep.values()),
        "mirror.batches.shallow": max(0, result.batches - sum(result.deep.values())),
        **{f"mirror.deep.{_key(reason)}": count for reason, count in result.deep.items()},
        **{f"mirror.skipped.{_key(reason)}": count for reason, count in result.skipped.items()},
        **{f"mirror.gap.{_key(kind)}": count for kind, count in result.gaps.items()},
        "mirror.retries": result.retries,
        "mirror.expiries": len(result.expiries),
        # For stores that search for equal values only, and not in events (Zipkin).
        "mirror.expired": bool(result.expiries) or None,
    }


def _how(result: RangeResult, story: CopyTimeline) -> dict[str, Value | None]:
    seconds = max(0.001, (story.ended_ms - story.began_ms) / 1000)
    whole_ms = sum(story.phases.values())
    return {
        "mirror.lag.before": story.lag_before,
        "mirror.lag.after": story.lag_after,
        "mirror.lag.before_bytes": _bytes_of(story.lag_before, result),
        "mirror.lag.after_bytes": _bytes_of(story.lag_after, result),
        "mirror.lag.before_ms": story.late_before_ms,
        "mirror.lag.after_ms": story.late_after_ms,
        "mirror.rate.records": round(result.records / seconds, 3),
        "mirror.rate.bytes": round(result.bytes / seconds, 3),
        **{f"mirror.phase.{phase}_ms": ms for phase, ms in story.phases.items()},
        **{f"mirror.phase.{phase}.share": round(ms / whole_ms, 4) for phase, ms in story.phases.items() if whole_ms},
        "mirror.commits": story.commits,
        "mirror.commit.mean_ms": round(story.commit_ms / story.commits, 3) if story.commits else None,
        "mirror.commit.max_ms": story.commit_max_ms if story.commits else None,
        "mirror.throttled_ms": story.throttled_ms,
        "mirror.events.left_out": story.events_left_out or None,
    }


def _bytes_of(records: int | None, result: RangeResult) -> int | None:
    """An estimate: as large as those that were copied."""
    if records is None or (records and not result.records):
        return None
    return round(records * result.bytes / result.records) if records else 0


def _sick(epoch: SpanId, result: RangeResult, story: CopyTimeline) -> dict[str, Value | None]:
    """The same value in every epoch of one story of sickness, also the first: one search shows all of them."""
    first = SpanId.parse(story.sick_trace) if story.sick_trace else None
    if first is not None:
        return {"mirror.sick.since_ms": story.sick_since_ms, "mirror.sick.story": first.trace_hex}
    # Whom the next epoch will call sick (mirror.spark.ledger.partition_health).
    begins = result.outcome in _WRONG or result.stuck_since_ms is not None
    return {"mirror.sick.story": epoch.trace_hex if begins else None}


def _expiries(result: RangeResult) -> Iterator[SpanEvent]:
    for expiry in result.expiries:
        about = {f"mirror.expiry.{name}": value for name, value in expiry.items() if name != "time_ms"}
        yield SpanEvent(EXPIRED, expiry["time_ms"], _known(about))


def _happenings(story: CopyTimeline) -> Iterator[SpanEvent]:
    for event in story.events:
        about = {f"mirror.{name}": value for name, value in event.items() if name not in {"time_ms", "name"}}
        yield SpanEvent(event["name"], event["time_ms"], _known(about))


def _story_links(story: CopyTimeline) -> Iterator[SpanLink]:
    """To the epoch in which this partition's trouble began, and to the last one."""
    seen = set()
    for name, text in (("first", story.sick_trace), ("previous", story.last_trace)):
        link = SpanId.parse(text) if text else None
        if link is not None and link not in seen:
            seen.add(link)
            yield SpanLink(link, {"mirror.link": f"sick.{name}"})


def _record_links(story: CopyTimeline) -> Iterator[SpanLink]:
    for text in story.traces:
        link = SpanId.parse(text)
        if link is not None:
            yield SpanLink(link, {"mirror.link": "record"})


def part_span(partition: SpanId, flow: str, told: Mapping[str, Any]) -> Span:
    """A part of a partition's copy: an entry of :attr:`mirror.relay.model.timeline.CopyTimeline.spans`."""
    about = {f"mirror.{key}": value for key, value in told.items() if key not in {"name", "began_ms", "ended_ms"}}
    error = told.get("error")
    return Span(
        name=told["name"],
        id=part_id(partition, told["name"], told["began_ms"]),
        parent=partition,
        began_ms=told["began_ms"],
        ended_ms=told["ended_ms"],
        attributes=_known({"mirror.flow": flow, **about}),
        error=str(error) if error else None,
    )


def task_spans(facts: TaskFacts, results: Iterable[RangeResult]) -> Iterator[Span]:
    """All of one attempt of a task, with its partitions and their parts."""
    told = list(results)
    yield task_span(facts, told)
    for result in told:
        span = partition_span(facts, result)
        yield span
        if result.story is not None:
            yield from (part_span(span.id, result.flow, one) for one in result.story.spans)


def _key(text: str) -> str:
    return text.replace(" ", "_")


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _known(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}
