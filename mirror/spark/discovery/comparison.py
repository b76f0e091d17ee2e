"""Compares all topics of a flow with their target topics, beside discovery: for thousands that takes seconds.

::

    topics of both clusters, the last preparation ──compare──► Comparison ──since──► topics to prepare, topics to drop

A comparison changes nothing. What it finds is prepared by the thread that discovers topics, which alone owns the
preparation of a flow; meanwhile that thread may have prepared some of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.errors import BrokerError
from mirror.spark.ledger.obstacles import too_long
from mirror.spark.planning.range_planner import select_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.obstacles import TargetTopics


@dataclass(frozen=True, slots=True)
class Comparison:
    """In what the target topics differed from their source topics, and from the preparation ``before``."""

    before: TargetTopics
    lacking: Mapping[str, TopicDescription]
    """The source topics whose target topics are missing, have fewer partitions, or had an obstacle."""
    gone: frozenset[str]
    """Prepared topics that the source does not have any more, or that the flow does not select."""

    def since(self, targets: TargetTopics) -> tuple[dict[str, TopicDescription], frozenset[str]]:
        """Return what is lacking and gone, without the topics that were prepared after this comparison had begun."""
        before = self.before

        def is_current(name: str) -> bool:
            return (before.copyable.get(name), before.obstacles.get(name)) == (
                targets.copyable.get(name),
                targets.obstacles.get(name),
            )

        return (
            {name: topic for name, topic in self.lacking.items() if is_current(name)},
            frozenset(filter(is_current, self.gone)),
        )


def compare(flow: FlowConfig, source: Admin, target: Admin, before: TargetTopics) -> Comparison:
    """Compare all topics of ``flow`` with their target topics. Costs the metadata of both clusters.

    Raises FlowError if no topic matches, and KafkaError if a cluster does not answer.
    """
    topics = source.list_topics()
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    unnameable = too_long(flow, wanted)
    copies = {name: flow.target_topic(name) for name in wanted if name not in unnameable}
    found = target.describe_topics(copies.values(), partial=True)
    for error in found.failed.values():
        if not isinstance(error, BrokerError):
            raise error

    def lacks(name: str) -> bool:
        count = len(topics[name].partitions)
        there = found.get(copies[name]) if name in copies else None
        has = 0 if there is None else len(there.partitions)
        return min(has, before.copyable.get(name, 0)) < count or name in before.obstacles

    lacking = {name: topic for name, topic in wanted.items() if lacks(name)}
    return Comparison(before, lacking, frozenset(before.copyable.keys() - wanted.keys()))
