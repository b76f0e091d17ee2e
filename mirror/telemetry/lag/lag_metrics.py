"""Records lags as metrics: the totals of each topic, and the worst partitions individually."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.telemetry.lag.lags import Lag, LagState, totals, worst_first
from mirror.telemetry.metrics import instruments
from mirror.telemetry.metrics.instruments import Instrument
from mirror.telemetry.metrics.metric_store import OTHER, MetricStore

MAX_PARTITIONS: Final = 50
"""Partitions with metrics of their own. A backend stores a series for every partition that ever had one."""
_OF_TOPICS: Final = (
    instruments.LAG,
    instruments.LAG_TIME,
    instruments.RATE,
    instruments.DRAIN,
    instruments.LOSS,
    instruments.WITHHELD,
    instruments.WITHHELD_TIME,
)
_BY_PARTITION: Final = (
    instruments.PARTITION_LAG,
    instruments.PARTITION_LAG_TIME,
    instruments.PARTITION_DRAIN,
    instruments.PARTITION_LOSS,
)


class PartitionLag(NamedTuple):
    """The lag of a source partition."""

    topic: str
    partition: int
    lag: Lag
    withheld: OpenTransaction | None = None
    """The open transaction of the source behind which records cannot be copied."""


def record_lags(metrics: MetricStore, flow: str, partitions: Iterable[PartitionLag]) -> None:
    """Replace the lags of a flow by those of its ``partitions`` now."""
    remove_lags(metrics, flow)
    by_topic: dict[str, list[PartitionLag]] = defaultdict(list)
    states: Counter[LagState] = Counter()
    behind = []
    for partition in partitions:
        by_topic[partition.topic].append(partition)
        states[partition.lag.state] += 1
        if partition.lag.state is not LagState.CAUGHT_UP:
            behind.append(partition)
    for topic, members in _bounded(by_topic, _room(metrics, _OF_TOPICS)).items():
        total = totals(one.lag for one in members)
        transactions = [one.withheld for one in members if one.withheld is not None]
        attributes = {"flow": flow, "topic": topic}
        metrics.set(instruments.LAG, total.records, **attributes)
        metrics.set(instruments.LAG_TIME, total.seconds, **attributes)
        metrics.set(instruments.RATE, total.copied_per_s, **attributes)
        metrics.set(instruments.DRAIN, total.drain_s, **attributes)
        metrics.set(instruments.LOSS, total.loss_s, **attributes)
        metrics.set(instruments.WITHHELD, sum(found.records for found in transactions), **attributes)
        oldest_s = max((found.age_ms / 1000 for found in transactions), default=0.0)
        metrics.set(instruments.WITHHELD_TIME, oldest_s, **attributes)
    for state in LagState:
        metrics.set(instruments.PARTITIONS, states[state], flow=flow, state=state.value)
    most = min(MAX_PARTITIONS, _room(metrics, _BY_PARTITION))
    for partition in heapq.nsmallest(most, behind, key=_worst_first):
        attributes = {"flow": flow, "topic": partition.topic, "partition": str(partition.partition)}
        metrics.set(instruments.PARTITION_LAG, partition.lag.records, **attributes)
        metrics.set(instruments.PARTITION_LAG_TIME, partition.lag.seconds, **attributes)
        metrics.set(instruments.PARTITION_DRAIN, partition.lag.drain_s, **attributes)
        metrics.set(instruments.PARTITION_LOSS, partition.lag.loss_s, **attributes)


def remove_lags(metrics: MetricStore, flow: str) -> None:
    """Remove all lags of a flow: they are no longer known."""
    for instrument in (*_OF_TOPICS, instruments.PARTITIONS, *_BY_PARTITION):
        metrics.remove(instrument, flow=flow)


# Invariant: However many topics and flows there are, the alerts see the worst of each flow: topics beyond the bound of
#   points are one topic, "other", with the sums, maxima and minima of them all.
# Test: tests/telemetry/test_lag_metrics.py::test_topics_beyond_the_bound_are_one_and_the_worst_ones_are_named
def _bounded(by_topic: dict[str, list[PartitionLag]], room: int) -> dict[str, list[PartitionLag]]:
    if len(by_topic) <= room:
        return by_topic
    worst_topics = sorted(by_topic, key=lambda topic: min(map(_worst_first, by_topic[topic])))
    found = {topic: by_topic[topic] for topic in worst_topics[:room]}
    others = [one for topic in worst_topics[room:] for one in by_topic[topic]]
    return found | {OTHER: found.get(OTHER, []) + others}


def _room(metrics: MetricStore, kinds: Iterable[Instrument]) -> int:
    return min(metrics.room(instrument) for instrument in kinds)


def _worst_first(partition: PartitionLag) -> tuple[int, float, int, TopicPartition]:
    return worst_first(TopicPartition(partition.topic, partition.partition), partition.lag)
