"""Giving back to the system what is not needed any more of a large answer, page by page.

One answer to a Fetch is one piece of memory for many partitions: a partition that cannot get rid of its 10 KB keeps
50 MB of others' bytes alive. Pages inside private memory may be given back while the rest of it stays (``madvise``).

Not at once, though: memory that is freed and taken again costs no page faults, memory given back does (measured on
loopback: 0.3 s of CPU per GB received instead of 0.75; the same where each answer is mapped on its own). So what was
released waits until as much as ``KEEP_BYTES`` was released after it: by then most answers are gone as a whole. Where
answers are mapped on their own in any case (:mod:`mirror.runtime.heap`), nothing is gained by waiting: at once, then.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

KEEP_BYTES: Final = 32 * 1024 * 1024
"""Released and not given back yet, in all of the process."""
_MAPPED_BYTES: Final = 32 * 1024 * 1024
"""Above this glibc maps each piece of memory for itself (DEFAULT_MMAP_THRESHOLD_MAX): none of it is taken again."""
_SMALLEST_BYTES: Final = 32 * 1024
"""A part of a smaller answer keeps no more than this; that is not worth the trouble."""
_PAGE: Final = mmap.PAGESIZE


def _find_madvise() -> Callable[[int, int, int], int] | None:
    """The system's own, which takes addresses; None where its MADV_DONTNEED does not mean what Linux's does."""
    if not sys.platform.startswith("linux"):
        return None
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        return lambda address, size, advice: int(madvise(address, size, advice))
    return None


_madvise: Final = _find_madvise()


class _Frame:
    """An answer's memory, and how many parts still need each page that more than one of them has bytes in."""

    __slots__ = ("__weakref__", "memory", "size", "users")

    def __init__(self, memory: Any) -> None:
        start, self.size = _place(memory)
        self.memory = memory
        # Others' memory may end and begin in the first and last page: these have a user that never goes.
        self.users: dict[int, int] = dict.fromkeys((start // _PAGE, (start + self.size) // _PAGE), 1)


class PagedPart:
    """One partition's bytes in an answer. From :func:`parts_of`."""

    __slots__ = ("_first", "_frame", "_last", "_size")

    def __init__(self, frame: _Frame, view: memoryview) -> None:
        start, self._size = _place(view)
        self._frame = frame
        self._first, self._last = start // _PAGE, (start + self._size - 1) // _PAGE
        for page in {self._first, self._last}:
            frame.users[page] = frame.users.get(page, 0) + 1

    @property
    def held(self) -> int:
        """Bytes of the pages that it lies in."""
        return (self._last + 1 - self._first) * _PAGE

    def release(self) -> None:
        """Nobody needs these bytes any more. To be called once, from any thread."""
        _released.add(self._frame, self._first, self._last, self._size)


class _Released:
    """What may be given back, oldest first. It keeps no answer alive."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[weakref.ref[_Frame], int, int, int]] = deque()
        self._bytes = 0
        self.at_once = False
        self.renew_lock()

    def renew_lock(self) -> None:
        """After a fork: who held the lock may have stayed behind."""
        self._lock = threading.Lock()

    def add(self, frame: _Frame, first: int, last: int, size: int) -> None:
        """These pages' turn comes later, and that of others, perhaps, now."""
        due: list[tuple[_Frame, int, int]] = []
        with self._lock:
            if self.at_once or frame.size > _MAPPED_BYTES:
                due.append((frame, *_unused(frame, first, last)))
            else:
                self._waiting.append((weakref.ref(frame), first, last, size))
                self._bytes += size
            while self._bytes > (0 if self.at_once else KEEP_BYTES):
                reference, first, last, size = self._waiting.popleft()
                self._bytes -= size
                if (alive := reference()) is not None:
                    due.append((alive, *_unused(alive, first, last)))
        if _madvise is not None:
            for _, start, end in due:  # `due` keeps the memory until it is done
                if end > start:
                    _madvise(start * _PAGE, (end - start) * _PAGE, mmap.MADV_DONTNEED)


def _unused(frame: _Frame, first: int, last: int) -> tuple[int, int]:
    """From which page on, and up to which, nobody is left once this part is gone."""
    for page in {first, last}:
        frame.users[page] -= 1
    start = first + 1 if frame.users[first] else first
    end = last if frame.users[last] else last + 1
    return start, end


_released: Final = _Released()


def give_back_at_once() -> None:
    """From here on nothing that is released waits, in all of the process."""
    _released.at_once = True


os.register_at_fork(after_in_child=_released.renew_lock)


def parts_of(views: Sequence[memoryview]) -> list[PagedPart]:
    """One for each of ``views``: not empty, writable, with bytes of their own in one and the same piece of memory.

    None where the answer is small. What is in none of them may be given back with its neighbours.
    """
    if _madvise is None or not views or _place(views[0].obj)[1] < _SMALLEST_BYTES:
        return []
    frame = _Frame(views[0].obj)
    return [PagedPart(frame, view) for view in views]


def _place(memory: Any) -> tuple[int, int]:
    """Where it is, and its size in bytes."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory)
