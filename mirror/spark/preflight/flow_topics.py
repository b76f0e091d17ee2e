"""Create the topics that a flow itself writes, or check those that exist: they have one partition and are compacted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.client import NewTopic
from mirror.errors import BrokerError, KafkaError, is_outage
from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy
from mirror.relay.batches.topic_config import readable
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.progress.flow_topic import (
    group_topic_of,
    inventory_topic_of,
    latch_topic_of,
    offset_topic_of,
    status_topic_of,
    takeover_topic_of,
    topic_of,
)
from mirror.spark.preflight import topic_compare
from mirror.spark.preflight.old_brokers import replicas_without_default
from mirror.spark.preflight.refused_configs import without_refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.client import Admin, Outcomes
    from mirror.config.models import FlowConfig
    from mirror.observation import Side

T = TypeVar("T")

TOPIC_ALREADY_EXISTS: Final = 36
"""Kafka's error code (``Errors.TOPIC_ALREADY_EXISTS``)."""
PROPAGATION_TIMEOUT_S: Final = 15
"""The time that a topic may take from the controller's answer to the brokers' metadata."""
_POLL_S: Final = 0.1

FLOW_TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
"""Of the flow's own topics, as for Kafka Connect's. Segments are small: the active one is never compacted."""

ASIDE_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": str(topic_compare.ASIDE_MESSAGE_BYTES),
}
"""Of a flow's aside topic: it keeps what is nowhere else on the target until an operator deletes it, and takes what a
broker's request can hold."""


@dataclass(frozen=True, slots=True)
class FlowTopic:
    """One of the topics that a flow writes."""

    name: str
    contents: str
    """What it contains, as the subject of a plural verb."""
    lost: str
    """What does not work without it."""
    replication_factor: int = -1
    """That of the flow is for its target."""
    configs: Mapping[str, str] = field(default_factory=lambda: FLOW_TOPIC_CONFIGS)

    def warnings(self, configs: Mapping[str, str]) -> Iterable[str]:
        """Yield lines about a topic with this configuration."""
        about = topic_compare.aside_warnings if self.configs is ASIDE_CONFIGS else topic_compare.flow_topic_warnings
        return about(self.name, configs, self.contents)


def on_target(flow: FlowConfig) -> list[FlowTopic]:
    """Return the topics that ``flow`` itself writes on its target."""
    no_progress = "progress that the target forgets is not restored"
    no_status = "other hosts do not see its state, and runs do not know of earlier ones"
    topics = [
        FlowTopic(topic_of(flow.name), "its records of the flow's progress", no_progress),
        FlowTopic(offset_topic_of(flow.name), "its records of the flow's offsets", "offsets are not translated"),
        FlowTopic(status_topic_of(flow.name), "its records of the flow's status", no_status),
    ]
    if flow.groups.sync:
        topic = group_topic_of(flow.name)
        topics.append(FlowTopic(topic, "its records of consumer groups", "no group's position is written"))
    if flow.keeps_inventory:
        topics.append(inventory_of(flow))
    if flow.mirrormaker.checkpoints:
        topic = DefaultPolicy().checkpoints_topic(flow.source)
        topics.append(FlowTopic(topic, "checkpoints of consumer groups", "no checkpoints are written"))
    if flow.registers_producers:
        topics.append(_REGISTRY)
    if flow.aside:
        contents = "records that the target does not take"
        topics.append(FlowTopic(flow.aside, contents, "none goes aside", configs=ASIDE_CONFIGS))
    return [replace(topic, replication_factor=flow.replication_factor) for topic in topics]


def of_takeover(flow: FlowConfig) -> FlowTopic:
    """Return the topic that a takeover from MirrorMaker 2 writes on the target, besides those of :func:`on_target`."""
    topic, contents = takeover_topic_of(flow.name), "its records of what was taken over"
    return FlowTopic(topic, contents, "nothing is taken over", flow.replication_factor)


def latch_of(flow: FlowConfig) -> FlowTopic:
    """Return the topic that ``mirror hold`` writes on the target, besides those of :func:`on_target`."""
    topic, contents = latch_topic_of(flow.name), "its record of whether the flow may copy"
    return FlowTopic(topic, contents, "the flow is not held", flow.replication_factor)


def inventory_of(flow: FlowConfig) -> FlowTopic:
    """Return the inventory topic of ``flow``, also of one that keeps only adopted topics there."""
    kept = {"configuration": flow.configs == "sync", "deleted topic": flow.deletes_topics, "ACL": flow.acls.sync}
    whats = [what for what, is_kept in kept.items() if is_kept] or ["adopted topic"]
    contents = f"its records of {' and '.join(f'{what}s' for what in whats)}"
    lost = f"no {' and no '.join(whats)} is brought in step"
    return FlowTopic(inventory_topic_of(flow.name), contents, lost, flow.replication_factor)


def on_source(flow: FlowConfig) -> list[FlowTopic]:
    """Return the topics that ``flow`` itself writes on its source."""
    heartbeats = [FlowTopic(HEARTBEATS, "heartbeats", "no heartbeats are written")]
    return [*(heartbeats if flow.mirrormaker.heartbeats else ()), *([_REGISTRY] if flow.only_local else ())]


_REGISTRY: Final = FlowTopic(REGISTRY_TOPIC, "the producer ids of flows", "nothing is copied")


def prepare(
    topics: list[FlowTopic], side: Side, *, validate_only: bool = False, check: Callable[[], object] = bool
) -> tuple[list[NewTopic], list[str]]:
    """Create the missing ``topics`` and wait until they are described; return those, and the warnings.

    ``check`` is called directly before one is created, and raises if the flow may change nothing any more. A refusal is
    only a warning: without these topics records are copied, until the target forgets progress
    (offsets.retention.minutes). Raises ConnectionFailed and KafkaTimeout if no broker answers.
    """
    created: list[NewTopic] = []
    warnings: list[str] = []
    names = [topic.name for topic in topics]
    for topic in topics:
        new = NewTopic(topic.name, 1, topic.replication_factor, dict(topic.configs))
        try:
            if _of(topic.name, described := side.describe(names)) is not None:
                found = _of(topic.name, side.configs([name for name in names if name in described]))
                warnings += topic.warnings(readable(found or {}))
                continue
            if new.replication_factor < 0:
                new = replace(new, replication_factor=replicas_without_default(side))
            if not validate_only:
                check()
            new, lines = _create(new, side.admin, validate_only=validate_only)
            warnings += [f"topic {line}" for line in lines]
            warnings += topic.warnings(new.configs)
            if not validate_only:
                _await(topic.name, side.admin)
        except KafkaError as error:
            if is_outage(error):  # the next topic would wait as long, for the same reason
                raise
            if not isinstance(error, BrokerError) or error.code != TOPIC_ALREADY_EXISTS:
                warnings.append(
                    f"topic {topic.name} cannot be prepared, so {topic.lost}: {error} (the topic needs one partition"
                    f" and cleanup.policy = {topic.configs['cleanup.policy']})"
                )
            continue
        created.append(new)
    return created, warnings


def _of(name: str, found: Outcomes[str, T]) -> T | None:
    """Return what was found of a topic; None if it does not exist. Raises its KafkaError."""
    if name in found.failed:
        raise found.failed[name]
    return found.get(name)


def _create(topic: NewTopic, admin: Admin, *, validate_only: bool) -> tuple[NewTopic, list[str]]:
    """Create a topic without what the cluster refuses; return it, and a line about each of these. Raises KafkaError."""

    def send(wanted: NewTopic, *, validates: bool) -> KafkaError | None:
        return admin.create_topics([wanted], validate_only=validates, partial=True).failed.get(wanted.name)

    error = send(topic, validates=validate_only)
    if error is None:
        return topic, []
    found = without_refused(topic, error, partial(send, validates=True))
    if found is None:
        raise error
    if (error := send(found[0], validates=validate_only)) is not None:
        raise error
    return found


def _await(name: str, admin: Admin) -> None:
    """Wait until brokers describe a new topic: heartbeats are copied from it at once."""
    give_up_s = time.monotonic() + PROPAGATION_TIMEOUT_S
    while name not in admin.describe_topics([name]) and time.monotonic() < give_up_s:
        time.sleep(_POLL_S)


def creation(topic: NewTopic) -> str:
    """Return the line about a topic that is created."""
    replicas = "the cluster's default" if topic.replication_factor < 0 else str(topic.replication_factor)
    configs = "".join(f", {key} = {value}" for key, value in sorted(topic.configs.items()))
    return f"topic {topic.name} is created: partitions {topic.partitions}, replicas {replicas}{configs}"
