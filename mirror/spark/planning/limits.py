"""Applies a flow's limits to its backlog: which partitions one run copies, and how much of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mirror.config.value_checks import SMALLEST_SHARE_BYTES
from mirror.relay.model.ranges import Outcome, Range, RangeResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import FlowConfig

NEXT_RUN: Final = "its turn comes in the next run"


def has_limits(flow: FlowConfig) -> bool:
    """Return whether not all partitions of ``flow`` may be copied in each run, so that they take turns."""
    return bool(flow.max_partitions_in_parallel or flow.max_bytes_per_run)


def why_not_followed(flow: FlowConfig) -> str | None:
    """Return in one line why a stream cannot follow ``flow``; None if it can."""
    of_runs = {
        "max-bytes-per-run": flow.max_bytes_per_run > 0,
        "max-partitions-in-parallel": flow.max_partitions_in_parallel > 0,
        "until": flow.end_position is not None,
    }
    if not (found := [key for key, is_set in of_runs.items() if is_set]):
        return None
    return (
        f"{', '.join(found)}: only for `mirror run`, which ends: remove {'it' if len(found) == 1 else 'them'}"
        " (max-bytes-per-second limits a stream), or schedule `mirror run`"
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """A range with records to copy."""

    range: Range
    size: int
    """Estimated, in bytes."""
    last_turn_ms: int
    """When the partition was last given to a task, in ms since 1970; 0: never."""

    @property
    def name(self) -> tuple[str, int]:
        """The source topic and partition."""
        return self.range.topic, self.range.partition


@dataclass(frozen=True, slots=True)
class LimitResult:
    """The backlog after the limits."""

    ranges: list[Range]
    """The ranges to copy now."""
    waiting: list[RangeResult]
    """The results of the ranges that have to wait."""
    truncated: list[tuple[Range, int]]
    """The ranges that are shortened or wait, with the end that each had before."""


def apply_limits(flow: FlowConfig, backlogs: Sequence[Backlog]) -> LimitResult:
    """Apply ``max-partitions-in-parallel`` and ``max-bytes-per-run``; results keep the order of ``backlogs``."""
    max_partitions, max_bytes = flow.max_partitions_in_parallel, flow.max_bytes_per_run
    order = fair_order(backlogs) if max_partitions or max_bytes else list(backlogs)
    chosen = order[:max_partitions] if max_partitions else order
    limits = {id(backlog): f"max-partitions-in-parallel = {max_partitions}" for backlog in order[len(chosen) :]}
    if max_bytes:
        count = _affordable(chosen, max_bytes)
        limits |= {id(backlog): f"max-bytes-per-run = {max_bytes}" for backlog in chosen[count:]}
        chosen = chosen[:count]
    ends = _shares(chosen, max_bytes) if max_bytes else {}
    found = LimitResult([], [], [])
    for backlog in backlogs:
        range_ = backlog.range
        end = ends.get(id(backlog), range_.end)
        if id(backlog) in limits:
            line = f"{NEXT_RUN}: {range_.end - range_.start} records wait ({limits[id(backlog)]})"
            found.waiting.append(RangeResult.initial(range_, range_.start, Outcome.UNFINISHED, line))
            found.truncated.append((range_, range_.end))
        else:
            found.ranges.append(replace(range_, end=end) if end < range_.end else range_)
        if end < range_.end:
            found.truncated.append((range_, range_.end))
    return found


# Invariant: Limits are fair: no partition starves, neither the largest nor the one that waits longest or fails.
# Test: tests/spark/planning/test_limits.py::test_no_partition_starves
def fair_order(backlogs: Sequence[Backlog]) -> list[Backlog]:
    """Return the order in which backlogs get their turn: alternately the longest waiting and the largest.

    Large backlogs come early, and none starves: of n backlogs, each is among the first k within n / (k / 2) runs,
    rounded up, since half of each run goes to those whose last turn was longest ago.
    """
    oldest = sorted(backlogs, key=lambda backlog: (backlog.last_turn_ms, -backlog.size, *backlog.name))
    largest = sorted(backlogs, key=lambda backlog: (-backlog.size, *backlog.name))
    seen: set[int] = set()
    order: list[Backlog] = []
    for pair in zip(oldest, largest, strict=True):
        for backlog in pair:
            if id(backlog) not in seen:
                seen.add(id(backlog))
                order.append(backlog)
    return order


def _affordable(order: Sequence[Backlog], max_bytes: int) -> int:
    """Return how many of the first backlogs get a share that is worth a task; at least 1, since sizes are estimates."""
    left = max_bytes
    for count, backlog in enumerate(order):
        left -= min(backlog.size, SMALLEST_SHARE_BYTES)
        if left < 0:
            return max(1, count)
    return len(order)


def _shares(chosen: Sequence[Backlog], max_bytes: int) -> dict[int, int]:
    """Return the end of each range, so that the total is within ``max_bytes``: small ones whole, the rest evenly."""
    ends = {}
    left = max_bytes
    for number, backlog in enumerate(sorted(chosen, key=lambda backlog: backlog.size)):
        share = min(backlog.size, left // (len(chosen) - number))
        left -= share
        records = backlog.range.end - backlog.range.start
        # At least one record, with the batch that holds it: every chosen partition advances.
        count = records if share >= backlog.size else max(1, records * share // backlog.size)
        ends[id(backlog)] = backlog.range.start + count
    return ends
