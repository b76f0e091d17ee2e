"""Structured logs: one line for each event that an operator may have to act on, with the ids of its trace.

    2026-01-31 12:00:00,000 WARNING mirror.events expired topic=orders partition=3 ... trace_id=4bf9... span_id=00f0...

``MIRROR_LOG_FORMAT=json`` makes each line of commands, drivers and tasks a JSON object, with the names that the event
and its fields have in spans (:func:`json_line`). Executors write to stderr, which Spark stores.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

from mirror.errors import printable
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.telemetry.traces.ids import SpanId, partition_id
from mirror.telemetry.traces.spans import EXPIRED, PARTITION

FORMAT: Final = "MIRROR_LOG_FORMAT"
FORMATS: Final = ("text", "json")
EVENTS: Final = logging.getLogger("mirror.events")
_FIELDS: Final = "mirror"
_EVENT: Final = "event"
_LABELS: Final = frozenset({"flow", "topic", "partition"})
"""What a span has as ``mirror.flow`` and so on: attributes of the partition, and not of one event."""
_OF_FLOW: Final = re.compile(r"flow ([\w.-]+): ")
_LEVELS: Final = {Outcome.COMPLETE: logging.INFO, Outcome.UNFINISHED: logging.INFO, Outcome.FENCED: logging.WARNING}


class _Text(logging.Formatter):
    """Formats a record as one line: time, level, logger, message, then ``key=value`` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, {})
        pairs = " ".join(f"{name}={_text(value)}" for name, value in fields.items() if name != _EVENT)
        line = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}"
        return printable(f"{line} {pairs}" if pairs else line)


class _Json(logging.Formatter):
    """Formats a record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, _FIELDS, {}))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        event = fields.pop(_EVENT, f"mirror.{record.levelname.lower()}")
        return json_line(record.levelname, event, record.getMessage(), record.created, logger=record.name, **fields)


def is_json() -> bool:
    """Whether this process writes its lines as JSON."""
    return os.environ.get(FORMAT, "").strip().lower() == "json"


def json_line(level: str, event: str, message: str, at_s: float, **fields: Any) -> str:
    """Return a line for programs.

    ``event`` is one name for each kind of event, as in spans; ``at_s`` is in seconds since 1970. A ``message`` that
    begins with ``flow NAME:`` gives ``mirror.flow``.
    """
    if "flow" not in fields and (of_flow := _OF_FLOW.match(message)):
        fields["flow"] = of_flow[1]
    named = {f"mirror.{name}" if name in _LABELS else name: value for name, value in fields.items()}
    values = {"time": _iso(at_s), "level": level, "event": event, "message": message, **named}
    return json.dumps(values, default=str)


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(record: logging.LogRecord) -> str:
    return _iso(record.created)


def _text(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(char.isspace() or char == '"' for char in text) else text


def configure() -> None:
    """Write the events of this process to stderr. Does nothing if logging is configured already."""
    if EVENTS.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if is_json() else _Text())
    EVENTS.addHandler(handler)
    EVENTS.setLevel(logging.INFO)
    EVENTS.propagate = False


def log_event(level: int, event: str, message: str, span: SpanId, **fields: Any) -> None:
    """Log one ``event`` that belongs to ``span``; fields that are None are omitted."""
    present = {_EVENT: event} | {name: value for name, value in fields.items() if value is not None}
    present |= {"trace_id": span.trace_hex, "span_id": span.span_hex}
    EVENTS.log(level, message, extra={_FIELDS: present})


def log_partition(result: RangeResult, period: SpanId, attempt: int) -> None:
    """Log one attempt at a partition: its expiries, its events, and its outcome unless it is complete."""
    span = partition_id(period, result.topic, result.partition, attempt)
    labels = {"flow": result.flow, "topic": result.topic, "partition": result.partition}
    for expiry in result.expiries:
        log_event(logging.WARNING, EXPIRED, "expired", span, **labels, **expiry)
    for event in result.timeline.events if result.timeline else ():
        fields = {name: value for name, value in event.items() if name != "name"}
        log_event(logging.INFO, event["name"], event["name"].removeprefix("mirror."), span, **labels, **fields)
    if result.outcome is not Outcome.COMPLETE:
        level = _LEVELS.get(result.outcome, logging.ERROR)
        facts = {"start": result.start, "end": result.end, "error": result.error}
        log_event(level, PARTITION, result.outcome.value, span, **labels, **facts)
