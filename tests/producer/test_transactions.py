"""What transactions do, on brokers of transaction version 1 and 2 (KIP-98, KIP-890)."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import Fenced, KafkaError
from mirror.producer.batch.queue import ProducerId
from mirror.wire.api import Api
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.producer.site import T0, T1, committed, failure, finish, stamps, transactional, values

VERSIONS = pytest.mark.parametrize("version", [1, 2])
SOURCE = TopicPartition("source", 3)


def group_offset(cluster: FakeCluster) -> int | None:
    found = cluster.groups["group"].get(SOURCE)
    return None if found is None else found.offset


def one_more(producer: FakeProducer, value: bytes, offset: int) -> None:
    """A transaction with a record in each partition and an offset."""
    producer.begin()
    for tp in (T0, T1):
        producer.send(tp, value)
    producer.add_offsets("group", {SOURCE: offset})
    producer.finish(producer.commit())
    producer.run_for(50)


@VERSIONS
def test_a_commit_makes_records_and_offsets_visible_at_once(version: int) -> None:
    producer = transactional(version)
    cluster = producer.cluster
    producer.begin()
    futures = [producer.send(tp, value) for tp in (T0, T1) for value in (b"a", b"b")]
    producer.finish(producer.add_offsets("group", {SOURCE: 7}))
    assert finish(producer, *futures) == [0, 1, 0, 1]
    assert (committed(cluster, 0), committed(cluster, 1), group_offset(cluster)) == ([], [], None)
    producer.finish(producer.commit())
    producer.run_for(10)
    assert (committed(cluster, 0), committed(cluster, 1), group_offset(cluster)) == ([b"a", b"b"], [b"a", b"b"], 7)
    assert producer.taken == producer.released


@VERSIONS
def test_a_commit_waits_for_what_was_sent_and_sends_what_lingers(version: int) -> None:
    producer = transactional(version, **{"linger.ms": 20_000})
    producer.begin()
    made, (record,) = producer.prepare_open(T0, b"lingers")
    producer.send_batch(made)
    producer.run_for(1_000)
    assert not record.done()
    begun = producer.now
    producer.finish(producer.commit())
    assert producer.completed_ms - begun < 100
    assert record.result(0).offset == 0


@VERSIONS
def test_an_abort_hides_records_and_offsets(version: int) -> None:
    producer = transactional(version)
    cluster = producer.cluster
    one_more(producer, b"first", 1)
    producer.begin()
    finish(producer, producer.send(T0, b"hidden"))
    producer.finish(producer.add_offsets("group", {SOURCE: 2}))
    producer.finish(producer.abort())
    producer.run_for(10)
    assert (committed(cluster), group_offset(cluster)) == ([b"first"], 1)
    one_more(producer, b"second", 3)
    assert (committed(cluster), group_offset(cluster)) == ([b"first", b"second"], 3)
    assert values(cluster) == [b"first", b"hidden", b"second"]


@VERSIONS
def test_what_was_not_sent_when_it_is_aborted_is_never_sent(version: int) -> None:
    producer = transactional(version)
    cluster = producer.cluster
    cluster.log("t").leader = 9
    producer.begin()
    unsent = producer.send(T0, b"unsent")
    producer.run_for(100)
    producer.finish(producer.abort())
    assert "aborted before the batch was acknowledged" in str(failure(producer, unsent))
    cluster.log("t").move(1)
    producer.run_for(10_000)
    assert not cluster.calls(Api.PRODUCE)
    assert producer.taken == producer.released


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_an_empty_transaction_asks_nobody(version: int, commit: bool) -> None:
    producer = transactional(version)
    before = len(producer.cluster.received)
    for _ in range(3):
        producer.begin()
        producer.finish(producer.commit() if commit else producer.abort())
    assert len(producer.cluster.received) == before


@VERSIONS
def test_offsets_alone_make_a_transaction(version: int) -> None:
    producer = transactional(version)
    producer.begin()
    producer.add_offsets("group", {SOURCE: 5})
    producer.finish(producer.commit())
    producer.run_for(10)
    assert group_offset(producer.cluster) == 5
    assert not producer.cluster.calls(Api.ADD_PARTITIONS_TO_TXN)


@VERSIONS
def test_offsets_of_several_groups_and_calls(version: int) -> None:
    producer = transactional(version)
    producer.begin()
    asked = [producer.add_offsets(name, {SOURCE: number}) for number, name in enumerate(("a", "b", "a"))]
    producer.finish(producer.commit())
    producer.run_for(10)
    assert all(one.exception(0) is None for one in asked)
    found = {name: producer.cluster.groups[name][SOURCE].offset for name in ("a", "b")}
    assert found == {"a": 2, "b": 1}
    assert len(producer.cluster.calls(Api.ADD_OFFSETS_TO_TXN)) == (2 if version == 1 else 0)


def test_version_1_adds_each_partition_at_the_coordinator_once_and_keeps_its_epoch() -> None:
    producer = transactional(1)
    cluster = producer.cluster
    for number in range(3):
        one_more(producer, b"%d" % number, number)
    assert len(cluster.calls(Api.ADD_PARTITIONS_TO_TXN)) == 3
    assert stamps(cluster) == [(0, 0), (0, 1), (0, 2)], "sequences go on through transactions"
    newest = {api: max(call.version for call in cluster.calls(api)) for api in _HELD_DOWN}
    assert newest == _HELD_DOWN, "newer ones would add partitions and bump epochs by themselves"


_HELD_DOWN = {Api.PRODUCE: 11, Api.TXN_OFFSET_COMMIT: 4, Api.END_TXN: 4}


def test_version_2_lets_brokers_add_partitions_and_gets_an_epoch_with_each_end() -> None:
    producer = transactional(2)
    cluster = producer.cluster
    for number in range(3):
        one_more(producer, b"%d" % number, number)
    assert not cluster.calls(Api.ADD_PARTITIONS_TO_TXN)
    assert not cluster.calls(Api.ADD_OFFSETS_TO_TXN)
    assert stamps(cluster) == [(0, 0), (1, 0), (2, 0)]
    assert min(call.version for call in cluster.calls(Api.PRODUCE)) >= 12
    assert min(call.version for call in cluster.calls(Api.END_TXN)) >= 5


def test_epochs_that_are_used_up_give_way_to_another_producer_id() -> None:
    producer = transactional(2)
    cluster = producer.cluster
    before = producer.core.transactions.identity
    assert before is not None
    cluster.transactions.ids["x"].epoch = 32_766
    producer.core.transactions.identity = ProducerId(before.producer_id, 32_766)
    one_more(producer, b"last", 1)
    one_more(producer, b"first", 2)
    assert committed(cluster) == [b"last", b"first"]
    assert producer.core.transactions.identity == ProducerId(before.producer_id + 1, 1)


@VERSIONS
def test_init_fences_an_older_producer_and_aborts_its_transaction(version: int) -> None:
    older = transactional(version)
    cluster = older.cluster
    older.begin()
    finish(older, older.send(T0, b"older"))
    newer = FakeProducer(cluster, **{"transactional.id": "x", "seed": 1})
    newer.init()
    one_more(newer, b"newer", 9)
    sent = older.send(T0, b"zombie")
    older.add_offsets("group", {SOURCE: 1})
    assert isinstance(failure(older, older.commit()), Fenced)
    assert isinstance(failure(older, sent), Fenced)
    older.run_for(1_000)
    one_more(newer, b"newer still", 10)
    assert (committed(cluster), group_offset(cluster)) == ([b"newer", b"newer still"], 10)
    for call in (older.commit, older.abort, older.init_async):
        assert isinstance(failure(older, call()), Fenced), "it must stop"
    assert isinstance(failure(older, older.send(T0)), Fenced)


@VERSIONS
@pytest.mark.parametrize("zombie_first", [True, False])
def test_attempt_that_is_fenced_while_it_commits_fails_as_fenced(version: int, zombie_first: bool) -> None:
    older = transactional(version)
    cluster = older.cluster
    older.begin()
    finish(older, older.send(T0, b"older"))
    held = cluster.control.on(Api.END_TXN, Action(hold="after" if zombie_first else "before"))
    commit = older.commit()
    older.run_until(lambda: cluster.calls(Api.END_TXN))
    older.run_for(10)
    newer = FakeProducer(cluster, **{"transactional.id": "x", "seed": 1})
    newer.init()
    held.release()
    if zombie_first:
        older.finish(commit)
    else:
        assert isinstance(failure(older, commit), Fenced)
    assert committed(cluster) == ([b"older"] if zombie_first else [])


def test_the_version_is_chosen_again_for_each_transaction() -> None:
    producer = transactional(1)
    cluster = producer.cluster
    one_more(producer, b"one", 1)
    cluster.upgrade("transaction.version", 2)
    cluster.disconnect(1)
    producer.run_for(1_000)
    producer.loop.metadata.request_update()
    producer.run_for(1_000)
    one_more(producer, b"two", 2)
    one_more(producer, b"three", 3)
    assert committed(cluster) == [b"one", b"two", b"three"]
    assert [call.version for call in cluster.calls(Api.END_TXN)] == [4, 5, 5]
    assert len(cluster.calls(Api.ADD_PARTITIONS_TO_TXN)) == 1


@VERSIONS
def test_many_producers_share_a_loop(version: int) -> None:
    first = transactional(version)
    cluster = first.cluster
    others = [FakeProducer(cluster, first, **{"transactional.id": f"x{n}"}) for n in range(20)]
    for one in others:
        one.init()
    commits = []
    for number, one in enumerate([first, *others]):
        one.begin()
        one.send(T0, b"%d" % number)
        commits.append(one.commit())
    first.run_until(lambda: all(commit.done() for commit in commits), within_ms=1_000)
    assert not any(commit.exception(0) for commit in commits)
    first.run_for(10)
    assert sorted(committed(cluster)) == sorted(b"%d" % number for number in range(21))


def test_a_producer_without_a_transactional_id_has_no_transactions() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    producer = FakeProducer(cluster)
    error: KafkaError = failure(producer, producer.init_async())
    assert "set one to use transactions" in str(error)
