"""MirrorMaker 2's names of topics: what a name says about the clusters that its records have passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEARTBEATS: Final = "heartbeats"
"""The topic of heartbeats on the cluster where they are written (``MirrorClientConfig.HEARTBEATS_TOPIC``)."""


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """The names of ``DefaultReplicationPolicy``: each cluster that a topic is copied from becomes a prefix."""

    separator: str = "."

    def remote_topic(self, source: str, topic: str) -> str:
        """Return the name that ``topic`` of cluster ``source`` has where it is copied to."""
        return f"{source}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """Return the cluster that ``topic`` was copied from, as its name says; None if it has no prefix.

        As for Java's ``String.split``, separators at the end of a name separate nothing.
        """
        parts = topic.split(self.separator)
        while parts and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_topic(self, topic: str) -> str | None:
        """Return the name that ``topic`` has on the cluster that it was copied from; None if it has no prefix."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Return the name of ``topic`` on the cluster where it was first written."""
        while (upstream := self.upstream_topic(topic)) is not None:
            topic = upstream
        return topic

    def is_internal(self, topic: str) -> bool:
        """Return whether MirrorMaker 2 never copies ``topic``, because it is Kafka's or its own."""
        internal = f"{self.separator}internal"
        return (
            topic.startswith(("__", "."))
            or (topic.startswith("mm2") and topic.endswith(internal))
            or topic.endswith(f"{self.separator}checkpoints{internal}")
        )

    def is_checkpoints(self, topic: str) -> bool:
        """Return whether ``topic`` has checkpoints: they are about the cluster where they are, and never travel on."""
        return topic.endswith(f"{self.separator}checkpoints{self.separator}internal")

    def checkpoints_topic(self, source: str) -> str:
        """Return the topic on the target of the checkpoints of groups of ``source``."""
        return f"{source}{self.separator}checkpoints{self.separator}internal"

    def has_passed(self, topic: str, cluster: str) -> bool:
        """Return whether ``topic`` was copied from ``cluster`` before, so that copying it there is a cycle.

        A cluster is found also if its name contains the separator, unlike by MirrorMaker 2.
        """
        upstream: str | None = topic
        while upstream is not None:
            if upstream.startswith(f"{cluster}{self.separator}"):
                return True
            upstream = self.upstream_topic(upstream)
        return False

    def carries_heartbeats(self, topic: str, target: str) -> bool:
        """Return whether MirrorMaker 2 copies ``topic`` to ``target`` whatever its ``topics`` say."""
        return (
            self.original_topic(topic) == HEARTBEATS
            and not self.is_internal(topic)
            and not self.has_passed(topic, target)
        )
