"""Packs ranges into tasks: evenly, stably, and with a separate lane for ranges that would delay the others. Pure."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.relay.model.ranges import Range

LIGHT_BYTES: Final = 64 * 1024
"""A followed partition with a smaller backlog is lightly loaded."""
_SIGNIFICANT_BITS: Final = 5
"""Sizes are rounded down to this many significant bits, so by a sixteenth at most."""


def records_of(range_: Range) -> int:
    """Return a range's backlog in offsets."""
    return range_.end - range_.start


def steady_size(size_of: Callable[[Range], int]) -> Callable[[Range], int]:
    """Return ``size_of`` for ranges that are followed, in which lightly loaded partitions count as nothing.

    Whether one has a record more or less when a period is planned says nothing about its load, and would send it to
    another task, and so to another process, in each period.
    """

    def size(range_: Range) -> int:
        found = size_of(range_)
        return 0 if found < LIGHT_BYTES else found

    return size


def no_lane(_: Range) -> bool:
    """Put all ranges into one lane."""
    return False


def pack(
    ranges: Sequence[Range],
    tasks: int,
    *,
    size_of: Callable[[Range], int] = records_of,
    slow: Callable[[Range], bool] = no_lane,
) -> list[list[Range]]:
    """Spread ``ranges`` over at most ``tasks`` tasks by ``size_of``, largest first, each onto the smallest task so far.

    No task is empty, and a range, so a partition, is in exactly one. O(n log n).

    - *Even*: in each lane the longest task is at most 4/3 of the best possible (R. L. Graham, 1969, "longest processing
      time first"), plus a sixteenth for the rounding of sizes.
    - *Stable*: sizes are rounded, and ties are broken by name. So partitions whose backlogs hardly changed share a task
      again, where their connections and positions are.
    - *Lanes*: with two tasks or more, ranges that are ``slow`` (unhealthy, or far behind) share no task with others.
      They get tasks in proportion to their backlog, at most half of all tasks, unless the others need fewer.
    """
    count = min(tasks, len(ranges))
    sizes = {id(range_): _rounded(size_of(range_)) for range_ in ranges}
    steady_lane: list[Range] = []
    slow_lane: list[Range] = []
    for range_ in ranges:
        (slow_lane if slow(range_) else steady_lane).append(range_)
    if count < 2 or not steady_lane or not slow_lane:  # noqa: PLR2004 - two lanes
        return _spread(ranges, count, sizes)
    slow_share = sum(sizes[id(range_)] for range_ in slow_lane) / max(1, sum(sizes.values()))
    wanted = max(1, min(round(slow_share * count), count // 2))
    # Neither lane has more tasks than ranges.
    slow_tasks = max(count - len(steady_lane), min(wanted, len(slow_lane)))
    return [*_spread(steady_lane, count - slow_tasks, sizes), *_spread(slow_lane, slow_tasks, sizes)]


def _rounded(size: int) -> int:
    """Return ``size`` with its first significant bits only."""
    dropped = max(0, size.bit_length() - _SIGNIFICANT_BITS)
    return size >> dropped << dropped


def _spread(ranges: Sequence[Range], count: int, sizes: dict[int, int]) -> list[list[Range]]:
    tasks: list[list[Range]] = [[] for _ in range(count)]
    # Ties go to the task with fewer ranges, so that ranges without records are spread as well.
    smallest = [(0, 0, task) for task in range(count)]
    for range_ in sorted(ranges, key=lambda range_: (-sizes[id(range_)], range_.topic, range_.partition)):
        backlog, length, task = smallest[0]
        tasks[task].append(range_)
        heapq.heapreplace(smallest, (backlog + sizes[id(range_)], length + 1, task))
    return tasks
