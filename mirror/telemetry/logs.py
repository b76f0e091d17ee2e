"""Structured logs: one line for each event that an operator may have to act on, with the ids of its trace.

    2026-01-31 12:00:00,000 WARNING mirror.events expired topic=orders partition=3 ... trace_id=4bf9... span_id=00f0...

``MIRROR_LOG_FORMAT=json`` makes each line a JSON object. Executors write them to stderr, which Spark stores.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Final

from mirror.errors import printable
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.telemetry.traces.ids import SpanId, partition_id

FORMAT: Final = "MIRROR_LOG_FORMAT"
EVENTS: Final = logging.getLogger("mirror.events")
_FIELDS: Final = "mirror"
_LEVELS: Final = {Outcome.COMPLETE: logging.INFO, Outcome.UNFINISHED: logging.INFO, Outcome.FENCED: logging.WARNING}


class _Text(logging.Formatter):
    """Formats a record as one line: time, level, logger, message, then ``key=value`` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, {})
        pairs = " ".join(f"{name}={_text(value)}" for name, value in fields.items())
        line = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}"
        return printable(f"{line} {pairs}" if pairs else line)


class _Json(logging.Formatter):
    """Formats a record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(char.isspace() or char == '"' for char in text) else text


def configure() -> None:
    """Write the events of this process to stderr. Does nothing if logging is configured already."""
    if EVENTS.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if os.environ.get(FORMAT, "").lower() == "json" else _Text())
    EVENTS.addHandler(handler)
    EVENTS.setLevel(logging.INFO)
    EVENTS.propagate = False


def log_event(level: int, message: str, span: SpanId, **fields: Any) -> None:
    """Log one event that belongs to ``span``; fields that are None are omitted."""
    present = {name: value for name, value in fields.items() if value is not None}
    present |= {"trace_id": span.trace_hex, "span_id": span.span_hex}
    EVENTS.log(level, message, extra={_FIELDS: present})


def log_partition(result: RangeResult, period: SpanId, attempt: int) -> None:
    """Log one attempt at a partition: its expiries, its events, and its outcome unless it is complete."""
    span = partition_id(period, result.topic, result.partition, attempt)
    labels = {"flow": result.flow, "topic": result.topic, "partition": result.partition}
    for expiry in result.expiries:
        log_event(logging.WARNING, "expired", span, **labels, **expiry)
    for event in result.timeline.events if result.timeline else ():
        fields = {name: value for name, value in event.items() if name != "name"}
        log_event(logging.INFO, event["name"].removeprefix("mirror."), span, **labels, **fields)
    if result.outcome is not Outcome.COMPLETE:
        level = _LEVELS.get(result.outcome, logging.ERROR)
        log_event(level, result.outcome.value, span, **labels, start=result.start, end=result.end, error=result.error)
