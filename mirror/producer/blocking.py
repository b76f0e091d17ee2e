"""How long ``send`` may block the application's thread: for metadata first, then for memory (KIP-912)."""

from __future__ import annotations

from dataclasses import dataclass

from mirror.producer.settings import ProducerSettings
from mirror.timing import remaining


@dataclass(frozen=True, slots=True)
class BlockBudget:
    """The two waits of ``send``, in ms.

    Both share ``max.block.ms`` by default, so that a slow metadata lookup leaves less for the append. Where
    ``max.block.ms.include.metadata`` is false, the lookup has ``max.block.metadata.ms`` and the append all of
    ``max.block.ms``, which can then be short.
    """

    settings: ProducerSettings

    def metadata_ms(self) -> int:
        """Return the limit of the wait for metadata."""
        if self.settings.max_block_include_metadata:
            return self.settings.max_block_ms
        return self.settings.max_block_metadata_ms

    def append_ms(self, metadata_waited_ms: int) -> int:
        """Return the limit of the wait for memory, after ``metadata_waited_ms`` of waiting for metadata."""
        if self.settings.max_block_include_metadata:
            return remaining(self.settings.max_block_ms, metadata_waited_ms)
        return self.settings.max_block_ms

    def metadata_limit(self) -> str:
        """Return the setting that bounds the wait for metadata, for error texts."""
        if self.settings.max_block_include_metadata:
            return f"max.block.ms ({self.settings.max_block_ms})"
        return f"max.block.metadata.ms ({self.settings.max_block_metadata_ms})"

    def append_limit(self, metadata_waited_ms: int) -> str:
        """Return the setting that bounds the wait for memory, with the part that metadata took, for error texts."""
        limit = f"max.block.ms ({self.settings.max_block_ms})"
        if self.settings.max_block_include_metadata and metadata_waited_ms > 0:
            return f"{limit}, of which metadata took {metadata_waited_ms}"
        return limit
