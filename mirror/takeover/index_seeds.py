"""Makes the first segments of a flow's offset index of MirrorMaker 2's offset syncs, and of the copies that were found.

Each sync says where one record was copied to. What is between two of them, readers find in both logs as anywhere else.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mirror.relay.offsets.extents import Extent, span_of
from mirror.relay.offsets.segments import Segment, segment_of
from mirror.relay.progress.anchors import Anchor
from mirror.takeover.matching import Pair

MOST_NEAR: Final = 16
"""So many of the last syncs are kept, half as many for each doubling of their number before them, and the first one.

Readers hold the index of all partitions in memory, with about 0.5 KB for each sync."""


def counting(pairs: Iterable[Pair]) -> list[Pair]:
    """Return those ``pairs``, which are in the order of their log, that hold for the target's present log.

    MirrorMaker 2 begins again at an earlier record after a crash: of records that it has copied twice, the last copies
    count. One that is copied to an earlier place of the target is in another log than those before it.
    """
    kept: list[Pair] = []
    for pair in pairs:
        while kept and kept[-1].source >= pair.source:
            kept.pop()
        if kept and kept[-1].target >= pair.target:
            kept.clear()
        kept.append(pair)
    return kept


def thinned(pairs: Sequence[Pair]) -> list[Pair]:
    """Return :data:`MOST_NEAR` of the last pairs, half as many for each doubling of their number, and the first one."""
    last = len(pairs) - 1
    return [pair for position, pair in enumerate(pairs) if position == 0 or _is_kept(last - position)]


def _is_kept(distance: int) -> bool:
    step = 1 << max(0, (distance // MOST_NEAR).bit_length())
    return distance < MOST_NEAR or distance % step == 0


def segments(pairs: Iterable[Pair], extents: Sequence[Extent], start: Pair | None, end: Anchor) -> list[Segment]:
    """Return the segments of a partition that was taken over at ``end``, in order.

    ``pairs`` are all syncs, in the order of their log; those in front of ``start`` count, which is the place from which
    on ``extents`` were found. Without one no pair is known to be right.
    """
    found: list[Segment] = []
    if start is not None:
        in_front = (one for one in pairs if one.source < start.source and one.target < start.target)
        for pair in thinned(counting(in_front)):
            spans = span_of(pair.source, pair.source + 1, pair.target, [Extent(*pair, 1)])
            found += [segment_of(span, end) for span in spans]
    known = [extent for extent in extents if extent.source + extent.length <= end.offset]
    if start is not None:
        known.insert(0, Extent(*start, 1))
    if known:
        first = known[0]
        found += [segment_of(span, end) for span in span_of(first.source, end.offset, first.target, known)]
    return found
