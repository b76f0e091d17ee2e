"""`mirror` with a switch that is broken on purpose: the campaign has to find what it does.

python -m tests.campaign.switches.broken NAME cutover ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.cli.app import main
from mirror.client import AclFilter, AclOperation, ResourceType
from mirror.spark.holding import hold
from mirror.switch import machine
from mirror.switch.acting import ClusterSite
from mirror.switch.facts import Facts
from mirror.switch.machine import StepResult
from mirror.switch.reading import FactReader
from mirror.switch.record import SwitchRecord


def fence_skips_a_topic() -> None:
    """The last topic, which no transaction couples to others, is not fenced, drained or proved."""
    topics = FactReader.topics

    def fewer(self: FactReader) -> dict[str, Any]:
        return dict([*topics(self).items()][:-1])

    FactReader.topics = fewer  # type: ignore[method-assign]


def drain_ends_early() -> None:
    """The flows are held before the fence, and what is not copied by then is taken for copied and equal."""
    act = ClusterSite._fence

    def fence(self: ClusterSite, record: SwitchRecord) -> StepResult:
        for name in self._switch.flows:
            hold(self._config, self._config.flows[name], why="broken", by=self._terms.by)
        return act(self, record)

    ClusterSite._fence = fence  # type: ignore[method-assign]
    ClusterSite._prove = lambda _, __: StepResult(ok=True)  # type: ignore[method-assign, assignment]
    # Groups have read what is not copied.
    ClusterSite._move = lambda _, facts: StepResult(ok=True, evidence=dict(facts.positions or {}))  # type: ignore[method-assign, assignment]
    machine._behind = lambda _, __: []  # type: ignore[assignment]


def _move_group(address: str, group: str, by: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result().topic_partitions
    tp = max(found, key=lambda one: int(one.offset))
    changed = ConsumerGroupTopicPartitions(group, [TopicPartition(tp.topic, tp.partition, tp.offset + by)])
    admin.alter_consumer_group_offsets([changed])[group].result()


def _moved(by: int) -> Callable[[], None]:
    def patch() -> None:
        move = ClusterSite._move

        def moved(self: ClusterSite, facts: Facts) -> StepResult:
            result = move(self, facts)
            if result.ok:
                _move_group(str(self._options[1]["bootstrap.servers"]), min(facts.positions or {}), by)
            return result

        ClusterSite._move = moved  # type: ignore[method-assign]

    return patch


def rollback_deletes_too_much() -> None:
    """A rollback deletes an ACL of a producer, too."""
    unfence = ClusterSite._unfence

    def more(self: ClusterSite, record: SwitchRecord) -> StepResult:
        own = AclFilter(ResourceType.TOPIC, record.topics[-1], operation=AclOperation.READ)
        self.source.delete_acls([own])
        return unfence(self, record)

    ClusterSite._unfence = more  # type: ignore[method-assign]


BREAKS: Final[Mapping[str, Callable[[], None]]] = {
    "fence skips a topic": fence_skips_a_topic,
    "drain ends early": drain_ends_early,
    "group one record too far": _moved(1),
    "group one record too near": _moved(-1),
    "rollback deletes too much": rollback_deletes_too_much,
}


if __name__ == "__main__":
    BREAKS[sys.argv.pop(1)]()
    main()
