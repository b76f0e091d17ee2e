"""A process whose heap is bounded gives back what it does not need any more."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc, on Linux")

_PROGRAM = """
import psutil
from mirror.runtime.memory import malloc_tuning as heap
from mirror.runtime.memory import buffer_recycling as pages

if {bounded}:
    heap.bound_heap()

def resident():
    return psutil.Process().memory_info().rss >> 20

# As fetches do: large pieces come and go, and each time a small one stays behind them.
bytearray(30 << 20)  # freed: without bounds, pieces up to this size lie in the heap from here on
before, small = resident(), []
for _ in range(20):
    large = bytearray(b"x") * (2 << 20)
    small.append(bytearray(b"x") * 1_000)
    small.append([object() for _ in range(100)])
    part = pages.parts_of([memoryview(large)])[0]
    keeps = memoryview(large)[:1]
    part.release()
    small.append(keeps)
print(resident() - before)
"""


_CYCLES = """
import gc
from mirror.runtime.memory import malloc_tuning as heap

if {bounded}:
    heap.bound_heap()
looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))
kept = [[] for _ in range(10_000)]
print(len(looks))
"""

_STREAM = """
import contextlib, gc, io
from mirror.spark.driver import stream_job

with contextlib.redirect_stderr(io.StringIO()):
    stream_job.main(["--config", "/no/such/file"])
looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))
kept = [[] for _ in range(10_000)]
print(len(looks))
"""

_LEFT_BEHIND = """
import gc, weakref
from mirror.runtime.memory import malloc_tuning as heap

class Copy:
    pass

gc.disable()
copy = Copy()
copy.itself, seen = copy, weakref.ref(copy)
del copy
heap.collect_ended_tasks()
print(int(seen() is not None))
"""

_ANNOUNCED = """
import psutil, struct
from mirror.runtime.memory import malloc_tuning as heap
from mirror.wire.frames import FrameReader

if {bounded}:
    heap.bound_heap()
before, readers = psutil.Process().memory_info().rss, [FrameReader() for _ in range(10)]
for reader in readers:
    reader.buffer()[:4] = struct.pack(">i", 4 << 20)
    reader.received(4)
print(psutil.Process().memory_info().rss - before >> 20)
"""


def _left(*, bounded: bool) -> int:
    """MB that are left of 20 answers of 2 MB, all released, each of them still looked at."""
    return _printed(_PROGRAM.format(bounded=bounded))


def _printed(program: str) -> int:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


def test_what_is_released_is_given_back_at_once() -> None:
    assert _left(bounded=False) > 20
    assert _left(bounded=True) < 5


def test_cycles_are_looked_for_less_often() -> None:
    assert _printed(_CYCLES.format(bounded=False)) > 10
    assert _printed(_CYCLES.format(bounded=True)) == 0


def test_cycles_are_looked_for_less_often_in_the_driver_of_a_stream() -> None:
    assert _printed(_STREAM) == 0


def test_what_earlier_copies_have_left_is_collected() -> None:
    assert _printed(_LEFT_BEHIND) == 0


def test_an_answer_takes_memory_as_it_comes() -> None:
    assert _printed(_ANNOUNCED.format(bounded=False)) > 30
    assert _printed(_ANNOUNCED.format(bounded=True)) < 5
