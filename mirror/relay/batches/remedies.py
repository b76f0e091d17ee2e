"""What a copy has learned from the batches that the target refused: what it re-encodes, and what it skips. No I/O."""

from __future__ import annotations

from mirror.relay.batches.output_batch import OutputBatch
from mirror.relay.batches.reencode import ReencodeReason


class Remedies:
    """The remedies of one copy, by the source offsets to which they apply."""

    def __init__(self, max_message_bytes: int) -> None:
        self.set_max_bytes(max_message_bytes)
        self.skipped_offsets: set[int] = set()
        """The offsets of single records that are skipped, or go aside."""
        self.damaged_offsets: set[int] = set()
        """Where batches begin that cannot be decoded and go aside."""
        # Batches that begin below the offset are re-encoded for the reason.
        self._until: dict[ReencodeReason, int] = {}
        self._reach: dict[ReencodeReason, int] = {}

    def set_max_bytes(self, max_message_bytes: int) -> None:
        """Forget the sizes that were refused: the target takes batches of ``max_message_bytes``, as far as is known."""
        self.max_reencoded_bytes = max_message_bytes
        """The largest batch that re-encoding makes."""
        self.max_passed_bytes = max_message_bytes
        """The largest batch that is passed on as bytes."""

    def forget(self, max_message_bytes: int) -> None:
        """Forget all that was learned but for the records that are skipped."""
        self.set_max_bytes(max_message_bytes)
        self._until.clear()
        self._reach.clear()

    def forget_reach(self) -> None:
        """Let the reach of a refusal begin small again: it doubles with each, and a copy may live for months."""
        self._reach.clear()

    def forget_skipped(self, offset: int) -> None:
        """Nothing before ``offset`` is copied again."""
        self.skipped_offsets = {skipped for skipped in self.skipped_offsets if skipped >= offset}
        self.damaged_offsets = {damaged for damaged in self.damaged_offsets if damaged >= offset}

    def are_damaged(self, start: int, end: int) -> bool:
        """Whether the batch that may hold the offsets ``[start, end)`` goes aside as it is."""
        return bool(self.damaged_offsets) and any(start <= damaged < end for damaged in self.damaged_offsets)

    def put_aside_damaged(self, offset: int) -> bool:
        """Have the next batch behind ``offset`` go aside as it is; False if that was tried in vain."""
        if offset in self.damaged_offsets:
            return False
        self.damaged_offsets.add(offset)
        return True

    def at(self, offset: int) -> frozenset[ReencodeReason]:
        """Return why a batch that begins at ``offset`` is re-encoded; usually for no reason."""
        if not self._until:
            return frozenset()
        return frozenset(reason for reason, until in self._until.items() if offset < until)

    def first_of(self, reasons: frozenset[ReencodeReason]) -> ReencodeReason:
        """Return the one of these ``reasons``, as of :meth:`at`, that was learned first."""
        return next(reason for reason in self._until if reason in reasons)

    def apply(self, output: OutputBatch, reason: ReencodeReason) -> bool:
        """Re-encode the source batches of ``output`` for ``reason`` from now on; False if that was tried in vain."""
        if reason in output.tried and (reason is not ReencodeReason.TOO_LARGE or output.count <= 1):
            return False
        if reason is ReencodeReason.TOO_LARGE and output.reason is not None and output.batch is not None:
            # Re-encoded, and still too large: the broker recompresses it, or has another limit.
            self.max_reencoded_bytes = max(1, min(self.max_reencoded_bytes, output.batch.size) // 2)
        elif reason is ReencodeReason.TOO_LARGE and output.batch is not None:
            self.max_passed_bytes = min(self.max_passed_bytes, output.batch.size - 1)
        # The reach doubles with each refusal: such batches seldom come alone, and each refusal costs a transaction.
        span = output.next_offset - output.base_offset
        self._reach[reason] = 2 * self._reach[reason] + span if reason in self._reach else 0
        until = output.next_offset + self._reach[reason]
        self._until[reason] = max(until, self._until.get(reason, 0))
        return True

    def skip_record(self, output: OutputBatch) -> None:
        """Skip the single record of ``output``, which the target does not take, or have it go aside."""
        self.skipped_offsets.add(output.base_offset)
        self._until[ReencodeReason.TOO_LARGE] = max(output.next_offset, self._until.get(ReencodeReason.TOO_LARGE, 0))
