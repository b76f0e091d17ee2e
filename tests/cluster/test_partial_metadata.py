"""Requests for the topics that are new, incomplete or wrong, without all the others."""

from __future__ import annotations

from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.errors import ConnectionFailed
from mirror.producer.events import AwaitTopicEvent
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataTopic
from tests.cluster.metadata_probes import OTHER_ID, T0, Asked, topic
from tests.fakes.client import FakeClient, FakeConsumer, FakeProducer
from tests.fakes.cluster import FakeCluster

A0, B0, C0 = (TopicPartition(name, 0) for name in "abc")


def _missing(name: str) -> MetadataTopic:
    return MetadataTopic(3, name)


def _topics(*names: str, leader: int = 1, epoch: int = 5) -> list[MetadataTopic]:
    return [topic(leader, epoch, name=name) for name in names]


def _with(*names: str) -> Asked:
    """Topics that are known and complete, after the pause that followed."""
    asked = Asked()
    asked.metadata.want(names)
    asked.ask()
    asked.answer(*_topics(*names))
    asked.now += 1_000
    return asked


def test_a_new_topic_is_requested_alone_and_the_others_stay_known() -> None:
    asked = _with("a", "b")
    asked.metadata.want(["a", "c"])
    assert asked.ask() == ["c"]
    asked.answer(*_topics("c", leader=2))
    assert [asked.metadata.leader(tp) for tp in (A0, B0, C0)] == [Leader(1, 5), Leader(1, 5), Leader(2, 5)]
    assert asked.metadata.topic_id("a") is not None


def test_a_topic_that_is_added_while_all_are_requested_follows_alone_and_at_once() -> None:
    asked = _with("a", "b")
    asked.metadata.request_update()
    assert asked.ask() == ["a", "b"]
    asked.metadata.want(["c"])
    asked.answer(*_topics("a", "b"))
    assert asked.ask() == ["c"]


def test_a_missing_topic_is_requested_alone_less_and_less_often_and_delays_no_other() -> None:
    asked = _with("a")
    asked.metadata.want(["missing"])
    assert asked.ask() == ["missing"]
    for number in range(6):
        asked.answer(_missing("missing"))
        asked.metadata.want(["missing"])
        asked.metadata.want([f"new-{number}"])
        assert asked.ask() == [f"new-{number}"]
        asked.answer(*_topics(f"new-{number}"))
        wait = asked.quiet()
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number)
        asked.now += wait
        assert asked.ask() == ["missing"]
    asked.answer(*_topics("missing"))
    assert asked.metadata.leader(TopicPartition("missing", 0)) == Leader(1, 5)
    assert asked.quiet() > 200_000


def test_topics_that_are_incomplete_together_are_requested_together() -> None:
    asked = _with("a", "b", "c")
    asked.metadata.request_update()
    asked.ask()
    asked.answer(topic(-1, 6, name="a"), *_topics("b"), topic(-1, 6, name="c"))
    for _ in range(3):
        asked.metadata.request_update(["a", "b"] if asked.metadata.leader(B0) is None else ["a"])
        asked.now += asked.quiet()
        assert asked.ask() == ["a", "c"]
        asked.answer(topic(-1, 6, name="a"), topic(-1, 6, name="c"))
    assert asked.metadata.leader(B0) == Leader(1, 5)


def test_a_topic_that_is_wrong_is_requested_alone_after_a_pause() -> None:
    asked = _with("a", "b")
    asked.metadata.request_update(["b", "never wanted"])
    assert asked.ask() == ["b"]
    asked.answer(*_topics("b", leader=2, epoch=6))
    asked.metadata.request_update(["b"])
    asked.metadata.request_update(["a"])
    wait = asked.quiet()
    assert 80 <= wait <= 120
    asked.now += wait
    assert asked.ask() == ["a", "b"]


def test_what_stays_wrong_is_requested_less_and_less_often_also_beside_new_topics() -> None:
    asked = _with("a")
    waits: list[int] = []
    for number in range(6):
        asked.metadata.request_update(["a"])
        asked.now += asked.quiet() if waits else 0
        assert asked.ask() == ["a"]
        asked.answer(*_topics("a"))
        asked.metadata.request_update(["a"])
        waits.append(asked.quiet())
        asked.metadata.want([f"new-{number}"])
        assert asked.ask() == [f"new-{number}"]
        asked.answer(*_topics(f"new-{number}"))
        assert asked.quiet() == waits[-1]
    for number, wait in enumerate(waits):
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number), waits


def test_what_was_found_to_be_wrong_before_it_changed_is_not_requested_again() -> None:
    """A partition without a leader says so in each turn, also while the request for its topic is in flight."""
    asked = _with("a", "b")
    asked.metadata.want(["c"])
    asked.ask()
    asked.metadata.request_update(["b", "c"])
    asked.answer(*_topics("c"))
    asked.now += asked.quiet()
    assert asked.ask() == ["b"]


def test_what_is_found_to_be_wrong_during_a_request_that_changes_nothing_is_requested_again() -> None:
    """The broker may have answered before that, or lag behind."""
    asked = _with("a", "b")
    asked.metadata.request_update(["a"])
    asked.ask()
    asked.metadata.request_update(["a"])
    asked.answer(*_topics("a"))
    asked.now += asked.quiet()
    assert asked.ask() == ["a"]


def test_a_topic_that_was_complete_backs_off_as_shortly_as_at_first() -> None:
    asked = _with("a", "b")
    for _ in range(2):
        asked.metadata.request_update(["a"])
        for number in range(5):
            asked.now += 1_000
            assert asked.ask() == ["a"]
            asked.answer(topic(-1, 6, name="a"))
            assert 80 * min(10, 2**number) <= asked.quiet() <= min(1_000, 120 * 2**number)
        asked.metadata.request_update()
        asked.now += 1_000
        assert asked.ask() == ["a", "b"]
        asked.answer(*_topics("a", "b", epoch=6))
        asked.now += 1_000
        assert asked.quiet() > 200_000


def test_a_new_topic_waits_for_no_backoff_of_a_failed_request() -> None:
    """Another broker may answer."""
    asked = _with("a", "b")
    asked.metadata.request_update(["a"])
    asked.ask()
    asked.request.on_failure(ConnectionFailed("gone"), asked.now)
    assert asked.quiet() > 0
    asked.metadata.want(["c"])
    assert asked.ask() == ["a", "c"]


def test_requests_for_single_topics_do_not_postpone_that_for_all() -> None:
    asked = _with("a", "b")
    asked.now += 298_000
    asked.metadata.request_update(["b"])
    asked.ask()
    asked.answer(*_topics("b"))
    assert asked.quiet() == 1_000
    asked.now += 1_000
    assert asked.ask() == ["a", "b"]


def test_topics_of_a_failed_request_are_requested_again_alone_with_growing_backoff() -> None:
    asked = _with("a", "b")
    asked.metadata.request_update(["b"])
    asked.metadata.want(["c"])
    for number in range(5):
        assert asked.ask() == ["b", "c"]
        asked.request.on_failure(ConnectionFailed("gone"), asked.now)
        wait = asked.quiet()
        assert 80 * min(10, 2**number) <= wait <= min(1_000, 120 * 2**number)
        asked.now += wait
    asked.ask()
    asked.answer(*_topics("b", "c"))
    assert asked.quiet() > 200_000


def test_a_failed_request_for_all_is_one_for_all_again() -> None:
    asked = _with("a", "b")
    asked.metadata.request_update()
    asked.ask()
    asked.request.on_failure(ConnectionFailed("gone"), asked.now)
    asked.now += asked.quiet()
    assert asked.ask() == ["a", "b"]


def test_all_topics_are_requested_once_a_broker_is_missing_in_a_response_for_some() -> None:
    """It may be the leader of others, whose requests would go nowhere."""
    asked = _with("a", "b")
    asked.metadata.want(["c"])
    asked.ask()
    asked.answer(*_topics("c"), brokers=1)
    asked.now += asked.quiet()
    assert asked.now < 10_000
    assert asked.ask() == ["a", "b", "c"]


def test_the_brokers_are_requested_without_topics() -> None:
    asked = _with("a")
    asked.metadata.request_brokers()
    assert asked.ask() == []
    asked.answer(brokers=3)
    assert sorted(asked.metadata.brokers) == [1, 2, 3]
    assert asked.metadata.leader(A0) == Leader(1, 5)
    asked.metadata.request_brokers()
    assert 80 <= asked.quiet() <= 120
    assert asked.quiet() < 200, "a failed one is repeated"
    asked.now += 200
    asked.ask()
    asked.request.on_failure(ConnectionFailed("gone"), asked.now)
    asked.now += asked.quiet()
    assert asked.ask() == []


def test_a_response_for_some_topics_says_nothing_about_others() -> None:
    asked = _with("a", "b")
    asked.metadata.request_update(["b"])
    asked.ask()
    asked.answer(topic(2, 9, name="a"), *_topics("b", leader=2, epoch=4))
    assert asked.metadata.leader(A0) == Leader(1, 5)
    assert asked.metadata.leader(B0) == Leader(1, 5), "of an older epoch"
    asked.now += 1_000
    asked.metadata.request_update(["b"])
    asked.ask()
    asked.answer(topic(2, 0, name="b", topic_id=OTHER_ID))
    assert asked.metadata.leader(B0) == Leader(2, 0), "of another topic under the same name"
    assert asked.metadata.topic_name(OTHER_ID) == "b"


def test_a_missing_topic_is_dropped_only_if_it_was_unwanted_between_its_own_requests() -> None:
    asked = _with("a")
    asked.metadata.want(["missing"])
    asked.ask()
    asked.answer(_missing("missing"))
    asked.metadata.want(["missing"])
    for number in range(3):
        asked.metadata.want([f"new-{number}"])
        asked.ask()
        asked.answer(*_topics(f"new-{number}"))
    for _ in range(2):
        asked.now += asked.quiet()
        assert asked.ask() == ["missing"]
        asked.answer(_missing("missing"))
    assert asked.quiet() > 200_000


def test_a_dropped_topic_that_was_found_to_be_wrong_is_not_requested() -> None:
    asked = _with("a")
    asked.metadata.want(["missing"])
    asked.ask()
    asked.answer(_missing("missing"))
    asked.now += asked.quiet()
    asked.ask()
    asked.metadata.request_update(["missing"])
    asked.answer(_missing("missing"))
    asked.now += 1_000
    assert asked.quiet() > 200_000
    asked.metadata.request_update(["missing"])
    assert asked.quiet() > 200_000
    asked.metadata.want(["missing"])
    assert asked.ask() == ["missing"]


def test_a_response_covers_only_the_topics_that_were_requested_after_a_point() -> None:
    asked = _with("a", "b")
    metadata = asked.metadata
    number = metadata.next_request
    metadata.want(["c"])
    asked.ask()
    metadata.request_covering("a", number)
    asked.answer(*_topics("c"))
    assert [metadata.covers(name, number) for name in ("a", "c", "unknown")] == [False, True, False]
    asked.now += 1_000
    assert asked.ask() == ["a"]
    metadata.request_covering("a", number)
    assert not metadata.covers("a", number)
    asked.answer(*_topics("a"))
    assert metadata.covers("a", number)
    asked.now += 1_000
    assert asked.quiet() > 200_000, "the request in flight was enough"
    metadata.request_covering("a", metadata.next_request)
    assert asked.ask() == ["a"]


def test_changes_are_those_of_the_topics_that_have_some() -> None:
    asked = _with("a", "b", "t")
    metadata, seen = asked.metadata, 0

    def changed() -> set[str] | None:
        nonlocal seen
        found, seen = metadata.changed_since(seen), metadata.changes
        return None if found is None else set(found)

    assert changed() == {"a", "b", "t"}
    asked.update(*_topics("a", "b", "t"))
    assert changed() == set()
    asked.update(*_topics("a", "t"), *_topics("b", leader=2))
    assert changed() == {"b"}
    assert metadata.use_leader(A0, Leader(2, 6))
    metadata.record_epoch_seen(T0, 9, None)
    assert changed() == {"a", "t"}
    asked.update(*_topics("a", "t", epoch=9), _missing("b"))
    assert metadata.leader(B0) is None
    assert changed() is None, "b was dropped"
    assert changed() == set()


def test_a_consumer_of_many_topics_requests_a_new_one_alone() -> None:
    cluster = FakeCluster()
    names = [f"topic-{number}" for number in range(50)]
    for name in names:
        cluster.add_topic(name, 1)
    consumer = FakeConsumer(cluster)
    consumer.read(*((TopicPartition(name, 0), 0) for name in names))
    consumer.run_for(2_000)
    cluster.received.clear()
    cluster.add_topic("new", 1)
    cluster.log("new", 0).append_values(b"x")
    consumer.read(*((TopicPartition(name, 0), 0) for name in [*names, "new"]))
    assert [one.tp.topic for one in consumer.poll()] == ["new"]
    consumer.run_for(2_000)
    assert [[each.name for each in call.body.topics] for call in cluster.calls(Api.METADATA)] == [["new"]]


def test_a_partition_that_is_added_later_is_found_by_each_client_that_waits_for_it() -> None:
    """Its topic is complete before, and all topics are requested again after five minutes only."""
    cluster = FakeCluster()
    cluster.add_topic("t", 1)
    added = TopicPartition("t", 1)
    consumer, producer, waiting = FakeConsumer(cluster), FakeProducer(cluster), FakeProducer(cluster)
    clients: list[FakeClient] = [consumer, producer, waiting]
    consumer.read((T0, 0), (added, 0))
    sent = producer.send(added, b"x")
    awaited = AwaitTopicEvent(added, *waiting.timer())
    waiting.submit(waiting.core, awaited)
    for client in clients:
        client.run_for(3_000)
    cluster.grow(cluster.topics["t"], 2)
    for client in clients:
        client.run_for(2_000)
    assert awaited.future.done()
    assert sent.done()
    assert [one.tp for one in consumer.poll()] == [added]
