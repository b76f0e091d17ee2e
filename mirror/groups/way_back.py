"""Where groups of the target would continue on the source: their positions, translated back. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.bundles import Committed
from mirror.groups.clusters import FlowClusters
from mirror.groups.rules import GroupRules
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.index import UNKNOWN, Translation
from mirror.timing import Clock


class BackPosition(NamedTuple):
    """One partition of a group of the target."""

    group: str
    target: TopicPartition
    source: TopicPartition
    target_offset: int
    """The committed offset."""
    source_offset: int | None
    """What the group has committed on the source; None: nothing, or it could not be read."""
    translation: Translation
    """The source offset of ``target_offset``."""
    detail: str
    """Why that is not known, or could not be read."""

    @property
    def is_in_step(self) -> bool:
        """Whether the group would continue on the source at the same record."""
        return self.translation.offset is not None and self.translation.offset == self.source_offset


class WayBack:
    """Reads the groups of a flow's target. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        flow: str,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        policy: CopyPolicy,
        rules: GroupRules,
        clock: Clock,
    ) -> None:
        """The options are dotted keys, of which those of the clusters are used. Raises ConfigError, FlowError."""
        self._rules: Final = rules
        self._clusters: Final = FlowClusters(flow, source_options, target_options, policy, clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clusters.close()

    def read(self) -> tuple[list[BackPosition], list[str]]:
        """Return the positions of the groups, and lines about those that could not be read. Raises KafkaError."""
        listed = self._clusters.of_target.list_groups()
        self._clusters.of_source.list_groups()
        groups = sorted(name for name, one in listed.items() if self._rules.includes(name) and one.is_supported)
        at_target, at_source = self._clusters.of_target.offsets(groups), self._clusters.of_source.offsets(groups)
        problems = [f"{name}: {found}" for name, found in at_target.items() if isinstance(found, KafkaError)]
        partitions: dict[TopicPartition, TopicPartition] = {}
        for found in at_target.values():
            for target in () if isinstance(found, KafkaError) else found:
                topic = self._rules.source_topic(target.topic)
                if topic is not None:
                    partitions[TopicPartition(topic, target.partition)] = target
        logs = self._clusters.logs.open(partitions, {}, {}) if partitions else {}
        sources = {target: source for source, target in partitions.items()}
        positions = []
        for group in groups:
            committed = _committed(at_target[group])
            for target in sorted(committed.keys() & sources.keys()):
                source, offset = sources[target], committed[target].offset
                there = _committed(at_source[group]).get(source)
                opened = logs[source].offsets
                translation, detail = UNKNOWN, logs[source].problem
                if opened is not None:
                    translation = opened.translate_back(offset)
                    detail = opened.reason if translation == UNKNOWN else ""
                before = None if there is None else there.offset
                positions.append(BackPosition(group, target, source, offset, before, translation, detail))
        return positions, problems


def _committed(found: Committed | KafkaError) -> Committed:
    return Committed({}, {}) if isinstance(found, KafkaError) else found
