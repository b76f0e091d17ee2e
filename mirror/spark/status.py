"""How far a flow is: its progress on the target against its source's ends. Looks only; changes nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirror.client import LATEST, Admin, TopicPartition
from mirror.relay.progress import Progress, ProgressStore
from mirror.spark.planner import NO_LEADER, select_topics
from mirror.spark.run_orders import RunOrders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.relay.orders import Orders


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition; None where it is not known.

    ``end`` is the source's last stable offset, ``progress`` the next one to copy, ``lag`` the offsets between them, and
    ``committed_ms`` (ms since 1970) when the progress was committed.
    """

    topic: str
    partition: int
    target_topic: str
    end: int | None
    progress: int | None
    lag: int | None
    committed_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """One flow; ``run`` is who copies it now, as far as it said so, or None."""

    flow: str
    source: str
    target: str
    run: Orders | None
    partitions: list[PartitionStatus]

    @property
    def lag(self) -> int:
        """Offsets that are not copied, of all partitions where that is known."""
        return sum(one.lag or 0 for one in self.partitions)

    @property
    def unknown(self) -> int:
        """Partitions of which the lag is not known: without progress on the target, or without a leader."""
        return sum(one.lag is None for one in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "lag": self.lag, "unknown": self.unknown}


def look(config: MirrorConfig, flow: FlowConfig) -> FlowStatus:
    """Ask both clusters. Raises FlowError where no topic matches, KafkaError where a cluster cannot be asked."""
    with (
        Admin(config.clusters[flow.source].client_options()) as source,
        Admin(config.clusters[flow.target].client_options()) as target,
    ):
        topics = source.list_topics()
        partitions = [
            (TopicPartition(name, each.partition), each.leader != NO_LEADER)
            for name in select_topics(flow, topics)
            for each in topics[name].partitions
        ]
        led = {tp: LATEST for tp, has_leader in partitions if has_leader}
        ends = {tp: found.offset for tp, found in source.list_offsets(led).items()} if led else {}
        targets = {tp: TopicPartition(flow.target_topic(tp.topic), tp.partition) for tp, _ in partitions}
        progress = ProgressStore(target, flow.name).read(set(targets.values()))
        run = RunOrders(target, flow.name).read()
    return FlowStatus(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        run=None if run is None or run.ended else run,
        partitions=[_status(tp, targets[tp], ends.get(tp), progress) for tp, _ in partitions],
    )


def _status(
    tp: TopicPartition, target: TopicPartition, end: int | None, progress: Mapping[TopicPartition, Progress]
) -> PartitionStatus:
    known = progress.get(target)
    return PartitionStatus(
        topic=tp.topic,
        partition=tp.partition,
        target_topic=target.topic,
        end=end,
        progress=None if known is None else known.offset,
        lag=None if known is None or end is None else max(0, end - known.offset),
        committed_ms=None if known is None or not known.time_ms else known.time_ms,
    )
