"""What coordinators of real brokers write is understood, whatever commits: rounds ask for just these groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.groups.sync import GroupSync
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from tests.copying.group_site import commit, committed_at, consumer_of, group_access, group_rules
from tests.copying.pair import End, TwoClusters
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(120)]

_INTERVAL_MS = 2_000


def _in_transaction(end: End, group: str, topic: str, offset: int) -> None:
    with consumer_of(end, group) as consumer:
        producer = Producer({"bootstrap.servers": end.address, "transactional.id": group})
        producer.init_transactions(30)
        producer.begin_transaction()
        position = [ConfluentPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)


def _as_member(end: End, group: str, topic: str, offset: int) -> None:
    """By the protocol of KIP-848."""
    with consumer_of(end, group, group_protocol="consumer", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) is not None, what="a record")
        consumer.commit(offsets=[ConfluentPartition(topic, 0, offset)], asynchronous=False)


@pytest.mark.parametrize("way", [commit, _in_transaction, _as_member], ids=["plain", "transaction", "member"])
def test_a_commit_brings_the_next_round_forward(
    pair: TwoClusters, unique: Callable[[str], str], way: Callable[[End, str, str, int], object]
) -> None:
    topic, group = pair.topics(), unique("g.billing")
    pair.source.fill(topic, [b"%d" % number for number in range(100)])
    pair.complete(topic)
    copies = [offset for offset, _ in pair.target.seen(topic)]
    if group_topic_of(pair.flow) not in pair.target.topics():
        pair.target.create(group_topic_of(pair.flow), cleanup_policy="compact")
    commit(pair.source, group, topic, 7)
    with GroupSync(group_access(pair), group_rules(topic), SystemClock(), interval_ms=_INTERVAL_MS) as sync:
        eventually(lambda: sync.round().groups[group].is_in_step, what="the first position")
        assert sync.asked.is_watching
        way(pair.source, group, topic, 57)
        eventually(sync.has_news, what="the commit")
        report = sync.round()
        assert report.is_watching
        assert report.groups[group].is_in_step
        assert committed_at(pair.target, group, topic)[0] == copies[57]
