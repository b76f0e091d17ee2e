"""Tunes malloc and the garbage collector, so that unused memory returns to the system."""

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
"""Constants of glibc's malloc.h."""

_ANSWER_BYTES: Final = 128 * 1024
_LARGE_BYTES: Final = 1024 * 1024
_ARENAS: Final = 2
_YOUNG_OBJECTS: Final = 50_000
"""Containers (lists, dictionaries, ...) that are created and not freed before the cycle collector runs."""


# Invariant: Copies leave no reference cycles behind, so that the garbage collector may run rarely.
# Test: tests/runtime/test_heap.py::test_cycles_are_looked_for_less_often
# Test: tests/runtime/test_heap.py::test_what_earlier_copies_have_left_is_collected
# Test: tests/copying/test_garbage.py::test_copies_are_freed_without_a_collection
def bound_heap(released_bytes: int = 0) -> None:
    """Let malloc map large allocations separately and use two heaps at most; no effect unless the C library is glibc.

    glibc raises its threshold for separate mappings with each large allocation that is freed, up to 32 MB. From then
    on Fetch responses would be in fragmented heaps, one for every few threads. Measured with bounds of 40 MB and 60
    KB batches, two runs each: 55 and 57 MB; with separate mappings from the start 34 and 39 MB. Responses are mapped
    here and not by glibc: that saves filling them with zeros, and their page faults occur in the receive, while
    other threads may run. ``released_bytes`` of released ones are kept and reused (``buffer_recycling``).

    glibc itself maps separately, and trims its heaps, from a MB on: otherwise the memory of each re-encoded batch
    would be requested from the system each time (measured with batches of 60 and 120 KB: 9 us a record instead of
    6).

    Python's cycle collector runs less often, too (:func:`collect_rarely`).
    """
    collect_rarely()
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


def collect_rarely() -> None:
    """Have Python's cycle collector run less often in this process.

    Measured with its default threshold (700): it takes 3.5% of the CPU of a copy, while 1,900 batches create no cycle,
    and reference counts free their memory. In a stream's driver, a round of 1,000 consumer groups with 10 partitions
    went through all of the process' objects three times, which took as long as the round itself.
    """
    young, *older = gc.get_threshold()
    if young:  # 0: the collector is disabled in this process
        gc.set_threshold(max(young, _YOUNG_OBJECTS), *older)


def collect_ended_tasks() -> None:
    """Collect what ended tasks have left in this process: their clients' cycles, with 50 containers for a partition.

    The rarer runs of the collector would do it too late.
    """
    gc.collect()
