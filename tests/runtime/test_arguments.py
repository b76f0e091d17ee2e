"""A wrong argument is its caller's error alone: the network thread, and the other clients on it, never meet it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirror.client import EARLIEST, Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from mirror.errors import InvalidArgument, KafkaError, KafkaTimeout, NotRetriable
from mirror.producer.batch.queue import LAST_ADOPTABLE_EPOCH
from mirror.runtime import arguments

TP = TopicPartition("t", 0)
HUGE = 2**63
LONG = "x" * 40_000
SURROGATE = "\ud800"
"""A str that no encoding but UTF-16 can hold half of."""


@pytest.fixture
def consumer(silent: str) -> Iterator[Any]:
    with Consumer({"bootstrap.servers": silent, "group.id": "readers"}) as consumer:
        consumer.assign([TP])
        yield consumer
        consumer.close(timeout_ms=0)


@pytest.fixture
def admin(silent: str) -> Iterator[Any]:
    with Admin({"bootstrap.servers": silent}) as admin:
        yield admin


@pytest.fixture
def producer(silent: str) -> Iterator[Any]:
    with Producer({"bootstrap.servers": silent}) as producer:
        yield producer


Calls = dict[str, Callable[[Any], object]]

OF_A_CONSUMER: Calls = {
    "assign: partition as text": lambda c: c.assign([TopicPartition("t", "0")]),  # type: ignore[arg-type]
    "assign: no topic": lambda c: c.assign([TopicPartition(None, 0)]),  # type: ignore[arg-type]
    "assign: empty topic": lambda c: c.assign([("", 0)]),
    "assign: long topic": lambda c: c.assign([(LONG, 0)]),
    "assign: topic without UTF-8": lambda c: c.assign([(SURROGATE, 0)]),
    "assign: negative partition": lambda c: c.assign([("t", -1)]),
    "assign: large partition": lambda c: c.assign([("t", 2**31)]),
    "assign: bool partition": lambda c: c.assign([("t", True)]),
    "assign: three in a tuple": lambda c: c.assign([("t", 0, 0)]),
    "assign: list in place of a tuple": lambda c: c.assign([["t", 0]]),
    "assign: a topic's name": lambda c: c.assign("t"),
    "assign: None": lambda c: c.assign(None),
    "assign: one partition, not a collection": lambda c: c.assign(TP),
    "seek: text": lambda c: c.seek(TP, "5"),
    "seek: fraction": lambda c: c.seek(TP, 1.5),
    "seek: too large": lambda c: c.seek(TP, HUGE),
    "seek: negative": lambda c: c.seek(TP, -5),
    "seek: bool": lambda c: c.seek(TP, True),
    "seek: negative, in full": lambda c: c.seek(TP, OffsetAndMetadata(-5)),
    "seek: epoch as text": lambda c: c.seek(TP, OffsetAndMetadata(5, "1")),  # type: ignore[arg-type]
    "seek: topic id as text": lambda c: c.seek(TP, OffsetAndMetadata(5, topic_id="7")),  # type: ignore[arg-type]
    "seek_to_beginning": lambda c: c.seek_to_beginning([("t", "0")]),
    "seek_to_end": lambda c: c.seek_to_end(["t"]),
    "pause": lambda c: c.pause([None]),
    "resume": lambda c: c.resume([None]),
    "position": lambda c: c.position("t"),
    "last_error": lambda c: c.last_error(None),
    "end_offsets": lambda c: c.end_offsets([("t", "0")]),
    "beginning_offsets": lambda c: c.beginning_offsets([(LONG, 0)]),
    "offsets_for_times: text": lambda c: c.offsets_for_times({TP: "now"}),
    "offsets_for_times: too large": lambda c: c.offsets_for_times({TP: HUGE}),
    "offsets_for_times: LATEST": lambda c: c.offsets_for_times({TP: -1}),
    "offsets_for_times: no mapping": lambda c: c.offsets_for_times([TP]),
    "commit_sync: text": lambda c: c.commit_sync({TP: "5"}),
    "commit_sync: negative": lambda c: c.commit_sync({TP: -7}),
    "commit_sync: long metadata": lambda c: c.commit_sync({TP: OffsetAndMetadata(5, None, LONG)}),
    "commit_sync: long metadata in bytes": lambda c: c.commit_sync({TP: OffsetAndMetadata(5, None, "é" * 16_384)}),
    "commit_sync: no metadata": lambda c: c.commit_sync({TP: OffsetAndMetadata(5, None, None)}),  # type: ignore[arg-type]
    "committed": lambda c: c.committed([(0, "t")]),
    "partitions_for: None": lambda c: c.partitions_for(None),
    "partitions_for: long": lambda c: c.partitions_for(LONG),
    "poll: negative": lambda c: c.poll(-1),
    "poll: fraction": lambda c: c.poll(0.5),
    "poll: too large": lambda c: c.poll(HUGE),
    "poll: text": lambda c: c.poll("1"),
    "list_topics: negative": lambda c: c.list_topics(-1),
    "client_instance_id: negative": lambda c: c.client_instance_id(-1),
    "close: negative": lambda c: c.close(-1),
}
OF_AN_ADMIN: Calls = {
    "cluster_operations": lambda a: a.cluster_operations(timeout_ms=-1),
    "describe_cluster": lambda a: a.describe_cluster(timeout_ms=-1),
    "describe_topics: one name": lambda a: a.describe_topics("orders"),
    "describe_topics: None": lambda a: a.describe_topics([None]),
    "create_topics: no NewTopic": lambda a: a.create_topics(["t"]),
    "create_topics: partitions": lambda a: a.create_topics([NewTopic("t", 2**31)]),
    "create_topics: replicas": lambda a: a.create_topics([NewTopic("t", 1, 2**15)]),
    "create_topics: config": lambda a: a.create_topics([NewTopic("t", 1, configs={"retention.ms": 5})]),  # type: ignore[dict-item]
    "create_topics: config's key": lambda a: a.create_topics([NewTopic("t", 1, configs={5: "x"})]),  # type: ignore[dict-item]
    "delete_topics_by_id": lambda a: a.delete_topics_by_id(["t"]),
    "create_partitions": lambda a: a.create_partitions({"t": "2"}),
    "list_offsets: below EARLIEST": lambda a: a.list_offsets({TP: EARLIEST - 1}),
    "list_offsets: text": lambda a: a.list_offsets({TP: "now"}),
    "list_offsets: isolation": lambda a: a.list_offsets({TP: 0}, isolation="serializable"),
    "group_operations: one name": lambda a: a.group_operations("g"),
    "transactional_id_operations": lambda a: a.transactional_id_operations([LONG]),
    "group_offsets: partition": lambda a: a.group_offsets("g", ["t"]),
    "group_offsets: group": lambda a: a.group_offsets(LONG, [TP]),
    "commit_group_offsets": lambda a: a.commit_group_offsets("g", {TP: OffsetAndMetadata(HUGE)}),
}


def sound(client: Consumer | Admin) -> None:
    """The thread still serves; the listener does not, so that time runs out."""
    with pytest.raises(KafkaTimeout):
        client.list_topics(timeout_ms=1)
    assert not client.network_thread.dead


@pytest.mark.parametrize("name", OF_A_CONSUMER)
def test_a_consumers_wrong_argument_is_reported_to_its_caller_alone(name: str, consumer: Consumer) -> None:
    with pytest.raises(InvalidArgument) as raised:
        OF_A_CONSUMER[name](consumer)
    assert len(str(raised.value)) < 250
    assert consumer.assignment() == {TP}
    sound(consumer)


@pytest.mark.parametrize("name", OF_AN_ADMIN)
def test_an_admins_wrong_argument_is_reported_to_its_caller_alone(name: str, admin: Admin) -> None:
    with pytest.raises(InvalidArgument):
        OF_AN_ADMIN[name](admin)
    sound(admin)


def test_a_producers_wrong_argument_is_reported_to_its_caller_alone(producer: Any) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: producer.send_batch(("t", "0"), b""),
        lambda: producer.send_batch(TP, b"no batch"),
        lambda: producer.flush(-1),
        lambda: producer.close(-1),
        lambda: producer.add_partitions([("t", "0")]),
        lambda: producer.add_partitions(5),
        lambda: producer.adopt(("t", -1), (5, 0), 1),
        lambda: producer.adopt(TP, 5, 1),
        lambda: producer.adopt(TP, (-1, 0), 1),
        lambda: producer.adopt(TP, (5, -1), 1),
        lambda: producer.adopt(TP, (5, LAST_ADOPTABLE_EPOCH + 1), 1),
        lambda: producer.adopt(TP, (5, "0"), 1),
        lambda: producer.adopt(TP, (5, 0), None),
        lambda: producer.adopt(TP, (5, 0), True),
        lambda: producer.release("t"),
    ]
    for call in wrong:
        with pytest.raises(InvalidArgument):
            call()
    assert not producer.network_thread.dead
    producer.flush(0)


def test_a_wrong_argument_is_a_value_error_of_the_tree() -> None:
    with pytest.raises(
        ValueError, match=r"the offset of t-0 must be a whole number from 0 to 2\^63 - 1, not '5'"
    ) as raised:
        arguments.offset(TP, "5")  # type: ignore[arg-type]
    assert isinstance(raised.value, KafkaError)
    assert isinstance(raised.value, NotRetriable)


def test_the_largest_and_smallest_of_everything_will_do() -> None:
    longest = TopicPartition("x" * 249, 2**31 - 1)
    assert arguments.partitions([longest]) == (longest,)
    full = OffsetAndMetadata(HUGE - 1, 2**31 - 1, "x" * 32_767)
    assert arguments.offsets({longest: full, TP: 0}) == {longest: full, TP: OffsetAndMetadata(0)}
    assert arguments.times({TP: HUGE - 1}) == {TP: HUGE - 1}
    assert arguments.times_or_ends({TP: EARLIEST}) == {TP: EARLIEST}
    assert [arguments.timeout(value) for value in (None, 0, HUGE - 1)] == [None, 0, HUGE - 1]
    assert arguments.new_topics([NewTopic("t", -1, -1, {"a": "b"})]) == (NewTopic("t", -1, -1, {"a": "b"}),)


def test_an_epoch_of_minus_one_is_none() -> None:
    assert arguments.offset(TP, OffsetAndMetadata(5, -1)) == OffsetAndMetadata(5, None)


def test_plain_tuples_and_generators_will_do(consumer: Any) -> None:
    consumer.assign(pair for pair in [("t", 0), ("t", 1), ("t", 0)])
    assert consumer.assignment() == {TP, TopicPartition("t", 1)}
    assert all(type(tp) is TopicPartition for tp in consumer.assignment())
    consumer.seek(("t", 0), 5)
    consumer.seek(("t", 1), 7)
    assert [consumer.position(("t", n)) for n in (0, 1)] == [5, 7]
    # Only the one named: a generator that a first look has used up would mean all of them.
    consumer.seek_to_beginning(tp for tp in [("t", 0)])
    assert consumer.position(("t", 1)) == 7
    with pytest.raises(KafkaTimeout):
        consumer.position(("t", 0), 1)


def test_a_generator_of_partitions_is_answered_in_full(consumer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[TopicPartition] = set()

    def call(_core: object, event: Any, **_options: object) -> dict[TopicPartition, OffsetAndMetadata]:
        asked.update(event.tps)
        return {TP: OffsetAndMetadata(3)}

    with monkeypatch.context() as patch:
        patch.setattr(consumer.network_thread, "call", call)
        found = consumer.committed(pair for pair in [("t", 0), ("t", 1)])
    assert asked == {TP, ("t", 1)}
    assert found == {TP: OffsetAndMetadata(3), ("t", 1): None}
