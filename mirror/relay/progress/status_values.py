"""The records of a flow's status topic: their keys, and their values as JSON. Pure.

===================  ==========================================================  ====================================
key                  value                                                       written by
===================  ==========================================================  ====================================
``run``              :class:`RunState`                                           the driver
``task/N``           :class:`mirror.relay.model.reports.TaskState`               task N, every few seconds
``measured/N``       :class:`mirror.telemetry.task_report.TaskReport`            task N of a stream
``part/TOPIC/P``     :class:`mirror.relay.model.reports.PartitionReport`,        the task that owns the partition, if
                     of a target partition                                       something has changed
``health/TOPIC/P``   since when a source partition fails, and in which traces    the driver; deleted once it is healthy
``turn/TOPIC/P``     when a source partition was planned last                    the driver of a flow with limits
``error/TOPIC/P``    the last error of a source partition                        the driver, until the next error
``obstacle/TOPIC``   why a source topic cannot be copied                         the driver; deleted once it can be
``initial/TOPIC``    how many partitions a source topic had when the flow      the driver of a flow whose ``start``
                     began                                                       is "latest"
``selection``        which topics the flow copied then                           the same
``groups``           the consumer groups after the last round                    the driver
``sync``             what else is in step after the last rounds                  the driver
``rate``             how fast the flow was copied                                the driver
``confirmed``        by when all of the source was on the target                 the driver
``verify``           the last verification                                       ``mirror verify``
``rehearse``         the last rehearsal                                          ``mirror rehearse``
===================  ==========================================================  ====================================

Each value has the fields of a dataclass (:mod:`.stored_record`); those of the driver and the commands are parsed by
:mod:`mirror.spark.ledger.status_table`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, PartitionReport, TaskState
from mirror.relay.progress.stored_record import encode_plain, parse_plain, plain, record_of
from mirror.wire.integers import INT32_MAX

MAX_VALUE_BYTES: Final = 4_096
"""Of a partition's report: those of 10,000 partitions fit into 40 MB of a driver."""
MAX_TEXT: Final = 500
"""So many characters of an error or a reason are stored."""
_MAX_CAUSE: Final = 200
"""So many of the cause of an expiry, or of a difference."""
_MAX_LISTED: Final = 3
"""So many expiries, losses and differences of a partition are stored, the last ones."""
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_STATES: Final = frozenset({COPYING, SETTLED, *Outcome})


class StatusKind(enum.StrEnum):
    """What a record is about: the first part of its key."""

    RUN = "run"
    TASK = "task"
    MEASURED = "measured"
    PARTITION = "part"
    HEALTH = "health"
    TURN = "turn"
    ERROR = "error"
    OBSTACLE = "obstacle"
    INITIAL = "initial"
    SELECTION = "selection"
    GROUPS = "groups"
    SYNC = "sync"
    RATE = "rate"
    CONFIRMED = "confirmed"
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
GROUPS: Final = StatusKey(StatusKind.GROUPS)
SYNC: Final = StatusKey(StatusKind.SYNC)
RATE: Final = StatusKey(StatusKind.RATE)
CONFIRMED: Final = StatusKey(StatusKind.CONFIRMED)
SELECTION: Final = StatusKey(StatusKind.SELECTION)
_OF_PARTITION: Final = frozenset({StatusKind.PARTITION, StatusKind.HEALTH, StatusKind.TURN, StatusKind.ERROR})
_WITH_TOPIC: Final = _OF_PARTITION | {StatusKind.OBSTACLE, StatusKind.INITIAL}
_WITH_NUMBER: Final = _OF_PARTITION | {StatusKind.TASK, StatusKind.MEASURED}


def task_key(task: int) -> StatusKey:
    """Return the key of a task's state."""
    return StatusKey(StatusKind.TASK, number=task)


def measured_key(task: int) -> StatusKey:
    """Return the key of what a task has measured."""
    return StatusKey(StatusKind.MEASURED, number=task)


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
    follows: bool = False
    """Whether the run is a stream."""
    complete_ms: int = 0
    """When the last scheduled run ended that was complete, also if later ones were not; 0: none that is known."""


StatusValue = TaskState | PartitionReport | RunState | Mapping[str, Any]
"""The value of a record; of the driver's and the commands' records plain values, which have to be checked."""


def encode(value: object) -> bytes:
    """Return the value of a record of a dataclass, or of plain values."""
    return encode_report(value) if isinstance(value, PartitionReport) else encode_plain(plain(value))


def encode_report(report: PartitionReport) -> bytes:
    """Return the value of the record of a partition, of at most :data:`MAX_VALUE_BYTES`.

    Texts are shortened, and of expiries and losses only the last ones are stored.
    """
    values = {name: getattr(report, name) for name in _OF_REPORT}
    result = {name: value for name, value in plain(report.result).items() if name not in _NOT_REPORTED}
    result["seconds"] = round(report.result.seconds, 3)
    for name, most in (("error", MAX_TEXT), ("way_reason", _MAX_CAUSE)):
        if name in result:
            result[name] = result[name][:most]
    expiries = [_shortened(record) for record in result.get("expiries", ())]
    data = b""
    for listed in range(_MAX_LISTED, -1, -1):
        lists = {"expiries": _last(expiries, listed), "target_losses": _last(result.get("target_losses", []), listed)}
        data = encode_plain({**values, "result": {**result, **lists}})
        if len(data) <= MAX_VALUE_BYTES:
            break
    return data


_OF_REPORT: Final = tuple(one.name for one in fields(PartitionReport) if one.name not in {"target", "result"})
_NOT_REPORTED: Final = frozenset({"flow", "target_topic", "partition", "timeline", "withheld"})
"""Fields of a result that the key has, or that are not reported."""


def _last(records: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    return records[-count:] if count else []


def _shortened(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_MAX_CAUSE] if isinstance(value, str) else value for name, value in record.items()}


def decode(key: StatusKey, value: bytes | memoryview, flow: str) -> StatusValue | None:
    """Return the value of a record of ``flow``; None if it is not understood. Never raises."""
    values = parse_plain(bytes(value))
    if values is None:
        return None
    match key.kind:
        case StatusKind.TASK:
            return record_of(TaskState, values, task=key.number)
        case StatusKind.PARTITION:
            return _report_of(key, values, flow)
        case StatusKind.RUN:
            return record_of(RunState, values)
        case _:
            return values


def _report_of(key: StatusKey, values: Mapping[str, Any], flow: str) -> PartitionReport | None:
    names = {"flow": flow, "target_topic": key.topic, "partition": key.number}
    result = record_of(RangeResult, values.get("result"), **names, timeline=None, withheld=None)
    found = None if result is None else record_of(PartitionReport, values, target=key.tp, result=result)
    if result is None or found is None or found.state not in _STATES:
        return None
    result.expiries = [one for one in result.expiries if _has(one, _EXPIRY)]
    result.target_losses = [one for one in result.target_losses if _has(one, _LOSS)]
    return found


_EXPIRY: Final = {"phase": str, "cause": str, "time_ms": int}
_LOSS: Final = {"kind": str, "target_start": int, "target_end": int, "start": int, "end": int, "time": int}
"""The fields that a record of an expiry, or of a loss, has at least."""


def _has(record: Mapping[str, Any], shape: Mapping[str, type]) -> bool:
    return all(isinstance(record.get(name), kind) for name, kind in shape.items())
