"""Trace parents are sampled from records, and batches stay unchanged."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError
from mirror.relay.batches.trace_parents import (
    MAX_BATCH_BYTES,
    MOST_RECORDS,
    SAMPLE_INTERVAL_MS,
    TraceParents,
    trace_parent,
    traced_records,
)
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.record_batches import batch, build

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def fetched(*batches: AnyBatch, error: KafkaError | None = None) -> Fetched:
    return Fetched(tp=TopicPartition("t", 0), offset=0, next_offset=1, batches=list(batches), error=error)


def with_headers(*headers: tuple[str, bytes | None], codec: str = "none", value: bytes = b"v" * 200) -> Batch:
    builder = BatchBuilder(codec, 64 * 1024 * 1024)
    assert builder.append(None, value, headers, 1)
    assert builder.append(None, value, (), 1)
    return builder.build()


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_trace_of_the_first_record_is_found_and_the_bytes_are_unchanged(codec: str) -> None:
    one = with_headers(("a", b"1"), ("traceparent", PARENT.encode()), codec=codec)
    before = bytes(one.view)
    assert TraceParents(0).sample(fetched(one), 0) == PARENT
    assert bytes(one.view) == before


def test_only_the_first_records_of_a_batch_are_decoded() -> None:
    builder = BatchBuilder("zstd", 1_000_000)
    for _ in range(MOST_RECORDS + 1):
        assert builder.append(None, b"v", (("traceparent", PARENT.encode()),), 1)
    found = [(record.offset, parent) for record, parent in traced_records(builder.build())]
    assert found == [(offset, PARENT) for offset in range(MOST_RECORDS)]


def test_one_sample_per_interval() -> None:
    look = TraceParents(0).sample
    one = fetched(with_headers(("traceparent", PARENT.encode())))
    assert look(one, 5) == PARENT
    assert look(one, 4 + SAMPLE_INTERVAL_MS) is None
    assert look(one, 5 + SAMPLE_INTERVAL_MS) == PARENT


@pytest.mark.parametrize(
    "fetch",
    [
        fetched(),
        fetched(with_headers(("a", b"1"))),
        fetched(with_headers(("traceparent", None))),
        fetched(with_headers(("traceparent", b"\xff\xfe"))),
        fetched(with_headers(value=b"traceparent" * 20)),
        fetched(batch(build([b"traceparent"], payload=b"traceparent and no record at all"))),
        fetched(with_headers(("traceparent", PARENT.encode()), value=b"x" * MAX_BATCH_BYTES)),
        # It unfolds to more than is looked at.
        fetched(with_headers(("traceparent", PARENT.encode()), value=b"x" * 5_000_000, codec="zstd")),
        fetched(batch(build([b"v"], attributes=4, payload=b"no zstd, traceparent"))),
        fetched(with_headers(("traceparent", PARENT.encode())), error=KafkaError("gone")),
    ],
)
def test_fetch_without_a_trace_gives_none(fetch: Fetched) -> None:
    assert TraceParents(0).sample(fetch, 0) is None


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (PARENT.encode(), PARENT),
        (PARENT.upper().encode(), None),
        (b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01", None),
        (b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01", None),
        (b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        (b"", None),
    ],
)
def test_trace_parent_is_validated(value: bytes, found: str | None) -> None:
    assert trace_parent(value) == found
