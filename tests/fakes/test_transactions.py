"""What of the fake's transactions cannot be tried on real brokers within a test, or is the fake's own."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from mirror.wire.messages.produce import InitProducerIdRequest
from mirror.wire.messages.transactions import AddPartitionsTopic, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from mirror.wire.records import TRANSACTIONAL
from tests.conformance.raw_brokers import FakeWire, Identity, RawProducer, fetch_offset, log_of, shape
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.log import Aborted

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LAST = 32_766


class ProducerHarness:
    """A fake cluster whose first broker coordinates the id "txn" and the group "group"; the second leads T1."""

    def __init__(self, level: int = 1) -> None:
        self.cluster = FakeCluster(2)
        self.cluster.features["transaction.version"] = level
        self.cluster.coordinators |= {"txn": 1, "group": 1}
        self.cluster.add_topic("orders", 2)
        self.wire, self.other = FakeWire(self.cluster), FakeWire(self.cluster, 2)
        self.producer = RawProducer(self.wire, "txn")

    def pass_ms(self, ms: int) -> None:
        self.cluster.clock.advance(ms)
        self.cluster.run_due(self.cluster.clock.now())

    def at_epoch(self, epoch: int) -> Identity:
        """As if it had been bumped that often."""
        who = self.producer.init()
        self.cluster.transactions.ids["txn"].epoch = epoch
        return Identity(who.producer_id, epoch)


def _ids(answer: object) -> tuple[object, ...]:
    return tuple(getattr(answer, name) for name in ("error_code", "producer_id", "producer_epoch"))


def test_another_broker_is_not_the_coordinator() -> None:
    site = ProducerHarness()
    stray, who = RawProducer(site.other, "txn"), site.producer.init()
    assert stray.init_once().error_code == 16
    assert stray.add(who, T0) == [16]
    assert stray.add_group(who, "group") == 16
    assert stray.end(who, commit=True).error_code == 16
    assert stray.commit_offset(who, "group", T0, 1, version=5) == 16


def test_markers_come_after_their_time_and_offsets_with_them() -> None:
    site = ProducerHarness()
    site.cluster.marker_ms = 40
    who = site.producer.init()
    site.producer.write(who, T0)
    assert site.producer.add_group(who, "group") == 0
    assert site.producer.commit_offset(who, "group", T0, 7, version=4) == 0
    assert site.producer.end(who, commit=True).error_code == 0
    site.pass_ms(39)
    assert shape(site.wire, T0) == [("data", 0)]
    assert fetch_offset(site.wire, "group", T0, stable=True) == (88, -1)
    assert site.producer.add(who, T0) == [51]
    site.pass_ms(1)
    assert shape(site.wire, T0) == [("data", 0), ("commit", 0)]
    assert fetch_offset(site.wire, "group", T0, stable=True) == (0, 7)
    assert site.producer.add(who, T0) == [0]


def test_a_partition_without_its_leader_holds_up_the_id_and_nobody_else() -> None:
    site = ProducerHarness()
    who = site.producer.init()
    site.producer.begin(who, T0, T1)
    site.cluster.kill(2)
    assert site.producer.end(who, commit=False).error_code == 0
    site.pass_ms(75_000)
    assert shape(site.wire, T0) == [("abort", 0)]
    assert site.producer.init_once(who).error_code == 51
    neighbour = RawProducer(site.wire, "neighbour")
    site.cluster.coordinators["neighbour"] = 1
    neighbour.write(neighbour.init(), T0)
    site.cluster.start(2)
    site.pass_ms(100)
    assert shape(FakeWire(site.cluster, 2), T1) == [("abort", 0)]
    assert site.producer.init_once(who).error_code == 0


@pytest.mark.parametrize(("level", "after"), [(1, (90, -1, -1)), (2, (0, 1001, 1))])
def test_the_timeout_counts_from_the_first_partition(level: int, after: tuple[int, int, int]) -> None:
    site = ProducerHarness(level)
    site.producer.timeout_ms = 500
    who = site.producer.init()
    site.pass_ms(10_000)
    site.producer.write(who, T0)
    site.pass_ms(499)
    assert shape(site.wire, T0) == [("data", 0)]
    site.pass_ms(1)
    site.pass_ms(0)
    assert shape(site.wire, T0) == [("data", 0), ("abort", 1)]
    assert _ids(site.producer.init_once(who)) == after


def test_a_transaction_that_ended_in_time_is_left_alone() -> None:
    site = ProducerHarness()
    site.producer.timeout_ms = 500
    who = site.producer.init()
    for turn in range(3):
        site.producer.write(who, T0, turn)
        site.pass_ms(400)
        assert site.producer.end(who, commit=True).error_code == 0
        site.pass_ms(0)
    assert [kind for kind, _ in shape(site.wire, T0)] == ["data", "commit"] * 3


# --- the epochs run out: seen on real brokers by 32,766 requests


def test_init_after_the_last_epoch_gives_another_id() -> None:
    site = ProducerHarness()
    who = site.at_epoch(LAST - 1)
    assert _ids(site.producer.init_once(who)) == (0, who.producer_id, LAST)
    assert site.producer.init_once(who).error_code == -1, "a flaw of 4.3: this retry is not recognized"
    last = Identity(who.producer_id, LAST)
    assert [_ids(site.producer.init_once(last)) for _ in range(2)] == [(0, who.producer_id + 1, 0)] * 2


def test_an_end_of_version_2_in_the_last_epoch_gives_another_id() -> None:
    site = ProducerHarness(2)
    who = site.at_epoch(LAST)
    site.producer.write(who, T0)
    fresh = (0, who.producer_id + 1, 0)
    assert _ids(site.producer.end(who, commit=True)) == fresh
    site.pass_ms(0)
    assert _ids(site.producer.end(who, commit=True)) == fresh, "a repeated request"
    assert shape(site.wire, T0) == [("data", LAST), ("commit", LAST + 1)]
    site.producer.write(Identity(*fresh[1:]), T0)


@pytest.mark.parametrize(
    ("level", "owner", "newcomer"), [(1, (-1, -1, -1), (0, 1002, 0)), (2, (0, 1002, 0), (0, 1002, 1))]
)
def test_fencing_in_the_last_epoch(level: int, owner: tuple[int, int, int], newcomer: tuple[int, int, int]) -> None:
    site = ProducerHarness(level)
    who = site.at_epoch(LAST)
    site.producer.write(who, T0)
    assert site.producer.init_once(who).error_code == 51
    site.pass_ms(0)
    assert shape(site.wire, T0) == [("data", LAST), ("abort", LAST + 1)]
    assert _ids(site.producer.init_once(who)) == owner
    assert _ids(site.producer.init_once()) == newcomer


# --- brokers before 3.6: seen with transaction.partition.verification.enable=false


def test_without_verification_a_late_batch_is_taken_and_hangs() -> None:
    site = ProducerHarness()
    site.cluster.verifies = False
    who = site.producer.init()
    site.producer.write(who, T0)
    assert site.producer.end(who, commit=False).error_code == 0
    site.pass_ms(0)
    assert site.producer.produce(who, T0, 1) == 0
    assert _ids(site.producer.init_once(who)) == (0, who.producer_id, 1)
    site.pass_ms(0)
    assert shape(site.wire, T0) == [("data", 0), ("abort", 0), ("data", 0)]
    assert log_of(site.wire, T0)[1] == 2, "it is not ended"
    assert RawProducer(site.wire, "stranger").produce(Identity(5, 0), T0, 0) == 0


# --- what tests may do to requests


def test_a_code_for_a_request_stands_for_doing_nothing() -> None:
    site = ProducerHarness()
    who = site.producer.init()
    site.cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, Action(errors={T0: 29}))
    assert site.producer.add(who, T0, T1) == [29, 55]
    site.cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, Action(errors={"AddPartitionsToTxn": 53}))
    assert site.producer.add(who, T0) == [53]
    site.cluster.control.on(Api.ADD_OFFSETS_TO_TXN, Action(errors={"group": 30}))
    assert site.producer.add_group(who, "group") == 30
    site.cluster.control.on(Api.END_TXN, Action(errors={"txn": 14}))
    assert site.producer.end(who, commit=False).error_code == 14
    site.cluster.control.on(Api.INIT_PRODUCER_ID, Action(errors={"InitProducerId": 15}))
    assert site.producer.init_once().error_code == 15
    site.cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(errors={T0: 12}))
    assert site.producer.commit_offset(who, "group", T0, 1, version=5) == 12
    assert fetch_offset(site.wire, "group", T0, stable=True) == (0, -1)


def test_with_handled_only_the_answer_is_wrong() -> None:
    site = ProducerHarness()
    who = site.producer.init()
    site.cluster.control.on(Api.ADD_PARTITIONS_TO_TXN, Action(errors={"txn": 7}, handled=True))
    assert site.producer.add(who, T0) == [7]
    assert site.producer.produce(who, T0, 0) == 0
    site.cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(errors={"group": 7}, handled=True))
    assert site.producer.commit_offset(who, "group", T0, 3, version=5) == 7
    site.cluster.control.on(Api.END_TXN, Action(errors={"EndTxn": 7}, handled=True))
    assert site.producer.end(who, commit=True).error_code == 7
    site.pass_ms(0)
    assert shape(site.wire, T0) == [("data", 0), ("commit", 0)]
    assert fetch_offset(site.wire, "group", T0) == (0, 3)


def test_old_versions_are_answered_about_fencing_in_their_own_words() -> None:
    site = ProducerHarness()
    who = site.producer.init()
    site.producer.init()
    body = InitProducerIdRequest("txn", 1_000, who.producer_id, who.epoch)
    assert [site.wire.ask(Api.INIT_PRODUCER_ID, version, body).error_code for version in (3, 4, 5)] == [47, 90, 90]


def test_all_partitions_asked_for_are_answered_in_their_topics() -> None:
    site = ProducerHarness()
    site.cluster.add_topic("clicks", 1)
    who = site.producer.init()
    asked = (AddPartitionsTopic("clicks", (0,)), AddPartitionsTopic("orders", (1, 0)))
    body = AddPartitionsToTxnRequest("txn", who.producer_id, who.epoch, asked)
    answer = site.wire.ask(Api.ADD_PARTITIONS_TO_TXN, 3, body)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    result = [(topic.name, [part.partition_index for part in topic.results]) for topic in answer.results]
    assert result == [("clicks", [0]), ("orders", [1, 0])]


def test_a_log_that_is_cut_back_knows_producers_and_transactions_by_what_is_left() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    log = cluster.log("t")
    log.append_values(b"0", attributes=TRANSACTIONAL, producer_id=5)
    log.end_transaction(5, commit=False)
    log.append_values(b"2", attributes=TRANSACTIONAL, producer_id=6)
    log.append_values(b"3", attributes=TRANSACTIONAL, producer_id=7)
    log.append_values(b"4", attributes=TRANSACTIONAL, producer_id=5, epoch=1)
    log.end_transaction(5, commit=False, epoch=1)
    before = log.producers[5].epoch
    log.truncate(3)
    assert (before, log.producers[5].epoch) == (1, 0), "known by its marker"
    assert log.open_transactions == {6: 2}
    assert [one.first_offset for one in log.aborted] == [0]
    log.truncate(0)
    assert (log.producers, log.open_transactions, log.aborted) == ({}, {}, [])
    log.append_values(b"0", attributes=TRANSACTIONAL, producer_id=7)
    log.end_transaction(7, commit=False)
    assert log.aborted == [Aborted(7, 0, 1)], "not where it had begun before"
