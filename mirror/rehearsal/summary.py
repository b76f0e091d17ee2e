"""What a rehearsal came to, in one line, and as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from mirror.groups.summary import counted
from mirror.rehearsal.values import Backlog, Blocker, GroupMove, GroupRehearsal, Kind, Rehearsal

Duration = Callable[[float | None], str]
"""Formats seconds; None is unknown."""


def headline(found: Rehearsal, duration: Duration) -> str:
    """Return the line that says whether consumers could switch, and what it would cost."""
    total = len(found.groups)
    held = len(found.not_ready)
    parts = [f"{held:,} of {counted(total, 'group')}" if held else f"{counted(total, 'group')}"]
    kinds = Counter(one.kind for one in found.blockers)
    parts += [counted(count, kind.value) for kind, count in sorted(kinds.items()) if kind is not Kind.LIMIT]
    parts.append(f"{counted(found.records, 'record')}{_age(found, duration)} not arrived")
    if skipped := sum(one.skipped for one in found.groups):
        parts.insert(0, f"{counted(skipped, 'record')} would be skipped")
    if again := sum(one.read_again for one in found.groups):
        parts.append(f"{counted(again, 'record')} read again")
    return f"{'READY' if found.is_ready else 'NOT READY'}: {', '.join(parts)}"


def _age(found: Rehearsal, duration: Duration) -> str:
    if not found.records:
        return ""
    at_least = "" if found.ages_are_complete or found.seconds is None else "at least "
    age = "age unknown" if found.seconds is None else duration(found.seconds)
    return f" ({at_least}{age})"


def recovery_line(found: Rehearsal, duration: Duration) -> str:
    """Return how long the copy of the rest would take."""
    recovery = found.recovery
    if not found.records:
        return "recovery time: nothing is left to copy"
    if recovery.seconds is None:
        return "recovery time: unknown (no earlier run of the flow has shown a rate, or the size is not known)"
    start = "" if recovery.start_seconds is None else f", of which {duration(recovery.start_seconds)} to start a run"
    return f"recovery time: {duration(recovery.seconds)} at the rate of earlier runs{start}"


def to_json(found: Rehearsal) -> dict[str, Any]:
    """Return plain values."""
    recovery = found.recovery
    return {
        "flow": found.flow,
        "from": found.old,
        "to": found.new,
        "reverse": found.reverse,
        "time_ms": found.time_ms,
        "ready": found.is_ready,
        "groups_not_ready": len(found.not_ready),
        "skipped": sum(one.skipped for one in found.groups),
        "read_again": sum(one.read_again for one in found.groups),
        "recovery_point": {
            "records": found.records,
            "records_are_upper_bound": True,
            "bytes": found.bytes,
            "bytes_are_estimated": True,
            "seconds": found.seconds,
            "seconds_are_lower_bound": not found.ages_are_complete,
            "unknown_partitions": sum(one.records is None for one in found.backlogs),
        },
        "recovery_time": {
            "seconds": recovery.seconds,
            "bytes_per_second": recovery.bytes_per_second,
            "start_seconds": recovery.start_seconds,
        },
        "limits": {"max_records": found.limits.max_records, "max_seconds": found.limits.max_seconds},
        "groups": [_group(one) for one in found.groups],
        "partitions": found.partitions,
        "backlogs": [_backlog(one, found.time_ms) for one in found.backlogs],
        "blockers": [_blocker(one) for one in found.blockers],
        "notes": list(found.notes),
    }


def _group(one: GroupRehearsal) -> dict[str, Any]:
    return {
        "group": one.group,
        "ready": one.is_ready,
        "reason": one.reason or None,
        "detail": one.detail,
        "action": one.action or None,
        "skipped": one.skipped,
        "read_again": one.read_again,
        "known": one.is_known,
        "partitions": [_move(move) for move in one.moves],
    }


def _move(one: GroupMove) -> dict[str, Any]:
    return {
        "from": {"topic": one.old.topic, "offset": one.old_offset},
        "to": {"topic": one.new.topic, "offset": one.new_offset, "begins_at": one.begins_at},
        "partition": one.old.partition,
        "ready": one.is_ready,
        "read_again": one.read_again,
        "read_again_is_exact": one.read_again_is_exact,
        "skipped": one.skipped,
        "skipped_is_exact": one.skipped_is_exact,
        "passed": one.passed,
        "not_arrived": one.not_arrived,
        "skipped_with_latest": one.at_stake,
        "reason": one.reason or None,
        "note": one.note or None,
        "detail": one.detail,
        "action": one.action or None,
    }


def _backlog(one: Backlog, now_ms: int) -> dict[str, Any]:
    return {
        "topic": one.old.topic,
        "target_topic": one.new.topic,
        "partition": one.old.partition,
        "records": one.records,
        "bytes": one.bytes,
        "oldest_ms": one.oldest_ms,
        "seconds": None if one.oldest_ms is None else max(0, now_ms - one.oldest_ms) / 1000,
    }


def _blocker(one: Blocker) -> dict[str, Any]:
    return {"kind": one.kind.value, "name": one.name, "reason": one.reason, "action": one.action}
