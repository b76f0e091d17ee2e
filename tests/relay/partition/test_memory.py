"""The fetched and re-encoded bytes that a copy holds, and when it releases them."""

from __future__ import annotations

import weakref

from mirror.consumer.fetched import Fetched
from mirror.errors import ConnectionFailed, KafkaTimeout
from mirror.wire.records import Batches
from tests.fakes.record_batches import build
from tests.relay.copy_harness import CopyHarness, made
from tests.relay.hand_context import SOURCE


def test_fetched_bytes_are_released_once_when_all_their_batches_are_acknowledged() -> None:
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


def test_bytes_of_a_failed_batch_are_not_released_since_they_may_still_be_sent() -> None:
    run = CopyHarness(10).opened(0)
    run.fetch(made(0), made(1))
    run.ack(0)
    run.fail(1, ConnectionFailed("gone"))
    assert [part.released for part in run.parts] == [0]
    assert run.copy.held_bytes == 0


def test_reencoded_bytes_are_held_and_their_source_is_released_after_the_encoding() -> None:
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


def test_batch_without_memory_queues_and_is_sent_later() -> None:
    run = CopyHarness(1).opened(0)
    run.writer.send_error = KafkaTimeout("no memory")
    run.context.send_window.next_sender = lambda now: None  # type: ignore[method-assign] # noqa: ARG005
    run.fetch(made(0))
    assert run.context.send_window.waiting_count == 1
    assert not run.copy.wants_more
    run.writer.send_error = None
    del run.context.send_window.next_sender
    run.context.run_until_idle()
    assert run.sent == [[b"0"]]


def test_number_of_small_batches_in_flight_is_limited() -> None:
    """The objects of a batch take some KB, however small it is."""
    run = CopyHarness(2_000, memory=1_000_000).opened(0)
    big = [made(n * 40, 40) for n in range(50)]  # too many records to be merged
    assert big[0].size < 1_000
    run.fetch(*big)
    for _ in range(20):
        unanswered = run.unanswered
        assert len(unanswered) <= 1_000_000 // (16 * 1024) + 1
        if unanswered:
            run.ack(*unanswered)
    assert len(run.writer.sent) == 50


def test_reencoded_result_is_not_referenced_after_it_was_sent() -> None:
    """A copy that follows may re-encode nothing for hours; the decoded bytes may be four times the buffer."""
    run = CopyHarness(10, headers=(("h", b"x"),)).opened(0)
    run.context.reencodes_by_hand = True
    run.fetch(made(0))
    run.context.reencode()
    run.context.run_until_idle()
    assert len(run.sent) == 1
    result = weakref.ref(run.context.reencodings.pop()[2])
    assert result() is None


class _Wiped:
    """A part of a response whose memory is overwritten when it is released."""

    def __init__(self, memory: bytearray) -> None:
        self.memory, self.held = memory, len(memory)

    def release(self) -> None:
        self.memory[:] = bytes(len(self.memory))


def test_unwanted_batches_are_released_and_not_read_afterwards() -> None:
    """The range's last records are compacted away: nothing of the response is to be copied."""
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
