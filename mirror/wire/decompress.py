"""Decompression that ends at a limit: a few KB can unfold to GBs, and what a batch holds is its producer's choice.

It goes into memory mapped for it alone: the limit is set aside, only what is written takes any, and all of it goes
back to the system with the last view.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any, Final

from mirror.errors import BatchTooLarge, CorruptBatch

MOST: Final = 128 * 1024 * 1024
"""Bytes; a batch of the usual 1 MB that unfolds to a hundred is legal, and read."""

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
"""By the number in a batch's attributes."""

_FULL: Final = "failed to write whole buffer"
"""How Rust's own library says that a fixed buffer is too small; pinned by the tests."""
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK: Final = struct.Struct(">i")


def decompressed(codec: int, data: memoryview, most: int, what: str, *, room: int = 0) -> memoryview:
    """``data`` (of ``codec``, one of :data:`NAMES`) decompressed, behind ``room`` bytes for the caller; writable.

    ``what`` is it for errors, such as "the batch at offset 5". Raises BatchTooLarge where it would be more than
    ``most`` bytes, CorruptBatch where it cannot be decompressed.
    """
    # Here and not above: who only copies should not pay for the import.
    import cramjam

    name = NAMES.get(codec)
    if name is None:
        raise CorruptBatch(f"{what} is corrupt: codec {codec} is none of the format")
    out = memoryview(mmap.mmap(-1, room + max(1, most), flags=mmap.MAP_PRIVATE))
    try:
        if codec == SNAPPY:
            size = _snappy(cramjam.snappy, data, out[room:])
        else:
            size = getattr(cramjam, name).decompress_into(data, out[room:])
    except Exception as error:
        # Whatever it is: struct's, the library's.
        if isinstance(error, _FullError) or _FULL in str(error):
            told = f"{what} has {len(data)} bytes of {name} that are more than {most} when decompressed"
            raise BatchTooLarge(told) from None
        told = f"{what} is corrupt: its {name} cannot be decompressed: {' '.join(str(error).split())}"
        raise CorruptBatch(told) from error
    return out[: room + size]


class _FullError(Exception):
    """There is no room for the next block."""


def _snappy(library: Any, data: memoryview, out: memoryview) -> int:
    """Bare, or in the blocks of the JVM's library (``SnappyOutputStream``): a length, then as many bytes."""
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
        raise _FullError
    return int(library.decompress_raw_into(block, out)) if len(out) else 0
