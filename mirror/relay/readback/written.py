"""What is known of a batch that was committed on the target. No I/O."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_OFFSET: Final = -1
"""The target offset of a batch whose acknowledgement has none: that of a duplicate."""


class WrittenBatch(NamedTuple):
    """A batch as it was sent, and where it was appended. The broker keeps its records as they are."""

    source_start: int
    source_end: int
    """Its source offsets are from ``source_start`` up to, and without, ``source_end``."""
    target_offset: int
    """Of its first record; :data:`NO_OFFSET` if it is not known."""
    records: int
    size: int
    """In bytes, with the header."""
    codec: int
    base_timestamp: int
    records_crc: int
    """See :meth:`.Batch.records_crc`; from the source's checksum if the batch is passed on as bytes."""
    follows: bool
    """Whether the same attempt has appended the batch before it, so that nothing of the copy is between both."""

    @property
    def target_end(self) -> int:
        """The target offset behind its last record."""
        return self.target_offset + self.records
