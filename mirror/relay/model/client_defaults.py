"""Defaults of a copy's clients where they differ from those of Kafka's clients. Pure."""

from __future__ import annotations

from typing import Final

from mirror.wire.integers import INT32_MAX

PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
"""``max.partition.fetch.bytes``.

At that limit a broker cuts off the last batch, which is fetched again. With batches of 210 KB, a fifth of all fetched
bytes is wasted that way with Kafka's default of 1 MiB, and a twentieth with 4 MiB.
"""

DEFAULT_BATCH_BYTES: Final = 256 * 1024
"""``batch.size``: re-encoded batches are merged up to this size, without waiting for more input.

With Kafka's 16 KiB, half of a compacted topic's batches would each need a request of its own.
"""

RECOMPRESSED_BATCH_BYTES: Final = 16 * 1024
"""The limit on merging if the codec changes: the compressed size is not known in advance."""

OVERHEAD_FRACTION: Final = 8
"""One part in this many of ``fetch.max.bytes`` is reserved for what surrounds the fetched bytes: objects, threads,
and the unused ends of memory pages."""

_MIN_PARTITION_FETCH_BYTES: Final = 16 * 1024
_MIN_TRANSACTION_TIMEOUT_MS: Final = 60_000


def partition_fetch_bytes(most: int, buffer_memory: int, partitions: int) -> int:
    """Return how many bytes of each of ``partitions`` to fetch at a time: all have room in the buffer."""
    return min(most, max(_MIN_PARTITION_FETCH_BYTES, buffer_memory // (2 * max(1, partitions))))


def batch_bytes(kafka_default: int, buffer_memory: int) -> int:
    """Return ``batch.size`` in bytes; ``kafka_default`` is the default of Kafka's clients."""
    # Well below the buffer's size: a batch that fills the whole buffer would have to wait until the buffer is empty.
    return max(kafka_default, min(DEFAULT_BATCH_BYTES, buffer_memory // OVERHEAD_FRACTION))


# Invariant: A transaction outlasts delivery, request and commit interval: otherwise its coordinator aborts first, and
#   an expiry looks like a fence.
# Test: tests/relay/task/
#   test_copy_ranges.py::test_exactly_once_transaction_outlasts_delivery_request_and_commit_interval
def transaction_timeout_ms(delivery_timeout_ms: int, request_timeout_ms: int, commit_interval_ms: int) -> int:
    """Return ``transaction.timeout.ms``: a transaction must outlive the delivery timeout of its batches.

    Otherwise an expiry would look like fencing.
    """
    wanted_ms = delivery_timeout_ms + request_timeout_ms + commit_interval_ms
    return max(_MIN_TRANSACTION_TIMEOUT_MS, min(INT32_MAX, wanted_ms))
