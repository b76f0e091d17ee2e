"""Partitions that cannot be read: what is reported, once, and what goes on."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.events import LastErrorEvent, SeekEvent
from mirror.errors import AuthorizationFailed, CorruptBatch, OffsetOutOfRange
from mirror.wire.api import Api
from mirror.wire.messages.fetch import FetchResponse
from tests.consumer.test_fetching import _NO_RESET, _T0, _T1, _cluster, _numbers, _read, _values
from tests.fakes import errors
from tests.fakes.client import FakeConsumer
from tests.fakes.control import Action


@pytest.mark.parametrize("known", [True, False])
def test_offset_out_of_range_is_delivered_once(*, known: bool) -> None:
    cluster = _cluster(records=10)
    cluster.log("t").delete_before(5)
    cluster.log("t").reports_start = known
    consumer = FakeConsumer(cluster, **_NO_RESET)
    consumer.read((_T0, 2))
    (fetched,) = consumer.poll()
    assert isinstance(fetched.error, OffsetOutOfRange)
    assert "t-0 at offset 2: OFFSET_OUT_OF_RANGE" in str(fetched.error)
    assert ("its log begins at 5" in str(fetched.error)) == known
    assert fetched.error.log_start == (5 if known else None)
    assert copy.copy(fetched.error).log_start == fetched.error.log_start
    assert fetched.batches == []
    seen = len(cluster.calls(Api.FETCH))
    assert consumer.poll(5_000) == []
    assert len(cluster.calls(Api.FETCH)) == seen, "it is not fetched again until a seek"
    consumer.submit(consumer.core, SeekEvent(_T0, 5, None))
    assert _read(consumer, 5) == _numbers(10, 5)


def test_one_partitions_error_leaves_the_others_alone() -> None:
    cluster = _cluster(1, 2, records=3)
    cluster.control.on(Api.FETCH, Action(errors={_T0: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0), (_T1, 0))
    fetched = consumer.poll() + consumer.poll()
    (refused,) = [one for one in fetched if one.error is not None]
    assert (refused.tp, type(refused.error)) == (_T0, AuthorizationFailed)
    assert _values(fetched, _T1) == _numbers(3)


def test_a_corrupt_length_is_reported_with_its_partition_and_offset() -> None:
    cluster = _cluster(records=1)
    log = cluster.log("t")
    log.append_values(b"damaged")
    log.data[log.index[1][2] + 11] = 3  # a length shorter than the header
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 1))
    (fetched,) = consumer.poll()
    assert isinstance(fetched.error, CorruptBatch)
    assert str(fetched.error).startswith("t-0: the batch at offset 1 says it has 3 bytes")


def _knows_only(high_watermark: int) -> Action:
    """A broker that looked at the high watermark just before it rose, and then read."""

    def rewrite(body: FetchResponse) -> FetchResponse:
        (topic,) = body.responses
        (result,) = topic.partitions
        return replace(body, responses=(replace(topic, partitions=(replace(result, high_watermark=high_watermark),)),))

    return Action(rewrite=rewrite)


@pytest.mark.parametrize("known", range(4))
def test_records_newer_than_the_answer_s_high_watermark_are_read_all_the_same(known: int) -> None:
    """Brokers read up to the one that is in force by then (``Partition.readRecords``)."""
    cluster = _cluster(records=3)
    cluster.control.on(Api.FETCH, _knows_only(known))
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    began = consumer.now
    assert _read(consumer, 3) == _numbers(3)
    assert consumer.now - began < 50, "at once"


def test_records_that_stay_beyond_the_high_watermark_stop_the_partition() -> None:
    cluster = _cluster(records=3)
    cluster.control.on(Api.FETCH, _knows_only(1), times=None)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0))
    assert _read(consumer, 1) == _numbers(1)
    (fetched,) = consumer.poll()
    assert isinstance(fetched.error, CorruptBatch)
    assert "the batch at offset 1 is corrupt: it says that it has the offsets 1 to 1" in str(fetched.error)


def test_why_a_partition_is_not_read_can_be_asked() -> None:
    cluster = _cluster(records=1)
    cluster.control.on(Api.FETCH, Action(errors={_T0: errors.NOT_LEADER}), times=None)
    consumer = FakeConsumer(cluster)
    consumer.read((_T0, 0), (TopicPartition("nope", 0), 0))
    consumer.run_for(500)
    assert "NOT_LEADER" in str(consumer.call(LastErrorEvent(_T0, *consumer.timer()), consumer.core))
    missing = consumer.call(LastErrorEvent(TopicPartition("nope", 0), *consumer.timer()), consumer.core)
    assert "topic 'nope' does not exist" in str(missing)
    cluster.control.clear()
    _read(consumer, 1)
    assert consumer.call(LastErrorEvent(_T0, *consumer.timer()), consumer.core) is None
