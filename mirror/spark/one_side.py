"""What one of a flow's clusters knows while the other one does not answer, and as of when. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from mirror.errors import KafkaError
from mirror.groups.intents import StoredIntents
from mirror.groups.reader import GroupReader
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.flow_groups import only_groups, rules_of
from mirror.spark.status.status_reader import StatusReader
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.client import TopicPartition
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.groups.rules import GroupRules
    from mirror.observation import Side
    from mirror.spark.clusters import Clusters
    from mirror.spark.status.flow_status import FlowStatus

_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPosition:
    """Where a group is on the cluster that answers; the field names are keys of the JSON output."""

    group: str
    topic: str
    """On that cluster."""
    partition: int
    offset: int
    copied_from: int | None = None
    """On the target: the source offset that the flow has translated to it; None if that is not known."""
    copied_ms: int | None = None
    """When the flow has (ms since 1970)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSide:
    """What one cluster of a flow knows alone."""

    cluster: str
    """The one that answers."""
    status: FlowStatus
    positions: tuple[KnownPosition, ...] = ()
    """Of consumer groups, as of now."""
    problems: tuple[str, ...] = ()
    """What could not be read."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        positions = [asdict(one) for one in self.positions]
        return {**self.status.to_json(), "answers": self.cluster, "positions": positions, "problems": self.problems}


def read_one_side(
    config: MirrorConfig, flow: FlowConfig, clusters: Clusters, groups: Collection[str] = ()
) -> OneSide | None:
    """Return what the cluster of ``flow`` that answers knows; None if both do, or neither does.

    ``clusters`` have found which one does not. If ``groups`` are named, only their positions are read. Raises
    MirrorError.
    """
    sides = clusters.of(flow)
    answering = [side for side in sides if side.away is None]
    if len(answering) != 1:
        return None
    (side,) = answering
    with StatusReader(config, flow, clusters=clusters) as reader:
        status = reader.read(sides)
    positions: tuple[KnownPosition, ...] = ()
    problems: tuple[str, ...] = ()
    try:
        positions = tuple(_positions(config, flow, side, only_groups(rules_of(flow), groups)))
    except KafkaError as error:
        problems = (f"positions of consumer groups: {error}",)
    return OneSide(cluster=side.name, status=status, positions=positions, problems=problems)


def _positions(config: MirrorConfig, flow: FlowConfig, side: Side, rules: GroupRules) -> Iterator[KnownPosition]:
    """Yield where the groups of the flow are. Raises KafkaError."""
    of_target = side.name == flow.target
    intents = _intents(config, flow, side) if of_target else StoredIntents()
    concerns = rules.source_topic if of_target else rules.target_topic
    reader = GroupReader(side.admin, SystemClock(), _TIMEOUT_MS)
    names = sorted(name for name, one in reader.list_groups().items() if one.is_supported and rules.includes(name))
    for name, found in sorted(reader.offsets(names).items()):
        if isinstance(found, KafkaError):
            raise found
        for tp in sorted(tp for tp in found if concerns(tp.topic) is not None):
            yield _position(name, tp, found[tp].offset, intents)


def _position(group: str, tp: TopicPartition, offset: int, intents: StoredIntents) -> KnownPosition:
    intent = intents.get(group, tp)
    return KnownPosition(
        group=group,
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        copied_from=intent.source if intent is not None and intent.target == offset else None,
        copied_ms=intents.stored_ms(group, tp, offset),
    )


def _intents(config: MirrorConfig, flow: FlowConfig, target: Side) -> StoredIntents:
    stored = StoredIntents()
    topic = group_topic_of(flow.name)
    if target.describe([topic]):
        options = config.clusters[flow.target].client_options()
        for record in FlowTopic(options, topic).records(Timer(SystemClock(), _TIMEOUT_MS)):
            stored.take(record.key, record.value, record.offset)
    return stored
