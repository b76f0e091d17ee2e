"""What is released of a large answer goes back to the system, and what is not stays as it is."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import struct
import sys
import threading
import weakref
from typing import Any

import psutil
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.cluster.types import TopicPartition
from mirror.runtime.memory import buffer_recycling as pages
from mirror.runtime.memory.buffer_recycling import PagedPart, parts_of
from mirror.wire.frames import FrameReader, mapped

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are given back on Linux only")

MB, KB = 1_000_000, 1_000
NOISE = memoryview(random.randbytes(50 * KB))
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(autouse=True)
def _as_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that another test made in this process has changed where answers lie."""
    monkeypatch.setattr(FrameReader, "large", (8 * 2**20, mapped))
    keep(monkeypatch, pages.KEEP_BYTES)


def address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def resident(memory: Any) -> int:
    """Bytes of the pages of ``memory`` that are there, as the system counts them (/proc/self/pagemap, bit 63)."""
    first, last = address(memory) // mmap.PAGESIZE, (address(memory) + len(memory) - 1) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as file:  # noqa: PTH123 - an offset beyond any file's
        file.seek(first * 8)
        data = file.read((last + 1 - first) * 8)
    entries = struct.unpack(f"={len(data) // 8}Q", data)
    assert len(entries) == last + 1 - first
    return mmap.PAGESIZE * sum(int(entry >> 63) for entry in entries)


def answer(*sizes: int) -> list[memoryview]:
    """Parts of these sizes in one piece of memory, all full of noise, with a few bytes between them."""
    between = 7
    memory = memoryview(bytearray(sum(sizes) + between * (len(sizes) + 1)))
    views, at = [], between
    for size in sizes:
        view = memory[at : at + size]
        for start in range(0, size, len(NOISE)):
            piece = view[start : start + len(NOISE)]
            piece[:] = NOISE[: len(piece)]
        views.append(view)
        at += size + between
    return views


def give_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 0)


def keep(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Nothing is there, and no more than ``size`` bytes are kept."""
    monkeypatch.setattr(pages, "released", pages.Released())
    pages.keep_released(size)


def test_ten_kilobytes_kept_of_forty_megabytes_keep_less_than_one() -> None:
    views = answer(*[MB] * 20, 10 * KB, *[MB] * 20)
    kept, parts = views[20], parts_of(views)
    checksum = crc32c(kept)
    assert resident(kept.obj) > 39 * MB
    del views
    for number, part in enumerate(parts):
        if number != 20:
            part.release()
    assert resident(kept.obj) < MB
    assert crc32c(kept) == checksum
    parts[20].release()
    assert crc32c(kept) != checksum, "the last one's bytes go, too"


def shared() -> int:
    """Bytes of the memory that this process could share: dropping a page of it from here gives nothing back."""
    return int(psutil.Process().memory_info().shared)


def test_a_large_answer_as_it_comes_in_can_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private memory: shared pages would only be dropped from the process's own count, and stay with the system."""
    give_back_at_once(monkeypatch)
    reader, before = FrameReader(), shared()
    reader.buffer()[:4] = struct.pack(">i", 16 * 2**20)
    reader.received(4)
    reader.buffer()[:] = bytes(range(256)) * 2**16
    frame = reader.received(16 * 2**20)
    assert frame is not None
    assert shared() - before < MB
    (part,) = parts_of([memoryview(frame)[100:-100]])
    part.release()
    assert bytes(frame[2**20 : 2**20 + 4]) == bytes(4), "gone, not only out of sight"


def test_of_smaller_answers_only_so_much_waits_however_many_they_are() -> None:
    """They are given back when as much was released after them."""
    kept: list[tuple[memoryview, int]] = []
    parts: list[PagedPart] = []
    for _ in range(15):
        views = answer(*[500 * KB] * 8, 10 * KB, *[500 * KB] * 8)
        made = parts_of(views)
        kept.append((views[8], crc32c(views[8])))
        parts.append(made.pop(8))
        for part in made:
            part.release()
    held = sum(resident(view.obj) for view, _ in kept)
    assert held < pages.KEEP_BYTES + len(kept) * 3 * mmap.PAGESIZE + 10 * MB  # the last answer is still whole
    assert sum(resident(view.obj) for view, _ in kept[:5]) < MB
    assert [crc32c(view) for view, _ in kept] == [checksum for _, checksum in kept]
    assert len(parts) == len(kept)


def test_once_it_is_said_nothing_waits_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is released from then on, nor what was before."""
    keep(monkeypatch, 2 * MB)
    earlier, later = answer(MB, 10 * KB), answer(MB, 10 * KB)
    parts = [parts_of(earlier)[0], parts_of(later)[0]]
    parts[0].release()
    assert resident(earlier[0].obj) >= MB
    pages.keep_released(0)
    parts[1].release()
    assert resident(earlier[0].obj) < 50 * KB
    assert resident(later[0].obj) < 50 * KB


def test_what_waits_to_be_given_back_keeps_no_answer_alive() -> None:
    class Memory(bytearray):
        """Can be looked after."""

    memory = Memory(8 * MB)
    alive = weakref.ref(memory)
    parts = parts_of([memoryview(memory)[:MB], memoryview(memory)[MB:]])
    parts.pop().release()
    del memory
    assert alive() is not None, "a part is left"
    parts.clear()
    assert alive() is None


def test_small_answers_are_left_alone() -> None:
    assert parts_of(answer(10 * KB, 10 * KB)) == []
    assert parts_of([]) == []


@settings(max_examples=60)
@given(st.lists(st.integers(1, 30 * KB), min_size=2, max_size=60), st.randoms(use_true_random=False))
def test_what_is_not_released_stays_whatever_shares_its_pages(sizes: list[int], rng: random.Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        give_back_at_once(patch)
        views = answer(*sizes, 40 * KB)
        contents, parts = [bytes(view) for view in views], parts_of(views)
        order = list(range(len(views)))
        rng.shuffle(order)
        for count, number in enumerate(order, 1):
            parts[number].release()
            for other in order[count:]:
                assert views[other] == contents[other]
        # All are released: but for the first page and the last, which may be others' too, nothing is left.
        assert resident(views[0].obj) <= 2 * mmap.PAGESIZE


def test_neighbours_in_memory_are_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in the middle of the heap: its first and last page are shared with whatever lies there."""
    give_back_at_once(monkeypatch)
    heap = bytearray(random.randbytes(40 * mmap.PAGESIZE))
    begin = -address(heap) % mmap.PAGESIZE + 100
    size = 20 * mmap.PAGESIZE
    content = bytes(heap)
    inner = (ctypes.c_char * size).from_buffer(heap, begin)
    (part,) = parts_of([memoryview(inner).cast("B")])
    part.release()
    assert heap[: begin + mmap.PAGESIZE - 100] == content[: begin + mmap.PAGESIZE - 100]
    assert heap[begin + size - 100 :] == content[begin + size - 100 :]
    assert heap[begin + mmap.PAGESIZE : begin + 2 * mmap.PAGESIZE] == bytes(mmap.PAGESIZE)


def test_threads_may_release_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back_at_once(monkeypatch)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        views = answer(*[1_500] * 3_000)
        kept = {number: bytes(views[number]) for number in range(0, 3_000, 300)}
        parts = [part for number, part in enumerate(parts_of(views)) if number not in kept]

        def release(start: int) -> None:
            for part in parts[start::3]:
                part.release()

        threads = [threading.Thread(target=release, args=(start,)) for start in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert {number: bytes(views[number]) for number in kept} == kept
    assert resident(views[0].obj) <= (2 * len(kept) + 2) * mmap.PAGESIZE


def test_a_forked_process_can_release() -> None:
    """Also where another thread held the lock at the fork."""
    (part,) = parts_of(answer(MB))
    with pages.released._lock:
        child = os.fork()
        if not child:
            signal.alarm(10)  # ends it where it waits for ever
            part.release()
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
