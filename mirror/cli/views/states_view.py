"""The table of the flows' states, as their runs report them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from mirror.cli.views.amounts import UNKNOWN, ago, duration
from mirror.spark.status.condition import FlowCondition, condition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.spark.status.flow_status import FlowStatus

_STYLES: Final = {
    FlowCondition.RUNNING: "green",
    FlowCondition.BACKING_OFF: "yellow",
    FlowCondition.REFUSED: "red",
    FlowCondition.HELD: "yellow",
    FlowCondition.GONE: "red",
}
_NOT_SHOWN: Final = frozenset({FlowCondition.ENDED, FlowCondition.NONE, FlowCondition.UNKNOWN})


def states(flows: Sequence[FlowStatus]) -> list[Table]:
    """Return the table of the flows whose runs live, or have died, and of those that are held or would be refused."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("flow", "state", "since", "until", "reason"):
        table.add_column(name, no_wrap=name != "reason", overflow="fold")
    for flow in flows:
        found = condition_of(flow)
        is_reported = found.follows is not None or found.name in {FlowCondition.REFUSED, FlowCondition.HELD}
        if found.name in _NOT_SHOWN or not is_reported:
            continue
        table.add_row(
            Text(flow.flow),
            Text(found.name.value, style=_STYLES.get(found.name, "")),
            UNKNOWN if found.since_ms is None else ago(found.since_ms, flow.time_ms),
            UNKNOWN if found.until_ms is None else duration(max(0, found.until_ms - flow.time_ms) / 1000),
            Text(found.reason),
        )
    return [table] if table.rows else []
