"""The table of the flows' states, as the drivers of their streams report them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from mirror.cli.views.amounts import UNKNOWN, ago, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.spark.status.flow_status import FlowStatus

_STYLES: Final = {"running": "green", "backing off": "yellow", "refused": "red", "held": "yellow", "gone": "red"}
_ENDED: Final = "ended"


def states(flows: Sequence[FlowStatus]) -> list[Table]:
    """Return the table of the flows whose streams live, or have died, and of those that runs would refuse."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("flow", "state", "since", "until", "reason"):
        table.add_column(name, no_wrap=name != "reason", overflow="fold")
    for flow in flows:
        state, run = flow.state, flow.run
        if state is None or state.state == _ENDED or (run is None and state.state not in {"held", "gone"}):
            if flow.refused and run is None:
                refused = Text("refused", style=_STYLES["refused"])
                table.add_row(Text(flow.flow), refused, UNKNOWN, UNKNOWN, Text(flow.refused))
            continue  # no stream
        if run is not None and run.run != state.run:
            continue  # a run of another kind has the flow now
        name, reason = state.state, state.reason
        if run is not None and run.is_dead(flow.time_ms):
            name, reason = "gone", "its driver has died or cannot reach the target"
        elif name == "gone":
            reason = "the driver that held it has died or cannot reach the target: start the stream again"
        until = UNKNOWN if state.until_ms is None else duration(max(0, state.until_ms - flow.time_ms) / 1000)
        table.add_row(
            Text(flow.flow),
            Text(name, style=_STYLES.get(name, "")),
            ago(state.since_ms, flow.time_ms),
            until,
            Text(reason),
        )
    return [table] if table.rows else []
