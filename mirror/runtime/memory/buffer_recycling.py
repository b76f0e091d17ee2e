"""Reuses the memory of large responses, or returns it to the system page by page.

A Fetch response is one allocation for many partitions: a partition that cannot deliver its 10 KB keeps 50 MB of others'
bytes alive. Pages within private memory can be returned to the system while the rest of it stays (``madvise``).

That does not happen at once: returned memory costs a page fault for each page when it is used again (measured on
loopback: 0.8 s of CPU per GB received, and 0.17 into memory that is still resident). Released memory is kept until a
bounded amount was released after it: by then most responses are released as a whole. Where responses are mapped
separately (``malloc_tuning``), the allocator cannot reuse their memory, so that is done here: the memory of a fully
released response is a spare until it is reused, or too old.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

KEEP_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the process that are released but kept, unless :func:`keep_released` sets another number."""
_MAPPED_BYTES: Final = 32 * 1024 * 1024
"""Above this glibc maps each allocation separately (DEFAULT_MMAP_THRESHOLD_MAX), and reuses none of it."""
_SMALLEST_BYTES: Final = 32 * 1024
"""Parts of smaller responses are not tracked, as they keep no more than this."""
_MAPPING_STEP: Final = 8 * 1024 * 1024
"""Mappings are larger than requested, so that larger responses fit, too; untouched pages cost nothing."""
_LEAST_COUNTED: Final = 1024
"""The least number of bytes that a part counts for, as tracking it needs memory, too."""
_PAGE: Final = mmap.PAGESIZE


def _find_madvise() -> Callable[[int, int, int], int] | None:
    """The system call ``madvise`` on addresses; None where its MADV_DONTNEED differs from that of Linux."""
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        return lambda address, size, advice: int(madvise(address, size, advice))
    return None


_madvise: Final = _find_madvise()


class _Mapping(mmap.mmap):
    """Memory for responses, one after the other. ``used``: the bytes from its start that may be resident."""

    used = 0


class _Frame:
    """The memory of a response, with the number of parts in use for each page that several parts share.

    ``left``: parts that are not released. ``waiting``: released parts that are kept. ``holed``: some pages were
    returned to the system.
    """

    __slots__ = ("__weakref__", "holed", "left", "memory", "size", "users", "waiting")

    def __init__(self, memory: Any, parts: int) -> None:
        start, self.size = _place(memory)
        self.memory = memory
        self.left = parts
        self.waiting: list[_Waiting] = []
        self.holed = False
        # The first and last page may contain other memory: they count as used for ever.
        self.users: dict[int, int] = dict.fromkeys((start // _PAGE, (start + self.size) // _PAGE), 1)


class PagedPart:
    """The bytes of one partition in a response. Created by :func:`parts_of`."""

    __slots__ = ("_first", "_frame", "_last", "_size")

    def __init__(self, frame: _Frame, view: memoryview) -> None:
        start, self._size = _place(view)
        self._frame = frame
        self._first, self._last = start // _PAGE, (start + self._size - 1) // _PAGE
        for page in {self._first, self._last}:
            frame.users[page] = frame.users.get(page, 0) + 1

    @property
    def held(self) -> int:
        """Bytes of its pages."""
        return (self._last + 1 - self._first) * _PAGE

    def release(self) -> None:
        """Allow the memory to be reused. Called once, from any thread."""
        released.add(self._frame, self._first, self._last, self._size)


class _Waiting:
    """A released part, which keeps no response alive."""

    __slots__ = ("first", "frame", "last", "size")

    def __init__(self, frame: _Frame, first: int, last: int, size: int) -> None:
        self.frame = weakref.ref(frame)
        self.first, self.last, self.size = first, last, size


class Released:
    """Released memory, oldest first: parts of responses, and spares: the memory of whole ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Waiting | _Mapping, None] = OrderedDict()
        self._bytes = 0
        self.keep_bytes = KEEP_BYTES
        self.renew_lock()

    def renew_lock(self) -> None:
        """Replace the lock after a fork: its holder may not exist in this process."""
        self._lock = threading.Lock()

    def add(self, frame: _Frame, first: int, last: int, size: int) -> None:
        """Keep these pages, and return the oldest ones above the limit to the system."""
        due: list[tuple[Any, int, int]] = []
        with self._lock:
            frame.left -= 1
            if not frame.left:
                due += self._done(frame, first, last)
            elif frame.size > _MAPPED_BYTES and not isinstance(frame.memory, _Mapping):
                due.append((frame, *_unused(frame, first, last)))
            else:
                waiting = _Waiting(frame, first, last, max(size, _LEAST_COUNTED))
                frame.waiting.append(waiting)
                self._kept[waiting] = None
                self._bytes += waiting.size
            while self._bytes > self.keep_bytes:
                due += self._given_up(self._kept.popitem(last=False)[0])
        if _madvise is not None:
            for _, start, end in due:  # `due` keeps the memory alive until then
                if end > start:
                    _madvise(start * _PAGE, (end - start) * _PAGE, mmap.MADV_DONTNEED)

    def _done(self, frame: _Frame, first: int, last: int) -> list[tuple[Any, int, int]]:
        """Make the memory of a fully released response a spare, or leave it to the allocator or the system."""
        waiting = [one for one in frame.waiting if one in self._kept]
        for one in waiting:
            self._bytes -= one.size
            del self._kept[one]
        if isinstance(frame.memory, _Mapping) and not frame.holed:
            self._kept[frame.memory] = None
            self._bytes += frame.memory.used
            return []
        if self.keep_bytes and not frame.holed and frame.size <= _MAPPED_BYTES:
            return []  # the allocator reuses it
        pages = [*((one.first, one.last) for one in waiting), (first, last)]
        return [(frame, *_unused(frame, *each)) for each in pages]

    def _given_up(self, one: _Waiting | _Mapping) -> list[tuple[Any, int, int]]:
        """Return the memory, and the range of pages to return to the system, which happens without the lock."""
        if isinstance(one, _Mapping):
            self._bytes -= one.used
            first = _place(one)[0] // _PAGE
            return [(one, first, first + _pages(one.used))]
        self._bytes -= one.size
        frame = one.frame()
        if frame is None:
            return []
        frame.holed = True  # or it could be reused while its pages are returned
        return [(frame, *_unused(frame, one.first, one.last))]

    def take(self, size: int) -> memoryview:
        """Return memory for a response of ``size`` bytes: the newest spare that is large enough, or new memory."""
        with self._lock:
            spares = (one for one in reversed(self._kept) if isinstance(one, _Mapping))
            found = next((one for one in spares if len(one) >= size), None)
            if found is not None:
                del self._kept[found]
                self._bytes -= found.used
        if found is None:
            found = _Mapping(-1, -(-size // _MAPPING_STEP) * _MAPPING_STEP, flags=mmap.MAP_PRIVATE)
            with contextlib.suppress(OSError, AttributeError):  # a huge page would turn 130 KB into 2 MB
                found.madvise(mmap.MADV_NOHUGEPAGE)
        elif _madvise is not None and _pages(found.used) > _pages(size):
            kept = _pages(size) * _PAGE
            _madvise(_place(found)[0] + kept, _pages(found.used) * _PAGE - kept, mmap.MADV_DONTNEED)
        found.used = size
        return memoryview(found)[:size]


def _pages(size: int) -> int:
    return -(-size // _PAGE)


def _unused(frame: _Frame, first: int, last: int) -> tuple[int, int]:
    """Return the range of pages that no part uses once this one is released."""
    for page in {first, last}:
        frame.users[page] -= 1
    start = first + 1 if frame.users[first] else first
    end = last if frame.users[last] else last + 1
    return start, end


released: Final = Released()


def keep_released(size: int) -> None:
    """Keep at most ``size`` bytes of released memory in this process from now on."""
    released.keep_bytes = size


# Invariant: A response of which a part was given back to the system is no spare for later ones: two threads would use
#   its pages at once.
# Test: tests/runtime/test_pages_again.py::test_an_answer_comes_into_the_memory_of_one_that_was_released
def recycled(size: int) -> memoryview:
    """Return writable memory for a response of ``size`` bytes, with undefined content: reused, if some was released.

    It may be reused once all its :func:`parts_of` are released, also while views of it exist.
    """
    return released.take(size)


def _after_fork() -> None:
    released.renew_lock()


os.register_at_fork(after_in_child=_after_fork)


def parts_of(views: Sequence[memoryview]) -> list[PagedPart]:
    """Return a part for each of ``views``, which are not empty, writable, disjoint, and in the same memory.

    There are none if the response is small. Bytes that are in no view may be returned with their neighbours.
    """
    if _madvise is None or not views or _place(views[0].obj)[1] < _SMALLEST_BYTES:
        return []
    frame = _Frame(views[0].obj, len(views))
    return [PagedPart(frame, view) for view in views]


def _place(memory: Any) -> tuple[int, int]:
    """Return its address and its size in bytes."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory)
