"""One partition on both clusters, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from tests.copying.pair import Seen


class Comparison(NamedTuple):
    """What the target has beside one copy of each record of the source, and what it lacks."""

    doubled_by_mirrormaker: int
    """Copies beyond the first one that lie in the same range of MirrorMaker 2 as the copy before."""
    doubled: int
    """All others: such a record was copied on both sides of a change between MirrorMaker 2 and the flow, or twice by
    the flow."""
    missing: Counter[Seen]
    foreign: Counter[Seen]
    """Records that the source does not have, such as those of aborted transactions."""
    in_order: bool
    """Whether the first copies are in the source's order."""


def compared(source: Sequence[Seen], target: Sequence[tuple[int, Seen]], by_mirrormaker: Sequence[range]) -> Comparison:
    """Compare the committed records of a source partition with those of its target, which have offsets.

    ``by_mirrormaker`` are the offsets of the target that only MirrorMaker 2 has written, one range for each time
    between a hand back, or its first start, and the takeover that followed.
    """
    wanted, present = Counter(source), Counter[Seen]()
    doubled = [0, 0]
    firsts, last = list[Seen](), dict[Seen, int]()
    for offset, record in target:
        present[record] += 1
        if present[record] <= wanted[record]:
            firsts.append(record)
        elif record in wanted:
            doubled[any(offset in own and last[record] in own for own in by_mirrormaker)] += 1
        last[record] = offset
    copied = present & wanted
    return Comparison(
        doubled_by_mirrormaker=doubled[True],
        doubled=doubled[False],
        missing=wanted - present,
        foreign=Counter({record: count for record, count in present.items() if record not in wanted}),
        in_order=firsts == list(islice((record for record in source if record in copied), len(firsts))),
    )
