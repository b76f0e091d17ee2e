"""Has memory given back that is not used any more, so that a process stays within what it may take."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from typing import Final

from mirror.runtime.memory.buffer_recycling import keep_released, recycled
from mirror.wire.frames import FrameReader

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""From malloc.h of glibc."""

_ANSWER_BYTES: Final = 128 * 1024
_LARGE_BYTES: Final = 1024 * 1024
_ARENAS: Final = 2
_YOUNG_OBJECTS: Final = 50_000
"""Containers, such as lists and dictionaries, made and not freed before the collector of cycles looks at them."""


def bound_heap(released_bytes: int = 0) -> None:
    """Map what is large for itself, and keep two heaps at most; of no effect where the C library is not glibc.

    glibc raises its threshold for mapping with each large piece that is freed, up to 32 MB. From then on the answers to
    fetches would lie in heaps with holes, one for each few threads. Measured with bounds of 40 MB, 60 KB batches, two
    runs each: 55 and 57 MB; mapped from the process's start 34 and 39 MB. Answers are mapped here and not by glibc: it
    saves filling them with zeros, and page faults come in the receive, while other threads may run. ``released_bytes``
    of what is released of them are kept, and received into again (:mod:`mirror.runtime.memory.buffer_recycling`).

    glibc itself maps, and trims its heaps, from a MB on: what a batch is encoded anew in would else be asked of the
    system each time (measured, batches of 60 and 120 KB: 9 us a record instead of 6).

    Everywhere, Python's collector of cycles looks less often. Measured: with its own threshold (700) it takes 3.5% of
    the CPU of a copy, and 1,900 batches make no cycle at all: reference counts free their memory. But each copy as a
    whole is one, of 90 containers for a partition. So what an earlier one in this process has left is collected here,
    once: found by the rarer looks alone, it came to a dozen epochs' worth.
    """
    young, *older = gc.get_threshold()
    if young:  # 0: whoever runs this wants no looks at all
        gc.set_threshold(max(young, _YOUNG_OBJECTS), *older)
    gc.collect()
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in (
            (_M_MMAP_THRESHOLD, _LARGE_BYTES),
            (_M_TRIM_THRESHOLD, _LARGE_BYTES),
            (_M_ARENA_MAX, _ARENAS),
        ):
            mallopt(parameter, value)
        keep_released(released_bytes)
        FrameReader.large = _ANSWER_BYTES, recycled
