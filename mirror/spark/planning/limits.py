"""What one run or epoch copies of a larger backlog: whose turn it is, and how much each gets. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.config.models import SMALLEST_SHARE_BYTES
from mirror.relay.model.ranges import Outcome, Range, RangeResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import FlowConfig

NEXT_EPOCH: Final = "its turn comes in the next epoch"


@dataclass(frozen=True, slots=True)
class Backlog:
    """A range with something to copy: ``size`` in bytes, estimated; ``last_turn_ms`` (ms since 1970; 0: never)."""

    range: Range
    size: int
    last_turn_ms: int


@dataclass(frozen=True, slots=True)
class LimitResult:
    """``ranges`` to copy now, ``waiting`` results of the others, and ``cut``: where both ended before the limit."""

    ranges: list[Range]
    waiting: list[RangeResult]
    truncated: list[tuple[Range, int]]


def apply_limits(flow: FlowConfig, backlogs: Sequence[Backlog]) -> LimitResult:
    """What ``flow``'s ``max-partitions-in-parallel`` and ``max-bytes-per-epoch`` let through, in the order given."""
    partitions, size = flow.max_partitions_in_parallel, flow.max_bytes_per_epoch
    order = fair_order(backlogs) if partitions or size else list(backlogs)
    chosen = order[:partitions] if partitions else order
    why = dict.fromkeys((id(each) for each in order[len(chosen) :]), f"max-partitions-in-parallel = {partitions}")
    if size:
        affordable = _affordable(chosen, size)
        why |= dict.fromkeys((id(each) for each in chosen[affordable:]), f"max-bytes-per-epoch = {size}")
        chosen = chosen[:affordable]
    ends = _shares(chosen, size) if size else {}
    found = LimitResult([], [], [])
    for each in backlogs:
        one, end = each.range, ends.get(id(each), each.range.end)
        if id(each) in why:
            line = f"{NEXT_EPOCH}: {one.end - one.start} records wait ({why[id(each)]})"
            found.waiting.append(RangeResult.begun(one, one.start, Outcome.UNFINISHED, line))
            found.truncated.append((one, one.end))
        else:
            found.ranges.append(replace(one, end=end) if end < one.end else one)
        if end < one.end:
            found.truncated.append((one, one.end))
    return found


def fair_order(backlogs: Sequence[Backlog]) -> list[Backlog]:
    """The order in which backlogs get their turn: by turns who waited longest, and who has most to copy.

    The largest come early, and nobody starves: of n backlogs, each is among the first k within n / (k / 2) epochs,
    rounded up, since half of each epoch goes to those whose last turn was longest ago.
    """

    def name(each: Backlog) -> tuple[str, int]:
        return each.range.topic, each.range.partition

    oldest = sorted(backlogs, key=lambda each: (each.last_turn_ms, -each.size, *name(each)))
    largest = sorted(backlogs, key=lambda each: (-each.size, *name(each)))
    taken: set[int] = set()
    order: list[Backlog] = []
    for pair in zip(oldest, largest, strict=True):
        # One after the other: who was taken in the one list leaves its place in the other to the next.
        for each in pair:
            if id(each) not in taken:
                taken.add(id(each))
                order.append(each)
    return order


def _affordable(order: Sequence[Backlog], size: int) -> int:
    """How many, from the first on, can have a share worth the trouble: one at least, sizes are estimates anyway."""
    left = size
    for count, each in enumerate(order):
        left -= min(each.size, SMALLEST_SHARE_BYTES)
        if left < 0:
            return max(1, count)
    return len(order)


def _shares(chosen: Sequence[Backlog], size: int) -> dict[int, int]:
    """The end of each range, so that all together stay under ``size``: the smallest get all, the rest share evenly."""
    ends = {}
    left = size
    for number, each in enumerate(sorted(chosen, key=lambda backlog: backlog.size)):
        share = min(each.size, left // (len(chosen) - number))
        left -= share
        records = each.range.end - each.range.start
        # A record at least, with the batch that it is in: a partition that was chosen goes on.
        given = records if share >= each.size else max(1, records * share // each.size)
        ends[id(each)] = each.range.start + given
    return ends
