"""Memory of responses that is taken again."""

from __future__ import annotations

import itertools
import mmap
import random
import sys
import weakref
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.cluster.events import Event
from mirror.cluster.loop import JoinEvent
from mirror.cluster.types import TopicPartition
from mirror.consumer.core import ConsumerCore
from mirror.consumer.events import AssignEvent, PollEvent, SeekEvent
from mirror.consumer.fetched import Fetched
from mirror.consumer.settings import ConsumerSettings
from mirror.runtime.memory import buffer_recycling as pages
from mirror.runtime.memory.buffer_recycling import PagedPart, parts_of
from mirror.wire.api import Api
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import build, values_of
from tests.runtime.test_pages import (
    KB,
    MB,
    A,
    B,
    _as_a_client,  # noqa: F401 - a fixture of each test
    address,
    answer,
    give_back_at_once,
    keep,
    resident,
)

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are given back on Linux only")


def received(size: int) -> memoryview:
    """An answer of ``size`` bytes as a copy receives it, full of noise."""
    memory = pages.recycled(size)
    assert len(memory) == size
    memory[:] = random.randbytes(size)
    return memory


def halves(memory: memoryview) -> list[memoryview]:
    return [memory[: len(memory) // 2], memory[len(memory) // 2 :]]


def test_an_answer_comes_into_the_memory_of_one_that_was_released(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 4 * MB)
    earlier = received(2 * MB)
    for part in parts_of(halves(earlier)):
        part.release()
    assert resident(earlier.obj) >= 2 * MB, "no page of it is to be asked of the system again"
    later = received(2 * MB - 5)
    assert address(later) == address(earlier)
    assert address(received(2 * MB)) != address(later)


def test_what_is_partly_needed_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 4 * MB)
    earlier = received(2 * MB)
    parts = parts_of(halves(earlier))
    checksum = crc32c(halves(earlier)[1])
    parts[0].release()
    assert address(received(2 * MB)) != address(earlier)
    assert crc32c(halves(earlier)[1]) == checksum
    parts[1].release()
    assert address(received(2 * MB)) == address(earlier)


def test_memory_that_is_too_small_is_left_alone_and_too_much_of_it_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(monkeypatch, 16 * MB)
    earlier = received(3 * MB)
    parts_of([earlier])[0].release()
    assert address(received(9 * MB)) != address(earlier)
    later = received(MB)
    assert address(later) == address(earlier)
    assert resident(later.obj) < MB + 2 * mmap.PAGESIZE


def test_no_more_is_kept_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, and all of it, also where a view of it still exists."""
    keep(monkeypatch, 4 * MB)
    answers = [received(MB + number * 10 * KB) for number in range(10)]
    parts = [parts_of(halves(one)) for one in answers]
    for one in parts:
        for part in one:
            part.release()
    assert 3 * MB < sum(resident(one.obj) for one in answers) <= 4 * MB
    assert [resident(one.obj) > 0 for one in answers] == [False] * 7 + [True] * 3


def test_an_answer_that_has_holes_is_no_ones_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may just be giving a part of it back."""
    keep(monkeypatch, MB)
    earlier = received(3 * MB)
    parts = parts_of(halves(earlier))
    parts[0].release()
    assert resident(earlier.obj) < 2 * MB
    parts[1].release()
    assert resident(earlier.obj) <= 2 * mmap.PAGESIZE
    assert address(received(3 * MB)) != address(earlier)


def test_an_answer_that_has_holes_is_no_ones_memory_also_if_it_could_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another answer has displaced its first half, and the rest would fit into what may be kept."""
    keep(monkeypatch, 4 * MB)
    earlier, other = received(3 * MB), received(3 * MB)
    first, second = parts_of(halves(earlier))
    first.release()
    for part in parts_of(halves(other)):
        part.release()
    assert resident(earlier.obj) < 2 * MB
    second.release()
    assert resident(earlier.obj) <= 2 * mmap.PAGESIZE
    assert address(received(3 * MB)) == address(other)


def test_a_very_large_answer_waits_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """If its parts were given back one by one, the next receiver into it could lose what has just arrived."""
    keep(monkeypatch, 100 * MB)
    earlier = received(40 * MB)
    parts = parts_of(halves(earlier))
    parts[0].release()
    assert resident(earlier.obj) >= 40 * MB
    parts[1].release()
    assert address(received(40 * MB)) == address(earlier)


def test_of_what_is_released_as_a_whole_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of the allocator's own memory, which gives it to whom it likes."""
    keep(monkeypatch, 10 * MB)
    for _ in range(50):
        for part in parts_of(answer(*[500] * 100)):
            part.release()
    assert (len(pages.released._kept), pages.released._bytes) == (0, 0)


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.integers(0, 1_000 * KB))
def test_whatever_comes_and_goes_what_is_needed_stays(rng: random.Random, kept_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        keep(patch, kept_bytes)
        live: list[tuple[memoryview, int, PagedPart]] = []
        memories: weakref.WeakSet[Any] = weakref.WeakSet()

        def come() -> None:
            memory = received(rng.randrange(40 * KB, 500 * KB))
            memories.add(memory.obj)
            ends = sorted({0, len(memory), *(rng.randrange(1, len(memory)) for _ in range(rng.randrange(4)))})
            views = [memory[start:end] for start, end in itertools.pairwise(ends)]
            live.extend((view, crc32c(view), part) for view, part in zip(views, parts_of(views), strict=True))
            rng.shuffle(live)

        for _ in range(20):
            come()
            while len(live) > 4:
                live.pop()[2].release()
            assert all(crc32c(view) == checksum for view, checksum, _ in live)
        whole = sum(-(-len(view) // mmap.PAGESIZE) + 1 for view, _, _ in live) * mmap.PAGESIZE
        # What is kept, what lives, and the first page of each, which might be others', too.
        assert sum(map(resident, memories)) <= kept_bytes + whole + len(memories) * mmap.PAGESIZE


# --- through the consumer


class Reader:
    """A consumer core on the fake network with the real pages."""

    def __init__(self, records: int, size: int) -> None:
        self.cluster = FakeCluster()
        self.cluster.add_topic("t", 2)
        for partition in range(2):
            for number in range(records):
                self.cluster.log("t", partition).append(build((b"%d-%d" % (partition, number) + bytes(size),)))
        self.client = FakeConsumer(self.cluster)
        options = {"bootstrap.servers": self.cluster.bootstrap}
        self.core = ConsumerCore(ConsumerSettings.parse(options), self.client.loop, parts_of)
        self.client.submit(None, JoinEvent(self.core))
        self.handle(AssignEvent([A, B]), SeekEvent(A, 0, None), SeekEvent(B, 0, None))

    def handle(self, *events: Event) -> None:
        for event in events:
            self.client.submit(self.core, event)

    def poll(self) -> dict[TopicPartition, Fetched]:
        return {one.tp: one for one in self.client.call(PollEvent(*self.client.timer()), self.core)}


def test_one_partitions_release_leaves_the_other_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back_at_once(monkeypatch)
    found = Reader(5, 100 * KB).poll()
    (view,) = {id(one.batches[0].view.obj): one.batches[0].view for one in found.values()}.values()
    frame = view.obj
    whole = resident(frame)
    found[A].release()
    found[A].release()
    assert whole - resident(frame) > 490 * KB
    for number, batch in enumerate(found[B].batches):
        batch.verify()
        assert values_of(batch.view)[0].startswith(b"1-%d" % number)
    found[B].release()
    assert resident(frame) <= 2 * mmap.PAGESIZE


def test_what_nobody_is_to_read_is_released_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seek drops what was fetched; it shares its memory with what the others still wait to have taken."""
    give_back_at_once(monkeypatch)
    reader = Reader(5, 100 * KB)
    reader.client.run_for(500)
    first = next(one for one in reader.core.positions.ready if one.tp == B)
    frame = first.batches[0].view.obj
    whole = resident(frame)
    reader.handle(SeekEvent(A, 4, None))
    found = reader.poll()
    assert found[B] is first
    assert whole - resident(frame) > 490 * KB
    for batch in found[B].batches:
        batch.verify()


def test_what_comes_too_late_is_released_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back_at_once(monkeypatch)
    reader = Reader(5, 100 * KB)
    held = reader.cluster.control.on(Api.FETCH, Action(hold="after"))
    reader.client.run_for(500)
    reader.handle(SeekEvent(A, 4, None))
    reader.client.run_for(10)
    held.release()
    found = reader.poll()
    assert set(found) == {B}
    frame: Any = found[B].batches[0].view.obj
    assert len(frame) > 1_000 * KB
    # How many pages that is depends on where they begin: those of what is left, and the two at the ends.
    left = found[B].batches
    first, last = address(left[0].view), address(left[-1].view) + len(left[-1].view) - 1
    ends = {at // mmap.PAGESIZE for at in (address(frame), address(frame) + len(frame) - 1)}
    assert resident(frame) == mmap.PAGESIZE * len(ends.union(range(first // mmap.PAGESIZE, last // mmap.PAGESIZE + 1)))
    for batch in found[B].batches:
        batch.verify()
