"""The records of a flow's status topic: their keys, and their values as JSON. Pure.

===================  ==========================================================  ====================================
key                  value                                                       written by
===================  ==========================================================  ====================================
``run``              :class:`RunState`                                           the driver
``task/N``           :class:`mirror.relay.model.reports.TaskState`               task N, every few seconds
``part/TOPIC/P``     :class:`mirror.relay.model.reports.PartitionReport`,        the task that owns the partition, if
                     of a target partition                                       something has changed
``health/TOPIC/P``   since when a source partition fails, and in which traces    the driver; deleted once it is healthy
``turn/TOPIC/P``     when a source partition was planned last (ms since 1970)    the driver of a flow with limits
``obstacle/TOPIC``   why a source topic cannot be copied                         the driver; deleted once it can be
``verify``           the last verification                                       ``mirror verify``
``rehearse``         the last rehearsal                                          ``mirror rehearse``
===================  ==========================================================  ====================================
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple, TypeVar

from mirror.cluster.types import TopicPartition
from mirror.errors import printable
from mirror.relay.model.ranges import CountBasis, Outcome, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, PartitionReport, TaskState
from mirror.relay.progress import stored_json as stored
from mirror.wire.integers import INT32_MAX

T = TypeVar("T")

MAX_VALUE_BYTES: Final = 4_096
"""Of a partition's report: those of 10,000 partitions fit into 40 MB of a driver."""
MAX_TEXT: Final = 500
"""So many characters of an error or a reason are stored."""
_MAX_CAUSE: Final = 200
"""So many of the cause of an expiry, or of a difference."""
_MAX_LISTED: Final = 3
"""So many expiries, losses and differences of a partition are stored, the last ones."""
_VERSION: Final = 1
_MAX_COUNT: Final = 2**53 - 1
"""Far more than is ever copied, and the sums of what any program has stored still have 64 bits."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_STATES: Final = frozenset({COPYING, SETTLED, *Outcome})


class StatusKind(enum.StrEnum):
    """What a record is about: the first part of its key."""

    RUN = "run"
    TASK = "task"
    PARTITION = "part"
    HEALTH = "health"
    TURN = "turn"
    OBSTACLE = "obstacle"
    VERIFICATION = "verify"
    REHEARSAL = "rehearse"


class StatusKey(NamedTuple):
    """The key of a record."""

    kind: StatusKind
    topic: str = ""
    number: int = -1
    """Of the partition or the task."""

    @property
    def tp(self) -> TopicPartition:
        """The partition that it is about."""
        return TopicPartition(self.topic, self.number)

    def __str__(self) -> str:
        parts = [
            self.kind.value,
            *([self.topic] if self.topic else []),
            *([str(self.number)] if self.number >= 0 else []),
        ]
        return "/".join(parts)


RUN: Final = StatusKey(StatusKind.RUN)
VERIFICATION: Final = StatusKey(StatusKind.VERIFICATION)
REHEARSAL: Final = StatusKey(StatusKind.REHEARSAL)
_WITH_TOPIC: Final = frozenset({StatusKind.PARTITION, StatusKind.HEALTH, StatusKind.TURN, StatusKind.OBSTACLE})
_WITH_NUMBER: Final = frozenset({StatusKind.TASK, StatusKind.PARTITION, StatusKind.HEALTH, StatusKind.TURN})


def task_key(task: int) -> StatusKey:
    """Return the key of a task's state."""
    return StatusKey(StatusKind.TASK, number=task)


def partition_key(kind: StatusKind, tp: TopicPartition) -> StatusKey:
    """Return the key of a record of this ``kind`` about a partition: a target's for reports, else a source's."""
    return StatusKey(kind, *tp)


def obstacle_key(topic: str) -> StatusKey:
    """Return the key of the obstacle of a source topic."""
    return StatusKey(StatusKind.OBSTACLE, topic)


def parse_key(key: bytes | memoryview | None) -> StatusKey | None:
    """Return the key that is written so; None for anything else. Never raises."""
    try:
        parts = bytes(key or b"").decode().split("/")
        kind = StatusKind(parts.pop(0))
        topic = parts.pop(0) if kind in _WITH_TOPIC else ""
        number = int(parts.pop()) if kind in _WITH_NUMBER else -1
    except (ValueError, IndexError):
        return None
    found = StatusKey(kind, topic, number)
    legal = not topic or _TOPIC.fullmatch(topic) is not None
    return found if not parts and legal and str(found).encode() == key and number <= INT32_MAX else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a flow, as the driver that supervises it sees it. Times are ms since 1970."""

    run: str
    generation: int = 0
    """Of its control record."""
    job: int = 0
    host: str = ""
    state: str = ""
    since_ms: int = 0
    """Since when it is in this ``state``, for this ``reason``."""
    reason: str = ""
    until_ms: int | None = None
    """Until when it waits; None if it does not, or that is not known."""
    failures: int = 0
    """How often it has failed in a row."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "reason": self.reason[:MAX_TEXT]}


StatusValue = TaskState | PartitionReport | RunState | Mapping[str, Any]
"""The value of a record; of the driver's and the commands' records plain values, which have to be checked."""


def encode(value: Mapping[str, Any]) -> bytes:
    """Return a record's value of plain values."""
    return json.dumps({"v": _VERSION, **value}, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def decode(key: StatusKey, value: bytes | memoryview, flow: str) -> StatusValue | None:
    """Return the value of a record of ``flow``; None if it is not understood. Never raises."""
    values = stored.parse_object(bytes(value))
    if values.get("v") != _VERSION:
        return None
    match key.kind:
        case StatusKind.TASK:
            return _task_of(key, values)
        case StatusKind.PARTITION:
            return _report_of(key, values, flow)
        case StatusKind.RUN:
            return _run_of(values)
        case _:
            return values


# --- tasks and runs


def encode_task(state: TaskState) -> bytes:
    """Return the value of the record of a task."""
    values = {field.name: getattr(state, field.name) for field in fields(TaskState) if field.name != "task"}
    return encode({**values, "host": state.host[:MAX_TEXT], "stopping": state.stopping[:_MAX_CAUSE]})


def _task_of(key: StatusKey, values: Mapping[str, Any]) -> TaskState | None:
    numbers = {name: stored.number(values.get(name)) for name in ("job", "attempt", "pid", "version", "partitions")}
    times = {name: stored.time_ms(values.get(name)) for name in ("since_ms", "seen_ms")}
    known = _all_known({**numbers, **times})
    run = stored.text(values.get("run"))
    if known is None or not run:
        return None
    return TaskState(
        task=key.number,
        run=printable(run),
        host=_text(values.get("host")),
        stopping=_text(values.get("stopping")),
        **known,
    )


def _run_of(values: Mapping[str, Any]) -> RunState | None:
    run, since_ms = stored.text(values.get("run")), stored.time_ms(values.get("since_ms"))
    if not run or since_ms is None:
        return None
    return RunState(
        run=printable(run),
        generation=stored.number(values.get("generation")) or 0,
        job=stored.number(values.get("job")) or 0,
        host=_text(values.get("host")),
        state=_text(values.get("state")),
        since_ms=since_ms,
        reason=_text(values.get("reason")),
        until_ms=stored.time_ms(values.get("until_ms")),
        failures=stored.number(values.get("failures")) or 0,
    )


# --- partitions


def encode_report(report: PartitionReport) -> bytes:
    """Return the value of the record of a partition, of at most :data:`MAX_VALUE_BYTES`.

    Texts are shortened, and of expiries, losses and differences only the last ones are stored.
    """
    identity = {name: getattr(report, name) for name in ("run", "job", "task", "attempt", "taken")}
    values = {**identity, "state": str(report.state), "sequence": report.sequence, "version": report.version}
    data = b""
    for listed in range(_MAX_LISTED, -1, -1):
        data = encode({**values, "result": _result_fields(report.result, listed)})
        if len(data) <= MAX_VALUE_BYTES:
            break
    return data


def _result_fields(result: RangeResult, listed: int) -> dict[str, Any]:
    """Return the fields that differ from an empty result's, with the last ``listed`` ones of each list."""
    found: dict[str, Any] = {
        "topic": result.topic,
        "start": result.start,
        "end": result.end,
        "records": result.records,
        "batches": result.batches,
        "bytes": result.bytes,
        "ms": round(result.seconds * 1000),
        "outcome": result.outcome.value,
        "error": None if result.error is None else result.error[:MAX_TEXT],
        "skipped": result.skipped,
        "deep": result.deep,
        "gaps": result.gaps,
        "expiries": [_shortened(record) for record in _last(result.expiries, listed)],
        "target_losses": _last(result.target_losses, listed),
        "retries": result.retries,
        "stuck_since_ms": result.stuck_since_ms,
        "counted": None if result.counted is CountBasis.RECORDS else result.counted.value,
        "way": result.way,
        "way_reason": result.way_reason[:_MAX_CAUSE],
    }
    return {name: value for name, value in found.items() if value or name in {"topic", "start", "end", "outcome"}}


def _last(records: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return records[-count:] if count else []


def _shortened(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_MAX_CAUSE] if isinstance(value, str) else value for name, value in record.items()}


def _report_of(key: StatusKey, values: Mapping[str, Any], flow: str) -> PartitionReport | None:
    names = ("job", "task", "attempt", "taken", "sequence", "version")
    known = _all_known({name: stored.number(values.get(name)) for name in names})
    run, state = stored.text(values.get("run")), values.get("state")
    result = _result_of(key, values.get("result"), flow)
    if known is None or not run or result is None or not isinstance(state, str) or state not in _STATES:
        return None
    return PartitionReport(target=key.tp, run=printable(run), state=state, result=result, **known)


def _result_of(key: StatusKey, values: object, flow: str) -> RangeResult | None:
    if not isinstance(values, dict):
        return None
    counts = {
        name: stored.number(values.get(name, 0), _MAX_COUNT)
        for name in ("records", "batches", "bytes", "retries", "ms")
    }
    known = _all_known({**counts, **{name: stored.number(values.get(name)) for name in ("start", "end")}})
    outcome, topic = _member(Outcome, values.get("outcome")), stored.text(values.get("topic"))
    counted = _member(CountBasis, values.get("counted", CountBasis.RECORDS.value))
    if known is None or outcome is None or counted is None:
        return None
    return RangeResult(
        flow=flow,
        topic=printable(topic),
        target_topic=key.topic,
        partition=key.number,
        start=known["start"],
        end=known["end"],
        records=known["records"],
        batches=known["batches"],
        bytes=known["bytes"],
        seconds=known["ms"] / 1000,
        outcome=outcome,
        error=_text(values.get("error")) or None,
        skipped=_counts(values.get("skipped")),
        deep=_counts(values.get("deep")),
        gaps=_counts(values.get("gaps")),
        expiries=list(_records(values.get("expiries"), _EXPIRY)),
        target_losses=list(_records(values.get("target_losses"), _LOSS)),
        retries=known["retries"],
        stuck_since_ms=stored.time_ms(values.get("stuck_since_ms")),
        counted=counted,
        way=_text(values.get("way")),
        way_reason=_text(values.get("way_reason")),
    )


# --- parts of values


class _Shape(NamedTuple):
    """The fields of a stored record, by type."""

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    optional: tuple[str, ...] = ()
    """Texts, numbers and truth values that may be missing or null."""


_EXPIRY: Final = _Shape(
    ("phase", "cause"),
    ("time_ms",),
    (
        *("start", "end", "age_ms", "queued_ms", "in_flight_ms", "attempts", "record_count"),
        *("last_error", "may_have_been_written"),
    ),
)
_LOSS: Final = _Shape(("kind",), ("target_start", "target_end", "start", "end", "time"))


def _records(value: object, shape: _Shape) -> Iterator[dict[str, Any]]:
    """Yield the records of a list that have this shape."""
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, dict):
            continue
        numbers = _all_known({name: stored.number(one.get(name)) for name in shape.numbers})
        if numbers is None or not all(isinstance(one.get(name), str) for name in shape.texts):
            continue
        texts = {name: _text(one[name]) for name in shape.texts}
        yield {**texts, **numbers, **{name: _plain(one[name]) for name in shape.optional if name in one}}


def _plain(value: object) -> str | int | bool | None:
    if isinstance(value, bool):
        return value
    return _text(value) if isinstance(value, str) else stored.number(value)


def _counts(value: object) -> dict[str, int]:
    """Return the counts by reason of a JSON object."""
    numbers = (
        {_text(key): stored.number(one, _MAX_COUNT) for key, one in value.items()} if isinstance(value, dict) else {}
    )
    return {key: number for key, number in numbers.items() if number is not None}


def _text(value: object) -> str:
    """Return a text for people."""
    return printable(stored.text(value))


def _member(kind: Callable[[str], T], value: object) -> T | None:
    try:
        return kind(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _all_known(numbers: Mapping[str, int | None]) -> dict[str, int] | None:
    """Return the numbers; None if one of them is missing."""
    known = {name: number for name, number in numbers.items() if number is not None}
    return known if len(known) == len(numbers) else None
