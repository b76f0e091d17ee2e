"""Reads what a cluster that has come back has of the topics of its flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mirror.client import EARLIEST, LATEST, Admin, TopicPartition
from mirror.relay.progress.committed import Progress, read_progress
from mirror.switch.failback.inspection import Inspection, LogFacts, TopicFacts, inspect

if TYPE_CHECKING:
    from mirror.cluster.types import TopicDescription
    from mirror.config.models import MirrorConfig
    from mirror.switch.record import FailbackRecord, SwitchRecord


def inspect_cluster(
    config: MirrorConfig,
    record: SwitchRecord,
    selected: Mapping[str, TopicDescription],
    source: Admin,
    target: Admin,
    timeout_ms: int,
) -> Inspection:
    """Return what became of the old cluster, ``source``, since the failover of ``record``. Raises KafkaError.

    ``selected`` are the topics that the flows select there now: of some, nothing may have been copied. Partitions
    whose leaders do not answer are unknown.
    """
    cluster = source.describe_cluster(timeout_ms=timeout_ms).cluster_id
    live = {**selected, **source.describe_topics(record.copied.keys() - selected.keys(), timeout_ms=timeout_ms)}
    progress = progress_of(config, record, target)
    logs = _logs(source, live, record, progress, timeout_ms)
    topics: dict[str, TopicFacts] = {}
    for name in sorted({*record.copied, *live}):
        found = live.get(name)
        topics[name] = TopicFacts(
            copied=record.copied.get(name, ()),
            known_id=record.topic_ids.get(name, ""),
            rebuilt_id=rebuilt_id(record.failback, name),
            live_id=None if found is None else str(found.topic_id or ""),
            logs=() if found is None else [logs.get(TopicPartition(name, one.partition)) for one in found.partitions],
        )
    known = record.clusters[0] if record.clusters else ""
    return inspect(cluster, known, topics)


def rebuilt_id(back: FailbackRecord, topic: str) -> str:
    """Return the id of a topic that a failback has created again, and in which the flows have begun; else nothing."""
    found = back.rebuilds.get(topic)
    return found.created_id if found is not None and found.done_ms else ""


def progress_of(config: MirrorConfig, record: SwitchRecord, target: Admin) -> dict[TopicPartition, Progress]:
    """Return the progress of the flows in these topics: they are held, so it is that of the failover."""
    tps = partitions_of(record.copied)
    found: dict[TopicPartition, Progress] = {}
    for name in record.flows:
        flow = config.flows[name]
        found |= read_progress(target, name, [tp for tp in tps if flow.includes(tp.topic)])
    return found


def partitions_of(topics: Mapping[str, Iterable[object]]) -> list[TopicPartition]:
    """Return the partitions of topics with a value for each of them."""
    return [TopicPartition(name, number) for name, values in topics.items() for number, _ in enumerate(values)]


def _logs(
    source: Admin,
    live: Mapping[str, TopicDescription],
    record: SwitchRecord,
    progress: Mapping[TopicPartition, Progress],
    timeout_ms: int,
) -> dict[TopicPartition, LogFacts]:
    tps = [TopicPartition(name, one.partition) for name, topic in live.items() for one in topic.partitions]
    starts = source.list_offsets(dict.fromkeys(tps, EARLIEST), partial=True, timeout_ms=timeout_ms)
    ends = source.list_offsets(
        dict.fromkeys(tps, LATEST), isolation="read_uncommitted", partial=True, timeout_ms=timeout_ms
    )
    epochs: dict[TopicPartition, int] = {}
    for tp in tps:
        copied, one = record.copied.get(tp.topic, ()), progress.get(tp)
        if (
            one is not None
            and one.leader_epoch is not None
            and [*copied[tp.partition : tp.partition + 1]] == [one.offset]
        ):
            epochs[tp] = one.leader_epoch
    found = source.epoch_ends_async(epochs, timeout_ms).result() if epochs else {}
    return {
        tp: LogFacts(
            start=starts[tp].offset,
            end=ends[tp].offset,
            leader_epoch=epochs.get(tp) if tp in found else None,
            epoch_end=found.get(tp),
        )
        for tp in tps
        if tp in starts and tp in ends
    }
