"""What one of a flow's clusters knows while the other one does not answer: its status, and where groups are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mirror.cli.views import status_view
from mirror.cli.views.amounts import ago

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.spark.one_side import OneSide


def view(known: Iterable[OneSide], most: int | None) -> Group:
    """Return the view; of partitions and of positions the first ``most`` are shown, None: all."""
    parts: list[RenderableType] = []
    for one in known:
        away = ", ".join(one.status.away)
        parts.append(Text(f"flow {one.status.flow}: what {one.cluster} knows, without {away}", style="bold"))
        parts.append(status_view.once([one.status], most))
        parts += [_positions(one, most)] if one.positions else []
        parts += [Text(line, style="yellow") for line in one.problems]
    return Group(*parts)


def _positions(known: OneSide, most: int | None) -> Table:
    left = 0 if most is None else max(0, len(known.positions) - most)
    table = Table(caption=f"{left:,} more positions (--json)" if left else None, caption_justify="left")
    columns = ("group", "topic", "partition", f"position on {known.cluster}", f"of {known.status.source}'s", "copied")
    for name in columns:
        table.add_column(name, justify="left" if name in {"group", "topic", "copied"} else "right", overflow="fold")
    for one in known.positions[:most]:
        table.add_row(
            Text(one.group),
            Text(one.topic),
            f"{one.partition}",
            f"{one.offset:,}",
            "" if one.copied_from is None else f"{one.copied_from:,}",
            "" if one.copied_ms is None else ago(one.copied_ms, known.status.time_ms),
        )
    return table
