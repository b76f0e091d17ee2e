"""A position belongs to a topic, not to a name: nothing of a topic made again is read at the former one's offsets."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.events import AssignEvent, PauseEvent, SeekEvent
from mirror.consumer.fetched import Fetched
from mirror.errors import KafkaError, LogTruncated, TopicRecreated
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataResponse
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

TP = TopicPartition("t", 0)
BY_NAME, BY_ID = 12, 18

pytestmark = pytest.mark.parametrize("version", [BY_NAME, BY_ID], ids=["by name", "by id"])


def cluster_of(version: int, records: int = 5) -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.versions[Api.FETCH] = (BY_NAME, version)
    make(cluster, b"old", records)
    return cluster


def make(cluster: FakeCluster, value: bytes, records: int) -> uuid.UUID:
    """The topic, or another one under its name."""
    made = cluster.add_topic("t")
    for _ in range(records):
        cluster.log("t").append_values(value)
    return made.topic_id


def consumer_of(cluster: FakeCluster) -> FakeConsumer:
    return FakeConsumer(cluster, **{"auto.offset.reset": "none", "isolation.level": "read_committed"})


def go_to(consumer: FakeConsumer, offset: int, topic_id: uuid.UUID | None, epoch: int | None = 0) -> None:
    """As a copy that begins again: it leaves, comes back and seeks."""
    for tps in ([], [TP]):
        consumer.submit(consumer.core, AssignEvent(tps))
    consumer.submit(consumer.core, SeekEvent(TP, offset, epoch, topic_id))


def values(fetched: list[Fetched]) -> list[bytes | None]:
    return [record.value for one in fetched for record in one.records()]


def refused(consumer: FakeConsumer) -> KafkaError:
    (fetched,) = consumer.poll(60_000)
    assert isinstance(fetched.error, TopicRecreated)
    assert isinstance(fetched.error, LogTruncated)
    assert "t-0: the topic was deleted and made again under its name" in str(fetched.error)
    assert consumer.poll(5_000) == []
    return fetched.error


@pytest.mark.parametrize("epoch", [None, 0, 7])
@pytest.mark.parametrize("records", [2, 5, 9], ids=["shorter", "as long", "longer"])
def test_each_seek_to_the_former_topic_is_refused(version: int, records: int, epoch: int | None) -> None:
    cluster = cluster_of(version)
    former = cluster.topics["t"].topic_id
    now = make(cluster, b"new", records)
    consumer = consumer_of(cluster)
    for _ in range(3):
        go_to(consumer, 5, former, epoch)
        assert str(now) in str(refused(consumer))
    go_to(consumer, 0, now)
    assert values(consumer.poll(60_000)) == [b"new"] * records


@pytest.mark.parametrize("epoch", [None, 0])
def test_the_former_topic_is_refused_also_where_metadata_still_has_it(version: int, epoch: int | None) -> None:
    cluster = cluster_of(version)
    former = cluster.topics["t"].topic_id
    consumer = consumer_of(cluster)
    go_to(consumer, 0, former)
    assert values(consumer.poll(60_000)) == [b"old"] * 5
    consumer.submit(consumer.core, PauseEvent([TP], paused=True))
    consumer.run_for(2_000)  # the long poll is over, and nothing asks for the topic
    make(cluster, b"new", 9)
    assert consumer.loop.metadata.topic_id("t") == former
    for _ in range(2):
        go_to(consumer, 5, former, epoch)
        refused(consumer)


def test_a_seek_to_the_new_topic_is_read_where_metadata_still_has_the_former_one(version: int) -> None:
    cluster = cluster_of(version)
    consumer = consumer_of(cluster)
    go_to(consumer, 5, cluster.topics["t"].topic_id)
    assert consumer.poll(2_000) == []
    consumer.submit(consumer.core, PauseEvent([TP], paused=True))
    consumer.run_for(2_000)
    now = make(cluster, b"new", 9)
    go_to(consumer, 4, now)
    fetched = consumer.poll(60_000)
    assert values(fetched) == [b"new"] * 5
    assert {one.topic_id for one in fetched} == {now}


@pytest.mark.parametrize("lagging", [1, 2])
def test_brokers_that_lag_do_not_stop_a_seek_to_the_new_topic(version: int, lagging: int) -> None:
    """So many answers in a row have the former topic still."""
    cluster = cluster_of(version)
    former = cluster.topics["t"].topic_id
    now = make(cluster, b"new", 9)

    def as_before(answer: MetadataResponse) -> MetadataResponse:
        return replace(answer, topics=tuple(replace(topic, topic_id=former) for topic in answer.topics))

    cluster.control.on(Api.METADATA, Action(rewrite=as_before), times=lagging)
    consumer = consumer_of(cluster)
    go_to(consumer, 4, now)
    assert values(consumer.poll(60_000)) == [b"new"] * 5


def test_a_position_of_an_unknown_topic_learns_it_from_the_first_answer(version: int) -> None:
    cluster = cluster_of(version)
    former = cluster.topics["t"].topic_id
    consumer = consumer_of(cluster)
    go_to(consumer, 3, None)
    fetched = consumer.poll(60_000)
    assert values(fetched) == [b"old"] * 2
    assert {one.topic_id for one in fetched} == {former}
    consumer.submit(consumer.core, PauseEvent([TP], paused=True))
    consumer.run_for(2_000)
    make(cluster, b"new", 9)
    consumer.submit(consumer.core, PauseEvent([TP], paused=False))
    refused(consumer)


def test_a_position_that_was_never_read_begins_in_the_topic_there_is(version: int) -> None:
    """Metadata still has the former one, in which nothing was read."""
    cluster = cluster_of(version)
    consumer = consumer_of(cluster)
    go_to(consumer, 5, None)
    assert consumer.poll(2_000) == []
    consumer.submit(consumer.core, PauseEvent([TP], paused=True))
    consumer.run_for(2_000)
    make(cluster, b"new", 9)
    go_to(consumer, 5, None, None)
    assert values(consumer.poll(60_000)) == [b"new"] * 4


def test_a_topic_that_is_not_there_for_a_while_is_waited_for(version: int) -> None:
    cluster = cluster_of(version)
    former, kept = cluster.topics["t"].topic_id, cluster.topics.pop("t")
    consumer = consumer_of(cluster)
    go_to(consumer, 3, former)
    assert consumer.poll(5_000) == []
    cluster.topics["t"] = kept
    assert values(consumer.poll(60_000)) == [b"old"] * 2
