"""Finds what still stands of a copy in a target partition that has lost records, up to a fence's marker. Pure.

Here the start is an anchor, which is exact: everything that the copy wrote behind it counts, also what it committed in
transactions. If an election has removed a transaction's marker, the fence's own marker commits its records, as the
broker does: nothing else can end them. What no marker ends is in no reader's records, and does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from mirror.producer.batch.queue import ProducerId
from mirror.relay.batches.appended import ExpectedRecords
from mirror.relay.batches.own_appends import OwnAppends, SeenBatch
from mirror.wire.records import AnyBatch, Batch, is_commit_marker


class StandingAppends(OwnAppends):
    """Takes the batches of the log from the target offset ``start`` of an anchor on.

    Batches of other producers count here, too, until they are compared: a copy at least once, or one whose producer id
    has expired, may have written them.
    """

    def __init__(self, start: int, producer_ids: Collection[int], fence: ProducerId) -> None:
        super().__init__(start, producer_ids, fence)
        self._open: Final[dict[int, list[SeenBatch]]] = {}
        self._void: Final[set[int]] = set()
        """The base offsets of batches that were aborted, or that no marker ends."""

    def add(self, batches: Iterable[AnyBatch]) -> bool:
        """As :meth:`OwnAppends.add`."""
        for batch in batches:
            if not isinstance(batch, Batch) or batch.next_offset <= self.start:
                continue
            if batch.is_control:
                self._end_transaction(batch)
                if self._is_fence(batch):
                    for batches_left in self._open.values():
                        self._void.update(one.base_offset for one in batches_left)
                    return self._on_fence(batch)
            elif batch.count > 0:
                if batch.is_transactional:
                    self._open.setdefault(batch.producer_id, []).append(SeenBatch.of(batch))
                else:
                    self._count(SeenBatch.of(batch))
        return False

    def _end_transaction(self, marker: Batch) -> None:
        ended = self._open.pop(marker.producer_id, [])
        if not is_commit_marker(marker):
            self._void.update(one.base_offset for one in ended)
            return
        for batch in ended:
            self._count(batch)

    def is_known(self, batch: Batch) -> bool:
        """Whether a producer that is known to be this copy's appended ``batch``."""
        return batch.producer_id in self._producer_ids

    def known(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield those of ``batches`` that a known producer appended, and take the last of them for the last append."""
        self.last = None
        for batch in batches:
            if self.is_known(batch):
                self.last = SeenBatch.of(batch).append
                yield batch

    def copied(self, batches: Iterable[Batch], expected: ExpectedRecords) -> Iterator[Batch]:
        """As :meth:`known`, with the batches of other producers that begin with the record that is expected there.

        Who wrote them does not matter: the record is there.
        """
        self.last = None
        for batch in batches:
            if self.is_known(batch) or expected.is_next(batch):
                self.last = SeenBatch.of(batch).append
                yield batch

    def _counts(self, batch: Batch) -> bool:
        return batch.count > 0 and batch.base_offset not in self._void
