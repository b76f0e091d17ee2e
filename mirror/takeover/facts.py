"""Asks both clusters what is known about the partitions of a flow before anything of their logs is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mirror.client import EARLIEST, LATEST, Admin, ConfigResource, OffsetResult, Outcomes, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.batches.topic_config import TopicConfig, readable
from mirror.relay.progress.committed import read_each_progress
from mirror.takeover.continuation import Continuation, Facts, SourceLog, TargetLog, unreadable
from mirror.takeover.matching import Pair

_Offsets = Outcomes[TopicPartition, OffsetResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The partitions of a flow that are taken over, and what MirrorMaker 2 knows about them."""

    targets: Mapping[TopicPartition, TopicPartition]
    """By source partition."""
    stored: Mapping[TopicPartition, int]
    pairs: Mapping[TopicPartition, Sequence[Pair]]
    others_write: bool = False
    """Whether records without any copy are known to be those of others."""


class FactsReader:
    """Reads the facts. Its calls wait for the clusters; use it in one thread."""

    def __init__(self, flow: str, source: Admin, target: Admin, timeout_ms: int | None = None) -> None:
        """``timeout_ms`` limits each call; a partition that is not answered for is left out."""
        self._flow: Final = flow
        self._source: Final = source
        self._target: Final = target
        self._timeout_ms: Final = timeout_ms

    def target_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the logs of these target partitions end, open transactions included, if their leaders answer."""
        found = self._offsets(self._target, tps, LATEST, "read_uncommitted")
        return {tp: one.offset for tp, one in found.items()}

    def read(self, partitions: Partitions, *, stable: bool = False) -> list[Facts | Continuation]:
        """Return the facts of each partition, or that it is left out. Raises KafkaError.

        ``stable``: the target's logs end at their last stable offsets.
        """
        sources, targets = [*partitions.targets], [*partitions.targets.values()]
        source_logs = self._source_logs(sources)
        target_logs = self._target_logs(targets, stable=stable)
        present = [tp for tp, log in target_logs.items() if log is not None]
        progress = read_each_progress(self._target, self._flow, present, self._timeout_ms)
        configs = self._configs({tp.topic for tp in present})
        found: list[Facts | Continuation] = []
        for source, target in partitions.targets.items():
            stored = partitions.stored.get(source)
            errors = (source_logs.failed.get(source), target_logs.failed.get(target), progress.failed.get(target))
            unknown = configs.failed.get(target.topic)
            if error := next((one for one in errors if one is not None), None):
                found.append(unreadable(source, target, stored, str(error)))
                continue
            if unknown is not None:
                reason = f"the configuration of the target's topic {target.topic} cannot be read: {unknown}"
                found.append(unreadable(source, target, stored, reason))
                continue
            config = configs.get(target.topic, TopicConfig.of({}))
            found.append(
                Facts(
                    source=source,
                    target=target,
                    stored=stored,
                    source_log=source_logs[source],
                    target_log=target_logs[target],
                    progress=progress.get(target),
                    pairs=tuple(partitions.pairs.get(source, ())),
                    append_time=config.append_time,
                    compacted="compact" in config.cleanup,
                    others_write=partitions.others_write,
                )
            )
        return found

    def _source_logs(self, tps: Sequence[TopicPartition]) -> Outcomes[TopicPartition, SourceLog]:
        ids = self._ids(self._source, tps)
        firsts = self._offsets(self._source, tps, EARLIEST)
        stable = self._offsets(self._source, tps, LATEST)
        ends = self._offsets(self._source, tps, LATEST, "read_uncommitted")
        failed = {**firsts.failed, **stable.failed, **ends.failed}
        logs = {
            tp: SourceLog(
                first=firsts[tp].offset,
                stable_end=stable[tp].offset,
                end=ends[tp].offset,
                # A leader reports its own epoch at the end, also of a log without epochs.
                leader_epoch=ends[tp].leader_epoch if firsts[tp].leader_epoch >= 0 else None,
                topic_id=ids.get(tp.topic, ""),
            )
            for tp in tps
            if tp not in failed
        }
        return Outcomes(logs, failed)

    def _target_logs(
        self, tps: Sequence[TopicPartition], *, stable: bool
    ) -> Outcomes[TopicPartition, TargetLog | None]:
        topics = self._target.describe_topics({tp.topic for tp in tps}, timeout_ms=self._timeout_ms)
        existing = {TopicPartition(topic.name, one.partition) for topic in topics.values() for one in topic.partitions}
        present = [tp for tp in tps if tp in existing]
        firsts = self._offsets(self._target, present, EARLIEST)
        stable_ends = self._offsets(self._target, present, LATEST)
        ends = stable_ends if stable else self._offsets(self._target, present, LATEST, "read_uncommitted")
        failed = {**firsts.failed, **stable_ends.failed, **ends.failed}
        logs: dict[TopicPartition, TargetLog | None] = {tp: None for tp in tps if tp not in existing}
        for tp in present:
            if tp not in failed:
                epoch = ends[tp].leader_epoch
                logs[tp] = TargetLog(
                    first=firsts[tp].offset,
                    end=ends[tp].offset,
                    leader_epoch=None if epoch < 0 else epoch,
                    topic_id=str(topics[tp.topic].topic_id or ""),
                    stable_end=stable_ends[tp].offset,
                )
        return Outcomes(logs, failed)

    def _offsets(
        self, admin: Admin, tps: Sequence[TopicPartition], at: int, isolation: str = "read_committed"
    ) -> _Offsets:
        wanted = dict.fromkeys(tps, at)
        return admin.list_offsets(wanted, isolation=isolation, partial=True, timeout_ms=self._timeout_ms)

    def _ids(self, admin: Admin, tps: Sequence[TopicPartition]) -> dict[str, str]:
        topics = admin.describe_topics({tp.topic for tp in tps}, timeout_ms=self._timeout_ms)
        return {name: str(topic.topic_id or "") for name, topic in topics.items()}

    def _configs(self, topics: set[str]) -> Outcomes[str, TopicConfig]:
        """Return the target topics' configurations: cleanup and timestamps say how the logs are to be compared."""
        resources = [ConfigResource.topic(name) for name in sorted(topics)]
        if not resources:
            return Outcomes({}, {})
        try:
            found = self._target.describe_configs(resources, partial=True, timeout_ms=self._timeout_ms)
        except KafkaError as error:
            return Outcomes({}, dict.fromkeys(topics, error))
        configs = {resource.name: TopicConfig.of(readable(entries)) for resource, entries in found.items()}
        return Outcomes(configs, {resource.name: error for resource, error in found.failed.items()})
