"""Records that share a batch: each with its own answer, none lost between sealing, splitting and settling."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import DeliveryTimeout, KafkaError
from mirror.producer.batch.batches import ProducerBatch, RecordAccumulation, RecordMetadata
from mirror.wire.decode import records_of
from mirror.wire.encode import BatchBuilder

_TP = TopicPartition("t", 3)
_TIME = 1_700_000_000_000


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _open(limit: int = 10_000, codec: str = "none") -> RecordAccumulation:
    return RecordAccumulation(_TP, BatchBuilder(codec, limit), limit, nullcontext())


def _append(batch: RecordAccumulation, *values: bytes) -> list[Future[RecordMetadata]]:
    futures = [batch.append(None, value, (), _TIME + number) for number, value in enumerate(values)]
    assert None not in futures
    return [future for future in futures if future is not None]


def _outcome(base_offset: int) -> RecordMetadata:
    return RecordMetadata(_TP, base_offset)


def _values(batch: RecordAccumulation) -> list[bytes | None]:
    return [record.value for record in records_of(batch.seal())]


def test_each_record_has_its_own_offset() -> None:
    batch = _open()
    futures = _append(batch, b"a", b"b", b"c")
    assert (batch.count, batch.full) == (3, False)
    assert _values(batch) == [b"a", b"b", b"c"]
    assert not any(future.done() for future in futures)
    batch.complete_all(_outcome(100))
    assert [future.result(0) for future in futures] == [RecordMetadata(_TP, 100, number) for number in range(3)]
    assert [future.result(0).offset for future in futures] == [100, 101, 102]


def test_an_unknown_offset_is_unknown_for_each() -> None:
    batch = _open()
    futures = _append(batch, b"a", b"b")
    batch.complete_all(_outcome(-1))
    assert [future.result(0).offset for future in futures] == [-1, -1]


def test_a_failure_is_everybodys() -> None:
    batch = _open()
    futures = _append(batch, b"a", b"b")
    batch.complete_all(DeliveryTimeout("late"))
    result = [future.exception(0) for future in futures]
    assert [(type(one), str(one)) for one in result] == [(DeliveryTimeout, "late")] * 2
    assert result[0] is not result[1], "each is raised by its own caller, with a trace of its own"


def test_a_record_cannot_be_taken_back() -> None:
    batch = _open()
    first, second = _append(batch, b"a", b"b")
    assert not first.cancel()
    batch.complete_all(_outcome(7))
    assert (first.result(0).offset, second.result(0).offset) == (7, 8)


def test_a_callback_that_raises_is_its_callers_matter() -> None:
    batch = _open()
    first, second = _append(batch, b"a", b"b")
    first.add_done_callback(lambda _: 1 // 0)
    batch.complete_all(_outcome(7))
    assert second.result(0).offset == 8


@pytest.mark.parametrize("outcome", [RecordMetadata(_TP, 7), DeliveryTimeout("late")])
def test_all_are_answered_before_a_callbacks_exit_goes_on(outcome: RecordMetadata | DeliveryTimeout) -> None:
    """Futures let what is no Exception through: the others' callers would wait for ever."""
    batch = _open()
    first, second, third = _append(batch, b"a", b"b", b"c")
    first.add_done_callback(lambda _: sys.exit("first"))
    second.add_done_callback(lambda _: sys.exit("second"))
    with pytest.raises(SystemExit, match="first"):
        batch.complete_all(outcome)
    assert all(future.done() for future in (first, second, third))
    if isinstance(outcome, RecordMetadata):
        assert third.result(0).offset == 9


def test_once_refused_nothing_more_is_taken() -> None:
    """A smaller record behind one that does not fit would overtake it."""
    batch = _open(limit=200)
    _append(batch, b"x" * 50)
    assert not batch.full
    assert batch.append(None, b"x" * 100, (), _TIME) is None
    assert batch.full
    assert batch.append(None, b"", (), _TIME) is None
    assert batch.count == 1


def test_one_that_is_as_large_as_the_limit_is_full_at_once() -> None:
    batch = _open(limit=100)
    _append(batch, b"x" * 100)
    assert batch.full


def test_closed_is_closed() -> None:
    batch = _open()
    _append(batch, b"a")
    batch.close()
    assert batch.full
    assert batch.append(None, b"late", (), _TIME) is None
    assert _values(batch) == [b"a"]


def test_sealed_is_sealed() -> None:
    batch = _open()
    _append(batch, b"a")
    assert batch.seal() is batch.seal()
    assert batch.full
    assert batch.append(None, b"late", (), _TIME) is None
    assert batch.size == batch.seal().size


def test_what_was_settled_before_it_was_sealed_takes_nothing_more() -> None:
    """A batch may expire while it lingers: a record that came later would never be answered for."""
    batch = _open()
    (future,) = _append(batch, b"a")
    outcome = DeliveryTimeout("late")
    batch.complete_all(outcome)
    assert batch.append(None, b"b", (), _TIME) is None
    batch.complete_all(outcome)
    batch.seal_early()  # by the thread that has just filled it: that is no error
    assert isinstance(future.exception(0), DeliveryTimeout)


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_halves_hold_all_records_with_their_futures(codec: str, count: int) -> None:
    batch = _open(codec=codec)
    futures = _append(batch, *(b"%d" % number * 50 for number in range(count)))
    whole = batch.seal()
    whole.patch(1, 2, 3, transactional=True)
    halves = batch.split()
    assert [half.full for half in halves] == [True, True]
    assert sum(half.count for half in halves) == sum(half.seal().count for half in halves) == count
    assert sum(half.limit for half in halves) == batch.limit
    assert _values(halves[0]) + _values(halves[1]) == [b"%d" % number * 50 for number in range(count)]
    records = [record for half in halves for record in records_of(half.seal())]
    assert [record.timestamp_ms for record in records] == [_TIME + number for number in range(count)]
    batch.complete_all(_outcome(9_999))
    assert not any(future.done() for future in futures), "they are the halves' now"
    halves[1].complete_all(_outcome(200))
    halves[0].complete_all(_outcome(100))
    assert [future.result(0).offset for future in futures] == [
        *range(100, 100 + halves[0].count),
        *range(200, 200 + halves[1].count),
    ]


def test_halves_are_halved_until_one_record_is_left() -> None:
    batch = _open()
    futures = _append(batch, *(b"%d" % number for number in range(5)))
    todo, parts = [batch], []
    while todo:
        halves = todo[0].split()
        parts += [] if halves else [todo[0]]
        todo[:1] = halves
    assert [_values(part) for part in parts] == [[b"%d" % number] for number in range(5)]
    for offset, part in enumerate(parts):
        part.complete_all(_outcome(offset * 10))
    assert [future.result(0).offset for future in futures] == [0, 10, 20, 30, 40]


def test_one_record_cannot_be_split() -> None:
    batch = _open()
    (future,) = _append(batch, b"a")
    assert batch.split() == []
    batch.complete_all(_outcome(1))
    assert future.result(0).offset == 1


def _fill(batch: RecordAccumulation, start: threading.Barrier, taken: list[bytes], name: int) -> None:
    start.wait(10)
    number = 0
    while batch.append(None, b"%d-%d" % (name, number), (), _TIME) is not None:
        taken.append(b"%d-%d" % (name, number))
        number += 1


def test_threads_append_while_another_seals() -> None:
    """Every record that got a future is in the batch, and no other."""
    for _ in range(20):
        batch = RecordAccumulation(_TP, BatchBuilder("none", 10**6), 10**6, threading.Lock())
        start = threading.Barrier(4)
        taken: list[bytes] = []
        threads = [threading.Thread(target=_fill, args=(batch, start, taken, name)) for name in range(3)]
        for thread in threads:
            thread.start()
        start.wait(10)
        values = _values(batch)
        for thread in threads:
            thread.join(10)
        assert sorted(value for value in values if value is not None) == sorted(taken)
        assert batch.count == len(values)


# --- the batch around them


@pytest.mark.parametrize("error", [None, DeliveryTimeout("late")])
def test_who_counts_batches_hears_of_each_whatever_callbacks_raise(error: DeliveryTimeout | None) -> None:
    records, heard = _open(), []
    (first, second) = _append(records, b"a", b"b")
    batch = ProducerBatch(_TP, None, 0, 100, open=records, on_completed=lambda: heard.append(second.done()))
    batch.future.add_done_callback(lambda _: sys.exit("the batch's"))
    first.add_done_callback(lambda _: sys.exit("a record's"))
    with pytest.raises(SystemExit):
        batch.succeed(5) if error is None else batch.fail(error)
    batch.succeed(6)
    assert heard == [True], "once, and after all were answered"


@pytest.mark.parametrize("outcome", [RecordMetadata(_TP, 5), DeliveryTimeout("late")])
def test_a_callback_is_called_instead_of_a_future_and_may_fail(
    outcome: RecordMetadata | DeliveryTimeout, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[object] = []

    def callback(outcome: RecordMetadata | KafkaError) -> None:
        heard.append(outcome)
        raise ValueError("odd")

    records = _open()
    _append(records, b"a")
    batch = ProducerBatch(_TP, records.seal(), 0, 100, callback=callback, on_completed=lambda: heard.append("on"))
    for _ in range(2):
        batch.succeed(5) if isinstance(outcome, RecordMetadata) else batch.fail(outcome)
    assert heard == [outcome, "on"], "once"
    assert "odd" in caplog.text
    assert batch.callback is None, "it may keep the bytes"


def test_the_parts_of_a_batch_answer_for_it() -> None:
    records, heard = _open(), []
    futures = _append(records, b"a", b"b", b"c")
    batch = ProducerBatch(_TP, None, 0, 100, open=records, on_completed=lambda: heard.append("whole"))
    batch.seal()
    parts = [ProducerBatch(_TP, None, 0, half.limit, open=half) for half in records.split()]
    batch.split_into(parts)
    parts[0].succeed(10)
    assert (batch.completed, batch.future.done(), heard) == (True, False, [])
    parts[1].fail(DeliveryTimeout("late"))
    assert (batch.future.done(), heard) == (True, ["whole"])
    assert futures[0].result(0).offset == 10
    assert isinstance(futures[2].exception(0), DeliveryTimeout)


def test_a_ready_made_batch_cannot_be_taken_back() -> None:
    records = _open()
    _append(records, b"a")
    batch = ProducerBatch(_TP, records.seal(), 0, 100)
    assert not batch.future.cancel()
    batch.succeed(5)
    assert batch.future.result(0).offset == 5


def test_futures_that_are_kept_keep_no_bytes(no_collector: None) -> None:
    """By reference counts alone: the collector may come long after ``buffer.memory`` was given to somebody else."""
    del no_collector
    records = _open()
    futures = _append(records, b"a", b"b")
    batch = ProducerBatch(_TP, None, 0, 100, open=records, on_completed=lambda: None)
    made = batch.seal().view.obj
    whole = batch.future
    batch.succeed(5)
    batch.release_payload()
    assert sys.getrefcount(made) == 2, "only of this test's name for them, and of this call"
    assert whole.done()
    assert all(future.done() for future in futures)
    assert records.full, "who still holds the batch of records holds an empty one"
