"""A batch that the topic does not take: refused as it is, or sent in halves where it was made from single records."""

from __future__ import annotations

import pytest

from mirror.errors import DeliveryTimeout, RecordTooLarge
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action
from tests.producer.site import IN_FLIGHT, T0, TIMES, attempts, failure, finish, make_cluster, stamps, values

_ONE_RECORD = "76"
"""Bytes that a batch of one short record fits in, and one of two does not."""


def _producer(in_flight: int = 1, **options: object) -> FakeProducer:
    cluster = make_cluster()
    producer = FakeProducer(cluster, **{IN_FLIGHT: in_flight, **options})
    finish(producer, producer.send(T0, b"first"))
    cluster.topics["t"].configs["max.message.bytes"] = _ONE_RECORD
    return producer


def test_a_ready_made_batch_is_refused_and_its_successors_go_on() -> None:
    producer = _producer(5)
    refused = producer.send(T0, b"a", b"b")
    after = [producer.send(T0, value) for value in (b"c", b"d")]
    error = failure(producer, refused)
    assert isinstance(error, RecordTooLarge)
    assert "max.message.bytes" in str(error)
    assert not error.may_have_been_written
    assert finish(producer, *after) == [1, 2]
    assert values(producer.cluster) == [b"first", b"c", b"d"]
    assert stamps(producer.cluster) == [(0, 0), (1, 0), (1, 1)]
    assert producer.taken == producer.released


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_single_records_are_sent_in_halves_in_order_under_the_same_sequences(in_flight: int, count: int) -> None:
    producer = _producer(in_flight)
    wanted = [b"%d" % number for number in range(count)]
    made, records = producer.prepare_open(T0, *wanted)
    producer.send_batch(made)
    after = producer.send(T0, b"after")
    assert finish(producer, *records, after) == [*range(1, count + 1), count + 1]
    assert values(producer.cluster) == [b"first", *wanted, b"after"]
    assert stamps(producer.cluster) == [(0, number) for number in range(count + 2)]
    assert made.future.done()
    assert producer.taken == producer.released


def test_a_single_record_that_is_too_large_is_refused_alone() -> None:
    producer = _producer()
    made, records = producer.prepare_open(T0, b"a", b"b" * 100, b"c")
    producer.send_batch(made)
    offsets = finish(producer, records[0], records[2])
    assert isinstance(failure(producer, records[1]), RecordTooLarge)
    assert offsets == [1, 2]
    assert values(producer.cluster) == [b"first", b"a", b"c"]
    assert producer.taken == producer.released


def test_what_may_be_in_the_log_is_not_cut() -> None:
    """Its halves would be other batches, and could be written beside it."""
    producer = _producer()
    producer.cluster.topics["t"].configs.clear()
    producer.cluster.control.on(Api.PRODUCE, Action(close="after"))
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.MESSAGE_TOO_LARGE}))
    made, records = producer.prepare_open(T0, b"a", b"b")
    producer.send_batch(made)
    result = [failure(producer, record) for record in records]
    assert all(isinstance(error, RecordTooLarge) and error.may_have_been_written for error in result)
    assert values(producer.cluster) == [b"first", b"a", b"b"]


def test_halves_are_retried_like_any_other_batch() -> None:
    producer = _producer(5)
    made, records = producer.prepare_open(T0, b"a", b"b")
    producer.cluster.control.on(Api.PRODUCE, Action())
    producer.cluster.control.on(Api.PRODUCE, Action(close="after"))
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}))
    producer.send_batch(made)
    assert finish(producer, *records) == [1, 2]
    assert values(producer.cluster) == [b"first", b"a", b"b"]


def test_halves_expire_when_the_whole_would_have() -> None:
    producer = _producer(**TIMES)
    made, records = producer.prepare_open(T0, b"a", b"b")
    producer.cluster.control.on(Api.PRODUCE, Action(delay_ms=1_000))
    producer.cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    producer.send_batch(made)
    for record in records:
        error = failure(producer, record)
        assert isinstance(error, DeliveryTimeout)
        assert producer.completed_ms == made.created_ms + 5_000
        assert (error.record_count, error.may_have_been_written) == (1, False)
    assert made.future.done()
    assert producer.taken == producer.released


@pytest.mark.parametrize("version", [1, 2])
def test_halves_belong_to_the_transaction(version: int) -> None:
    cluster = make_cluster()
    cluster.features["transaction.version"] = version
    cluster.topics["t"].configs["max.message.bytes"] = _ONE_RECORD
    producer = FakeProducer(cluster, **{"transactional.id": "x"})
    producer.init()
    producer.begin()
    made, records = producer.prepare_open(T0, b"a", b"b", b"c")
    producer.send_batch(made)
    producer.finish(producer.commit())
    assert finish(producer, *records) == [0, 1, 2]
    assert all(one.is_transactional for one in cluster.log("t").batches())


def test_a_batch_that_expired_is_not_cut() -> None:
    producer = _producer(**TIMES)
    producer.cluster.control.on(Api.PRODUCE, Action(stall_ms=3_900))
    made, records = producer.prepare_open(T0, b"a", b"b")
    producer.cluster.clock.advance(1_500)
    producer.send_batch(made)
    for record in records:
        assert isinstance(failure(producer, record), DeliveryTimeout)
    producer.run_for(20_000)
    assert len(attempts(producer.cluster)) == 2
    assert values(producer.cluster) == [b"first"]
    assert producer.taken == producer.released
