"""Split a stream of bytes into frames, each a size (int32) and that many bytes; and the varints that frames have."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import ClassVar, Final

from mirror.errors import ProtocolError

SIZE: Final = struct.Struct(">i")

MAX_FRAME: Final = 256 * 1024 * 1024
"""In bytes, where it is not known what the frame is."""

_SEVEN_BITS: Final = 0x7F
_MORE: Final = 0x80

Buffer = bytearray | mmap.mmap | memoryview
"""The memory of one frame."""


def mapped(size: int) -> Buffer:
    """Map anonymous memory for ``size`` bytes.

    The mapping is private: released pages of a shared mapping would not be returned to the system.
    """
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)


_SIZE_BUFFER_BYTES: Final = 512
"""Size in bytes of the buffer for frame sizes. A small response arrives in it whole, in one receive instead of two."""


class FrameReader:
    """Provides the buffer for the next bytes of a connection, and returns each frame when it is complete.

    The caller receives directly into :meth:`buffer` and then calls :meth:`received`. Only the first bytes of a frame,
    which arrive together with its size, are copied.

    ``max_frame`` is the largest size of a frame in bytes, ``what`` is its name in errors. A change applies to the sizes
    read after it; one call of :meth:`received` reads at most one.
    """

    large: ClassVar[tuple[int, Callable[[int], Buffer]]] = (8 * 1024 * 1024, mapped)
    """The size in bytes from which frames are large, and the allocator of large frames. The allocator returns exactly
    as many bytes as requested, with any content. It must not use physical memory before bytes arrive, because the
    size comes from the peer and may be wrong. ``bound_heap`` replaces both; without it, smaller frames come from the
    heap, whose memory is reused without page faults."""

    __slots__ = ("_consumed", "_filled", "_size_buffer", "_target", "_view", "max_frame", "what")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self.what = "a frame"
        self._size_buffer = bytearray(_SIZE_BUFFER_BYTES)
        self._expect(self._size_buffer, 0)

    def _expect(self, target: Buffer, filled: int) -> None:
        self._target = target
        self._view = memoryview(target)
        self._filled = filled
        self._consumed = 0

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty."""
        return self._view[self._filled :]

    def received(self, count: int) -> Buffer | None:
        """Process ``count`` bytes received into :meth:`buffer`. Return a frame (without its size) if one is complete.

        Call it again with 0 until it returns None. Raises ProtocolError if a frame's size is not allowed.
        """
        self._filled += count
        if self._target is self._size_buffer:
            return self._next_frame()
        if self._filled < len(self._target):
            return None
        frame = self._target
        self._expect(self._size_buffer, 0)
        return frame

    @property
    def begins(self) -> bytes:
        """The first two bytes after the last complete frame. If its size was refused, they show the peer's protocol."""
        return bytes(self._size_buffer[self._consumed : min(self._consumed + 2, self._filled)])

    def _next_frame(self) -> Buffer | None:
        """Return the next frame if all of it is in the size buffer; else prepare to receive the rest of it."""
        begin = self._consumed + SIZE.size
        if begin > self._filled:
            rest = self._size_buffer[self._consumed : self._filled]
            self._size_buffer[: len(rest)] = rest
            self._consumed, self._filled = 0, len(rest)
            return None
        (size,) = SIZE.unpack_from(self._size_buffer, self._consumed)
        if not SIZE.size <= size <= self.max_frame:
            msg = f"{self.what} of {size} bytes (allowed: {SIZE.size} to {self.max_frame}): is this a Kafka listener?"
            raise ProtocolError(msg)
        large_from, allocate = self.large
        frame = bytearray(size) if size < large_from else allocate(size)
        self._consumed = min(begin + size, self._filled)
        available = self._consumed - begin
        frame[:available] = self._size_buffer[begin : self._consumed]
        if available == size:
            return frame
        self._expect(frame, available)
        return None


def varint(value: int) -> bytes:
    """Encode an unsigned varint: seven bits per byte, lowest first, as in flexible messages (KIP-482)."""
    if value <= _SEVEN_BITS:
        return bytes((value,))
    out = bytearray()
    while value > _SEVEN_BITS:
        out.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)
