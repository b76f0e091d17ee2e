"""Finds the next common record of two windows, and which of the records before it are changed ones. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from mirror.verify.items import Item, digest_of

_MAX_CELLS: Final = 40_000
"""A larger block is paired from its beginning on: the table of all pairs would not fit into memory."""


class Common(NamedTuple):
    """Where the next common record is: its indexes in two windows, or its offsets."""

    source: int
    target: int


class Pair(NamedTuple):
    """A record of the source and what stands in its place; one of them may be missing."""

    source: Item | None
    target: Item | None


class Keys:
    """The keys by which the records of one window are found in the other, each computed once."""

    def __init__(self) -> None:
        self._digests: Final[dict[int, bytes]] = {}

    def of(self, item: Item, *, timed: bool) -> Hashable:
        """Return the key of a record; not ``timed``, its timestamp does not count."""
        digest = self._digests.get(id(item))
        if digest is None:
            digest = self._digests[id(item)] = digest_of(item.record)
        return (digest, item.record.timestamp_ms) if timed else digest


def find_common(
    source: Sequence[Item], target: Sequence[Item], keys: Keys, *, timed: bool, min_sum: int = 0
) -> Common | None:
    """Return the common record with the smallest sum of indexes, which is at least ``min_sum``; None if there is none.

    So that the fewest records differ in front of it.
    """
    first: dict[Hashable, int] = {}
    for at, item in enumerate(target):
        first.setdefault(keys.of(item, timed=timed), at)
    best: Common | None = None
    for at, item in enumerate(source):
        if best is not None and at >= best.source + best.target:
            break
        found = first.get(keys.of(item, timed=timed))
        if found is not None and min_sum <= at + found and (best is None or at + found < best.source + best.target):
            best = Common(at, found)
    return best


def pair_up(source: Sequence[Item], target: Sequence[Item], *, by_key: bool) -> list[Pair]:
    """Pair records that have something in common, in order, so that they have the most; the others stay alone.

    ``by_key``: only records with the same key are pairs, as compaction may have removed others.
    """
    if not source or not target:
        return [Pair(item, None) for item in source] + [Pair(None, item) for item in target]
    if len(source) * len(target) > _MAX_CELLS:
        return _paired_in_turn(source, target, by_key=by_key)
    # best[i][j]: the most that source[i:] and target[j:] can have in common.
    best = [[0] * (len(target) + 1) for _ in range(len(source) + 1)]
    scores = [[_likeness(one, other, by_key=by_key) for other in target] for one in source]
    for i in range(len(source) - 1, -1, -1):
        for j in range(len(target) - 1, -1, -1):
            paired = best[i + 1][j + 1] + scores[i][j] if scores[i][j] else 0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < len(source) and j < len(target):
        if scores[i][j] and best[i][j] == best[i + 1][j + 1] + scores[i][j]:
            pairs.append(Pair(source[i], target[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            pairs.append(Pair(source[i], None))
            i += 1
        else:
            pairs.append(Pair(None, target[j]))
            j += 1
    return pairs + [Pair(item, None) for item in source[i:]] + [Pair(None, item) for item in target[j:]]


def _paired_in_turn(source: Sequence[Item], target: Sequence[Item], *, by_key: bool) -> list[Pair]:
    pairs: list[Pair] = []
    for one, other in zip(source, target, strict=False):
        if _likeness(one, other, by_key=by_key):
            pairs.append(Pair(one, other))
        else:
            pairs += [Pair(one, None), Pair(None, other)]
    common = min(len(source), len(target))
    return pairs + [Pair(item, None) for item in source[common:]] + [Pair(None, item) for item in target[common:]]


def _likeness(source: Item, target: Item, *, by_key: bool) -> int:
    """Return how much two records have in common; 0 if they are no pair."""
    one, other = source.record, target.record
    same_key = one.key is not None and one.key == other.key
    if by_key and not same_key:
        return 0
    score = 4 if same_key else 0
    if one.value == other.value and one.value is not None:
        score += 4
    if target.has_time and one.timestamp_ms == other.timestamp_ms:
        score += 2
    if one.headers and tuple(one.headers) == tuple(other.headers):
        score += 1
    return score


def places_of(pairs: Sequence[Pair], following: Common) -> list[Common]:
    """Return for each pair the offsets of what follows it; ``following`` are those behind the last one."""
    places: list[Common] = []
    for one, other in reversed(pairs):
        places.append(following)
        following = Common(
            following.source if one is None else one.offset, following.target if other is None else other.offset
        )
    places.reverse()
    return places
