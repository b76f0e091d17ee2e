"""The tables of ``mirror status``, and the format of its times and rates."""

from __future__ import annotations

import heapq
import math
import operator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Group
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from mirror.cli.views.amounts import UNKNOWN, ago, duration, rate
from mirror.cli.views.states_view import states
from mirror.client import TopicPartition
from mirror.errors import brief, named
from mirror.relay.model.way_notes import PartitionWay, way_lines
from mirror.relay.progress.open_transactions import describe_oldest
from mirror.spark.driver.job_options import MAX_PARTITIONS_SHOWN
from mirror.spark.driver.output.progress_lines import behind
from mirror.spark.driver.output.tables import worst_groups
from mirror.telemetry.lag.lags import LagState, worst_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from mirror.alignment.sync_state import KindState
    from mirror.errors import MirrorError
    from mirror.relay.progress.control_record import RunControl
    from mirror.spark.ledger.status_table import LastError
    from mirror.spark.status.flow_status import FlowStatus, PartitionStatus
    from mirror.telemetry.lag.lags import LagTotals

MIN_PARTITIONS_SHOWN: Final = 3
"""Partitions of a flow that are shown even on a small terminal."""
_OTHER_LINES: Final = 7
"""Lines of a flow besides its partitions: up to four above the table, its head, the number left out, a blank line."""
_GROUP_LINES: Final = 2
_STYLES: Final = {
    LagState.LOSING: "bold red",
    LagState.FAILED: "bold red",
    LagState.NO_LEADER: "red",
    LagState.STUCK: "red",
    LagState.FALLING_BEHIND: "yellow",
    LagState.BEHIND: "yellow",
    LagState.NOT_BEGUN: "cyan",
    LagState.UNKNOWN: "yellow",
    LagState.CATCHING_UP: "cyan",
    LagState.CAUGHT_UP: "green",
}
_NOT_COPIED: Final = (LagState.FAILED, LagState.NOT_BEGUN)
"""Partitions of which nothing is copied now, with the number that the flow is behind."""
_COLUMNS: Final = ("state", "topic", "p", "lag", "late", "copied/s", "new/s", "to drain", "to loss")
_TOPIC_COLUMN: Final = 1
_MIN_TOPIC_WIDTH, _MIN_ERROR_WIDTH = 12, 40
"""Minimum widths of the columns with the topic and the last error. If they do not fit, errors are below the table."""
_WIDE_TERMINAL: Final = 100
_MAX_TRANSACTIONS_SHOWN: Final = 3
"""Open transactions of a flow that are shown; a live view shows one."""
_MAX_PAST_ERRORS_SHOWN: Final = 3
_LOSS_WARNING_S: Final = 3_600.0
"""A loss of records within this time is highlighted."""
_MAX_NAMES_SHOWN: Final = 5
"""Partitions of a topic that share a line; an ellipsis stands for the others."""


def rows_for(height: int, flows: int, *, groups: bool = False) -> int:
    """Return how many partitions of each flow fit a terminal of ``height`` lines, up to the maximum.

    ``groups``: some flow has lines about its consumer groups.
    """
    others = _OTHER_LINES + (_GROUP_LINES if groups else 0)
    return min(MAX_PARTITIONS_SHOWN, max(MIN_PARTITIONS_SHOWN, height // max(1, flows) - others))


def once(statuses: Sequence[FlowStatus], most: int | None) -> Group:
    """Return the view of one reading, without rates: the ``most`` partitions of each flow with most lag, or all."""
    parts: list[RenderableType] = [*states(statuses)]
    for flow in statuses:
        if flow.refused and not flow.partitions:
            continue  # its reason is in the table of states
        parts += [
            _head(flow),
            *_mirrormaker(flow),
            *_unread(flow),
            _once(flow, most),
            *_last_errors(flow, most),
            *_past_errors(flow),
            *_ways(flow),
            *_target_losses(flow, most),
            *_open_transactions(flow, _MAX_TRANSACTIONS_SHOWN),
            *_groups(flow),
            *([] if flow.groups is None else map(Text, worst_groups(flow.groups, flow.flow))),
            *_sync(flow),
            *_index(flow),
        ]
    return Group(*parts)


def _mirrormaker(flow: FlowStatus, width: int | None = None) -> list[Text]:
    """Return the line about a MirrorMaker 2 for which the flow has stopped."""
    if flow.mirrormaker is None:
        return []
    line = Text(flow.mirrormaker, style="bold red")
    if width is not None:
        line.truncate(width, overflow="ellipsis")
    return [line]


def _unread(flow: FlowStatus, width: int | None = None) -> list[Text]:
    """Return the line that says why what runs on other hosts report may not be shown."""
    if not flow.unread:
        return []
    line = Text(f"what runs on other hosts report is missing or out of date: {flow.unread}", style="yellow")
    if width is not None:
        line.truncate(width, overflow="ellipsis")
    return [line]


def _groups(flow: FlowStatus) -> list[Text]:
    """Return a line about the consumer groups after the last round of a run, and one about a problem of that."""
    if flow.groups is None:
        return []
    longest = f", the longest for {duration(flow.groups.oldest_ms / 1000)}" if flow.groups.oldest_ms else ""
    read = ago(flow.groups.time_ms, flow.time_ms)
    line = f"consumer groups, {read}: {flow.groups.counts()}{longest if flow.groups.sync else ''}"
    return [
        Text(line),
        *(Text(f"consumer groups: {brief(problem)}", style="yellow") for problem in flow.groups.problems[:1]),
    ]


def _sync(flow: FlowStatus) -> list[Text]:
    """Return a line for each kind of differences that is not in step, one for those that are, and what is left out."""
    if flow.sync is None:
        return []
    in_step = [kind for kind, state in flow.sync.kinds.items() if state.in_step]
    last_ms = min((flow.sync.kinds[kind].time_ms for kind in in_step), default=0)
    left_out = flow.sync.not_local
    return [
        *([Text(f"{', '.join(in_step)} in step, {ago(last_ms, flow.time_ms)}")] if in_step else []),
        *(
            Text(f"{kind} not in step, {ago(state.time_ms, flow.time_ms)}: {state.words()}{_last_sync(state, flow)}")
            for kind, state in flow.sync.kinds.items()
            if not state.in_step
        ),
        *([Text(f"{left_out:,} records left out as not local")] if left_out else []),
        *([Text(f"{flow.sync.aside:,} records went aside: mirror aside", style="yellow")] if flow.sync.aside else []),
    ]


def _index(flow: FlowStatus) -> list[Text]:
    return [] if flow.index_bytes is None else [Text(f"offset index: {decimal(flow.index_bytes)} on {flow.target}")]


def _sync_line(flow: FlowStatus, width: int) -> list[Text]:
    """Return the same in one line that fits ``width``, what is not in step first."""
    lines = [line.plain for line in _sync(flow)]
    lines.sort(key=lambda line: " not in step, " not in line)
    return [_truncated("; ".join(lines), width)] if lines else []


def _last_sync(state: KindState, flow: FlowStatus) -> str:
    """Return when everything was compared for the last time, if that was not in the last round."""
    if state.synced_ms == state.time_ms:
        return ""
    at = ago(state.synced_ms, flow.time_ms) if state.synced_ms else "never by this run"
    return f"; last compared completely {at}"


def _last_errors(flow: FlowStatus, most: int | None) -> list[Text]:
    """Return the last errors: one line for each topic and reason, up to ``most``, and the number of further lines."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for partition in flow.partitions:
        if line := _error_line(partition.trouble, flow.time_ms):
            grouped.setdefault((partition.topic, line), []).append(f"{partition.partition}")
    lines = [Text(f"{topic}-{_listed(numbers)}: {line}") for (topic, line), numbers in grouped.items()]
    left = 0 if most is None else max(0, len(lines) - most)
    return [*lines[:most], *([Text(f"{left:,} more topics have errors (--all)", style="dim")] if left else [])]


def _past_errors(flow: FlowStatus) -> list[Text]:
    """Return a line for each of the last errors within a week of partitions that have recovered, by topic."""
    past: dict[tuple[str, str], list[PartitionStatus]] = {}
    latest: dict[tuple[str, str], int] = {}
    for partition in flow.partitions:
        if (error := partition.last_error) is not None and partition.trouble is None:
            key = partition.topic, brief(error.line)
            past.setdefault(key, []).append(partition)
            latest[key] = max(latest.get(key, 0), error.time_ms)
    shown = heapq.nlargest(_MAX_PAST_ERRORS_SHOWN, past, key=lambda key: latest[key])
    lines = []
    for topic, line in shown:
        numbers = [f"{one.partition}" for one in past[topic, line]]
        have = "has" if len(numbers) == 1 else "have"
        at = ago(latest[topic, line], flow.time_ms)
        lines.append(f"{topic}-{_listed(numbers)} {have} recovered; {at}: {line}")
    left = sum(len(of_error) for key, of_error in past.items() if key not in shown)
    more = [f"{left:,} more partitions have recovered within a week (--json)"] if left else []
    return [Text(line, style="dim") for line in [*lines, *more]]


def _ways(flow: FlowStatus) -> list[Text]:
    """Return a line for each way that partitions go exactly once, and reason for it."""
    ways = (PartitionWay(f"{_tp(partition)}", partition.way, partition.way_reason) for partition in flow.partitions)
    return [Text(line) for line in way_lines(ways)]


def _target_losses(flow: FlowStatus, most: int | None) -> list[Text]:
    """Return a line for each partition whose target lost records that were copied again, up to ``most``."""
    losses = [f"{_tp(partition)}: {partition.target_loss}" for partition in flow.partitions if partition.target_loss]
    return [Text(line) for line in losses[:most]]


def _listed(numbers: list[str]) -> str:
    return ", ".join([*numbers[:_MAX_NAMES_SHOWN], *(["..."] if len(numbers) > _MAX_NAMES_SHOWN else [])])


def _once(flow: FlowStatus, most: int | None) -> Table:
    order = [
        (
            not partition.lag.state.unhealthy,
            partition.lag.records is not None,
            -(partition.lag.records or 0),
            *_tp(partition),
        )
        for partition in flow.partitions
    ]
    lagging = [
        partition for _, partition in sorted(zip(order, flow.partitions, strict=True), key=operator.itemgetter(0))
    ]
    shown = lagging[:most]
    table = Table(caption=_more(flow, len(shown)), caption_justify="left")
    for name in ("state", "topic", "partition", "progress", "source end", "lag", "committed"):
        table.add_column(name, justify="left" if name in {"state", "topic", "committed"} else "right", overflow="fold")
    no_progress = "unknown" if flow.target in flow.away else "none yet"
    no_end = "unknown" if flow.source in flow.away else "no leader"
    for partition in shown:
        lag = partition.lag.records
        # Text, not str: a topic's name is never markup.
        table.add_row(
            Text(partition.lag.state.value, style=_STYLES[partition.lag.state]),
            Text(partition.topic),
            Text(f"{partition.partition}"),
            Text(no_progress if partition.progress is None else f"{partition.progress:,}"),
            Text(no_end if partition.end is None else f"{partition.end:,}"),
            Text("unknown" if lag is None else f"{lag:,}", style="green" if lag == 0 else "yellow"),
            Text("" if partition.committed_ms is None else ago(partition.committed_ms, flow.time_ms)),
        )
    return table


def live(
    statuses: Sequence[FlowStatus],
    errors: Mapping[str, MirrorError],
    before: Mapping[str, FlowStatus],
    most: int | None,
    width: int,
) -> Group:
    """Return the view of repeated readings: the ``most`` worst partitions of each flow, or all.

    ``errors`` are by flow, for flows that could not be read, and ``before`` the last statuses that could be; ``width``
    is the terminal's, in columns.
    """
    parts: list[RenderableType] = [*states(statuses)]
    for flow in statuses:
        shown = _worst(flow.partitions, len(flow.partitions) if most is None else most)
        parts += [
            _head(flow),
            *_mirrormaker(flow, width),
            *_unread(flow, width),
            _summary(flow),
            *_groups(flow),
            *_sync_line(flow, width),
            *_live(shown, flow.time_ms, width),
            *_open_transactions(flow, 1),
        ]
        more = _more(flow, len(shown))
        parts += [Text(more, style="dim"), Text()] if more else [Text()]
    for name, error in errors.items():
        parts.append(Text(f"flow {name}: {error}; retrying", style="red"))
        if name in before:
            parts.append(Text(f"as of {_at(before[name])}: ", style="dim").append_text(_head(before[name])))
    return Group(*parts)


def _live(shown: Sequence[PartitionStatus], now_ms: int, width: int) -> list[RenderableType]:
    """Return a table with one line per partition, and the last errors in it or, on a narrow terminal, below."""
    rows = [_cells(partition) for partition in shown]
    gap = 2 if width >= _WIDE_TERMINAL else 1
    columns = zip(_COLUMNS, *([cell.plain for cell in row] for row in rows), strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    left = max(_MIN_TOPIC_WIDTH, width - sum(widths) + widths[_TOPIC_COLUMN] - gap * (len(_COLUMNS) - 1))
    errors = [_error_line(partition.trouble or partition.last_error, now_ms) for partition in shown]
    beside = any(errors) and left - gap - _MIN_TOPIC_WIDTH >= _MIN_ERROR_WIDTH
    topic = min(widths[_TOPIC_COLUMN], left - gap - _MIN_ERROR_WIDTH if beside else left)
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in {"state", "topic"} else "right", no_wrap=True)
    if beside:
        table.add_column("last error", no_wrap=True)
    for row, line in zip(rows, errors, strict=True):
        row[_TOPIC_COLUMN].truncate(topic, overflow="ellipsis")
        table.add_row(*row, *([_truncated(line, left - topic - gap)] if beside else []))
    with_error = [(partition, line) for partition, line in zip(shown, errors, strict=True) if line]
    below = [] if beside else with_error[:MIN_PARTITIONS_SHOWN]
    return [table, *(_truncated(f"{_tp(partition)}: {line}", width) for partition, line in below)]


def _cells(partition: PartitionStatus) -> list[Text]:
    # Text, not str: rich would read markup in a topic's name.
    lag = partition.lag
    left = lag.state is not LagState.CAUGHT_UP  # a partition that has caught up has nothing to drain or lose
    return [
        Text(lag.state.value, style=_STYLES[lag.state]),
        Text(partition.topic),
        Text(f"{partition.partition}"),
        Text(UNKNOWN if lag.records is None else f"{lag.records:,}"),
        Text(duration(lag.seconds)),
        Text(rate(lag.copied_per_s)),
        Text(rate(lag.produced_per_s)),
        Text(duration(lag.drain_s) if left else ""),
        Text(duration(lag.loss_s) if left else "", style=_warning(lag.loss_s)),
    ]


def _warning(loss_s: float | None) -> str:
    return "" if loss_s is None or loss_s >= _LOSS_WARNING_S else "yellow" if loss_s > 0 else "bold red"


def _truncated(line: str, width: int) -> Text:
    text = Text(line, style="dim")
    text.truncate(width, overflow="ellipsis")
    return text


def _worst(partitions: Sequence[PartitionStatus], most: int) -> list[PartitionStatus]:
    return heapq.nsmallest(most, partitions, key=lambda partition: worst_first(_tp(partition), partition.lag))


def _tp(partition: PartitionStatus) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _head(flow: FlowStatus) -> Text:
    run = (
        "nothing runs" if flow.run is None else f"run {flow.run.run} on {flow.run.host}{_seen(flow.run, flow.time_ms)}"
    )
    stopping = ", stop requested" if flow.run is not None and flow.run.stop else ""
    place = f"flow {flow.flow}: {flow.source} to {flow.target}"
    if flow.target in flow.away:
        return Text(f"{place}; ends of {flow.source} as of {_at(flow)}; progress, lag and run unknown: {_away(flow)}")
    if flow.source in flow.away:
        return Text(f"{place}; progress as of {_at(flow)}; lag unknown: {_away(flow)}; {run}{stopping}")
    return Text(f"{place}; {_behind(flow.totals)}; {run}{stopping}")


def _away(flow: FlowStatus) -> str:
    return f"{named('cluster', list(flow.away))} does not answer"


def _at(flow: FlowStatus) -> str:
    """Return the time of the reading, on this host's clock."""
    return f"{datetime.fromtimestamp(flow.time_ms / 1000).astimezone():%H:%M:%S}"


def _behind(totals: LagTotals) -> str:
    """Return how far a flow is behind, and what the number does not show."""
    shown = (state for state in _NOT_COPIED if totals.states[state])
    return ", ".join([behind(totals), *(f"{totals.states[state]:,} {state.value}" for state in shown)])


def _seen(run: RunControl, now_ms: int) -> str:
    silent_ms = run.silent_ms(now_ms)
    if silent_ms is None:
        return ""  # written by a version that does not report it
    if run.is_dead(now_ms):
        return f", not seen for {duration(silent_ms // 1000)}: it has died or cannot reach the target"
    return f", seen {ago(run.seen_ms, now_ms)}"


def _summary(flow: FlowStatus) -> Text:
    """Return the flow's second line: its rates, its worst partition's times, and the partitions in each state."""
    totals = flow.totals
    drain = "never drained" if totals.drain_s == math.inf else f"drained in {duration(totals.drain_s)}"
    behind = (partition.lag for partition in flow.partitions if partition.lag.state is not LagState.CAUGHT_UP)
    loss_s = min((lag.loss_s for lag in behind if lag.loss_s is not None), default=None)
    words = [
        f"copied {rate(totals.copied_per_s)}/s, new {rate(totals.produced_per_s)}/s",
        *([f"up to {duration(totals.seconds)} late"] if totals.seconds else []),
        *([drain] if totals.drain_s else []),
        *([f"{duration(loss_s)} to the first loss" if loss_s > 0 else "losing records"] if loss_s is not None else []),
    ]
    line = Text("; ".join(words) + "; ")
    for place, (state, count) in enumerate(totals.states.items()):
        line.append(", " if place else "").append(f"{count:,} {state.value}", style=_STYLES[state])
    return line


def _open_transactions(flow: FlowStatus, most: int) -> list[Text]:
    """Return a line for each of the ``most`` oldest open transactions of the source: no lag counts their records."""
    open_ = (partition.withheld for partition in flow.partitions)
    found = {transaction.tp: transaction for transaction in open_ if transaction and transaction.is_noteworthy}
    return [Text(line, style="yellow") for line in describe_oldest(found, most)]


def _error_line(error: LastError | None, now_ms: int) -> str:
    if error is None:
        return ""
    line = " ".join(error.line.split())
    return line if error.time_ms >= now_ms else f"{ago(error.time_ms, now_ms)}: {line}"


def _more(flow: FlowStatus, shown: int) -> str | None:
    left = len(flow.partitions) - shown
    return f"{left:,} more partitions, none of them worse (--all)" if left else None
