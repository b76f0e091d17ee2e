"""What ``mirror status`` shows: tables, and the words for times and rates."""

from __future__ import annotations

import heapq
import math
import operator
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirror.client import TopicPartition
from mirror.relay.progress.open_transactions import lines
from mirror.telemetry.lag.lags import LagState, worst_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from mirror.errors import KafkaError
    from mirror.relay.progress.control import RunControl
    from mirror.spark.status.flow_status import FlowStatus, PartitionStatus

SHOWN: Final = 40
"""Partitions of a flow, the worst of them, unless all are asked for."""
LEAST: Final = 3
"""So many at least, on however small a terminal."""
_AROUND: Final = 6
"""Lines of a flow that are no partitions: its head of two or three, the table's, what is left out, an empty one."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_STYLES: Final = {
    LagState.LOSING: "bold red",
    LagState.NO_LEADER: "red",
    LagState.STUCK: "red",
    LagState.FALLING_BEHIND: "yellow",
    LagState.BEHIND: "yellow",
    LagState.NOT_BEGUN: "cyan",
    LagState.CATCHING_UP: "cyan",
    LagState.CAUGHT_UP: "green",
}
_HEADS: Final = ("state", "topic", "p", "lag", "late", "copied/s", "new/s", "to drain", "to loss")
_TOPIC_AT: Final = 1
_TOPIC, _TROUBLE = 12, 40
"""Columns that a topic's name has at least, and what is said against a partition if it is in the table."""
_WIDE: Final = 100
_TRANSACTIONS: Final = 3
"""Open transactions of a flow that are named at once; a live view has room for one."""
_SOON_S: Final = 3_600.0
_TENTH: Final = 10
_NONE: Final = "-"
_NAMED: Final = 5
"""Partitions of a topic in one line; of the others an ellipsis."""


def rows_for(height: int, flows: int) -> int:
    """How many partitions of each flow fit a terminal of so many lines, up to :data:`SHOWN`."""
    return min(SHOWN, max(LEAST, height // max(1, flows) - _AROUND))


def once(found: Sequence[FlowStatus], most: int | None) -> Group:
    """What one look tells: no rates. ``most`` partitions of each flow, those that lag most; None: all."""
    parts: list[RenderableType] = []
    for one in found:
        parts += [_head(one), _once(one, most), *_troubles(one, most), *_withheld(one, _TRANSACTIONS)]
    return Group(*parts)


def _troubles(one: FlowStatus, most: int | None) -> list[Text]:
    """The troubles of partitions: a line for each topic and reason, however many of its partitions share it.

    ``most`` lines and how many are left; None: all.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for each in one.partitions:
        if line := _told(each, one.time_ms):
            grouped.setdefault((each.topic, line), []).append(f"{each.partition}")
    lines = [
        Text(f"{topic}-{', '.join(numbers[:_NAMED])}{', ...' if len(numbers) > _NAMED else ''}: {line}")
        for (topic, line), numbers in grouped.items()
    ]
    left = 0 if most is None else max(0, len(lines) - most)
    return [*lines[:most], *([Text(f"{left:,} more topics have a trouble (--all)", style="dim")] if left else [])]


def _once(one: FlowStatus, most: int | None) -> Table:
    order = [
        (not each.lag.state.unhealthy, each.lag.records is not None, -(each.lag.records or 0), *_name(each))
        for each in one.partitions
    ]
    lagging = [each for _, each in sorted(zip(order, one.partitions, strict=True), key=operator.itemgetter(0))]
    shown = lagging[:most]
    table = Table(caption=_more(one, len(shown)), caption_justify="left")
    for name in ("state", "topic", "partition", "progress", "source end", "lag", "committed"):
        table.add_column(name, justify="left" if name in {"state", "topic", "committed"} else "right", overflow="fold")
    for each in shown:
        lag = each.lag.records
        # Text, not str: a topic's name is never markup.
        table.add_row(
            Text(each.lag.state.value, style=_STYLES[each.lag.state]),
            Text(each.topic),
            Text(f"{each.partition}"),
            Text("none yet" if each.progress is None else f"{each.progress:,}"),
            Text("no leader" if each.end is None else f"{each.end:,}"),
            Text("unknown" if lag is None else f"{lag:,}", style="green" if lag == 0 else "yellow"),
            Text("" if each.committed_ms is None else _ago(each.committed_ms, one.time_ms)),
        )
    return table


def live(found: Sequence[FlowStatus], errors: Mapping[str, KafkaError], most: int | None, width: int) -> Group:
    """What several looks tell: ``most`` partitions of each flow, the sick ones first; None: all of them.

    ``errors`` are by flow, of those that could not be looked at; ``width`` is the terminal's, in columns.
    """
    parts: list[RenderableType] = []
    for one in found:
        shown = _worst(one.partitions, len(one.partitions) if most is None else most)
        parts += [_head(one), _pace(one), *_live(shown, one.time_ms, width), *_withheld(one, 1)]
        more = _more(one, len(shown))
        parts += [Text(more, style="dim"), Text()] if more else [Text()]
    parts += [Text(f"flow {name}: {error}; looking again", style="red") for name, error in errors.items()]
    return Group(*parts)


def _live(shown: Sequence[PartitionStatus], now_ms: int, width: int) -> list[RenderableType]:
    """A table of one line for each; what there is to say against them stands in it, or below where it is narrow."""
    rows = [_cells(each) for each in shown]
    gap = 2 if width >= _WIDE else 1
    columns = zip(_HEADS, *([cell.plain for cell in row] for row in rows), strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    left = max(_TOPIC, width - sum(widths) + widths[_TOPIC_AT] - gap * (len(_HEADS) - 1))
    told = [_told(each, now_ms) for each in shown]
    beside = any(told) and left - gap - _TOPIC >= _TROUBLE
    topic = min(widths[_TOPIC_AT], left - gap - _TROUBLE if beside else left)
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for name in _HEADS:
        table.add_column(name, justify="left" if name in {"state", "topic"} else "right", no_wrap=True)
    if beside:
        table.add_column("last trouble", no_wrap=True)
    for row, line in zip(rows, told, strict=True):
        row[_TOPIC_AT].truncate(topic, overflow="ellipsis")
        table.add_row(*row, *([_cut(line, left - topic - gap)] if beside else []))
    below = [] if beside else [(each, line) for each, line in zip(shown, told, strict=True) if line][:LEAST]
    return [table, *(_cut(f"{_name(each)}: {line}", width) for each, line in below)]


def _cells(each: PartitionStatus) -> list[Text]:
    # Text, not str: a topic's name is never markup.
    lag = each.lag
    left = lag.state is not LagState.CAUGHT_UP  # else there is nothing to wait for
    return [
        Text(lag.state.value, style=_STYLES[lag.state]),
        Text(each.topic),
        Text(f"{each.partition}"),
        Text(_NONE if lag.records is None else f"{lag.records:,}"),
        Text(duration(lag.seconds)),
        Text(rate(lag.copied_per_s)),
        Text(rate(lag.produced_per_s)),
        Text(duration(lag.drain_s) if left else ""),
        Text(duration(lag.loss_s) if left else "", style=_warning(lag.loss_s)),
    ]


def _warning(loss_s: float | None) -> str:
    return "" if loss_s is None or loss_s >= _SOON_S else "yellow" if loss_s > 0 else "bold red"


def _cut(line: str, width: int) -> Text:
    text = Text(line, style="dim")
    text.truncate(width, overflow="ellipsis")
    return text


def _worst(partitions: Sequence[PartitionStatus], most: int) -> list[PartitionStatus]:
    return heapq.nsmallest(most, partitions, key=lambda each: worst_first(_name(each), each.lag))


def _name(each: PartitionStatus) -> TopicPartition:
    return TopicPartition(each.topic, each.partition)


def _head(one: FlowStatus) -> Text:
    by = "nothing runs" if one.run is None else f"run {one.run.run} on {one.run.host}{_seen(one.run, one.time_ms)}"
    told = ", told to stop" if one.run is not None and one.run.stop else ""
    lacking = one.totals.unknown
    unknown = f", {lacking} partitions not begun or not known" if lacking else ""
    return Text(f"flow {one.flow}: {one.source} to {one.target}; {one.totals.records:,} behind{unknown}; {by}{told}")


def _seen(run: RunControl, now_ms: int) -> str:
    silent_ms = run.silent_ms(now_ms)
    if silent_ms is None:
        return ""  # of a version that does not say it
    if run.gone(now_ms):
        return f", not seen for {duration(silent_ms // 1000)}: it has died, or cannot reach the target"
    return f", seen {_ago(run.seen_ms, now_ms)}"


def _pace(one: FlowStatus) -> Text:
    """The flow's second line: its rates, its worst partition's times, and how many are in each state."""
    of = one.totals
    drain = "never drained" if of.drain_s == math.inf else f"drained in {duration(of.drain_s)}"
    behind = (each.lag for each in one.partitions if each.lag.state is not LagState.CAUGHT_UP)
    loss_s = min((lag.loss_s for lag in behind if lag.loss_s is not None), default=None)
    words = [
        f"copied {rate(of.copied_per_s)}/s, new {rate(of.produced_per_s)}/s",
        *([f"up to {duration(of.seconds)} late"] if of.seconds else []),
        *([drain] if of.drain_s else []),
        *([f"{duration(loss_s)} to the first loss" if loss_s > 0 else "losing records"] if loss_s is not None else []),
    ]
    line = Text("; ".join(words) + "; ")
    for place, (state, count) in enumerate(of.states.items()):
        line.append(", " if place else "").append(f"{count:,} {state.value}", style=_STYLES[state])
    return line


def _withheld(one: FlowStatus, most: int) -> list[Text]:
    """The ``most`` oldest of the source's transactions that keep records from being copied: they are in no lag."""
    found = {each.withheld.tp: each.withheld for each in one.partitions if each.withheld and each.withheld.noted}
    return [Text(line, style="yellow") for line in lines(found, most)]


def _told(each: PartitionStatus, now_ms: int) -> str:
    if each.last_error is None:
        return ""
    line = " ".join(each.last_error.line.split())
    return line if each.last_error.time_ms >= now_ms else f"{_ago(each.last_error.time_ms, now_ms)}: {line}"


def _more(one: FlowStatus, shown: int) -> str | None:
    left = len(one.partitions) - shown
    return f"{left:,} more partitions, none of which is worse (--all)" if left else None


def duration(seconds: float | None) -> str:
    """A time in two digits or three: ``4.2 s``, ``35 min``, ``6.9 d``, ``never``, ``-`` where it is not known."""
    if seconds is None:
        return _NONE
    if math.isinf(seconds):
        return "never"
    size = abs(seconds)
    # Two of a unit at least: "90 s" says more than "2 min".
    count, unit = next(((size / each, name) for each, name in _UNITS if size >= 2 * each), (size, "s"))
    sign = "-" if seconds < 0 else ""
    return f"{sign}{count:.0f} {unit}" if count >= _TENTH or not count else f"{sign}{count:.1f} {unit}"


def rate(per_s: float | None) -> str:
    """Records a second: ``0``, ``0.3``, ``12``, ``1,234``; ``-`` where it is not known."""
    if per_s is None:
        return _NONE
    return f"{per_s:,.0f}" if per_s >= _TENTH or not per_s else f"{per_s:.1f}"


def _ago(wall_ms: int, now_ms: int) -> str:
    seconds = max(0, (now_ms - wall_ms) // 1000)
    for each, unit in _UNITS:
        if seconds >= 2 * each:
            return f"{seconds // each} {unit} ago"
    return f"{seconds} s ago"
