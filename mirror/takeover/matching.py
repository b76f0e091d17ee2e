"""Finds in the target's tail what MirrorMaker 2 had copied behind its stored offset. Pure.

::

    source         96 97 98 99 │ 100 101 102 103 104 105 ...      stored offset: 99
    target      ── 96 97 98 99 │ 100 101 102 103 │ 100 101        killed, begun again at 100, killed again
                                             ▲
                                 next to copy: 104; 100 and 101 are there twice

Without exactly-once support it stores an offset every minute, and when it is stopped. What it copied since then is in
the target already, perhaps more than once. Records are compared by key, value, headers and, if the target keeps it,
timestamp.

A position is behind the last record up to which each record of the source has a copy, so that nothing is lost.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from mirror.relay.batches.appended import digest_of
from mirror.relay.offsets.extents import Extent
from mirror.wire.decode import Record

MAX_RECORDS: Final = 1_000_000
"""So many records of the target are compared at most. Their digests are kept, and their keys if the target is
compacted: about 300 bytes each."""
LOOKAHEAD: Final = 10_000
"""So many records of the source are read behind the last one that has a copy, to find copies behind a gap."""


STORE_FIRST: Final = "start MirrorMaker 2, stop it in order, so that it stores its position, and repeat the takeover"
"""What settles a partition whose stored position is too far behind."""


class Pair(NamedTuple):
    """The record at offset ``source`` was copied to offset ``target``, as an offset sync says."""

    source: int
    target: int


class Evidence(enum.StrEnum):
    """What the position of a match rests on. The values are published (``mirror takeover --json``)."""

    ANCHOR = "anchor"
    """An offset sync, or the beginning of both logs."""
    STORED_RECORD = "stored-record"
    """The records in front of the stored offset were found in the target."""
    STORED_OFFSET = "stored-offset"
    """The stored offset alone: the target has nothing that could be compared."""


class Match(NamedTuple):
    """What was found in one partition."""

    next_offset: int
    """The source offset to copy next. It is behind the stored offset at least."""
    target_end: int
    """The target offset behind the last copy of a record in front of ``next_offset``; 0 if there is none."""
    extents: tuple[Extent, ...]
    """Copies in the order of both logs: whatever follows a record in the source also follows its copy in the target.

    Where a record has more than one such copy, the last of them counts.
    """
    copies: int
    """How many of the target's records are copies of records in front of ``next_offset``."""
    repeated: int
    """How many of them MirrorMaker 2 had copied before."""
    unmatched: int
    """How many of the target's records are no copies of what was read of the source.

    Others may have written them, the source may have removed the records, or their transactions were aborted.
    """
    may_double: int
    """How many of them may be copies of records from ``next_offset`` on, which will be there once more then.

    It is 0 but where MirrorMaker 2's producer does not keep the order, or records are equal and nothing proves which
    of them were copied.
    """
    evidence: Evidence


class Unsettled(NamedTuple):
    """No position is right for certain."""

    reason: str


def anchors_of(pairs: Iterable[Pair], stored: int) -> list[Pair]:
    """Return the pairs behind which all copies of records behind the offset ``stored`` are, the last one first.

    ``pairs`` are a partition's offset syncs in the order of their log. The first one of the result is not simply the
    last pair that is not behind ``stored``: such a pair may come from a second attempt, in front of which are copies of
    the first one.
    """
    found: list[Pair] = []
    for pair in pairs:
        # Between two pairs, the target has no copy behind this offset: each gap in the source makes a pair of its own.
        between = found[-1].source + pair.target - found[-1].target - 1 if found else pair.source
        if max(pair.source, between) > stored:
            break
        found.append(pair)
    return found[::-1]


# Invariant: The position of a takeover is behind the last record up to which each record of the source has a copy of
#   its own: nothing is lost, and nothing is doubled beyond what MirrorMaker 2 has doubled.
# Test: tests/takeover/test_matching.py::test_equal_records_are_never_lost_without_offset_syncs
# Test: tests/takeover/
#   test_matching.py::test_nothing_is_missing_and_nothing_is_there_twice_beyond_what_mirrormaker_doubled
def match_tail(
    source: Iterable[Record],
    target: Iterable[Record],
    *,
    stored: int,
    anchored: bool,
    timestamps: bool = True,
    compacted: bool = False,
) -> Match | Unsettled:
    """Return up to where ``target`` has copies of ``source``, or why that cannot be settled.

    ``source`` are the partition's records in order, without those of aborted transactions; it is read up to
    :data:`LOOKAHEAD` records behind the last one that has a copy. ``target`` are all records from some offset to the
    end of the log. ``stored`` is the offset that MirrorMaker 2 had stored, of the last record that it knows to be
    copied; -1 if it had stored none.

    ``anchored``: the first record of ``target`` is behind the copy of the record in front of ``source``, for certain,
    and no copy of later ones is in front of it. Otherwise ``source`` should begin some hundred records in front of
    ``stored``. ``timestamps``: false if the target's brokers replace them. ``compacted``: the target may have removed
    records that later ones with the same key follow.
    """
    tail = _Tail(islice(target, MAX_RECORDS + 1), timestamps=timestamps, keys=compacted)
    if len(tail.offsets) > MAX_RECORDS:
        return Unsettled(f"the target has more than {MAX_RECORDS} records that are to be compared: {STORE_FIRST}")
    log = _SourceLog(source, timestamps=timestamps, keys=compacted)
    stored_end = log.index_behind(stored)
    if anchored:
        start = _Start(0, 0, Evidence.ANCHOR)
    else:
        start = _behind_stored(log, tail, stored_end)
        if start.evidence is Evidence.STORED_OFFSET and stored_end and tail.offsets and not _any_copy(log, tail):
            return Unsettled(
                f"none of the target's last {len(tail.offsets)} records is a copy of a record around the stored offset "
                f"{stored}: one of the topics may have been made again, or MirrorMaker 2 copied to another one;"
                " compare the flow's naming with MirrorMaker 2's, or exclude the topic from the flow"
            )
    end = _covered_end(log, tail, start, stored_end, compacted=compacted)
    if compacted:
        end = max(stored_end, _without_stale_keys(log, tail, end))
    return _found(log, tail, end, stored, start.evidence)


class _SourceLog:
    """The source's records, read as far as needed, by index."""

    def __init__(self, records: Iterable[Record], *, timestamps: bool, keys: bool) -> None:
        self._records: Final = iter(records)
        self._timestamps: Final = timestamps
        self._keys: Final = keys
        self.offsets: Final[list[int]] = []
        self.digests: Final[list[bytes]] = []
        self.keys: Final[list[bytes | None]] = []
        """Null without ``keys``."""

    def has(self, index: int) -> bool:
        """Return whether there is a record at ``index``, after reading up to there."""
        for record in islice(self._records, max(0, index + 1 - len(self.offsets))):
            self.offsets.append(record.offset)
            self.digests.append(digest_of(record, timestamps=self._timestamps))
            self.keys.append(record.key if self._keys else None)
        return index < len(self.offsets)

    def index_behind(self, offset: int) -> int:
        """Return the index of the first record behind ``offset``."""
        index = 0
        while self.has(index) and self.offsets[index] <= offset:
            index += 1
        return index


class _Tail:
    """The target's last records, by index."""

    def __init__(self, records: Iterable[Record], *, timestamps: bool, keys: bool) -> None:
        self.offsets: Final[list[int]] = []
        self.digests: Final[list[bytes]] = []
        self.keys: Final[list[bytes | None]] = []
        """Null without ``keys``."""
        self.places: Final[dict[bytes, list[int]]] = defaultdict(list)
        """The indexes of each digest, in order."""
        for index, record in enumerate(records):
            digest = digest_of(record, timestamps=timestamps)
            self.offsets.append(record.offset)
            self.digests.append(digest)
            self.keys.append(record.key if keys else None)
            self.places[digest].append(index)


class _Start(NamedTuple):
    """All copies of the source's records from ``source`` on that count are from ``target`` on (indexes)."""

    source: int
    target: int
    evidence: Evidence


def _behind_stored(log: _SourceLog, tail: _Tail, stored_end: int) -> _Start:
    """Begin behind the last copy of the last record up to the stored offset that has one.

    Earlier copies of it are not considered: a record that equals it may have been copied long before it.
    """
    for index in reversed(range(stored_end)):
        if places := tail.places.get(log.digests[index]):
            return _Start(index + 1, places[-1] + 1, Evidence.STORED_RECORD)
    return _Start(stored_end, len(tail.offsets), Evidence.STORED_OFFSET)


def _any_copy(log: _SourceLog, tail: _Tail) -> bool:
    log.has(LOOKAHEAD)
    return any(digest in tail.places for digest in log.digests)


def _covered_end(log: _SourceLog, tail: _Tail, start: _Start, stored_end: int, *, compacted: bool) -> int:
    """Return the index behind the last record up to which all have copies, each its own one."""
    end = start.source
    copied = set(log.digests[:end])
    spare: Counter[bytes] = Counter()
    for digest in islice(tail.digests, start.target, None):
        if log.has(end) and log.digests[end] == digest:
            copied.add(digest)
            end += 1
        elif digest not in copied:
            spare[digest] += 1
    return _covered_by_spare(log, end, spare, stored_end, set(tail.keys[start.target :]) if compacted else set())


def _covered_by_spare(
    log: _SourceLog, end: int, spare: Counter[bytes], stored_end: int, later_keys: set[bytes | None]
) -> int:
    """Return :func:`_covered_end` where copies are out of order or removed, as from the index ``end`` on.

    ``spare`` are the digests of records of the target that are no copies of records in front of ``end``. Of a key in
    ``later_keys``, earlier records may have been removed.
    """
    superseded: set[bytes | None] = set()
    index, last = end, max(end, stored_end)
    while log.has(index) and index - last <= LOOKAHEAD:
        if spare[log.digests[index]] > 0:
            spare[log.digests[index]] -= 1
            superseded.discard(log.keys[index])
            last = max(last, index)
        elif index >= stored_end:
            if log.keys[index] not in later_keys:
                break
            superseded.add(log.keys[index])
        index += 1
        if not superseded:
            end = index
    return end


# Invariant: A compacted target ends with the last value of each key: what follows an older value is copied once more.
# Test: tests/takeover/test_matching.py::test_compacted_target_ends_with_the_last_value_of_each_key
def _without_stale_keys(log: _SourceLog, tail: _Tail, end: int) -> int:
    """Return the index, up to ``end``, from which a copy gives each key its last value.

    An attempt that began again and was killed early leaves older values at the end, and a compacted topic keeps these.
    """
    index_of = {digest: index for index, digest in enumerate(log.digests[:end])}
    behind = set(log.digests[end:])
    # What is no copy of these records may be one of an earlier record: then all of them have to follow it.
    standing = {
        key: index_of.get(digest, -1)
        for key, digest in zip(tail.keys, tail.digests, strict=True)
        if digest in index_of or digest not in behind
    }
    return min((index for index, key in enumerate(log.keys[:end]) if standing.get(key, index) < index), default=end)


def _found(log: _SourceLog, tail: _Tail, end: int, stored: int, evidence: Evidence) -> Match:
    log.has(end + LOOKAHEAD)
    before, behind = Counter(log.digests[:end]), Counter(log.digests[end:])
    copies = repeated = may_double = 0
    for digest, places in tail.places.items():
        own = min(len(places), before[digest])
        again = min(len(places) - own, behind[digest])
        may_double += again
        if own:
            copies += len(places) - again
            repeated += len(places) - own - again
    last = max((tail.places[digest][-1] for digest in before if digest in tail.places), default=None)
    return Match(
        next_offset=_next_offset(log, end, stored),
        target_end=0 if last is None else tail.offsets[last] + 1,
        extents=tuple(_extents(log, tail, end)),
        copies=copies,
        repeated=repeated,
        unmatched=len(tail.offsets) - copies - may_double,
        may_double=may_double,
        evidence=evidence,
    )


def _next_offset(log: _SourceLog, end: int, stored: int) -> int:
    if end:
        return max(stored, log.offsets[end - 1]) + 1
    return stored + 1 if stored >= 0 or not log.offsets else log.offsets[0]


def _extents(log: _SourceLog, tail: _Tail, end: int) -> Iterator[Extent]:
    """Yield the copies that count. Backwards, each is the last copy in front of the copy of the next record."""
    bound = len(tail.offsets)
    pairs: list[Pair] = []
    for index in reversed(range(end)):
        places = tail.places.get(log.digests[index], [])
        if at := bisect_left(places, bound):
            bound = places[at - 1]
            pairs.append(Pair(log.offsets[index], tail.offsets[bound]))
    extent: Extent | None = None
    for pair in reversed(pairs):
        if extent and pair == (extent.source + extent.length, extent.target + extent.length):
            extent = extent._replace(length=extent.length + 1)
        else:
            if extent:
                yield extent
            extent = Extent(*pair, 1)
    if extent:
        yield extent
