"""One partition on both clusters, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from tests.copying.pair import Seen


class Comparison(NamedTuple):
    """What the target has beside one copy of each record of the source, and what it lacks."""

    doubled_before: int
    """Copies beyond the first one, in front of the offset that divides the target's log."""
    doubled_behind: int
    missing: Counter[Seen]
    foreign: Counter[Seen]
    """Records that the source does not have, such as those of aborted transactions."""
    in_order: bool
    """Whether the first copies are in the source's order."""


def compared(source: Sequence[Seen], target: Sequence[tuple[int, Seen]], divided_at: int) -> Comparison:
    """Compare the committed records of a source partition with those of its target, which have offsets.

    ``divided_at`` is an offset of the target.
    """
    wanted, present = Counter(source), Counter[Seen]()
    doubled = [0, 0]
    firsts = list[Seen]()
    for offset, record in target:
        present[record] += 1
        if present[record] <= wanted[record]:
            firsts.append(record)
        elif record in wanted:
            doubled[offset >= divided_at] += 1
    copied = present & wanted
    return Comparison(
        doubled_before=doubled[False],
        doubled_behind=doubled[True],
        missing=wanted - present,
        foreign=Counter({record: count for record, count in present.items() if record not in wanted}),
        in_order=firsts == list(islice((record for record in source if record in copied), len(firsts))),
    )
