"""The table and the JSON document of ``mirror groups``: where groups are on both sides."""

from __future__ import annotations

import enum
from contextlib import ExitStack
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mirror.cli.views.amounts import duration
from mirror.client import LATEST, Admin, TopicPartition
from mirror.errors import printable
from mirror.spark.clusters import open_sides
from mirror.spark.preflight.flow_groups import rules_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.kept_positions import KeptGroup
    from mirror.groups.positions import GroupPosition, GroupsReport

_CALL_TIMEOUT_MS: Final = 10_000
_IN_STEP: Final = "in step"
_NUMBERS: Final = "the offsets are those of two logs: a record may have another one on the other side"

View = tuple[dict[str, Any], RenderableType, list[str], bool]
"""The JSON document, the tables, warnings, and whether all groups are in step."""


class _Rank(enum.IntEnum):
    """The order of lines if not all are shown."""

    HELD = enum.auto()
    PENDING = enum.auto()
    IN_STEP = enum.auto()


class LogEnds:
    """Reads the ends of the flow's logs on both sides."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        with ExitStack() as stack:
            sides = stack.enter_context(open_sides(config, flow))
            self._source, self._target = sides.source.admin, sides.target.admin
            self._clients = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.close()

    def of_source(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offsets of the partitions whose leaders answer. Raises KafkaError if none does."""
        return _last_stable(self._source, tps)

    def of_target(self, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The same on the target."""
        return _last_stable(self._target, tps)


def _last_stable(admin: Admin, tps: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
    wanted = dict.fromkeys(tps, LATEST)
    if not wanted:
        return {}
    found = admin.list_offsets(wanted, partial=True, timeout_ms=_CALL_TIMEOUT_MS)
    return {tp: one.offset for tp, one in found.items()}


def view_of(flow: FlowConfig, report: GroupsReport, ends: LogEnds, named: Collection[str], most: int | None) -> View:
    """Return the view of the groups; what is not in step comes first if the table does not have all lines."""
    positions = [one for state in report.groups.values() for one in state.positions]
    source_ends = ends.of_source(one.source for one in positions)
    target_ends = ends.of_target(one.target for one in positions)
    rows: list[tuple[_Rank, list[Text]]] = []
    documents = []
    for name in sorted(report.groups):
        state = report.groups[name]
        found = []
        for one in state.positions:
            lags = (
                _lag(one.source_offset, source_ends.get(one.source)),
                _lag(one.target_offset, target_ends.get(one.target)),
            )
            age_s = None if one.stored_ms is None else max(0, report.time_ms - one.stored_ms) / 1000
            found.append(_position_json(one, *lags, age_s))
            status = _status(one, sync=flow.groups.sync) if state.reason is None else state.reason.value
            status += _again(one) if state.reason is None else ""
            numbers = (one.source.partition, one.source_offset, lags[0], one.target_offset, lags[1])
            cells = [shown(_named(flow, name)), shown(one.source.topic), *(Text(number(each)) for each in numbers)]
            cells.append(Text("" if age_s is None else duration(age_s)))
            held = state.reason is not None or one.reason is not None
            rank = _Rank.HELD if held else _Rank.PENDING if one.pending else _Rank.IN_STEP
            rows.append((rank, [*cells, shown(status)]))
        if not state.positions:
            cells = [
                shown(_named(flow, name)),
                *(Text() for _ in range(7)),
                shown(f"{_value(state.reason)}: {state.detail}"),
            ]
            rows.append((_Rank.IN_STEP if state.is_in_step else _Rank.HELD, cells))
        names = {"group": name, "target_group": flow.groups.target_group(name)}
        documents.append({**names, "reason": _value(state.reason), "detail": state.detail, "positions": found})
    head = f"flow {flow.name}: {flow.source} to {flow.target}; {_counts(report, sync=flow.groups.sync)}"
    table = _table()
    captions = [_NUMBERS] if positions else []
    kept = rows if most is None or len(rows) <= most else sorted(rows, key=itemgetter(0))[:most]
    for _, cells in kept:
        table.add_row(*cells)
    if left := len(rows) - len(kept):
        captions.append(f"{left:,} more lines, none of them worse")
    table.caption, table.caption_justify = Text("\n".join(captions)), "left"
    problems = [*report.problems, *(_missing(name, flow) for name in named if name not in report.groups)]
    document = {"flow": flow.name, "sync": flow.groups.sync, "groups": documents, "problems": problems}
    return document, Group(Text(head), table), problems, report.in_step == len(report.groups) and not problems


def view_of_kept(
    flow: FlowConfig, kept: Collection[KeptGroup], target_ends: Mapping[TopicPartition, int], problem: str, now_ms: int
) -> View:
    """Return the view of what the target knows while the source is away; ``problem`` says why that is."""
    table = _table()
    documents = []
    for group in kept:
        found = []
        for one in group.positions:
            lag = _lag(one.target_offset, target_ends.get(TopicPartition(one.topic, one.partition)))
            age_s = max(0, now_ms - one.stored_ms) / 1000 if one.stored_ms else None
            numbers = (one.partition, one.source_offset, None, one.target_offset, lag)
            age = Text("" if age_s is None else duration(age_s))
            table.add_row(
                shown(_named(flow, group.group)),
                shown(one.topic),
                *(Text(number(each)) for each in numbers),
                age,
                Text(""),
            )
            place = {"topic": flow.source_topic(one.topic), "target_topic": one.topic, "partition": one.partition}
            offsets = {"source_offset": one.source_offset, "target_offset": one.target_offset, "target_lag": lag}
            found.append({**place, **offsets, "age_seconds": None if age_s is None else round(age_s, 3)})
        names = {"group": group.group, "target_group": flow.groups.target_group(group.group)}
        documents.append({**names, "positions": found})
    head = f"flow {flow.name}: {flow.source} to {flow.target}; as {flow.target} knows them: {len(kept)} groups"
    table.caption, table.caption_justify = Text("source: the offset that was translated last"), "left"
    document = {"flow": flow.name, "sync": flow.groups.sync, "groups": documents, "problems": [problem]}
    return document, Group(Text(head), table), [], False


def _named(flow: FlowConfig, group: str) -> str:
    target = flow.groups.target_group(group)
    return group if target == group else f"{group} -> {target}"


def _missing(group: str, flow: FlowConfig) -> str:
    if not rules_of(flow).includes(group):
        return f"flow {flow.name} does not include group {group!r} (include, exclude)"
    return f"cluster {flow.source} has no group {group!r} with offsets of topics that flow {flow.name} copies"


def _counts(report: GroupsReport, *, sync: bool) -> str:
    """Return how many groups there are in each state."""
    pending = sum(not state.reasons and not state.is_in_step for state in report.groups.values())
    counts = {reason.value: count for reason, count in sorted(report.by_reason().items())} | {
        _pending(sync=sync): pending
    }
    total = len(report.groups)
    if not total:
        return "no group could be read" if report.problems else "there are no groups"
    words = [f"{report.in_step:,} of {total:,} group{'' if total == 1 else 's'} in step"]
    return ", ".join([*words, *(f"{count:,} {state}" for state, count in counts.items() if count)])


def _position_json(
    one: GroupPosition, source_lag: int | None, target_lag: int | None, age_s: float | None
) -> dict[str, Any]:
    return {
        "topic": one.source.topic,
        "target_topic": one.target.topic,
        "partition": one.source.partition,
        "source_offset": one.source_offset,
        "source_lag": source_lag,
        "target_offset": one.target_offset,
        "target_lag": target_lag,
        "age_seconds": None if age_s is None else round(age_s, 3),
        "reason": _value(one.reason),
        "detail": one.detail,
        "pending": one.pending,
        "passed": one.passed,
        "read_again": one.read_again.records,
        "read_again_is_exact": one.read_again.is_exact,
    }


def _status(one: GroupPosition, *, sync: bool) -> str:
    if one.reason is not None:
        return f"{one.reason.value}: {one.detail}" if one.detail else one.reason.value
    return _pending(sync=sync) if one.pending else _IN_STEP


def _again(one: GroupPosition) -> str:
    if not one.read_again.records:
        return ""
    count = f"{one.read_again.records:,} record{'' if one.read_again.records == 1 else 's'}"
    return f"; {count} read again" if one.read_again.is_exact else f"; at most {count} read again"


def _pending(*, sync: bool) -> str:
    return "to be committed" if sync else "not committed, because sync is off"


def _value(reason: Any) -> str | None:
    return None if reason is None else str(reason.value)


def _lag(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(0, end - offset)


def _table() -> Table:
    table = Table()
    table.add_column("group", overflow="fold")
    table.add_column("topic", overflow="fold")
    for number in ("partition", "source", "lag", "target", "lag", "age"):
        table.add_column(number, justify="right")
    table.add_column("state", overflow="fold")
    return table


def number(value: int | None) -> str:
    """Return a number, or nothing."""
    return "" if value is None else f"{value}"


def shown(text: str) -> Text:
    """Return the name of a group, or what a broker says, so that it does not control the terminal."""
    return Text(printable(text))
