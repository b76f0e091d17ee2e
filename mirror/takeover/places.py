"""Where MirrorMaker 2 keeps what it knows: names of its topics, groups and transactional ids. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.errors import FlowError

CONNECTOR: Final = "MirrorSourceConnector"
"""The connector's name in a dedicated cluster of MirrorMaker 2."""
CONNECT_TOPICS: Final = ("mirrormaker2-cluster-offsets", "connect-offsets")
"""Names of the positions' topic where MirrorMaker 2 runs in Kafka Connect: Strimzi's default, and that of Kafka's
example configuration."""
_OFFSETS_SUFFIX: Final = "-offsets"
_STATUS_SUFFIX: Final = "-status"
"""Strimzi's topics, and those of Kafka's example configuration, end so."""
_CONNECT_GROUP: Final = "connect-cluster"
"""``group.id`` of Kafka's example configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is known about MirrorMaker 2; None: it is to be found out."""

    source: str
    """The source's alias."""
    target: str
    """The target's alias."""
    offsets_topic: str | None = None
    """The topic of the positions (``offset.storage.topic``)."""
    offsets_cluster: str | None = None
    """The cluster of that topic, by its name in the configuration: that of Connect's workers. None: the target."""
    connector: str | None = None
    """The name of the source connector."""
    worker_group: str | None = None
    """The workers' ``group.id``."""
    status_topic: str | None = None
    """The workers' topic of the states of connectors and tasks (``status.storage.topic``)."""

    @property
    def positions_on(self) -> str:
        """The name of the cluster that has the positions."""
        return self.offsets_cluster or self.target


class Places(NamedTuple):
    """Where a source connector that was found keeps what it knows."""

    connector: str
    offsets_topic: str
    status_topic: str
    """Beside the positions; empty if it was not found."""
    group: str
    """Of the workers."""
    group_known: bool
    """Whether that is their group for certain: if it does not exist, they do not run."""
    dedicated: bool
    """Whether the workers do nothing else: a member of their group is MirrorMaker 2 that runs."""


def dedicated_topic(source: str) -> str:
    """Return the topic of the positions of a dedicated cluster of MirrorMaker 2."""
    return f"mm2-offsets.{source}.internal"


def dedicated_group(source: str) -> str:
    """Return the group of the workers of a dedicated cluster of MirrorMaker 2."""
    return f"{source}-mm2"


def offset_topics(deployment: Deployment, existing: Collection[str]) -> list[str]:
    """Return those ``existing`` topics of the target in which the positions may be."""
    return [name for name in possible_topics(deployment) if name in existing]


def possible_topics(deployment: Deployment) -> list[str]:
    """Return the names of topics in which the positions may be."""
    if deployment.offsets_topic is not None:
        return [deployment.offsets_topic]
    return [dedicated_topic(deployment.source), *CONNECT_TOPICS]


def usual_group(source: str, offsets_topic: str, connector: str | None) -> str | None:
    """Return the workers' group as it is by default where the positions of the connector are.

    None: the topic has a name of the user's, and the connector the one of a dedicated cluster, whose group does not
    follow from the topic. In Kafka Connect a connector may have that name, too.
    """
    if offsets_topic == dedicated_topic(source):
        return dedicated_group(source)
    if offsets_topic not in CONNECT_TOPICS and connector == CONNECTOR:
        return None
    return _CONNECT_GROUP if offsets_topic == "connect-offsets" else offsets_topic.removesuffix(_OFFSETS_SUFFIX)


def worker_group(deployment: Deployment, offsets_topic: str, connector: str) -> str:
    """Return the workers' group: as it is known, or as it is by default. Raises FlowError if that is not known."""
    group = deployment.worker_group or usual_group(deployment.source, offsets_topic, connector)
    if group is None:
        raise FlowError(
            f"the group of MirrorMaker 2's workers does not follow from topic {offsets_topic}, which has positions of"
            f" {connector}: name it with --worker-group. It is {dedicated_group(deployment.source)} in a dedicated"
            " MirrorMaker 2, and group.id of the workers in Kafka Connect"
        )
    return group


def places_of(deployment: Deployment, offsets_topic: str, connector: str, existing: Collection[str]) -> Places:
    """Return the places of a connector whose positions were found; ``existing`` are the topics beside them.

    Raises FlowError if the workers' group is not known, or there is no status topic of the name that was given.
    """
    group, source = worker_group(deployment, offsets_topic, connector), deployment.source
    dedicated = offsets_topic == dedicated_topic(source) or deployment.worker_group == dedicated_group(source)
    named = deployment.status_topic
    if named is not None and named not in existing:
        raise FlowError(f"there is no topic {named} on {deployment.positions_on}: correct --status-topic")
    status_topic = next((name for name in status_topics(source, offsets_topic, group) if name in existing), "")
    if dedicated:
        status_topic = dedicated_status_topic(source)  # which may be made when it starts
    if named is not None:
        status_topic = named
    known = deployment.worker_group is not None or dedicated
    return Places(connector, offsets_topic, status_topic, group, known, dedicated)


def dedicated_status_topic(source: str) -> str:
    """Return the topic of the states of the connectors of a dedicated cluster of MirrorMaker 2."""
    return f"mm2-status.{source}.internal"


def status_topics(source: str, offsets_topic: str, group: str) -> list[str]:
    """Return the usual names of topics in which the states of connectors may be."""
    beside = (offsets_topic.removesuffix(_OFFSETS_SUFFIX), group)
    return [*dict.fromkeys(f"{name}{_STATUS_SUFFIX}" for name in beside), dedicated_status_topic(source)]


def transactional_id(group: str, connector: str, task: int) -> str:
    """Return the id under which a task writes exactly once (KIP-618)."""
    return f"{group}-{connector}-{task}"


def sync_topics(deployment: Deployment) -> tuple[str, str]:
    """Return the topic of the offset syncs on the source, and its name if it is on the target."""
    return f"mm2-offset-syncs.{deployment.target}.internal", f"mm2-offset-syncs.{deployment.source}.internal"
