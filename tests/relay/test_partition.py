"""One partition's copy, its sends answered by hand."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.cluster.topics import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import (
    ConnectionFailed,
    DeliveryTimeout,
    Fenced,
    KafkaError,
    KafkaTimeout,
    OffsetOutOfRange,
    RecordRejected,
)
from mirror.producer.batches import RecordMetadata
from mirror.relay.partition import PartitionCopy
from mirror.relay.ranges import Outcome, Range
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import LOG_APPEND_TIME, TRANSACTIONAL, Batch
from tests.fakes.record_batches import ABORT, batch, build, build_marker

_SOURCE, _TARGET = TopicPartition("t", 0), TopicPartition("paris.t", 0)


class Copying:
    """A copy of ``[start, end)``; what it sent, in order, with the futures to answer."""

    def __init__(
        self, end: int, *, start: int = 0, share: int = 1_000_000, target_log_append_time: bool = False
    ) -> None:
        self.sent: list[tuple[Batch, Future[RecordMetadata]]] = []
        self.refuse: KafkaError | None = None
        self.copy = PartitionCopy(
            range=Range(
                flow="flow",
                topic="t",
                target_topic="paris.t",
                partition=0,
                start=start,
                end=end,
                source_cluster_id="paris",
                topic_id="the-id",
            ),
            start=start,
            share=share,
            send=self._send,
            target_log_append_time=target_log_append_time,
            now=0,
        )

    def _send(self, tp: TopicPartition, one: Batch) -> Future[RecordMetadata]:
        assert tp == _TARGET
        if self.refuse is not None:
            raise self.refuse
        future: Future[RecordMetadata] = Future()
        self.sent.append((one, future))
        return future

    def fetch(self, *batches: Batch, aborted: tuple[AbortedTransaction, ...] = (), now: int = 0) -> None:
        offset = batches[0].base_offset if batches else 0
        next_offset = batches[-1].next_offset if batches else 0
        fetched = Fetched(tp=_SOURCE, offset=offset, next_offset=next_offset, batches=list(batches), aborted=aborted)
        self.copy.take_in(fetched, now)

    def ack(self, *which: int) -> None:
        for number in which:
            self.sent[number][1].set_result(RecordMetadata(_TARGET, number))
        self.copy.harvest(0)

    def fail(self, which: int, error: Exception) -> None:
        self.sent[which][1].set_exception(error)
        self.copy.harvest(0)

    @property
    def progress(self) -> int | None:
        told = self.copy.progress()
        return None if told is None else told.offset


def _batch(base: int, count: int = 1, **options: int) -> Batch:
    return batch(build([b"%d" % n for n in range(base, base + count)], base_offset=base, **options))  # type: ignore[arg-type]


def _batches(count: int) -> list[Batch]:
    return [_batch(number) for number in range(count)]


def _outcome(copying: Copying) -> Outcome:
    assert copying.copy.done
    return copying.copy.result.outcome


def test_a_range_is_copied_and_complete() -> None:
    copying = Copying(5)
    copying.fetch(_batch(0, 2), _batch(2, 3))
    assert not copying.copy.wants_more
    assert copying.progress is None
    copying.ack(0, 1)
    assert _outcome(copying) is Outcome.COMPLETE
    result = copying.copy.result
    assert (result.records, result.batches, result.error) == (5, 2, None)
    assert result.bytes == sum(one.size for one, _ in copying.sent)
    progress = copying.copy.progress()
    assert progress is not None
    assert (progress.offset, progress.leader_epoch) == (5, 0)
    assert (progress.source_cluster_id, progress.topic_id) == ("paris", "the-id")


def test_a_batch_that_finds_no_memory_waits_for_the_next_turn() -> None:
    copying = Copying(3)
    copying.refuse = KafkaTimeout("no memory")
    copying.fetch(*_batches(3))
    assert not copying.sent
    assert not copying.copy.done
    copying.refuse = None
    copying.copy.harvest(0)
    assert [one.base_offset for one, _ in copying.sent] == [0, 1, 2]
    copying.ack(0, 1, 2)
    assert _outcome(copying) is Outcome.COMPLETE


def test_an_empty_range_is_complete_at_once_and_moves_nothing() -> None:
    copying = Copying(7, start=7)
    assert not copying.copy.wants_more
    copying.copy.harvest(0)
    assert _outcome(copying) is Outcome.COMPLETE
    assert copying.progress is None


@given(st.permutations(range(6)))
def test_progress_is_the_contiguous_prefix_whatever_the_order_of_acknowledgements(order: list[int]) -> None:
    copying = Copying(6)
    copying.fetch(*_batches(6))
    answered: set[int] = set()
    for number in order:
        copying.ack(number)
        answered.add(number)
        prefix = next(n for n in range(7) if n not in answered)
        assert copying.progress == (prefix or None)
        assert copying.copy.result.batches == prefix
    assert _outcome(copying) is Outcome.COMPLETE


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (DeliveryTimeout("late"), Outcome.EXPIRED),
        (Fenced("newer", 90), Outcome.FENCED),
        (RecordRejected("too large", 10), Outcome.FAILED),
        (ConnectionFailed("gone"), Outcome.FAILED),
    ],
)
def test_a_failure_in_the_middle_keeps_what_came_before_it(error: KafkaError, outcome: Outcome) -> None:
    copying = Copying(5)
    copying.fetch(*_batches(5))
    copying.ack(0, 1, 3, 4)
    assert not copying.copy.done
    copying.fail(2, error)
    assert _outcome(copying) is outcome
    assert copying.copy.result.error == f"t-0, the batch at offset 2: {error}"
    assert copying.progress == 2
    assert copying.copy.result.batches == 2
    assert not copying.copy.wants_more


def test_nothing_is_sent_after_a_failure() -> None:
    copying = Copying(10, share=1)
    copying.fetch(*_batches(4))
    assert len(copying.sent) == 1
    copying.fail(0, RecordRejected("no", 10))
    copying.fetch(_batch(4))
    copying.copy.push()
    assert len(copying.sent) == 1
    assert copying.progress is None


def test_a_send_that_is_refused_fails_the_copy() -> None:
    copying = Copying(2)
    copying.refuse = RecordRejected("does not fit buffer.memory", 10)
    copying.fetch(*_batches(2))
    copying.copy.harvest(0)
    assert _outcome(copying) is Outcome.FAILED
    assert copying.copy.result.error == "does not fit buffer.memory"


@given(st.integers(1, 400), st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_no_more_than_its_share_is_unacknowledged(share: int, counts: list[int]) -> None:
    """Beyond it only by the batch that crosses it; the backlog stops fetching."""
    copying = Copying(sum(counts), share=share)
    base = 0
    for count in counts:
        copying.fetch(_batch(base, count))
        base += count
    acked = 0
    while not copying.copy.done:
        out = [one.size for one, _ in copying.sent[acked:]]
        assert sum(out[:-1]) < share
        assert out
        copying.ack(acked)
        acked += 1
    assert [one.base_offset for one, _ in copying.sent] == [sum(counts[:n]) for n in range(len(counts))]
    assert _outcome(copying) is Outcome.COMPLETE


def test_fetching_waits_while_there_is_a_backlog() -> None:
    copying = Copying(10, share=1)
    assert copying.copy.wants_more
    copying.fetch(*_batches(2))
    assert not copying.copy.wants_more
    copying.ack(0)
    assert copying.copy.wants_more
    assert len(copying.copy.pending) == 1


def test_a_range_that_ends_inside_a_gap_is_complete_there() -> None:
    """Compaction left nothing at the range's last offsets: the log's next batch begins beyond them."""
    copying = Copying(10)
    copying.fetch(_batch(0, 2), _batch(15))
    copying.ack(0)
    assert len(copying.sent) == 1
    assert _outcome(copying) is Outcome.COMPLETE
    assert copying.progress == 10


def test_batches_beyond_the_end_are_left_for_the_next_range() -> None:
    copying = Copying(3)
    copying.fetch(*_batches(6))
    copying.ack(0, 1, 2)
    assert len(copying.sent) == 3
    assert copying.progress == 3


def test_a_batch_across_the_end_is_copied_whole_and_progress_says_so() -> None:
    copying = Copying(3)
    copying.fetch(_batch(0, 5))
    copying.ack(0)
    assert _outcome(copying) is Outcome.COMPLETE
    assert copying.progress == 5


def test_what_holds_no_records_is_skipped_counted_and_passed_by_progress() -> None:
    """aborted_and_control_batches_move_progress: lag reaches zero behind them."""
    transactional = {"attributes": TRANSACTIONAL, "producer_id": 9, "producer_epoch": 0, "base_sequence": 0}
    marker = batch(build_marker(9, 0, ABORT, base_offset=3))
    empty = batch(build((), base_offset=4, last_offset_delta=5))
    copying = Copying(10)
    copying.fetch(_batch(0), _batch(1, 2, **transactional), marker, empty, aborted=(AbortedTransaction(9, 1),))
    copying.ack(0)
    assert _outcome(copying) is Outcome.COMPLETE
    assert copying.progress == 10
    result = copying.copy.result
    assert result.skipped == {"aborted": 1, "control": 1, "empty": 1}
    assert (result.records, result.batches) == (1, 1)


def test_a_range_of_nothing_but_markers_is_complete_without_sending() -> None:
    copying = Copying(2)
    copying.fetch(*(batch(build_marker(9, 0, ABORT, base_offset=n)) for n in range(2)))
    copying.copy.harvest(0)
    assert _outcome(copying) is Outcome.COMPLETE
    assert copying.sent == []
    assert copying.progress == 2


def test_a_copy_goes_on_where_the_last_one_ended() -> None:
    copying = Copying(6, start=4)
    copying.fetch(_batch(4), _batch(5))
    copying.ack(0)
    assert copying.progress == 5
    copying.copy.committed_offset = 5
    assert copying.progress is None
    copying.ack(1)
    assert copying.progress == 6


def test_a_copy_that_begins_inside_a_batch_takes_it_whole() -> None:
    """Found by a time, or by a source that deleted records up to there; the result's start stays the planned one."""
    copying = Copying(6, start=2)
    copying.fetch(_batch(0, 4), _batch(4, 2))
    assert [one.base_offset for one, _ in copying.sent] == [0, 4]
    copying.ack(0)
    assert copying.progress == 4
    copying.ack(1)
    assert _outcome(copying) is Outcome.COMPLETE
    result = copying.copy.result
    assert (result.start, copying.progress, result.records) == (2, 6, 6)


def test_an_aborted_batch_around_the_start_is_passed_by_progress() -> None:
    aborted = _batch(0, 4, attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, base_sequence=0)
    copying = Copying(4, start=2)
    copying.fetch(aborted, aborted=(AbortedTransaction(9, 0),))
    copying.copy.harvest(0)
    assert (copying.sent, copying.progress) == ([], 4)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (_batch(0, 2, last_offset_delta=5), "offset gaps"),
        (_batch(0, 1, attributes=LOG_APPEND_TIME), "log append time"),
    ],
)
def test_what_cannot_be_passed_on_yet_is_named(one: Batch, why: str) -> None:
    copying = Copying(6)
    copying.fetch(one)
    copying.copy.harvest(0)
    assert _outcome(copying) is Outcome.FAILED
    assert why in str(copying.copy.result.error)


def test_a_corrupt_batch_stops_the_copy_before_it() -> None:
    """What was sent before it still counts."""
    copying = Copying(3)
    damaged = build((b"1",), base_offset=1)
    damaged[-1] ^= 1
    copying.fetch(_batch(0), batch(damaged), _batch(2))
    assert len(copying.sent) == 1
    assert not copying.copy.wants_more
    copying.ack(0)
    assert copying.progress == 1
    assert _outcome(copying) is Outcome.FAILED
    assert "t-0: the batch at offset 1" in str(copying.copy.result.error)


def test_a_source_that_refuses_fails_the_copy_in_its_words() -> None:
    copying = Copying(3)
    copying.copy.take_in(Fetched(tp=_SOURCE, offset=0, next_offset=0, error=OffsetOutOfRange("gone", 1)), 0)
    copying.copy.harvest(0)
    assert _outcome(copying) is Outcome.FAILED
    assert copying.copy.result.error == "gone"


def test_a_source_that_gives_nothing_is_given_up_with_its_reason() -> None:
    copying = Copying(3)
    assert not copying.copy.stalled(999, 1_000)
    assert copying.copy.stalled(1_000, 1_000)
    copying.copy.give_up(1_000, ConnectionFailed("no route"))
    assert _outcome(copying) is Outcome.FAILED
    assert copying.copy.result.error == "t-0: nothing came from the source for 1000 ms: no route"


def test_waiting_for_the_target_is_no_stall() -> None:
    copying = Copying(3)
    copying.fetch(_batch(0))
    assert not copying.copy.stalled(10**9, 1_000)
    copying.ack(0)
    assert copying.copy.stalled(10**9, 1_000)


def test_a_source_that_refuses_waits_for_what_was_sent_before() -> None:
    copying = Copying(3)
    copying.fetch(_batch(0))
    copying.copy.take_in(Fetched(tp=_SOURCE, offset=1, next_offset=1, error=OffsetOutOfRange("gone", 1)), 0)
    copying.copy.harvest(0)
    assert not copying.copy.done
    copying.ack(0)
    assert _outcome(copying) is Outcome.FAILED
    assert copying.progress == 1


def test_progress_is_kept_before_anything_is_copied() -> None:
    copying = Copying(9, start=4)
    first = copying.copy.first_progress(None)
    assert (first.offset, first.leader_epoch, first.topic_id) == (4, None, "the-id")
    assert copying.copy.first_progress(first) is first


def test_the_epoch_of_the_last_batch_travels_with_the_progress() -> None:
    copying = Copying(3)
    copying.fetch(_batch(0, leader_epoch=4), _batch(1, leader_epoch=6))
    copying.ack(0, 1)
    progress = copying.copy.progress()
    assert progress is not None
    assert progress.leader_epoch == 6
