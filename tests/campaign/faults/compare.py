"""Whether a target's partition holds what it should: nothing lost, doubled, out of order or changed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NUMBER: Final = "number"
"""The header by which a record is known, whatever else is in it; no two records of a campaign have the same."""
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Record:
    """What a reader sees of it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int

    @property
    def number(self) -> int:
        return next((int(value or b"-1") for name, value in self.headers if name == NUMBER), -1)


def difference(expected: Sequence[Record], actual: Sequence[Record]) -> str:
    """What is wrong with ``actual``, in one line; an empty text where nothing is."""
    if list(expected) == list(actual):
        return ""
    wanted, there = [one.number for one in expected], [one.number for one in actual]
    lost = sorted((Counter(wanted) - Counter(there)).elements())
    more = Counter(there) - Counter(wanted)
    doubled = sorted(number for number in more if number in set(wanted))
    strange = sorted(number for number in more if number not in set(wanted))
    said = [_said(what, which) for what, which in (("lost", lost), ("doubled", doubled), ("strange", strange)) if which]
    if not said:
        place = next((n for n, (one, other) in enumerate(zip(wanted, there, strict=True)) if one != other), None)
        said = [_changed(expected, actual) if place is None else f"out of order from place {place} on"]
    return f"{len(actual)} records, not {len(expected)}: {'; '.join(said)}"


def of_remade(
    old: Sequence[Record], new: Sequence[Record], actual: Sequence[Record], *, goes_on: bool
) -> tuple[str, int]:
    """What is wrong with the copy of a topic that was deleted and made again; how many of the old records it has.

    What had not been copied of the ``old`` is gone, and no more than a beginning of it may be there. ``goes_on``: with
    all of the ``new`` behind it; else the copy stands still.
    """
    numbers = {one.number for one in old}
    kept = next((n for n, one in enumerate(actual) if one.number not in numbers), len(actual))
    return difference([*old[:kept], *(new if goes_on else ())], actual), kept


def _said(what: str, numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > _NAMED else ""
    return f"{len(numbers)} {what} ({', '.join(map(str, numbers[:_NAMED]))}{more})"


def _changed(expected: Sequence[Record], actual: Sequence[Record]) -> str:
    one, other = next((a, b) for a, b in zip(expected, actual, strict=True) if a != b)
    fields = [name for name in Record.__slots__ if getattr(one, name) != getattr(other, name)]
    return f"{', '.join(fields)} of record {one.number} changed"
