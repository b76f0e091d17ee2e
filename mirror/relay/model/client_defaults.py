"""What a copy's clients have where the configuration says nothing, other than Kafka's clients. Pure."""

from __future__ import annotations

from typing import Final

PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
"""``max.partition.fetch.bytes``. At that limit brokers cut the last batch off, and it comes again: with batches of
210 KB and 1 MiB, Kafka's default, a fifth of what comes is for nothing, with 4 MiB a 20th."""

BATCH_BYTES: Final = 256 * 1024
"""``batch.size``: what is encoded again goes together up to it, of what is there; nothing is waited for. With Kafka's
16 KiB, half a compacted topic's batches would each stay a request of its own."""

RECODED_BYTES: Final = 16 * 1024
"""The most of it where the codec changes: how many bytes they become is not known before."""

AROUND: Final = 8
"""This part of ``fetch.max.bytes`` is left for what stands around the bytes: objects, threads, the ends of pages."""

_SHORTEST_TRANSACTION_MS: Final = 60_000
_INT32_MAX: Final = 2**31 - 1


def batch_bytes(kafkas: int, buffer_memory: int) -> int:
    """``batch.size`` in bytes; ``kafkas`` is that of Kafka's clients."""
    # Less than the buffer: what takes all of it would have to wait until it is empty.
    return max(kafkas, min(BATCH_BYTES, buffer_memory // AROUND))


def transaction_timeout_ms(delivery_timeout_ms: int, request_timeout_ms: int, commit_interval_ms: int) -> int:
    """``transaction.timeout.ms``: a transaction must not end before its batches' own time does.

    Else an expiry would look like fencing.
    """
    return max(_SHORTEST_TRANSACTION_MS, min(_INT32_MAX, delivery_timeout_ms + request_timeout_ms + commit_interval_ms))
