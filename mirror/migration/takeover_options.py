"""The options that a takeover needs where MirrorMaker 2's own topics and groups have other names than usual."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mirror.migration.findings import Finding, Kind, about
from mirror.migration.replications import Replication
from mirror.takeover.places import CONNECT_TOPICS, Deployment, possible_topics, status_topics, usual_group

_COMMAND: Final = "take the flow {} over with {} {}"


def takeover_options(flow: str, replication: Replication) -> Iterator[Finding]:
    """Yield the options that ``mirror takeover`` needs for a flow, if the file says them."""
    worker = replication.worker or {}
    deployment = Deployment(source=replication.pair.source, target=replication.pair.target)
    topic = replication.source.get("offsets.storage.topic") or worker.get("offset.storage.topic")
    if topic is not None and topic.line and topic.value not in possible_topics(deployment):
        meaning = "MirrorMaker 2's positions are in this topic"
        yield about(Kind.TO_DO, topic, meaning, _COMMAND.format(flow, "--offsets-topic", topic.shown()))
    group = worker.get("group.id")
    connector = replication.source.get("name")
    usual = usual_group(
        deployment.source,
        CONNECT_TOPICS[0] if topic is None else topic.value,
        None if connector is None else connector.value,
    )
    # Beside a topic that the file names, the group may be of a dedicated cluster, whose name is a default.
    if group is not None and (group.line or topic is not None) and group.value != usual:
        meaning = "MirrorMaker 2's workers are members of this group"
        yield about(Kind.TO_DO, group, meaning, _COMMAND.format(flow, "--worker-group", group.shown()))
    status = worker.get("status.storage.topic")
    if status is not None and status.line and group is not None:
        positions = CONNECT_TOPICS[0] if topic is None else topic.value
        if status.value not in status_topics(deployment.source, positions, group.value):
            meaning = "the states of MirrorMaker 2's connectors are in this topic"
            yield about(Kind.TO_DO, status, meaning, _COMMAND.format(flow, "--status-topic", status.shown()))
