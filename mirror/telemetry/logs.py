"""Structured logs: a line for each event that a person may have to act on, with the ids of its trace.

    2026-01-31 12:00:00,000 WARNING mirror.events expired topic=orders partition=3 ... trace_id=4bf9... span_id=00f0...

``MIRROR_LOG_FORMAT=json`` makes each line a JSON object. In executors they go to stderr, which Spark keeps.
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
    """One line: time, level, logger, message, then ``key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, _FIELDS, {})
        told = " ".join(f"{name}={_text(value)}" for name, value in fields.items())
        line = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}"
        return printable(f"{line} {told}" if told else line)


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(char.isspace() or char == '"' for char in text) else text


def configure() -> None:
    """Have the events of this process written to its stderr, once; whoever configured logging already keeps it."""
    if EVENTS.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if os.environ.get(FORMAT, "").lower() == "json" else _Text())
    EVENTS.addHandler(handler)
    EVENTS.setLevel(logging.INFO)
    EVENTS.propagate = False


def tell(level: int, message: str, at: SpanId, **fields: Any) -> None:
    """One line."""
    told = {name: value for name, value in fields.items() if value is not None}
    told |= {"trace_id": at.trace_hex, "span_id": at.span_hex}
    EVENTS.log(level, message, extra={_FIELDS: told})


def log_partition(result: RangeResult, epoch: SpanId, attempt: int) -> None:
    """What happened to one partition in one attempt: each expiry, and how it ended where that was not well."""
    at = partition_id(epoch, result.topic, result.partition, attempt)
    about = {"flow": result.flow, "topic": result.topic, "partition": result.partition}
    for expiry in result.expiries:
        tell(logging.WARNING, "expired", at, **about, **expiry)
    for event in result.story.events if result.story else ():
        known = {name: value for name, value in event.items() if name != "name"}
        tell(logging.INFO, event["name"].removeprefix("mirror."), at, **about, **known)
    if result.outcome is not Outcome.COMPLETE:
        level = _LEVELS.get(result.outcome, logging.ERROR)
        tell(level, result.outcome.value, at, **about, start=result.start, end=result.end, error=result.error)
