"""The tables of ``mirror rehearse``, named as in its HTML file: what is not ready, why, and what to do, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.cli.views.amounts import UNKNOWN, duration
from mirror.errors import printable
from mirror.rehearsal.summary import headline, recovery_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.rehearsal.values import GroupMove, GroupRehearsal, Rehearsal

_MOST_ROWS: Final = 60
"""Lines of each table; the rest is counted, and none of it is worse."""
_COUNTS: Final = ("read again", "skipped", "not arrived")


def view(found: Rehearsal) -> RenderableType:
    """Return what a rehearsal found."""
    style = "bold green" if found.is_ready else "bold red"
    head = Text(f"flow {found.flow}: from {found.old} to {found.new}", style="dim")
    parts: list[RenderableType] = [Text(printable(headline(found, duration)), style=style), head]
    if found.groups:
        parts.append(_groups(found))
    if found.backlogs:
        parts.append(_backlogs(found))
    if found.blockers:
        parts.append(_blockers(found))
    parts += [Text(recovery_line(found, duration)), *(Text(f"note: {printable(line)}", "dim") for line in found.notes)]
    return Group(*parts)


def _groups(found: Rehearsal) -> Table:
    table = _table(
        "consumer groups", "group", "topic", numbers=("partition", f"on {found.old}", f"on {found.new}", *_COUNTS)
    )
    table.add_column("state", overflow="fold")
    table.add_column("what to do", overflow="fold")
    rows = [row for one in found.groups for row in _group_rows(one)]
    for row in rows[:_MOST_ROWS]:
        table.add_row(*row)
    _count_rest(table, len(rows))
    return table


def _group_rows(one: GroupRehearsal) -> list[list[Text]]:
    if one.reason:
        empty = [Text() for _ in range(7)]
        return [[_shown(one.group), *empty, _state(one.reason, one.detail), _shown(one.action)]]
    if not one.moves:
        return [[_shown(one.group), *(Text() for _ in range(7)), _shown(one.detail), Text()]]
    return [_move_row(one.group, move) for move in one.moves]


def _move_row(group: str, move: GroupMove) -> list[Text]:
    numbers = (
        f"{move.old.partition}",
        _number(move.old_offset),
        _number(move.new_offset),
        _count(move.read_again, exact=move.read_again_is_exact),
        _count(move.skipped, exact=move.skipped_is_exact),
        _count(move.not_arrived, exact=True),
    )
    state = _state(move.reason, move.detail) if move.reason else _ready(move)
    return [_shown(group), _shown(move.old.topic), *(Text(one) for one in numbers), state, _shown(move.action)]


def _ready(move: GroupMove) -> Text:
    return Text(printable("ready" + (f" ({move.note})" if move.note else "")), "green")


def _state(reason: str, detail: str) -> Text:
    return Text(printable(f"{reason}: {detail}" if detail else reason), "red")


def _backlogs(found: Rehearsal) -> Table:
    table = _table("not arrived", "topic", numbers=("partition", "records", "bytes", "oldest"))
    for one in found.backlogs[:_MOST_ROWS]:
        age = None if one.oldest_ms is None else max(0, found.time_ms - one.oldest_ms) / 1000
        size = UNKNOWN if one.bytes is None else decimal(one.bytes)
        cells = (f"{one.old.partition}", _count(one.records, exact=True), size, duration(age))
        table.add_row(_shown(one.old.topic), *(Text(cell) for cell in cells))
    _count_rest(table, len(found.backlogs))
    return table


def _blockers(found: Rehearsal) -> Table:
    table = _table("what else is not ready", "kind", "name", "why", "what to do")
    for one in found.blockers[:_MOST_ROWS]:
        table.add_row(one.kind.value, _shown(one.name), _shown(one.reason), _shown(one.action))
    _count_rest(table, len(found.blockers))
    return table


def _table(title: str, *names: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(title=Text(title), title_justify="left")
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _count_rest(table: Table, rows: int) -> None:
    if rows > _MOST_ROWS:
        table.caption, table.caption_justify = Text(f"{rows - _MOST_ROWS:,} more lines; --json has all"), "left"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value}"


def _count(value: int | None, *, exact: bool) -> str:
    return UNKNOWN if value is None else f"{'' if exact else 'at most '}{value:,}"


def _shown(text: str) -> Text:
    return Text(printable(text))
