"""Whose memory is whose: what a copy holds, and when it lets go of it; each answer given by hand."""

from __future__ import annotations

import weakref

from mirror.consumer.fetched import Fetched
from mirror.errors import ConnectionFailed, KafkaTimeout
from mirror.wire.records import Batches
from tests.fakes.record_batches import build
from tests.relay.copy_harness import SOURCE, CopyHarness, made


def test_bytes_are_held_until_the_last_of_them_is_acknowledged_and_released_once() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0), made(1))
    run.fetch(made(2), made(3))
    size = made(0).size
    assert run.copy.held_bytes == 4 * size
    run.ack(0)
    run.ack(1)
    assert [part.released for part in run.parts] == [1, 0]
    assert run.copy.held_bytes == 2 * size
    run.ack(2)
    assert [part.released for part in run.parts] == [1, 0]
    run.ack(3)
    assert [part.released for part in run.parts] == [1, 1]
    assert run.copy.held_bytes == 0


def test_bytes_of_a_lost_batch_are_not_released_since_they_may_still_be_sent() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0), made(1))
    run.ack(0)
    run.fail(1, ConnectionFailed("gone"))
    assert [part.released for part in run.parts] == [0]
    assert run.copy.held_bytes == 0


def test_bytes_made_anew_are_held_too_and_their_sources_released_once_they_are_made() -> None:
    run = CopyHarness(10, headers=(("h", b"x"),)).opened(0)
    run.context.reencodes_by_hand = True
    run.fetch(made(0))
    assert run.copy.held_bytes == made(0).size
    run.context.reencode()
    run.context.run_until_idle()
    assert run.parts[0].released == 1
    assert run.copy.held_bytes == run.writer.sent[0].size
    run.ack()
    assert run.copy.held_bytes == 0


def test_without_memory_a_batch_waits_in_line_and_goes_later() -> None:
    run = CopyHarness(1).opened(0)
    run.writer.send_error = KafkaTimeout("no memory")
    run.context.send_window.call = lambda now: None  # type: ignore[method-assign] # noqa: ARG005
    run.fetch(made(0))
    assert run.context.send_window.awaited == 1
    assert not run.copy.wants_more
    run.writer.send_error = None
    del run.context.send_window.call
    run.context.run_until_idle()
    assert run.sent == [[b"0"]]


def test_however_small_batches_are_only_so_many_are_under_way() -> None:
    """Each takes some KB as objects."""
    run = CopyHarness(2_000, memory=1_000_000).opened(0)
    big = [made(n * 40, 40) for n in range(50)]  # too many records to be put together
    assert big[0].size < 1_000
    run.fetch(*big)
    for _ in range(20):
        unanswered = [n for n, one in enumerate(run.writer.sent) if not one.answered]
        assert len(unanswered) <= 1_000_000 // (16 * 1024) + 1
        if unanswered:
            run.ack(*unanswered)
    assert len(run.writer.sent) == 50


def test_what_was_made_anew_is_not_kept_once_it_is_taken_up() -> None:
    """A copy that follows may encode nothing more for hours; what was decoded may be four times the buffer."""
    run = CopyHarness(10, headers=(("h", b"x"),)).opened(0)
    run.context.reencodes_by_hand = True
    run.fetch(made(0))
    run.context.reencode()
    run.context.run_until_idle()
    assert len(run.sent) == 1
    made_anew = weakref.ref(run.context.reencodings.pop()[2])
    assert made_anew() is None


class _Wiped:
    """A part of an answer whose memory has other bytes as soon as it is released."""

    def __init__(self, memory: bytearray) -> None:
        self.memory, self.held = memory, len(memory)

    def release(self) -> None:
        self.memory[:] = bytes(len(self.memory))


def test_what_is_not_wanted_is_released_at_once_and_looked_at_no_more() -> None:
    """What lies before the end is gone, as in a compacted topic: nothing of the answer is to be copied."""
    run = CopyHarness(8).opened(5)
    memory = build((b"behind the end",), base_offset=9)
    fetched = Fetched(
        tp=SOURCE,
        offset=5,
        next_offset=10,
        batches=Batches(memoryview(memory), 5),
        size=len(memory),
        held=len(memory),
        part=_Wiped(memory),
    )
    run.copy.on_fetched(fetched, run.clock.now())
    assert not any(memory)
    assert run.commit().offset == 8
