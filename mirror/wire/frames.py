"""Cutting a stream of bytes into frames: a size of four bytes, then that many."""

from __future__ import annotations

import mmap
import struct
from typing import Final

from mirror.errors import ProtocolError

SIZE: Final = struct.Struct(">i")

MAX_FRAME: Final = 256 * 1024 * 1024
"""Bytes; no answer that this client asks for is larger."""

_MAPPED: Final = 8 * 1024 * 1024
"""From this size on, only what comes of a frame takes memory: a size may be a lie."""

Buffer = bytearray | mmap.mmap
"""What a frame lies in."""


class FrameReader:
    """Tells where the next bytes belong, and hands out each frame once it is whole.

    The caller receives straight into :meth:`buffer` and then calls :meth:`received`; nothing is copied in between.
    """

    __slots__ = ("_filled", "_max_frame", "_size", "_target", "_view")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._size = bytearray(SIZE.size)
        self._expect(self._size)

    def _expect(self, target: Buffer) -> None:
        self._target = target
        self._view = memoryview(target)
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._filled :]

    def received(self, count: int) -> Buffer | None:
        """Note that ``count`` bytes arrived in :meth:`buffer`; a frame (without its size) when that completes one.

        Raises ProtocolError for a size that no answer has.
        """
        self._filled += count
        if self._filled < len(self._target):
            return None
        if self._target is not self._size:
            frame = self._target
            self._expect(self._size)
            return frame
        (size,) = SIZE.unpack(self._size)
        if not SIZE.size <= size <= self._max_frame:
            msg = f"a frame of {size} bytes (allowed: {SIZE.size} to {self._max_frame}): is this a Kafka listener?"
            raise ProtocolError(msg)
        # Private, or what is released of it (runtime.pages) would not go back to the system.
        self._expect(bytearray(size) if size < _MAPPED else mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE))
        return None
