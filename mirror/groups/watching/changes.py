"""Which groups the records of ``__consumer_offsets`` are about. Pure.

They are hints, never positions: a group that is named here is asked what it has committed. A record that cannot be
understood costs a round of all groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mirror.errors import MirrorError
from mirror.wire.decode import coded_records_of, records_of
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch

_OFFSET_COMMITS: Final = frozenset({0, 1})
"""Versions of ``OffsetCommitKey``: the topic names the type of its records by them."""
_OTHERS: Final = range(2, 24)
"""Those of groups, their members and their assignments: of the classic protocol, KIP-848, KIP-932 and KIP-1071."""
_PREFIX: Final = 4
"""A version, and the size of the group's name."""
_MOST_OPEN: Final = 10_000
"""Groups in open transactions that are remembered."""


class ParsedKey(NamedTuple):
    """The key of a record of ``__consumer_offsets``."""

    is_known: bool
    """Whether it is understood."""
    group: str | None = None
    """The group that has committed or deleted an offset; None if the record is about something else."""


_OTHER: Final = ParsedKey(is_known=True)
_UNKNOWN: Final = ParsedKey(is_known=False)


def parse_key(key: bytes | None) -> ParsedKey:
    """Parse a key. Never raises."""
    if key is None or len(key) < _PREFIX:
        return _UNKNOWN
    version = int.from_bytes(key[:2], signed=True)
    if version not in _OFFSET_COMMITS:
        return _OTHER if version in _OTHERS else _UNKNOWN
    end = _PREFIX + int.from_bytes(key[2:_PREFIX], signed=True)
    if not _PREFIX <= end <= len(key):
        return _UNKNOWN
    try:
        return ParsedKey(is_known=True, group=str(key[_PREFIX:end], "utf-8"))
    except UnicodeDecodeError:
        return _UNKNOWN


class Changes:
    """What was read of the partitions of ``__consumer_offsets``, in order, until it is taken.

    What a transaction has committed counts when its marker comes: before, a group is asked in vain.
    """

    def __init__(self) -> None:
        self._groups: set[str] = set()
        self._any = False
        self._open: dict[tuple[int, int], set[str]] = {}
        """The groups in open transactions, by partition and producer id."""

    def read(self, partition: int, batches: Iterable[AnyBatch]) -> None:
        """Read batches of a partition. Never raises for their content."""
        for batch in batches:
            try:
                self._read(partition, batch)
            except MirrorError:  # such as CorruptBatch
                self._any = True

    def lose(self) -> None:
        """What comes next is not known: any group may have changed."""
        self._any = True
        self._open.clear()

    def take(self) -> frozenset[str] | None:
        """Return the groups that have changed since the last call; None: any may have."""
        groups, self._groups = frozenset(self._groups), set()
        any_may_have, self._any = self._any, False
        return None if any_may_have else groups

    def _read(self, partition: int, batch: AnyBatch) -> None:
        if isinstance(batch, MessageSet):
            self._add(self._groups, (record.key for record in records_of(batch)))
            return
        transaction = partition, batch.producer_id
        if batch.is_control:
            begun = self._open.pop(transaction, None)
            # It may have begun in front of what was read.
            self._any |= begun is None
            self._groups |= begun or set()
        elif batch.is_transactional:
            self._add(self._open.setdefault(transaction, set()), (one.key for one in coded_records_of(batch)))
            if sum(map(len, self._open.values())) > _MOST_OPEN:
                self.lose()
        else:
            self._add(self._groups, (one.key for one in coded_records_of(batch)))

    def _add(self, groups: set[str], keys: Iterable[bytes | None]) -> None:
        last: bytes | None = None
        for key in keys:
            if last is not None and key is not None and key.startswith(last):
                continue  # a commit has a record for each partition, one behind the other
            found = parse_key(key)
            last = None if key is None or found.group is None else key[: _PREFIX + int.from_bytes(key[2:_PREFIX])]
            if found.group is not None:
                groups.add(found.group)
            self._any |= not found.is_known
