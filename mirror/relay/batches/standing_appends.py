"""Finds what still stands of a copy in a target partition that has lost records, up to a fence's marker. Pure.

Here the start is an anchor, which is exact: everything that the copy wrote behind it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mirror.relay.batches.appended import ExpectedRecords
from mirror.relay.batches.own_appends import OwnAppends, SeenBatch
from mirror.wire.records import Batch


# Invariant: Behind an anchor, everything committed counts as copied, also a transaction whose marker an election has
#   removed.
# Test: tests/relay/task/test_healing_on_fakes.py::test_records_of_a_transaction_whose_marker_is_lost_are_not_sent_again
class StandingAppends(OwnAppends):
    """Takes the batches of the log from the target offset ``start`` of an anchor on.

    Batches of other producers count here, too, until they are compared: a copy at least once, or one whose producer id
    has expired, may have written them.
    """

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

    def _may_count(self, batch: Batch) -> bool:
        del batch
        return True
