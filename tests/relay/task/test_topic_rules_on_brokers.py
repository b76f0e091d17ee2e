"""The configurations that decide between sequences and transactions, as real brokers return them."""

from __future__ import annotations

from collections.abc import Callable

from mirror.client import Admin, ConfigResource, NewTopic
from mirror.cluster.types import ConfigChange, ConfigOperation
from mirror.relay.batches.exactly_once_way import EXPIRATION, WayRules
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Range
from mirror.relay.task.topic_rules import read_topic_rules
from mirror.sandbox.cluster import Cluster
from tests.polling import eventually
from tests.topic_creation import create_topics

DAY_MS = 86_400_000


def _range(topic: str, target: str) -> Range:
    return Range(
        flow="f", topic=topic, target_topic=target, partition=0, start=0, end=1, source_cluster_id="s", topic_id=""
    )


def test_rules_of_real_brokers(target_cluster: Cluster, unique: Callable[[str], str]) -> None:
    plain, compacted, times = (unique(name) for name in ("plain", "compacted", "times"))
    policy = CopyPolicy(exactly_once_by="auto")
    with Admin({"bootstrap.servers": target_cluster.bootstrap_servers}) as admin:
        create_topics(
            admin,
            [
                NewTopic(plain, 1),
                NewTopic(compacted, 1, configs={"cleanup.policy": "compact"}),
                NewTopic(times, 1, configs={"message.timestamp.type": "LogAppendTime"}),
            ],
        )
        broker = ConfigResource.broker(admin.describe_cluster().brokers[0].node_id)

        def rules(topic: str, target: str) -> WayRules:
            return read_topic_rules(admin, admin, [_range(topic, target)], policy, 7).ways[target]

        assert rules(plain, plain) == WayRules(mode="auto", expiration_ms=DAY_MS, delivery_ms=7)
        assert rules(compacted, plain).compacted == "source"
        assert rules(plain, compacted).compacted == "target"
        assert rules(plain, times).log_append_time
        assert rules(plain, unique("absent")).unread == "target"
        admin.incremental_alter_configs({broker: [ConfigChange(EXPIRATION, "70000")]})
        try:
            # The controller has taken it; the broker applies it a little later.
            eventually(lambda: rules(plain, plain).expiration_ms == 70_000, what="the changed expiration")
        finally:
            admin.incremental_alter_configs({broker: [ConfigChange(EXPIRATION, operation=ConfigOperation.DELETE)]})
