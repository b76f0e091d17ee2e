"""Frames out of a stream that arrives in any pieces."""

from __future__ import annotations

import random
import resource
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import ProtocolError
from mirror.wire.frames import MAX_FRAME, FrameReader

MB = 2**20


def _feed(reader: FrameReader, data: bytes, sizes: list[int]) -> list[bytes]:
    """Receive ``data`` in pieces of at most ``sizes``, as a socket would hand it over."""
    frames, at, turn = [], 0, 0
    while at < len(data):
        buffer = reader.buffer()
        assert len(buffer) > 0
        count = min(len(buffer), sizes[turn % len(sizes)], len(data) - at)
        buffer[:count] = data[at : at + count]
        at, turn = at + count, turn + 1
        frame = reader.received(count)
        while frame is not None:
            frames.append(bytes(frame))
            frame = reader.received(0)
    return frames


@given(
    st.lists(st.binary(min_size=4, max_size=50) | st.binary(min_size=490, max_size=530), min_size=1, max_size=6),
    st.lists(st.integers(1, 17) | st.sampled_from([500, 2_000]), min_size=1, max_size=10),
)
def test_arbitrary_splits_give_the_same_frames(frames: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    assert _feed(FrameReader(), stream, sizes) == frames


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 101, 2**31 - 1, 0x48545450])
def test_an_impossible_size_is_refused_before_memory_is_spent(size: int) -> None:
    with pytest.raises(ProtocolError, match=rf"a frame of {size} bytes .*Kafka listener"):
        _feed(FrameReader(max_frame=100), struct.pack(">i", size), [4])


def test_the_largest_frame_is_allowed() -> None:
    assert _feed(FrameReader(max_frame=100), struct.pack(">i", 100) + bytes(100), [64]) == [bytes(100)]


def test_each_frame_has_memory_of_its_own() -> None:
    """Views into a frame live on while the next one is read."""
    reader = FrameReader()
    stream = struct.pack(">i", 4) + b"aaaa" + struct.pack(">i", 4) + b"bbbb"
    kept = []
    for piece in (stream[:4], stream[4:8], stream[8:], stream[:3], stream[3:]):
        reader.buffer()[: len(piece)] = piece
        frame = reader.received(len(piece))
        while frame is not None:
            kept.append(frame)
            frame = reader.received(0)
    assert kept == [bytearray(b"aaaa"), bytearray(b"bbbb")] * 2


def test_a_size_that_lies_costs_no_more_than_what_came() -> None:
    """It may be as large as a frame can be, and little of it comes, or nothing."""
    before = _resident()
    reader = FrameReader()
    assert _feed(reader, struct.pack(">i", MAX_FRAME), [4]) == []
    assert _resident() - before < 2 * MB
    assert _feed(reader, bytes(20 * MB), [MB]) == []
    assert _resident() - before < 60 * MB  # the stream itself is one of it


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("size", [2**23 - 1, 2**23, 2**23 + 1, 2**24, 5 * 2**23 + 3])
def test_large_frames_come_whole(size: int) -> None:
    data = random.Random(1).randbytes(size)
    assert _feed(FrameReader(), struct.pack(">i", size) + data, [3_000_000]) == [data]
