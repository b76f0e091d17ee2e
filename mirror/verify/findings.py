"""Collects what differs, and finds out what kind it is. Pure.

A record that one side lacks at one place, and that the other has at another, was moved: whichever comes first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.verify.items import Item, digest_of, excerpts_of
from mirror.verify.values import Difference, Kind, Named, Rules

_MAX_UNSETTLED: Final = 100_000
"""So many foreign records are remembered that may be permitted: one may have been moved, or be a repetition."""


class _Place(NamedTuple):
    """Where a foreign record of the target is, and whether it is permitted there."""

    target: int
    source: int
    """The source's next offset."""
    is_permitted: bool


class EnoughFound(Exception):
    """There are as many findings as are collected."""


@dataclass(slots=True)
class _Finding:
    kind: Kind
    source_offset: int
    target_offset: int
    digest: bytes
    parts: tuple[str, ...] = ()
    excerpts: tuple[str, str] | None = None
    count: int = 1


@dataclass(slots=True)
class _Unmatched:
    """Findings of one side that the other side may still have, by digest and timestamp."""

    by_digest: defaultdict[bytes, deque[tuple[int | None, _Finding]]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def add(self, item: Item, finding: _Finding) -> None:
        self.by_digest[finding.digest].append((item.record.timestamp_ms if item.has_time else None, finding))

    def pop(self, digest: bytes, timestamp_ms: int | None) -> _Finding | None:
        """Return and forget the first one; if both have a timestamp, it must be the same."""
        waiting = self.by_digest.get(digest, ())
        for at, (time_ms, finding) in enumerate(waiting):
            if timestamp_ms is None or time_ms in {timestamp_ms, None}:
                del self.by_digest[digest][at]
                return finding
        return None


class Findings:
    """The findings of one partition."""

    def __init__(self, rules: Rules, named: Counter[Named]) -> None:
        self._rules: Final = rules
        self._named: Final = named
        self._all: Final[list[_Finding]] = []
        self._missing: Final = _Unmatched()
        self._extra: Final = _Unmatched()
        self._unsettled: Final = OrderedDict[tuple[bytes, int | None], list[_Place]]()
        """Foreign records that may be repetitions, by digest and timestamp (None: not known)."""

    def __len__(self) -> int:
        return len(self._all)

    @property
    def any(self) -> bool:
        """Whether something differs."""
        return bool(self._all)

    def add_missing(self, item: Item, target_offset: int) -> None:
        """Add a record of the source that is not in the target, where ``target_offset`` is the next one."""
        digest = digest_of(item.record)
        moved = self._extra.pop(digest, item.record.timestamp_ms)
        if moved is None and (places := self._settled(digest, item.record.timestamp_ms)):
            moved = _Finding(Kind.FOREIGN, item.offset, places.pop().target, digest)
            self._add(moved)
            for place in places:  # they are repetitions of the one that was moved
                self._repeated(item.offset, place.target, digest)
        if moved is not None:
            moved.kind, moved.source_offset = Kind.ORDER, item.offset
            return
        finding = _Finding(Kind.MISSING, item.offset, target_offset, digest, excerpts=self._excerpts(item))
        if self._add(finding):
            self._missing.add(item, finding)

    def add_extra(self, item: Item, source_offset: int, first: int | None) -> None:
        """Add a record of the target that the source does not have there, where ``source_offset`` is the next one.

        ``first`` is the offset of an equal record of the source that the target has already; None if there is none.
        """
        digest = digest_of(item.record)
        moved = self._missing.pop(digest, item.record.timestamp_ms if item.has_time else None)
        if moved is not None:
            moved.kind, moved.target_offset = Kind.ORDER, item.offset
            return
        if first is not None and self._rules.repeats_allowed:
            self._named[Named.REPEATED] += 1
            return
        if first is None and self._may_be_permitted(item):
            self._remember(item, digest, source_offset)
            return
        kind, place = (Kind.FOREIGN, source_offset) if first is None else (Kind.DOUBLED, first)
        finding = _Finding(kind, place, item.offset, digest, excerpts=self._excerpts(None, item))
        if self._add(finding) and first is None:
            self._extra.add(item, finding)

    def add_changed(self, source: Item, target: Item, parts: tuple[str, ...]) -> None:
        """Add a record of which ``parts`` differ."""
        finding = _Finding(Kind.CONTENT, source.offset, target.offset, b"", parts)
        finding.excerpts = self._excerpts(source, target)
        self._add(finding)

    def add_damaged(self, source_offset: int, target_offset: int) -> None:
        """Add a batch of the target that cannot be read."""
        self._add(_Finding(Kind.CONTENT, source_offset, target_offset, b"", ("batch",)))

    def _may_be_permitted(self, item: Item) -> bool:
        room = len(self._unsettled) < _MAX_UNSETTLED
        return self._is_permitted(item) or (self._rules.repeats_allowed and room)

    def _is_permitted(self, item: Item) -> bool:
        """Whether others may have written it."""
        return self._rules.foreign_allowed and not item.by_flow

    def _remember(self, item: Item, digest: bytes, source_offset: int) -> None:
        place = _Place(item.offset, source_offset, self._is_permitted(item))
        self._named[Named.FOREIGN] += place.is_permitted
        key = digest, item.record.timestamp_ms if item.has_time else None
        self._unsettled.setdefault(key, []).append(place)
        if len(self._unsettled) > _MAX_UNSETTLED:
            self._unsettled.popitem(last=False)

    @property
    def unsettled(self) -> bool:
        """Whether foreign records may be repetitions: :meth:`settle` needs the source again."""
        return bool(self._unsettled)

    @property
    def unpermitted(self) -> list[int]:
        """The target offsets of those that are differences if they are no repetitions."""
        return [place.target for places in self._unsettled.values() for place in places if not place.is_permitted]

    def settle(self, item: Item) -> list[tuple[int, int]]:
        """Take a record of the source that was read again: foreign records that are equal repeat it.

        Return the source and target offsets of what is a difference. Raises EnoughFound.
        """
        digest = digest_of(item.record)
        places = self._settled(digest, item.record.timestamp_ms)
        for place in places:
            self._repeated(item.offset, place.target, digest)
        return [] if self._rules.repeats_allowed else [(item.offset, place.target) for place in places]

    def _repeated(self, source_offset: int, target_offset: int, digest: bytes) -> None:
        if self._rules.repeats_allowed:
            self._named[Named.REPEATED] += 1
        else:
            self._add(_Finding(Kind.DOUBLED, source_offset, target_offset, digest))

    def settle_rest(self) -> list[tuple[int, int]]:
        """Take what is left: it is not of the source. Return and raise as :meth:`settle`."""
        found = [
            (key[0], place) for key, places in self._unsettled.items() for place in places if not place.is_permitted
        ]
        for digest, place in found:
            self._add(_Finding(Kind.FOREIGN, place.source, place.target, digest))
        return [(place.source, place.target) for _, place in found]

    def _settled(self, digest: bytes, timestamp_ms: int) -> list[_Place]:
        """Return and forget the places of foreign records that are equal to one of the source."""
        keys = ((digest, timestamp_ms), (digest, None))
        places = [place for key in keys for place in self._unsettled.pop(key, ())]
        self._named[Named.FOREIGN] -= sum(place.is_permitted for place in places)
        return places

    def _excerpts(self, source: Item | None, target: Item | None = None) -> tuple[str, str] | None:
        if not self._rules.excerpts:
            return None
        return excerpts_of(source and source.record, target and target.record)

    def _add(self, finding: _Finding) -> bool:
        """Add it; return whether it stands for itself, and not as one more of the last one."""
        if len(self._all) < self._rules.max_findings:
            self._all.append(finding)
            return True
        last = self._all[-1]
        if not (last.kind is finding.kind is Kind.MISSING and last.target_offset == finding.target_offset):
            raise EnoughFound
        last.count += 1  # the end of a log that was cut off is counted, however long it is
        return False

    def differences(self) -> list[Difference]:
        """Return the differences by target offset, those in a row joined."""
        found = sorted(self._all, key=lambda one: (one.target_offset, one.source_offset))
        joined: list[Difference] = []
        last: _Finding | None = None
        for one in found:
            if last is not None and _continues(last, joined[-1].count, one):
                joined[-1] = _with_count(joined[-1], joined[-1].count + one.count)
            else:
                joined.append(
                    Difference(
                        one.kind,
                        one.source_offset,
                        one.target_offset,
                        one.count,
                        one.parts,
                        one.excerpts,
                        one.digest.hex(),
                    )
                )
                last = one
        return joined


def _continues(first: _Finding, count: int, one: _Finding) -> bool:
    """Whether ``one`` is the next of ``count`` findings in a row. Offsets may have gaps, where markers are."""
    if one.kind is not first.kind or one.parts != first.parts or one.excerpts is not None:
        return False
    if one.kind is Kind.MISSING:
        return one.target_offset == first.target_offset
    if one.kind is Kind.FOREIGN:
        return one.source_offset == first.source_offset
    return one.target_offset == first.target_offset + count and one.source_offset == first.source_offset + count


def _with_count(difference: Difference, count: int) -> Difference:
    return Difference(
        difference.kind,
        difference.source_offset,
        difference.target_offset,
        count,
        difference.parts,
        difference.excerpts,
        difference.digest,
    )
