"""Cutting a stream of bytes into frames: a size of four bytes, then that many."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import ClassVar, Final

from mirror.errors import ProtocolError

SIZE: Final = struct.Struct(">i")

MAX_FRAME: Final = 256 * 1024 * 1024
"""Bytes; no answer that this client asks for is larger."""

MAX_FRAME_BEFORE_READY: Final = 1024 * 1024
"""Bytes of an answer before a connection is negotiated and authenticated; those of real brokers have a few thousand."""

Buffer = bytearray | mmap.mmap | memoryview
"""What a frame lies in."""


def mapped(size: int) -> Buffer:
    """Memory of its own for ``size`` bytes. Private, or what is released of it would not go back to the system."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)


_AHEAD: Final = 512
"""Bytes that are received with a size: a small answer comes whole, by one receive instead of two."""


class FrameReader:
    """Tells where the next bytes belong, and hands out each frame once it is whole.

    ``max_frame`` are the bytes that a frame may have; it may be changed, and counts for sizes that are read later.
    The caller receives straight into :meth:`buffer` and then calls :meth:`received`; but for a few bytes that come with
    its size, nothing of a frame is copied in between.
    """

    large: ClassVar[tuple[int, Callable[[int], Buffer]]] = (8 * 1024 * 1024, mapped)
    """Bytes, and what gives a frame its memory from this size on, just as much, with anything in it. Only what comes of
    it is to take memory: a size may be a lie. ``bound_heap`` has it otherwise; elsewhere, memory that the heap has had
    before costs no page faults."""

    __slots__ = ("_ahead", "_filled", "_taken", "_target", "_view", "max_frame")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._ahead = bytearray(_AHEAD)
        self._expect(self._ahead, 0)

    def _expect(self, target: Buffer, filled: int) -> None:
        self._target = target
        self._view = memoryview(target)
        self._filled = filled
        self._taken = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._filled :]

    def received(self, count: int) -> Buffer | None:
        """Note that ``count`` bytes arrived in :meth:`buffer`; a frame (without its size) where one is whole.

        To be called again, with 0, until there is none. Raises ProtocolError for a size that no answer has.
        """
        self._filled += count
        if self._target is self._ahead:
            return self._cut()
        if self._filled < len(self._target):
            return None
        frame = self._target
        self._expect(self._ahead, 0)
        return frame

    @property
    def begins(self) -> bytes:
        """The first two bytes behind the last frame that came whole: those of a size that was refused."""
        return bytes(self._ahead[self._taken : min(self._taken + 2, self._filled)])

    def _cut(self) -> Buffer | None:
        """The next frame of those that came with their sizes; what is still to come of one goes where it belongs."""
        begin = self._taken + SIZE.size
        if begin > self._filled:
            rest = self._ahead[self._taken : self._filled]
            self._ahead[: len(rest)] = rest
            self._taken, self._filled = 0, len(rest)
            return None
        (size,) = SIZE.unpack_from(self._ahead, self._taken)
        if not SIZE.size <= size <= self.max_frame:
            msg = f"a frame of {size} bytes (allowed: {SIZE.size} to {self.max_frame}): is this a Kafka listener?"
            raise ProtocolError(msg)
        mapped_from, memory = self.large
        frame = bytearray(size) if size < mapped_from else memory(size)
        self._taken = min(begin + size, self._filled)
        came = self._taken - begin
        frame[:came] = self._ahead[begin : self._taken]
        if came == size:
            return frame
        self._expect(frame, came)
        return None
