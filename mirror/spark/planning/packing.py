"""Ranges into tasks: even, stable, and with a lane of their own for those that the others should not wait for. Pure."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror.relay.model.ranges import Range

_BITS: Final = 5
"""Backlogs count by this many significant bits, so by steps of a sixteenth at most."""


def records_of(one: Range) -> int:
    """A range's backlog in offsets."""
    return one.end - one.start


def no_lane(_: Range) -> bool:
    """All ranges alike."""
    return False


def pack(
    ranges: Sequence[Range],
    tasks: int,
    *,
    size_of: Callable[[Range], int] = records_of,
    slow: Callable[[Range], bool] = no_lane,
) -> list[list[Range]]:
    """Spread ``ranges`` over at most ``tasks`` tasks by ``size_of``, largest first, each onto the emptiest task so far.

    No task is empty; a range, so a partition, is in exactly one. O(n log n).

    - *Even*: in each lane the longest task is at most 4/3 of the best possible (R. L. Graham, 1969, "longest processing
      time first"), and a sixteenth for the rounding of sizes.
    - *Stable*: sizes are rounded and ties go by name. So partitions whose backlogs hardly changed come together again,
      where connections and positions are.
    - *Lanes*: with two tasks or more, ranges that are ``slow`` (sick, or far behind) share no task with the others.
      They get tasks by their part of the backlog, half of all at most: more only where the others do not need them.
    """
    count = min(tasks, len(ranges))
    sized = {id(each): _rounded(size_of(each)) for each in ranges}
    lanes: tuple[list[Range], list[Range]] = ([], [])
    for each in ranges:
        lanes[slow(each)].append(each)
    steady, apart = lanes
    if count < 2 or not steady or not apart:  # noqa: PLR2004 - two lanes
        return _spread(ranges, count, sized)
    part = sum(sized[id(each)] for each in apart) / max(1, sum(sized.values()))
    wanted = max(1, min(round(part * count), count // 2))
    # Neither lane has more tasks than ranges.
    of_apart = max(count - len(steady), min(wanted, len(apart)))
    return [*_spread(steady, count - of_apart, sized), *_spread(apart, of_apart, sized)]


def _rounded(size: int) -> int:
    """``size`` by its first bits."""
    cut = max(0, size.bit_length() - _BITS)
    return size >> cut << cut


def _spread(ranges: Sequence[Range], count: int, sized: dict[int, int]) -> list[list[Range]]:
    packed: list[list[Range]] = [[] for _ in range(count)]
    # The number of ranges breaks ties, so that ranges without records are spread as well.
    emptiest = [(0, 0, task) for task in range(count)]
    for each in sorted(ranges, key=lambda r: (-sized[id(r)], r.topic, r.partition)):
        backlog, held, task = emptiest[0]
        packed[task].append(each)
        heapq.heapreplace(emptiest, (backlog + sized[id(each)], held + 1, task))
    return packed
