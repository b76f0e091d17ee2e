"""Decides whether compaction explains that one side lacks a record. Pure.

Compaction leaves a gap in the offsets, and removes a record only because a later one has its key; a deletion (null) is
removed after ``delete.retention.ms`` without that, but not before all earlier records with its key are. So what a log
lacks needs an offset that is free there, and a later record with its key, which may come long after it; and the log may
not end with an earlier value of a key whose deletion it lacks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from mirror.verify.items import Item

_MAX_KEYS: Final = 200_000


# Invariant: Compaction explains a missing record only if its offset is free and a later record has its key, so that the
#   last state of a key cannot differ unnoticed.
# Test: tests/verify/test_compacted_logs.py::test_no_compaction_of_either_side_raises_an_alarm
# Test: tests/verify/test_compacted_logs.py::test_the_last_value_of_a_key_that_the_target_lacks_is_found
# Test: tests/verify/test_compacted_logs.py::test_deletion_that_the_target_lacks_beside_the_value_is_found
class Removals:
    """The records that one compacted log lacks, of which no later record was seen yet."""

    def __init__(self) -> None:
        self._waiting: Final = OrderedDict[bytes, list[tuple[Item, int]]]()
        self._deletions: Final = OrderedDict[bytes, tuple[Item, int]]()
        """The last deletion of each key that the log lacks, and of which it may have the value."""
        self._free = 0
        self.forgotten = 0
        """So many records had to be forgotten before a later one was seen."""

    @property
    def waits(self) -> bool:
        """Whether the keys of later records are needed."""
        return bool(self._waiting)

    def begin(self, before: int, after: int, records: int) -> None:
        """What follows is between the offsets ``before`` and ``after`` of the log, which has ``records`` there."""
        self._free = after - before - 1 - records

    def explains(self, item: Item, after: int) -> bool:
        """Whether ``item`` may have been removed there, in front of the log's record at the offset ``after``.

        It is to be superseded then, or if it is a deletion, the log may not have the value: see :meth:`unexplained`.
        """
        if item.record.key is None or self._free <= 0:
            return False
        self._free -= 1
        if item.record.value is None:
            self.seen(item.record.key)
            self._deletions[item.record.key] = item, after
            if len(self._deletions) > _MAX_KEYS:
                self._deletions.popitem(last=False)
                self.forgotten += 1
        else:
            self._waiting.setdefault(item.record.key, []).append((item, after))
            if len(self._waiting) > _MAX_KEYS:
                self.forgotten += len(self._waiting.popitem(last=False)[1])
        return True

    def seen(self, key: bytes | None) -> None:
        """A later record has this key."""
        if key is not None and self._waiting:
            self._waiting.pop(key, None)

    @property
    def lacks_deletions(self) -> bool:
        """Whether :meth:`unexplained` needs the records of the log again."""
        return bool(self._deletions)

    def unexplained(self, log: Iterable[Item]) -> list[tuple[Item, int]]:
        """Return the last record of each key that no later one supersedes, with the log's next offset.

        It has superseded the earlier ones itself, before it was lost. The same for deletions, of which the ``log``,
        read again from its beginning, has the value.
        """
        values: dict[bytes, int] = {}
        for item in log:
            key = item.record.key
            if key is not None and key in self._deletions:
                values[key] = -1 if item.record.value is None else item.offset
        left = [entries[-1] for entries in self._waiting.values()]
        return left + [one for key, one in self._deletions.items() if 0 <= values.get(key, -1) < one[1]]
