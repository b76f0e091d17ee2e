"""Nothing is drained for a leader that cannot take it, or may not yet."""

from __future__ import annotations

from mirror.cluster.types import TopicPartition
from mirror.errors import DeliveryTimeout
from mirror.wire.api import Api
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import values_of

_T0 = TopicPartition("t", 0)


def _log(cluster: FakeCluster) -> list[bytes]:
    return [v for one in cluster.log("t").batches() for v in values_of(one.view)]


def test_expired_unsent_never_written_while_its_connection_is_being_set_up() -> None:
    """Drained into a request that waits for its connection it would go out once that stands, expired or not."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    cluster.log("t").leader = 9  # no leader at first: most of the time passes in the queue
    producer = FakeProducer(cluster, **{"delivery.timeout.ms": 5_000, "request.timeout.ms": 4_000})
    sent = producer.prepare(_T0, b"x")
    producer.send_batch(sent)
    cluster.after(4_000, lambda: cluster.move("t", 0, 2))
    cluster.brokers[2].connect_ms = 2_500
    producer.run_until(sent.future.done)
    error = sent.future.exception(0)
    assert isinstance(error, DeliveryTimeout)
    assert not error.may_have_been_written
    producer.run_for(20_000)
    assert _log(cluster) == []


def test_nothing_goes_to_a_new_leader_while_an_older_batch_is_unanswered_at_the_old_one() -> None:
    """A leader that knows nothing of a producer id takes any first sequence: batch 1, and then batch 0 no more."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    producer = FakeProducer(cluster)
    producer.finish(producer.send(_T0, b"0"))
    producer.run_for(1_000)
    held = cluster.control.on(Api.PRODUCE, Action(hold="before"), node=1)
    first = producer.send(_T0, b"1")
    producer.run_for(5)
    cluster.move("t", 0, 2)
    producer.loop.metadata.request_update()
    producer.run_for(5)
    leader = producer.loop.metadata.leader(_T0)
    assert leader is not None
    assert leader.node == 2
    second = producer.send(_T0, b"2")
    for ms in (5, 1_000):
        producer.run_for(ms)
        assert len(producer.queue(_T0).in_flight) == 1, "nor to the old one"
    held.release()
    assert producer.finish(first).base_offset == 1
    assert producer.finish(second).base_offset == 2
    assert _log(cluster) == [b"0", b"1", b"2"]
