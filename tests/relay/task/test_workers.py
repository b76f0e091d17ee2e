"""What the threads beside a task's loop do, and what the loop does itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from mirror.errors import CorruptBatch
from mirror.relay.batches.reencode import ReencodeSpec, is_brief
from mirror.relay.batches.transforms import one_at_a_time
from mirror.relay.task.workers import TaskWorkers
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import BatchBuilder
from mirror.wire.legacy import MessageSet
from mirror.wire.records import Batch
from tests.fakes.record_batches import batch, build


def small(count: int = 1, value: bytes = b"x", codec: str = "none") -> Batch:
    builder = BatchBuilder(codec, 2**31 - 1)
    for _ in range(count):
        assert builder.append(None, value, [], 1_000)
    return builder.build()


def message_set() -> MessageSet:
    builder = LegacyRecordBatchBuilder(1, 0, 1_000)
    builder.append(0, timestamp=0, key=None, value=b"x")
    return MessageSet(memoryview(bytes(builder.build())))


@pytest.mark.parametrize(
    ("sources", "spec", "brief"),
    [
        ([small(), small()], ReencodeSpec(), True),
        ([small(), small()], ReencodeSpec(codec="none"), True),
        ([small(8), small(8)], ReencodeSpec(), True),
        ([small(8), small(9)], ReencodeSpec(), False),
        ([small(value=b"x" * 8_000), small(value=b"x" * 8_000)], ReencodeSpec(), True),
        ([small(value=b"x" * 8_000), small(value=b"x" * 9_000)], ReencodeSpec(), False),
        ([small(), small(value=b"x" * 200, codec="gzip")], ReencodeSpec(), False),
        ([small(), small()], ReencodeSpec(codec="zstd"), False),
        ([small(), small()], ReencodeSpec(transform=lambda record: record), False),
        ([message_set()], ReencodeSpec(), False),
    ],
)
def test_what_may_take_long_is_not_brief(
    sources: Sequence[Batch | MessageSet], spec: ReencodeSpec, brief: bool
) -> None:
    assert is_brief(sources, spec) is brief


@pytest.fixture
def workers() -> Iterator[TaskWorkers]:
    made = TaskWorkers(1_000_000, None)
    yield made
    made.close()


def test_two_small_batches_are_merged_without_another_thread(workers: TaskWorkers) -> None:
    """At 1,000 records a second, waking the encoder for each two batches cost half a ms of latency, and 2.5% of CPU."""
    first, second = small(value=b"first"), small(value=b"second")
    merged = workers.reencoder("p")([first, second], ReencodeSpec())
    assert workers._encoder._thread is None
    assert [record.value for one in merged.result(0).batches for record in records_of(one.batch)] == [
        b"first",
        b"second",
    ]


def test_an_error_of_a_brief_one_is_that_of_its_future(workers: TaskWorkers) -> None:
    """It ends its copy only, not the task."""
    damaged = build([b"x" * 20])
    damaged[-25] ^= 0xFF
    encoding = workers.reencoder("p")([batch(damaged), small()], ReencodeSpec())
    with pytest.raises(CorruptBatch):
        encoding.result(0)


def a_transform(record: Record) -> Record:
    return record


def test_a_transform_never_runs_on_the_tasks_thread() -> None:
    workers = TaskWorkers(1_000_000, one_at_a_time(f"{__name__}:a_transform"))
    try:
        encoding = workers.reencoder("p")([small(), small()], ReencodeSpec())
        assert workers._encoder._thread is not None
        assert len(encoding.result(60).batches) == 1
    finally:
        workers.close()


def test_lookups_that_wait_hold_up_no_change_of_assignments(workers: TaskWorkers) -> None:
    """Those of 120 partitions that failed held up a release for 17 s."""
    ended = threading.Event()
    lookups = [workers.submit(ended.wait, 20) for _ in range(100)]
    try:
        assert workers.submit_change(lambda: 7).result(10) == 7
        assert not lookups[0].done()
    finally:
        ended.set()
