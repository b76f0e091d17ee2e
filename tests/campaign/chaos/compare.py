"""Compares a target's partition with what it should hold: nothing lost, duplicated, out of order or changed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NUMBER: Final = "number"
"""The header that identifies a record. No two records of a campaign have the same number."""
_MAX_NUMBERS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Record:
    """What a consumer receives of a record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int

    @property
    def number(self) -> int:
        return next((int(value or b"-1") for name, value in self.headers if name == NUMBER), -1)


def difference(expected: Sequence[Record], actual: Sequence[Record]) -> str:
    """Describe in one line what is wrong with ``actual``; an empty text where nothing is."""
    if list(expected) == list(actual):
        return ""
    wanted, found = [record.number for record in expected], [record.number for record in actual]
    lost = sorted((Counter(wanted) - Counter(found)).elements())
    more = Counter(found) - Counter(wanted)
    duplicated = sorted(number for number in more if number in set(wanted))
    unknown = sorted(number for number in more if number not in set(wanted))
    kinds = (("lost", lost), ("duplicated", duplicated), ("unknown", unknown))
    faults = [_described(kind, numbers) for kind, numbers in kinds if numbers]
    if not faults:
        place = next((n for n, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other), None)
        faults = [_changed(expected, actual) if place is None else f"out of order from place {place} on"]
    return f"{len(actual)} records, not {len(expected)}: {'; '.join(faults)}"


def recreated_difference(
    old: Sequence[Record], new: Sequence[Record], actual: Sequence[Record], *, resumes: bool
) -> tuple[str, int]:
    """Describe what is wrong with the copy of a recreated topic, and return how many ``old`` records it has.

    Old records that were not copied before the deletion are lost, so that the copy begins with some of the ``old``
    ones. All ``new`` ones follow where the copy ``resumes``, and none otherwise.
    """
    numbers = {record.number for record in old}
    copied = next((n for n, record in enumerate(actual) if record.number not in numbers), len(actual))
    return difference([*old[:copied], *(new if resumes else ())], actual), copied


def _described(kind: str, numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > _MAX_NUMBERS_SHOWN else ""
    return f"{len(numbers)} {kind} ({', '.join(map(str, numbers[:_MAX_NUMBERS_SHOWN]))}{more})"


def _changed(expected: Sequence[Record], actual: Sequence[Record]) -> str:
    wanted, found = next((a, b) for a, b in zip(expected, actual, strict=True) if a != b)
    fields = [name for name in Record.__slots__ if getattr(wanted, name) != getattr(found, name)]
    return f"{', '.join(fields)} of record {wanted.number} changed"
