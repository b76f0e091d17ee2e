"""Admin on the fake cluster: who has which transaction open."""

from __future__ import annotations

from mirror.client import ProducerState, TopicPartition, TransactionListing
from mirror.errors import AuthorizationFailed, BrokerError
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import MADE_MS

TPS = [TopicPartition("t", p) for p in range(3)]


def _cluster() -> FakeCluster:
    """Three brokers; topic t with a partition on each, in two of which a transaction is open from offset 1 on."""
    cluster = FakeCluster(3)
    cluster.add_topic("t", 3)
    for tp in TPS:
        cluster.log(*tp).append_values(b"x")
    return cluster


def _begin(cluster: FakeCluster, name: str, tp: TopicPartition) -> int:
    answer = cluster.transactions.init(name, 60_000, -1, -1)
    cluster.transactions.add(name, answer.producer_id, answer.epoch, {tp})
    cluster.log(*tp).append_values(b"y", attributes=16, producer_id=answer.producer_id, epoch=answer.epoch)
    return answer.producer_id


def test_leaders_report_where_transactions_begin() -> None:
    cluster = _cluster()
    ids = [_begin(cluster, "a", TPS[0]), _begin(cluster, "b", TPS[1])]
    found = FakeAdmin(cluster).describe_producers(TPS)
    assert found == {
        TPS[0]: (ProducerState(ids[0], 0, MADE_MS, 0, 1),),
        TPS[1]: (ProducerState(ids[1], 0, MADE_MS, 0, 1),),
        TPS[2]: (),
    }
    cluster.log(*TPS[0]).end_transaction(ids[0], commit=True)
    (state,) = FakeAdmin(cluster).describe_producers([TPS[0]])[TPS[0]]
    assert state.transaction_start is None


def test_a_partition_whose_producers_may_not_be_seen_fails_alone() -> None:
    cluster = _cluster()
    hidden = Action(errors={TPS[1]: errors.TOPIC_AUTHORIZATION_FAILED})
    cluster.control.on(Api.DESCRIBE_PRODUCERS, hidden, times=None)
    found = FakeAdmin(cluster).describe_producers(TPS, partial=True)
    assert set(found) == {TPS[0], TPS[2]}
    assert isinstance(found.failed[TPS[1]], AuthorizationFailed)
    assert "Read" in str(found.failed[TPS[1]])


def test_every_coordinator_lists_its_own() -> None:
    cluster = _cluster()
    ids = {name: _begin(cluster, name, TPS[0]) for name in "abcdef"}
    admin = FakeAdmin(cluster)
    found = admin.list_transactions([ids["b"], ids["e"]])
    assert sorted(found, key=lambda one: one.transactional_id) == [
        TransactionListing(name, ids[name], "Ongoing") for name in "be"
    ]
    assert len(cluster.calls(Api.LIST_TRANSACTIONS)) == 3


def test_coordinators_report_since_when_a_transaction_is_open() -> None:
    cluster = _cluster()
    began_ms = cluster.clock.unix_ms()
    ids = {name: _begin(cluster, name, TPS[0]) for name in "ab"}
    cluster.clock.advance(5_000)
    found = FakeAdmin(cluster).describe_transactions(["a", "b", "c"], partial=True)
    assert {name: (one.producer_id, one.state, one.start_ms) for name, one in found.items()} == {
        name: (ids[name], "Ongoing", began_ms) for name in "ab"
    }
    assert isinstance(found.failed["c"], BrokerError)
    assert found.failed["c"].code == 105


def test_an_id_whose_coordinator_is_not_found_in_time_fails_with_the_reason() -> None:
    cluster = _cluster()
    unknown = Action(errors={"a": errors.COORDINATOR_NOT_AVAILABLE})
    cluster.control.on(Api.FIND_COORDINATOR, unknown, times=None)
    found = FakeAdmin(cluster).describe_transactions(["a"], partial=True, timeout_ms=2_000)
    assert "looking up the coordinator of transactional id 'a': COORDINATOR_NOT_AVAILABLE" in str(found.failed["a"])
