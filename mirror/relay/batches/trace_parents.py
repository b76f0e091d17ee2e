"""Finds the trace that a record belongs to (W3C Trace Context): a sample of them, to link the copy's span to it.

The payload stays as it is: at most one small batch of a partition is decoded per :data:`SAMPLE_INTERVAL_MS`. No I/O.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Final

from mirror.consumer.fetched import Fetched
from mirror.errors import MirrorError
from mirror.wire.decode import Record, records_of
from mirror.wire.records import CODEC_MASK, HEADER_BYTES, AnyBatch, Batch

SAMPLE_INTERVAL_MS: Final = 10_000
MAX_BATCH_BYTES: Final = 128 * 1024
MAX_DECODED_BYTES: Final = 1024 * 1024
MOST_RECORDS: Final = 100
"""So many records of a batch are searched: a batch of 15 KB may hold 22,000, which take 9 ms."""
_HEADER: Final = "traceparent"
_CODECS: Final = {0: "", 1: "gzip", 3: "lz4", 4: "zstd"}
"""By the number in a batch's attributes. Snappy is left out: only the record codec can read its framing."""
_FORM: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class TraceParents:
    """Samples the trace parents of one source partition."""

    def __init__(self, now: int) -> None:
        self._next_ms = now

    def sample(self, fetched: Fetched, now: int) -> str | None:
        """Return the trace parent of the first record; None if it has none, or no sample is due."""
        if now < self._next_ms or fetched.error is not None:
            return None
        batch = next(iter(fetched.batches), None)
        if batch is None or batch.size > MAX_BATCH_BYTES:
            return None
        self._next_ms = now + SAMPLE_INTERVAL_MS
        return next((parent for _, parent in traced_records(batch)), None)


def traced_records(batch: AnyBatch) -> Iterator[tuple[Record, str]]:
    """Yield those of the first records of a small batch that have a trace parent, each with that."""
    if not isinstance(batch, Batch) or batch.size > MAX_BATCH_BYTES or not _may_contain_header(batch):
        return
    with contextlib.suppress(MirrorError):  # the copy of the batch reports the error
        for record in itertools.islice(records_of(batch), MOST_RECORDS):
            parents = (trace_parent(value) for key, value in record.headers if key == _HEADER and value is not None)
            if (parent := next(filter(None, parents), None)) is not None:
                yield record, parent


def _may_contain_header(batch: Batch) -> bool:
    """Whether the header's name occurs in the batch: importing the record codec in vain costs each worker 0.14 s."""
    payload = batch.view[HEADER_BYTES:]
    codec = _CODECS.get(batch.attributes & CODEC_MASK)
    if codec is None:
        return False
    if not codec:
        return _HEADER.encode() in bytes(payload)
    import cramjam

    decoded = bytearray(MAX_DECODED_BYTES)  # a limit for hostile batches
    try:
        size = getattr(cramjam, codec).decompress_into(payload, decoded)
    except Exception:  # noqa: BLE001 - too large, or corrupt: each compression library raises errors of its own
        return False
    return decoded.find(_HEADER.encode(), 0, size) >= 0


def trace_parent(value: bytes) -> str | None:
    """Return ``value`` if it is a valid trace parent of version 00; a record's header may hold anything."""
    text = value.decode("ascii", "replace")
    return text if _FORM.fullmatch(text) else None


def is_sampled(parent: str) -> bool:
    """Return whether the trace of a valid trace parent is sampled: its last byte has the flag."""
    return bool(int(parent[-2:], 16) & 1)
