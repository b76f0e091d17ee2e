"""From a look at all partitions to measurements: by topic all of them, by partition the worst."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.telemetry.lag.lags import Lag, LagState, totals, worst_first
from mirror.telemetry.metrics import instruments as on
from mirror.telemetry.metrics.metric_store import MetricStore

WORST: Final = 50
"""Partitions that are measured by themselves: a backend keeps a series for each that ever was."""
_OF_LAG: Final = (on.LAG, on.LAG_TIME, on.RATE, on.DRAIN, on.LOSS, on.WITHHELD, on.WITHHELD_TIME, on.PARTITIONS)
_OF_PARTITIONS: Final = (on.PARTITION_LAG, on.PARTITION_LAG_TIME, on.PARTITION_DRAIN, on.PARTITION_LOSS)


class PartitionLag(NamedTuple):
    """A source partition, and how far its copy is.

    ``withheld`` is the open transaction of the source that keeps records from being copied.
    """

    topic: str
    partition: int
    lag: Lag
    withheld: OpenTransaction | None = None


def record_lags(measured: MetricStore, flow: str, places: Iterable[PartitionLag]) -> None:
    """What one look showed, in place of what the one before did."""
    forget_lags(measured, flow)
    by_topic: dict[str, list[Lag]] = defaultdict(list)
    states: Counter[LagState] = Counter()
    behind = []
    withheld: dict[str, list[OpenTransaction]] = defaultdict(list)
    for place in places:
        by_topic[place.topic].append(place.lag)
        states[place.lag.state] += 1
        if place.withheld is not None:
            withheld[place.topic].append(place.withheld)
        if place.lag.state is not LagState.CAUGHT_UP:
            behind.append(place)
    for topic, lags in by_topic.items():
        together = totals(lags)
        about = {"flow": flow, "topic": topic}
        measured.set(on.LAG, together.records, **about)
        measured.set(on.LAG_TIME, together.seconds, **about)
        measured.set(on.RATE, together.copied_per_s, **about)
        measured.set(on.DRAIN, together.drain_s, **about)
        measured.set(on.LOSS, together.loss_s, **about)
        measured.set(on.WITHHELD, sum(one.records for one in withheld[topic]), **about)
        measured.set(on.WITHHELD_TIME, max((one.age_ms / 1000 for one in withheld[topic]), default=0.0), **about)
    for state in LagState:
        measured.set(on.PARTITIONS, states[state], flow=flow, state=state.value)
    for place in heapq.nsmallest(WORST, behind, key=_badness):
        about = {"flow": flow, "topic": place.topic, "partition": str(place.partition)}
        measured.set(on.PARTITION_LAG, place.lag.records, **about)
        measured.set(on.PARTITION_LAG_TIME, place.lag.seconds, **about)
        measured.set(on.PARTITION_DRAIN, place.lag.drain_s, **about)
        measured.set(on.PARTITION_LOSS, place.lag.loss_s, **about)


def forget_lags(measured: MetricStore, flow: str) -> None:
    """Nothing is known of this flow any more."""
    for what in (*_OF_LAG, *_OF_PARTITIONS):
        measured.remove(what, flow=flow)


def _badness(place: PartitionLag) -> tuple[int, float, int, TopicPartition]:
    return worst_first(TopicPartition(place.topic, place.partition), place.lag)
