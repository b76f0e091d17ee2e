"""Compares what one target partition has with what was committed there. Pure: `now` is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from mirror.consumer.fetched import Fetched, without_aborted
from mirror.errors import CorruptBatch
from mirror.relay.readback.result import MAX_FOUND, Difference, DifferenceKind, ReadBackResult, Unverified
from mirror.relay.readback.written import NO_OFFSET, WrittenBatch
from mirror.wire.records import CODEC_MASK, DELETE_HORIZON, AnyBatch, Batch

MAX_PENDING: Final = 2_000
"""So many committed batches of a partition wait to be read back at most: 0.5 MB. Of more, the oldest are left out."""
MAX_LAG_MS: Final = 60_000
"""What could not be read back so long after its commit is left out."""
_MAX_REMEMBERED: Final = 64
"""Of so many batches the digest is remembered, so that another batch with the same records is recognized."""

_Digest = tuple[int, int, int, int]


class PartitionReadBack:
    """What is to be read back of one partition, and what came of it.

    :attr:`fetch_offset` says from which target offset on to fetch; what was fetched goes to :meth:`on_fetched`.
    """

    def __init__(self, mode: str, *, compacted: bool, exactly_once: bool) -> None:
        """``mode`` is "sample" or "all"; ``compacted``: the target topic is. At least once, repeats are legitimate."""
        self.result: Final = ReadBackResult(mode)
        self._in_order: Final = mode == "all"
        self._compacted: Final = compacted
        self._finds_doubles: Final = self._in_order and exactly_once
        self._pending: Final = deque[tuple[WrittenBatch, int]]()
        """With the time of the commit (monotonic ms)."""
        self._remembered: Final = dict[_Digest, WrittenBatch]()
        self._between: Final = list[tuple[int, _Digest]]()
        """Batches in front of the next expected one that the copy did not append: target offset and digest."""
        self._follows = False
        """Whether the last expected batch was read, so that what comes behind it is known."""
        self._read_to = 0
        """The target offset behind the last batch that was read."""
        self._found: Final = list[Difference]()
        self.added = 0
        """How many batches were to be read back in all."""

    # --- what is to be read

    def add(self, written: Sequence[WrittenBatch], now: int) -> None:
        """Expect these batches, which were committed at ``now``, in the order of their offsets."""
        self.added += len(written)
        for batch in written:
            if batch.target_offset == NO_OFFSET:
                self.result.skip(Unverified.NO_OFFSET)
                continue
            self._pending.append((batch, now))
            if self._finds_doubles:
                self._remember(batch)
        while len(self._pending) > MAX_PENDING:
            self._leave_out(Unverified.BEHIND)

    @property
    def fetch_offset(self) -> int | None:
        """The target offset from which on to fetch; None if nothing is to be read."""
        if not self._pending:
            return None
        wanted = self._pending[0][0].target_offset
        return min(self._read_to, wanted) if self._in_order and self._follows else wanted

    @property
    def pending(self) -> int:
        """How many batches are still to be read."""
        return len(self._pending)

    def take_differences(self) -> list[Difference]:
        """Return the differences that were found since the last call."""
        found, self._found[:] = list(self._found), []
        return found

    # --- what was read

    def on_fetched(self, fetched: Fetched) -> None:
        """Compare the batches of ``fetched`` with those that are pending."""
        self._read_to = fetched.offset
        for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
            if not self._pending:
                return
            self._on_batch(batch, fetched.log_start_offset, aborted=aborted)
            self._read_to = max(self._read_to, batch.next_offset)
        self._read_to = max(self._read_to, fetched.next_offset)

    def on_corrupt(self, reason: str) -> None:
        """The broker's response has no valid batch at :attr:`fetch_offset`."""
        if self._pending:
            wanted, _ = self._pending.popleft()
            self._differ(DifferenceKind.CONTENT, wanted, reason)
            self._restart()

    @property
    def committed_end(self) -> int:
        """The target offset behind the last committed batch that is still to be read."""
        return self._pending[-1][0].target_end if self._pending else 0

    def on_bounds(self, log_start: int, log_end: int, asked_to: int) -> None:
        """The log is from ``log_start`` up to ``log_end``: what is not in it is gone.

        ``asked_to`` is :attr:`committed_end` from before the bounds were read: what was committed since is not in them.
        """
        while self._pending and self._pending[0][0].target_offset < log_start:
            self._miss(log_start)
        kept = list[tuple[WrittenBatch, int]]()
        for batch, committed_ms in self._pending:
            if log_end < batch.target_end <= asked_to:
                self._differ(DifferenceKind.MISSING, batch, f"the target's log ends at offset {log_end}")
                self._restart()
            else:
                kept.append((batch, committed_ms))
        self._pending.clear()
        self._pending.extend(kept)

    def leave_out_late(self, now: int) -> None:
        """Leave out what was committed too long ago."""
        while self._pending and now - self._pending[0][1] > MAX_LAG_MS:
            self._leave_out(Unverified.BEHIND)

    def leave_out_all(self, reason: Unverified) -> None:
        """Leave out everything that was not read yet."""
        while self._pending:
            self._leave_out(reason)

    def _leave_out(self, reason: Unverified) -> None:
        self._pending.popleft()
        self.result.skip(reason)
        self._restart()

    def _restart(self) -> None:
        self._follows = False
        self._between.clear()

    def _on_batch(self, batch: AnyBatch, log_start: int, *, aborted: bool) -> None:
        while self._pending and self._pending[0][0].target_end <= batch.base_offset:
            self._miss(log_start)
        if not self._pending:
            return
        wanted = self._pending[0][0]
        if batch.next_offset <= wanted.target_offset:
            self._on_unexpected(batch, aborted=aborted)
        elif not isinstance(batch, Batch) or batch.base_offset != wanted.target_offset:
            self._on_overlap(batch)
        else:
            self._pending.popleft()
            self._compare(wanted, batch, aborted=aborted)
            self._on_overlap(batch)

    def _on_unexpected(self, batch: AnyBatch, *, aborted: bool) -> None:
        """Keep the digest of a batch that was not appended by the copy, until the next one of the copy was read."""
        readable = isinstance(batch, Batch) and not (batch.is_control or aborted)
        if readable and self._in_order and self._follows:
            assert isinstance(batch, Batch)  # noqa: S101 - it is readable
            self._between.append((batch.base_offset, _digest_of(batch)))

    def _on_overlap(self, batch: AnyBatch) -> None:
        """No batch of the copy begins inside of another one."""
        while self._pending and self._pending[0][0].target_offset < batch.next_offset:
            wanted, _ = self._pending.popleft()
            reason = f"the batch there has the offsets {batch.base_offset} to {batch.next_offset - 1}"
            self._differ(DifferenceKind.CONTENT, wanted, reason)

    def _miss(self, log_start: int) -> None:
        wanted, _ = self._pending.popleft()
        if wanted.target_offset < log_start:
            self.result.skip(Unverified.DELETED)
        elif self._compacted:
            self.result.skip(Unverified.COMPACTED)
        else:
            self._differ(DifferenceKind.MISSING, wanted, "the target's log has no record there")
        self._restart()

    def _compare(self, wanted: WrittenBatch, batch: Batch, *, aborted: bool) -> None:
        self._check_between(wanted)
        self._follows = True
        if aborted:
            self._differ(DifferenceKind.MISSING, wanted, "it belongs to a transaction that was aborted")
            return
        if batch.is_control:
            self._differ(DifferenceKind.CONTENT, wanted, "a transaction's marker is there")
            return
        if batch.count != wanted.records or batch.next_offset != wanted.target_end:
            if self._compacted and batch.count < wanted.records:
                self.result.skip(Unverified.COMPACTED)
            else:
                self._differ(DifferenceKind.CONTENT, wanted, f"{batch.count} records are there, not {wanted.records}")
            return
        if self._compacted and batch.attributes & DELETE_HORIZON:
            self.result.skip(Unverified.COMPACTED)  # the cleaner has written another base timestamp, and other deltas
            return
        try:
            batch.verify()
        except CorruptBatch as error:
            self._differ(DifferenceKind.CONTENT, wanted, str(error))
            return
        if batch.attributes & CODEC_MASK != wanted.codec:
            self.result.skip(Unverified.RECOMPRESSED)
            return
        self._compare_records(wanted, batch)

    def _compare_records(self, wanted: WrittenBatch, batch: Batch) -> None:
        # A broker that sets the timestamps changes only the largest one in the header.
        if batch.base_timestamp != wanted.base_timestamp:
            reason = f"its timestamps begin at {batch.base_timestamp}, not {wanted.base_timestamp}"
            self._differ(DifferenceKind.CONTENT, wanted, reason)
        elif batch.size != wanted.size or batch.records_crc() != wanted.records_crc:
            self._differ(DifferenceKind.CONTENT, wanted, "the records there are others")
        else:
            self._verified(wanted)

    def _verified(self, wanted: WrittenBatch) -> None:
        result = self.result
        result.batches += 1
        result.records += wanted.records
        result.bytes += wanted.size
        result.verified_to = wanted.source_end

    def _check_between(self, wanted: WrittenBatch) -> None:
        """Count what is between two batches of the copy, or in front of its next one, and find repetitions."""
        between, self._between[:] = list(self._between), []
        if not wanted.follows:
            return  # an earlier attempt may have appended it
        for offset, digest in between:
            original = self._remembered.get(digest)
            if original is None:
                self.result.foreign += 1
            else:
                reason = f"the records of target offset {original.target_offset} are also at target offset {offset}"
                self._differ(DifferenceKind.DOUBLED, original._replace(target_offset=offset), reason)

    def _remember(self, batch: WrittenBatch) -> None:
        digest = (batch.records_crc, batch.size, batch.records, batch.base_timestamp)
        self._remembered.pop(digest, None)
        self._remembered[digest] = batch
        if len(self._remembered) > _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def _differ(self, kind: DifferenceKind, wanted: WrittenBatch, reason: str) -> None:
        counts = self.result.differences
        counts[kind.value] = counts.get(kind.value, 0) + 1
        if sum(counts.values()) <= MAX_FOUND:
            self._found.append(
                Difference(kind, wanted.source_start, wanted.source_end, wanted.target_offset, wanted.records, reason)
            )


def _digest_of(batch: Batch) -> _Digest:
    return batch.records_crc(), batch.size, batch.count, batch.base_timestamp
