"""Decompress the records of a batch up to a size limit.

A few KB can decompress to GBs, and any producer can write such a batch. The output is an anonymous mapping of the
limit's size. Only pages that are written use physical memory, and all of it returns to the system with the last view.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any, Final

from mirror.errors import BatchTooLarge, CorruptBatch

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""The default limit. Batches of the usual 1 MB that decompress to 100 MB are legal, and must be readable."""

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
"""Codec number in a batch's attributes -> name."""

_FULL: Final = "failed to write whole buffer"
"""The error text of Rust's library for an output buffer that is too small. A test checks it."""
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK: Final = struct.Struct(">i")


# Invariant: Decompression ends at its limit and allocates no more than that, whatever the data claim about their size.
# Test: tests/wire/test_bombs.py::test_a_bomb_costs_no_more_memory_than_its_limit
# Test: tests/copying/test_corrupt.py::test_partition_stops_before_a_decompression_bomb
def decompress(codec: int, data: memoryview, max_bytes: int, subject: str, *, reserve: int = 0) -> memoryview:
    """Decompress ``data`` with ``codec``, a key of :data:`NAMES`. The result is writable.

    The result begins with ``reserve`` unused bytes for the caller. ``subject`` names the data in errors, such as "the
    batch at offset 5". Raises BatchTooLarge if the data has more than ``max_bytes`` when decompressed, and CorruptBatch
    if it cannot be decompressed.
    """
    # A local import: tasks that only copy batches do not load the library.
    import cramjam

    name = NAMES.get(codec)
    if name is None:
        raise CorruptBatch(f"{subject} is corrupt: its codec {codec} is not known")
    out = memoryview(mmap.mmap(-1, reserve + max(1, max_bytes), flags=mmap.MAP_PRIVATE))
    try:
        if codec == SNAPPY:
            size = _snappy(cramjam.snappy, data, out[reserve:])
        else:
            size = getattr(cramjam, name).decompress_into(data, out[reserve:])
    except Exception as error:
        # Any exception: both struct and the library raise their own.
        if isinstance(error, _OutputFullError) or _FULL in str(error):
            message = f"{subject} has {len(data)} bytes of {name} that are more than {max_bytes} when decompressed"
            raise BatchTooLarge(message) from None
        message = f"{subject} is corrupt: its {name} cannot be decompressed: {' '.join(str(error).split())}"
        raise CorruptBatch(message) from error
    return out[: reserve + size]


class _OutputFullError(Exception):
    """The output has no space for the next block."""


def _snappy(library: Any, data: memoryview, out: memoryview) -> int:
    """Decompress raw snappy, or blocks with a length before each, as the JVM writes (``SnappyOutputStream``)."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(library, data, out)
    at, size = _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        (length,) = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        if not 0 < length <= len(data) - at:
            raise ValueError(f"a block says it has {length} bytes, of which {len(data) - at} are there")
        size += _snappy_block(library, data[at : at + length], out[size:])
        at += length
    return size


def _snappy_block(library: Any, block: memoryview, out: memoryview) -> int:
    if library.decompress_raw_len(block) > len(out):
        raise _OutputFullError
    return int(library.decompress_raw_into(block, out)) if len(out) else 0
