"""Partitions that join a transaction without a batch, so that its end writes a marker there: a fence."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import AuthorizationFailed, NeedsAbort
from mirror.producer.batch.queue import ProducerId
from mirror.producer.events import AddPartitionsEvent
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.producer.site import T0, T1, TIMES, committed, failure, finish, transactional

VERSIONS = pytest.mark.parametrize("version", [1, 2])
SOURCE = TopicPartition("source", 3)


def _markers(cluster: FakeCluster, partition: int = 0) -> list[tuple[int, int]]:
    """(producer id, epoch) of each marker in the log."""
    batches = cluster.log("t", partition).batches()
    return [(one.producer_id, one.producer_epoch) for one in batches if one.is_control]


def _fence(producer: FakeProducer, offset: int) -> ProducerId:
    producer.begin()
    producer.add_partitions(T0, T1)
    producer.add_offsets("group", {SOURCE: offset})
    producer.finish(producer.commit())
    identity = producer.core.identity
    assert identity is not None
    producer.run_for(50)
    return identity


@VERSIONS
def test_a_transaction_without_batches_writes_a_marker_into_each_partition_that_was_added(version: int) -> None:
    producer = transactional(version)
    cluster = producer.cluster
    before = producer.core.identity
    assert before == ProducerId(producer.core.producer_id, 0)
    first = _fence(producer, 7)
    assert first == before._replace(epoch=0 if version == 1 else 1)
    second = _fence(producer, 8)
    assert _markers(cluster, 0) == _markers(cluster, 1) == [first, second]
    assert cluster.groups["group"][SOURCE].offset == 8
    assert not cluster.calls(Api.PRODUCE)
    assert {call.version for call in cluster.calls(Api.ADD_PARTITIONS_TO_TXN)} == {3}, "later ones are for brokers"


@VERSIONS
def test_batches_may_be_written_to_a_partition_that_was_added(version: int) -> None:
    producer = transactional(version)
    for value in (b"first", b"second"):
        producer.begin()
        producer.add_partitions(T0, T1)
        producer.add_partitions(T0)
        finish(producer, producer.send(T0, value))
        producer.finish(producer.commit())
        producer.run_for(50)
    assert committed(producer.cluster) == [b"first", b"second"]
    assert len(_markers(producer.cluster, 1)) == 2
    assert len(producer.cluster.calls(Api.ADD_PARTITIONS_TO_TXN)) == 2, "each partition is added once"


@VERSIONS
def test_an_abort_ends_what_was_added(version: int) -> None:
    producer = transactional(version)
    producer.begin()
    producer.add_partitions(T0)
    producer.run_for(50)
    producer.finish(producer.abort())
    producer.run_for(50)
    assert len(_markers(producer.cluster)) == 1
    _fence(producer, 1)
    assert len(_markers(producer.cluster)) == 2


@VERSIONS
def test_a_partition_that_may_not_be_added_fails_the_commit(version: int) -> None:
    producer = transactional(version)
    producer.cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, Action(errors={T0: errors.TOPIC_AUTHORIZATION_FAILED}))
    producer.begin()
    producer.add_partitions(T0, T1)
    error = failure(producer, producer.commit())
    assert isinstance(error, NeedsAbort)
    assert isinstance(error.__cause__, AuthorizationFailed)
    producer.submit(producer.core, AddPartitionsEvent([T1]))  # too late, and no harm
    producer.finish(producer.abort())
    _fence(producer, 1)
    assert len(_markers(producer.cluster)) == 1


@VERSIONS
@pytest.mark.parametrize("code", [errors.CONCURRENT_TRANSACTIONS, errors.NOT_COORDINATOR, errors.COORDINATOR_LOADING])
def test_an_addition_is_retried(version: int, code: int) -> None:
    producer = transactional(version)
    producer.cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, Action(errors={"x": code}), times=2)
    identity = _fence(producer, 1)
    assert _markers(producer.cluster, 1) == [identity]


@pytest.mark.parametrize("api", [Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN])
@VERSIONS
def test_a_request_in_doubt_cannot_begin_a_transaction_later(version: int, api: Api) -> None:
    """Under version 1 it would find its epoch valid: the transaction's timeout would fence what the fence protects.

    The identity stays that of the markers.
    """
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    cluster.features["transaction.version"] = version
    producer = FakeProducer(cluster, **{"transactional.id": "x", **TIMES})
    producer.init()
    cluster.control.on(api, Action(silent=True))
    identity = _fence(producer, 1)
    assert _markers(cluster) == [identity]
    producer.run_for(1_000)
    assert producer.core.identity == identity
    # The late one.
    assert cluster.transactions.add("x", *identity._replace(epoch=0), {T0}) == errors.PRODUCER_FENCED
