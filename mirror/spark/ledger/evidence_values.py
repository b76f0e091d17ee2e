"""The last verification and rehearsal of a flow as values of its status topic: bounded, and parsed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mirror.errors import printable
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.status_values import encode
from mirror.telemetry.evidence import LastRehearsal, LastVerification
from mirror.verify.results import OUTCOMES

MAX_VALUE_BYTES: Final = 64 * 1024
"""Brokers take records of 1 MB by default; of fewer partitions and topics more is not needed to act."""

_MAX_SECONDS: Final = 100 * 365 * 86_400


def verification_value(found: LastVerification) -> dict[str, Any]:
    """Return the value of the record: of as many partitions, the worst first, and topics as there is room for."""
    while len(encode(found.to_json())) > MAX_VALUE_BYTES:
        if found.partitions:
            found = replace(found, partitions=found.partitions[: len(found.partitions) // 2])
        else:
            found = replace(found, equal_to=dict(list(found.equal_to.items())[: len(found.equal_to) // 2]))
    return found.to_json()


def rehearsal_value(found: LastRehearsal) -> dict[str, Any]:
    """Return the value of the record: with as many obstacles as there is room for."""
    while len(encode(found.to_json())) > MAX_VALUE_BYTES and found.obstacles:
        found = replace(found, obstacles=found.obstacles[: len(found.obstacles) // 2])
    return found.to_json()


def verification_of(values: Mapping[str, Any]) -> LastVerification | None:
    """Return the verification in a stored value; None if it has none."""
    time_ms, seconds = stored.time_ms(values.get("time_ms")), _seconds(values.get("seconds"))
    outcomes = _counts(values.get("outcomes"))
    if time_ms is None or seconds is None or outcomes.keys() - set(OUTCOMES):
        return None
    return LastVerification(
        time_ms=time_ms,
        equal_ms=stored.time_ms(values.get("equal_ms")) or 0,
        partial=values.get("partial") is True,
        error=_text(values.get("error")),
        seconds=seconds,
        records=stored.number(values.get("records")) or 0,
        bytes=stored.number(values.get("bytes")) or 0,
        outcomes=outcomes,
        incomplete=stored.number(values.get("incomplete")) or 0,
        differing=_counts(values.get("differing")),
        equal_to=_counts(values.get("equal_to")),
        partitions=tuple(
            {
                "topic": _text(one["topic"]),
                "partition": one["partition"],
                "outcome": one["outcome"],
                "equal_to": stored.number(one.get("equal_to")),
                "remarks": _text(one.get("remarks")),
            }
            for one in _objects(values.get("partitions"))
            if stored.number(one.get("partition")) is not None
            and stored.text(one.get("topic"))
            and one.get("outcome") in OUTCOMES
        ),
    )


def rehearsal_of(values: Mapping[str, Any]) -> LastRehearsal | None:
    """Return the rehearsal in a stored value; None if it has none."""
    time_ms = stored.time_ms(values.get("time_ms"))
    if time_ms is None:
        return None
    return LastRehearsal(
        time_ms=time_ms,
        ready=values.get("ready") is True,
        groups=stored.number(values.get("groups")) or 0,
        groups_not_ready=stored.number(values.get("groups_not_ready")) or 0,
        skipped=stored.number(values.get("skipped")) or 0,
        read_again=stored.number(values.get("read_again")) or 0,
        records=stored.number(values.get("records")) or 0,
        point_seconds=_seconds(values.get("point_seconds")),
        time_seconds=_seconds(values.get("time_seconds")),
        obstacles=tuple(
            {name: _text(one.get(name)) for name in ("kind", "name", "reason", "action")}
            for one in _objects(values.get("obstacles"))
        ),
    )


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _counts(value: object) -> dict[str, int]:
    numbers = {_text(key): stored.number(one) for key, one in value.items()} if isinstance(value, dict) else {}
    return {key: number for key, number in numbers.items() if number is not None}


def _seconds(value: object) -> float | None:
    """Return a time in seconds; None if it is none that can be computed with, such as NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_SECONDS:
        return None
    return float(value)


def _text(value: object) -> str:
    return printable(stored.text(value))
