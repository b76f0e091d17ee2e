"""Where MirrorMaker 2 keeps what it knows: names of its topics, groups and transactional ids. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from mirror.errors import FlowError

CONNECTOR: Final = "MirrorSourceConnector"
"""The connector's name in a dedicated cluster of MirrorMaker 2."""
CONNECT_TOPICS: Final = ("mirrormaker2-cluster-offsets", "connect-offsets")
"""Names of the positions' topic where MirrorMaker 2 runs in Kafka Connect: Strimzi's default, and that of Kafka's
example configuration."""
_STRIMZI_SUFFIX: Final = "-offsets"
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

    @property
    def positions_on(self) -> str:
        """The name of the cluster that has the positions."""
        return self.offsets_cluster or self.target


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
    return _CONNECT_GROUP if offsets_topic == "connect-offsets" else offsets_topic.removesuffix(_STRIMZI_SUFFIX)


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


def is_dedicated(deployment: Deployment, offsets_topic: str) -> bool:
    """Return whether the workers do nothing else: then a member of their group is MirrorMaker 2 running."""
    source = deployment.source
    return offsets_topic == dedicated_topic(source) or deployment.worker_group == dedicated_group(source)


def transactional_id(group: str, connector: str, task: int) -> str:
    """Return the id under which a task writes exactly once (KIP-618)."""
    return f"{group}-{connector}-{task}"


def sync_topics(deployment: Deployment) -> tuple[str, str]:
    """Return the topic of the offset syncs on the source, and its name if it is on the target."""
    return f"mm2-offset-syncs.{deployment.target}.internal", f"mm2-offset-syncs.{deployment.source}.internal"
