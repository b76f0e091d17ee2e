"""Rounds of groups between two real clusters; confluent-kafka commits on both sides, and reads what is committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer as Confluent
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from mirror.groups.clusters import FlowAccess
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.progress.flow_topic import group_topic_of
from mirror.runtime.clock import SystemClock
from tests.copying.pair import End, TwoClusters
from tests.polling import eventually

_COORDINATOR_LOADS = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}


def group_rules(*topics: str, delete: bool = False) -> GroupRules:
    """All groups with a name that begins with ``g.``, and the one without a name."""

    def same(name: str) -> str | None:
        return name if name in topics else None

    return GroupRules(
        includes=lambda group: group.startswith("g.") or not group, target_topic=same, source_topic=same, delete=delete
    )


def group_access(pair: TwoClusters) -> FlowAccess:
    return FlowAccess(
        name=pair.flow,
        source_options={"bootstrap.servers": pair.source.address},
        target_options={"bootstrap.servers": pair.target.address},
        policy=CopyPolicy(),
    )


def group_sync(pair: TwoClusters, *topics: str, delete: bool = False) -> GroupSync:
    if group_topic_of(pair.flow) not in pair.target.topics():
        pair.target.create(group_topic_of(pair.flow), cleanup_policy="compact")
    return GroupSync(group_access(pair), group_rules(*topics, delete=delete), SystemClock())


@contextlib.contextmanager
def consumer_of(end: End, group: str, **options: Any) -> Iterator[Confluent]:
    consumer = Confluent(
        {
            "bootstrap.servers": end.address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def commit(end: End, group: str, topic: str, offset: int, metadata: str = "", partition: int = 0) -> None:
    """As a consumer with assigned partitions does."""
    with consumer_of(end, group) as consumer:
        where = ConfluentPartition(topic, partition, offset, metadata)

        def accepted() -> bool:
            """The coordinator may be loading its groups, which librdkafka does not wait for."""
            try:
                consumer.commit(offsets=[where], asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in _COORDINATOR_LOADS:
                    raise
                return False
            return True

        eventually(accepted, within_s=30, what=f"group {group} commits")


def committed_at(end: End, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
    with consumer_of(end, group) as consumer:
        (found,) = consumer.committed([ConfluentPartition(topic, partition)], timeout=30)
        return int(found.offset), found.metadata or ""
