"""Renders rehearsals: one self-contained HTML file in the style of the report, without charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from mirror.rehearsal.summary import headline, recovery_line
from mirror.rehearsal.values import GroupMove, GroupRehearsal, Rehearsal
from mirror.telemetry.report.format import NONE, moment, size, span
from mirror.telemetry.report.tables_page import render_tables, row, table

_TEXTS: Final = frozenset({"group", "topic", "state", "what to do", "kind", "name", "why"})
"""The columns that have no numbers."""


def render(found: Sequence[Rehearsal], made_ms: int) -> str:
    """Return the page, written at ``made_ms`` (ms since 1970)."""
    return render_tables("Rehearsal of a switch", [_flow(one) for one in found], made_ms, "mirror rehearse --json")


def _flow(found: Rehearsal) -> dict[str, Any]:
    return {
        "name": found.flow,
        "outcome": "complete" if found.is_ready else "failed",
        "badge": "ready" if found.is_ready else "not ready",
        "when": f"from {found.old} to {found.new}, as of {moment(found.time_ms)}",
        "headline": headline(found, _duration),
        "tiles": _tiles(found),
        "tables": [_groups(found), _blockers(found), _backlogs(found)],
        "notes": list(found.notes),
    }


def _tiles(found: Rehearsal) -> list[dict[str, str]]:
    skipped, again = (sum(getattr(one, name) for one in found.groups) for name in ("skipped", "read_again"))
    bytes_, rest = found.bytes, recovery_line(found, _duration).removeprefix("recovery time: ")
    not_arrived = f"{'unknown size' if bytes_ is None else f'about {size(bytes_)}'}, at most so many"
    return [
        {"name": "groups not ready", "value": f"{len(found.not_ready):,}", "more": f"of {len(found.groups):,}"},
        {"name": "records skipped", "value": f"{skipped:,}", "more": "must be 0"},
        {"name": "records read again", "value": f"{again:,}", "more": "of all groups together"},
        {"name": "records not arrived", "value": f"{found.records:,}", "more": not_arrived},
        {"name": "recovery point", "value": _duration(found.seconds), "more": "age of the oldest record not arrived"},
        {"name": "recovery time", "value": _duration(found.recovery.seconds), "more": rest},
    ]


def _groups(found: Rehearsal) -> dict[str, Any]:
    columns = "group", "topic", "partition", f"on {found.old}", f"on {found.new}", "read again", "skipped"
    rows = [row for one in found.groups for row in _group_rows(one)]
    return _table("Consumer groups", (*columns, "not arrived", "state", "what to do"), rows)


def _group_rows(one: GroupRehearsal) -> Iterable[dict[str, Any]]:
    if one.reason:
        state = f"{one.reason}: {one.detail}" if one.detail else one.reason
        yield row([one.group, *[""] * 7, state, one.action], bad=True)
    elif not one.moves:
        yield row([one.group, *[""] * 7, one.detail, ""])
    for move in one.moves:
        yield _move(one.group, move)


def _move(group: str, move: GroupMove) -> dict[str, Any]:
    state = move.reason or (f"ready ({move.note})" if move.note else "ready")
    state += f": {move.detail}" if move.detail and move.reason else ""
    numbers = (
        f"{move.old.partition}",
        _number(move.old_offset),
        _number(move.new_offset),
        _number(move.read_again, exact=move.read_again_is_exact),
        _number(move.skipped, exact=move.skipped_is_exact),
        _number(move.not_arrived),
    )
    return row([group, move.old.topic, *numbers, state, move.action], bad=not move.is_ready)


def _blockers(found: Rehearsal) -> dict[str, Any]:
    rows = [row([one.kind.value, one.name, one.reason, one.action]) for one in found.blockers]
    return _table("What else is not ready", ("kind", "name", "why", "what to do"), rows)


def _backlogs(found: Rehearsal) -> dict[str, Any]:
    rows = [
        row(
            [
                one.old.topic,
                f"{one.old.partition}",
                _number(one.records),
                NONE if one.bytes is None else size(one.bytes),
                NONE if one.oldest_ms is None else span(found.time_ms - one.oldest_ms),
            ]
        )
        for one in found.backlogs
    ]
    return _table("Not arrived", ("topic", "partition", "records", "bytes", "oldest"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return table(title, columns, _TEXTS, rows)


def _number(value: int | None, *, exact: bool = True) -> str:
    return NONE if value is None else f"{'' if exact else 'at most '}{value:,}"


def _duration(seconds: float | None) -> str:
    return "unknown" if seconds is None else span(seconds * 1000)
