"""The table and the JSON document of ``mirror groups --reverse``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from mirror.cli.views.groups_view import View, number, shown
from mirror.cli.views.place_texts import MEANINGS
from mirror.groups.back_positions import BackReason
from mirror.spark.preflight.permission_check import line_about
from mirror.spark.preflight.permission_table import WRITE_BACK

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig
    from mirror.groups.back_positions import BackPosition


def view_back(flow: FlowConfig, positions: list[BackPosition], problems: list[str], *, committed: bool = False) -> View:
    """Return the view of where the target's groups would continue on the source; ``committed``: whether they do now."""
    table = Table(title=Text(f"flow {flow.name}: {flow.target} back to {flow.source}"), title_justify="left")
    for name in ("group", "topic", "partition", "target", "is on the source", "committed there", "state"):
        numeric = name in {"partition", "target", "is on the source", "committed there"}
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    documents = []
    for one in positions:
        place, offset = one.translation
        state = "; ".join([_back_status(one), MEANINGS[place], *one.remarks])
        cells = (f"{one.target.partition}", f"{one.target_offset}", number(offset), number(one.source_offset))
        table.add_row(shown(one.group), Text(one.target.topic), *cells, shown(state))
        documents.append(
            {
                "group": one.group,
                "topic": one.source.topic,
                "target_topic": one.target.topic,
                "partition": one.source.partition,
                "target_offset": one.target_offset,
                "source_offset": offset,
                "place": place.value,
                "passed": one.passed,
                "committed_source_offset": one.source_offset,
                "reason": None if one.reason is None else one.reason.value,
                "detail": one.detail,
                "pending": one.is_due,
                "written": one.written,
                "active_on_target": one.active_on_target,
                "not_on_source": {"in_front": one.in_front, "behind": one.behind},
                "read_again": one.read_again.records,
                "read_again_is_exact": one.read_again.is_exact,
            }
        )
    lines = [*problems, *_missing_permissions(flow, positions)]
    if committed and any(one.reason is BackReason.BEHIND for one in positions):
        lines.append("a group whose position on the source is further keeps it: it has read those records there")
    document = {"flow": flow.name, "positions": documents, "problems": lines}
    return document, table, lines, not problems and all(one.is_in_step for one in positions)


def _back_status(one: BackPosition) -> str:
    if one.reason is not None:
        return f"{one.reason.value}: {one.detail}" if one.detail else one.reason.value
    if one.written:
        return "committed"
    if one.is_due:
        return "to be committed"
    return "in step" if one.is_in_step else "committed there"


def _missing_permissions(flow: FlowConfig, positions: list[BackPosition]) -> list[str]:
    names = sorted({one.group for one in positions if one.reason is BackReason.UNAUTHORIZED})
    return [line_about(WRITE_BACK, flow, names)] if names else []
