"""Giving back to the system what is not needed any more of a large answer, page by page, or receiving into it again.

One answer to a Fetch is one piece of memory for many partitions: a partition that cannot get rid of its 10 KB keeps
50 MB of others' bytes alive. Pages inside private memory may be given back while the rest of it stays (``madvise``).

Not at once, though: memory that was given back costs a page fault for each page when it is taken again (measured on
loopback: 0.8 s of CPU per GB received, and 0.17 into memory that is still there). So what was released waits until a
bounded amount was released after it: by then most answers are gone as a whole. Where answers are mapped on their own
(``malloc_tuning``), the allocator cannot give such a one's memory to the next, so it is done here: the memory
of an answer that was released as a whole is a spare until it is taken, or too old.
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
"""Released and not given back yet, in all of the process, unless :func:`keep_released` says otherwise."""
_MAPPED_BYTES: Final = 32 * 1024 * 1024
"""Above this glibc maps each piece of memory for itself (DEFAULT_MMAP_THRESHOLD_MAX): none of it is taken again."""
_SMALLEST_BYTES: Final = 32 * 1024
"""A part of a smaller answer keeps no more than this; that is not worth the trouble."""
_MAPPING_STEP: Final = 8 * 1024 * 1024
"""Mappings are larger than what is asked for, so that a larger answer fits, too; pages never touched cost nothing."""
_LEAST_COUNTED: Final = 1024
"""Bytes that a part counts for at least: what is remembered of it takes some itself."""
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


class _Mapping(mmap.mmap):
    """Memory that answers lie in, one after the other. ``used``: the bytes from its start that may be there."""

    used = 0


class _Frame:
    """An answer's memory, and how many parts still need each page that more than one of them has bytes in.

    ``left``: how many parts are not released. ``waiting``: those that are, and wait. ``holed``: some were given back.
    """

    __slots__ = ("__weakref__", "holed", "left", "memory", "size", "users", "waiting")

    def __init__(self, memory: Any, parts: int) -> None:
        start, self.size = _place(memory)
        self.memory = memory
        self.left = parts
        self.waiting: list[_Waiting] = []
        self.holed = False
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


class _Waiting:
    """A part that was released. It keeps no answer alive."""

    __slots__ = ("first", "frame", "last", "size")

    def __init__(self, frame: _Frame, first: int, last: int, size: int) -> None:
        self.frame = weakref.ref(frame)
        self.first, self.last, self.size = first, last, size


class _Released:
    """What may be given back, oldest first: parts of answers, and spares, the memory of whole ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Waiting | _Mapping, None] = OrderedDict()
        self._bytes = 0
        self.keep_bytes = KEEP_BYTES
        self.renew_lock()

    def renew_lock(self) -> None:
        """After a fork: who held the lock may have stayed behind."""
        self._lock = threading.Lock()

    def add(self, frame: _Frame, first: int, last: int, size: int) -> None:
        """These pages' turn comes later, and that of others, perhaps, now."""
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
            for _, start, end in due:  # `due` keeps the memory until it is done
                if end > start:
                    _madvise(start * _PAGE, (end - start) * _PAGE, mmap.MADV_DONTNEED)

    def _done(self, frame: _Frame, first: int, last: int) -> list[tuple[Any, int, int]]:
        """All of it is released, and none of it waits any more: it is a spare, or the allocator's, or goes back."""
        waiting = [one for one in frame.waiting if one in self._kept]
        for one in waiting:
            self._bytes -= one.size
            del self._kept[one]
        if isinstance(frame.memory, _Mapping) and not frame.holed:
            self._kept[frame.memory] = None
            self._bytes += frame.memory.used
            return []
        if self.keep_bytes and not frame.holed and frame.size <= _MAPPED_BYTES:
            return []  # the allocator gives it to the next that asks
        pages = [*((one.first, one.last) for one in waiting), (first, last)]
        return [(frame, *_unused(frame, *each)) for each in pages]

    def _given_up(self, one: _Waiting | _Mapping) -> list[tuple[Any, int, int]]:
        """Its memory, and from which page on, and up to which, nobody needs it. To be given back without the lock."""
        if isinstance(one, _Mapping):
            self._bytes -= one.used
            first = _place(one)[0] // _PAGE
            return [(one, first, first + _pages(one.used))]
        self._bytes -= one.size
        frame = one.frame()
        if frame is None:
            return []
        frame.holed = True  # or it could be taken again while its pages are given back
        return [(frame, *_unused(frame, one.first, one.last))]

    def take(self, size: int) -> memoryview:
        """Memory for an answer of ``size`` bytes: the newest spare that is large enough, or new."""
        with self._lock:
            spares = (one for one in reversed(self._kept) if isinstance(one, _Mapping))
            found = next((one for one in spares if len(one) >= size), None)
            if found is not None:
                del self._kept[found]
                self._bytes -= found.used
        if found is None:
            found = _Mapping(-1, -(-size // _MAPPING_STEP) * _MAPPING_STEP, flags=mmap.MAP_PRIVATE)
            with contextlib.suppress(OSError, AttributeError):  # of 130 KB, a huge page would make 2 MB
                found.madvise(mmap.MADV_NOHUGEPAGE)
        elif _madvise is not None and _pages(found.used) > _pages(size):
            kept = _pages(size) * _PAGE
            _madvise(_place(found)[0] + kept, _pages(found.used) * _PAGE - kept, mmap.MADV_DONTNEED)
        found.used = size
        return memoryview(found)[:size]


def _pages(size: int) -> int:
    return -(-size // _PAGE)


def _unused(frame: _Frame, first: int, last: int) -> tuple[int, int]:
    """From which page on, and up to which, nobody is left once this part is gone."""
    for page in {first, last}:
        frame.users[page] -= 1
    start = first + 1 if frame.users[first] else first
    end = last if frame.users[last] else last + 1
    return start, end


_released: Final = _Released()


def keep_released(size: int) -> None:
    """From here on no more than ``size`` bytes of what is released are kept in this process; of no effect on others."""
    _released.keep_bytes = size


def recycled(size: int) -> memoryview:
    """Writable memory for an answer of ``size`` bytes, with anything in it: an earlier one's, where one was released.

    It may be given to the next once all its :func:`parts_of` are released, whoever still looks at it.
    """
    return _released.take(size)


def _after_fork() -> None:
    _released.renew_lock()


os.register_at_fork(after_in_child=_after_fork)


def parts_of(views: Sequence[memoryview]) -> list[PagedPart]:
    """One for each of ``views``: not empty, writable, with bytes of their own in one and the same piece of memory.

    None where the answer is small. What is in none of them may be given back with its neighbours.
    """
    if _madvise is None or not views or _place(views[0].obj)[1] < _SMALLEST_BYTES:
        return []
    frame = _Frame(views[0].obj, len(views))
    return [PagedPart(frame, view) for view in views]


def _place(memory: Any) -> tuple[int, int]:
    """Where it is, and its size in bytes."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory)
