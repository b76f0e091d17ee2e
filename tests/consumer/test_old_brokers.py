"""Reading from brokers of old releases: by name, without reliable leader epochs, and what still shows a truncation."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.consumer.events import SeekEvent
from mirror.consumer.sessions import FetchSession
from mirror.errors import LogTruncated
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.releases import RELEASES, versions_of

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
_UNRELIABLE_EPOCHS = ("2.1",)
"""The releases whose metadata have leader epochs that do not count (before 2.4)."""

_EVERY_RELEASE = pytest.mark.parametrize("release", RELEASES)


def _cluster(release: str, records: int = 5) -> FakeCluster:
    cluster = FakeCluster(2, release=release)
    cluster.add_topic("t", 2)
    for _ in range(records):
        cluster.log("t").append_values(b"value")
    return cluster


def _offsets(consumer: FakeConsumer, timeout_ms: int = 60_000) -> list[int]:
    fetched = consumer.poll(timeout_ms)
    assert [one.error for one in fetched] == [None] * len(fetched)
    return [batch.base_offset for one in fetched for batch in one.batches]


def _truncation(consumer: FakeConsumer) -> LogTruncated:
    (fetched,) = consumer.poll(60_000)
    assert isinstance(fetched.error, LogTruncated)
    return fetched.error


@_EVERY_RELEASE
def test_records_are_read_by_incremental_sessions_in_the_version_of_each_release(release: str) -> None:
    cluster = _cluster(release)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0), (OTHER, 0))
    assert _offsets(consumer) == [0, 1, 2, 3, 4]
    cluster.log("t").append_values(b"more")
    assert _offsets(consumer) == [5]
    fetches = cluster.calls(Api.FETCH)
    assert {call.version for call in fetches} == {versions_of(release)[Api.FETCH][1]}
    assert {call.body.session_epoch for call in fetches} >= {0, 1}


@_EVERY_RELEASE
def test_an_election_goes_unnoticed_by_the_reader(release: str) -> None:
    cluster = _cluster(release)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    assert _offsets(consumer) == [0, 1, 2, 3, 4]
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"more")
    assert _offsets(consumer) == [5]
    asked = [call for call in cluster.calls(Api.OFFSET_FOR_LEADER_EPOCH) if call.node == 2]
    current = asked[-1].body.topics[0].partitions[0].current_leader_epoch
    assert current == (-1 if release in _UNRELIABLE_EPOCHS else 1), "a stale epoch would be fenced"


@_EVERY_RELEASE
def test_a_leader_is_used_at_once_whatever_epoch_was_read(release: str) -> None:
    """No epoch in metadata is no lower one: that would be believed after ten responses only."""
    cluster = _cluster(release)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    assert _offsets(consumer) == [0, 1, 2, 3, 4]
    before = len(cluster.calls(Api.METADATA))
    consumer.submit(consumer.core, SeekEvent(TP, 4, 0))
    assert _offsets(consumer) == [4]
    assert len(cluster.calls(Api.METADATA)) == before
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"more")
    assert _offsets(consumer) == [5]
    assert len(cluster.calls(Api.METADATA)) < before + 4


@_EVERY_RELEASE
def test_a_truncation_is_noticed_at_another_leader_although_the_log_has_grown_again(release: str) -> None:
    cluster = _cluster(release)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    assert _offsets(consumer) == [0, 1, 2, 3, 4]
    cluster.elect_uncleanly("t", 0, 2, 3)
    for _ in range(4):
        cluster.log("t").append_values(b"other")
    assert _truncation(consumer).diverging_offset == 3


@_EVERY_RELEASE
def test_a_seek_into_a_log_that_was_cut_back_is_noticed(release: str) -> None:
    """As a copy that begins again: the epoch is that of the last record that it has copied."""
    cluster = _cluster(release)
    cluster.elect_uncleanly("t", 0, 2, 3)
    for _ in range(4):
        cluster.log("t").append_values(b"other")
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    consumer.submit(consumer.core, SeekEvent(TP, 5, 0))
    while not isinstance((fetched := consumer.poll(60_000)[-1]).error, LogTruncated):
        assert fetched.error is None
    assert fetched.error.diverging_offset == 3


def _make_again(cluster: FakeCluster, records: int, elections: int = 0) -> None:
    cluster.add_topic("t", 2)
    for _ in range(elections):
        cluster.move("t", 0, cluster.log("t").leader)
    for _ in range(records):
        cluster.log("t").append_values(b"new")


@pytest.mark.parametrize("release", ["2.1", "2.4"])
def test_without_ids_a_topic_that_was_made_again_is_noticed_by_an_epoch_that_it_lacks(release: str) -> None:
    cluster = _cluster(release, records=3)
    cluster.move("t", 0, 2)
    cluster.log("t").append_values(b"of epoch 1")
    _make_again(cluster, records=9)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    consumer.submit(consumer.core, SeekEvent(TP, 4, 1))
    while (fetched := consumer.poll(60_000)[-1]).error is None:
        pass
    assert "leader epoch 1 is not in its log any more: it was truncated, or the topic was deleted and made again" in (
        str(fetched.error)
    )


@pytest.mark.parametrize("release", ["2.1", "2.4"])
def test_without_ids_a_longer_topic_of_the_same_epoch_is_not_noticed(release: str) -> None:
    """What cannot be known, and is said by ``mirror plan``: nothing distinguishes the logs at this offset."""
    cluster = _cluster(release, records=3)
    _make_again(cluster, records=9)
    consumer = FakeConsumer(cluster)
    consumer.read((TP, 0))
    consumer.submit(consumer.core, SeekEvent(TP, 3, 0))
    assert 3 in _offsets(consumer)


def test_a_session_by_ids_is_not_continued_by_names() -> None:
    """Brokers refuse that (FETCH_SESSION_TOPIC_ID_ERROR); the old session is closed with the next request."""
    session = FetchSession()
    session.next_request({})
    session.answered(7)
    session.identify_topics(by_name=False)
    assert session.established
    session.identify_topics(by_name=True)
    following = session.next_request({})
    assert (following.session_id, following.epoch) == (7, 0)


def test_topics_without_ids_are_read_by_name_from_brokers_that_know_ids() -> None:
    """Their inter.broker.protocol.version is still one before 2.8."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    for _ in range(5):
        cluster.log("t").append_values(b"value")

    def without_id(body: Message) -> Message:
        for topic in body.topics:  # type: ignore[attr-defined]
            topic.topic_id = None
        return body

    cluster.control.on(Api.METADATA, Action(rewrite=without_id), times=3)
    consumer = FakeConsumer(cluster, **{"metadata.max.age.ms": 2_000})
    consumer.read((TP, 0))
    assert _offsets(consumer) == [0, 1, 2, 3, 4]
    assert {call.version for call in cluster.calls(Api.FETCH)} == {12}
    consumer.run_for(20_000)
    cluster.log("t").append_values(b"more")
    assert _offsets(consumer) == [5], "the topic has an id now, and a session of its own"
    assert cluster.calls(Api.FETCH)[-1].version == 18


@_EVERY_RELEASE
def test_a_topic_that_was_created_again_is_read_on_after_a_seek(release: str) -> None:
    """Brokers remove what a session forgets after they have added what it sends, by name before Fetch 13."""
    cluster = _cluster(release)
    consumer = FakeConsumer(cluster, **{"metadata.max.age.ms": 10_000})
    consumer.read((TP, 0), (OTHER, 0))
    assert _offsets(consumer) == [0, 1, 2, 3, 4]
    cluster.add_topic("t", 2)
    consumer.submit(consumer.core, SeekEvent(TP, 0, None))
    consumer.submit(consumer.core, SeekEvent(OTHER, 0, None))
    for number in range(3):
        consumer.run_for(20_000)
        cluster.log("t").append_values(b"new")
        assert _offsets(consumer) == [number]
