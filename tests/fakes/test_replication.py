"""What of the fake's replication cannot be tried on real brokers within a test."""

from __future__ import annotations

from mirror.cluster.types import TopicPartition
from mirror.wire.records import TRANSACTIONAL
from tests.conformance.raw_brokers import Identity, shape
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.test_transactions import T0, ProducerHarness

TP = TopicPartition("t", 0)
DAY_MS = 86_400_000


def _cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    return cluster


def test_batch_is_acknowledged_when_the_followers_have_it() -> None:
    cluster = _cluster()
    producer, log = FakeProducer(cluster), cluster.log("t")
    log.replicated_to = 0
    sent = producer.send(TP, b"0", b"1")
    producer.run_for(500)
    assert (log.end_offset, log.high_watermark, sent.done()) == (2, 0, False)
    log.replicated_to = 1
    producer.run_for(500)
    assert not sent.done()
    log.replicated_to = 2
    assert producer.finish(sent).offset == 0


def test_batch_that_is_not_replicated_in_time_is_sent_again_and_recognized() -> None:
    cluster = _cluster()
    producer, log = FakeProducer(cluster, **{"request.timeout.ms": 2_000}), cluster.log("t")
    log.replicated_to = 0
    sent = producer.send(TP, b"0")
    producer.run_for(2_500)
    log.replicated_to = None
    assert producer.finish(sent).offset == 0
    assert log.end_offset == 1


def test_batch_lost_with_its_leader_is_sent_again() -> None:
    cluster = _cluster()
    producer, log = FakeProducer(cluster), cluster.log("t")
    assert producer.finish(producer.send(TP, b"0")).offset == 0
    log.replicated_to = 1
    sent = producer.send(TP, b"1")
    producer.run_for(500)
    assert log.end_offset == 2
    cluster.elect_uncleanly("t", 0, 2, 1)
    log.replicated_to = None
    assert producer.finish(sent).offset == 1
    assert [one.leader_epoch for one in log.batches()] == [0, 1]


def test_transaction_ends_when_its_marker_is_replicated() -> None:
    site = ProducerHarness(2)
    log = site.cluster.log("orders")
    who = site.producer.init()
    site.producer.write(who, T0)
    log.replicated_to = 1
    assert site.producer.end(who, commit=True).error_code == 0
    site.pass_ms(5_000)
    assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (2, 1, 0)
    assert site.producer.init_once().error_code == 51
    log.replicated_to = None
    site.pass_ms(100)
    assert (log.end_offset, log.last_stable_offset) == (2, 2), "written once"
    assert site.producer.init_once().error_code == 0


def test_marker_lost_with_its_leader_is_written_again() -> None:
    site = ProducerHarness(2)
    log = site.cluster.log("orders")
    who = site.producer.init()
    site.producer.begin(who, T0)
    log.replicated_to = 0
    assert site.producer.end(who, commit=True).error_code == 0
    site.pass_ms(0)
    assert log.end_offset == 1
    site.cluster.elect_uncleanly("orders", 0, 1, 0)
    log.replicated_to = None
    assert log.end_offset == 0
    site.pass_ms(100)
    assert shape(site.wire, T0) == [("commit", 1)]
    assert site.producer.init_once().error_code == 0


def test_new_replica_knows_no_producer_whose_batches_were_deleted() -> None:
    cluster = _cluster()
    log = cluster.log("t")
    log.append_values(b"0", producer_id=5)
    log.append_values(b"1", producer_id=6)
    log.delete_before(1)
    cluster.elect_uncleanly("t", 0, 2, 2)
    assert set(log.producers) == {5, 6}, "an old follower has seen it"
    cluster.elect_uncleanly("t", 0, 1, 2, new_replica=True)
    assert set(log.producers) == {6}


def test_producer_expires_at_the_check_and_not_while_its_transaction_is_open() -> None:
    site = ProducerHarness()
    site.cluster.admin.broker_configs[""] = {"producer.id.expiration.check.interval.ms": "10000"}
    cluster, log, old = site.cluster, site.cluster.log("orders"), Identity(5, 0)
    assert site.producer.append(old, T0, 0, age_ms=DAY_MS - 2_000)[0] == 0
    log.append_values(b"x", attributes=TRANSACTIONAL, producer_id=6)
    cluster.clock.jump_to(9_999)
    assert site.producer.append(old, T0, 2)[0] == 45, "too old, and not checked yet"
    cluster.clock.jump_to(10_000)
    assert site.producer.append(old, T0, 2)[0] == 0
    cluster.clock.jump_to(2 * DAY_MS)
    assert site.producer.append(Identity(5, 0), T0, 7)[0] == 0
    assert set(log.producers) == {5, 6}


def test_log_of_an_elected_replica_does_not_end_before_its_start() -> None:
    cluster = _cluster()
    log = cluster.log("t")
    for value in (b"0", b"1", b"2"):
        log.append_values(value)
    log.delete_before(2)
    cluster.elect_uncleanly("t", 0, 2, 1)
    assert (log.start_offset, log.end_offset) == (1, 1)
