"""The records of a flow's inventory topic: which topics the flow has created on the target, and what it set. Pure.

The keys of a target topic share a record. A record is of one topic id: of a topic that was made again nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.alignment.decision import Known, Mark
from mirror.relay.progress import stored_json as stored

_VERSION: Final = 1
_FIELDS: Final = 2
"""Of a key at least: the mark and the value."""


@dataclass(frozen=True, slots=True)
class TopicInventory:
    """What a flow knows about one target topic."""

    topic_id: str
    created: bool = False
    """Whether the flow has created it."""
    configs: Mapping[str, Known] = field(default_factory=dict)
    """By key."""

    def settled(self) -> TopicInventory:
        """Return the same after all changes of configurations were made."""
        known = {key: one.settled() for key, one in self.configs.items()}
        return TopicInventory(self.topic_id, self.created, {key: one for key, one in known.items() if one is not None})


class StoredInventory:
    """What the inventory topic says: each record that is read replaces an earlier one of its key."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicInventory] = {}

    def clear(self) -> None:
        """Forget everything: the topic is read from its beginning."""
        self._topics.clear()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the topic. What cannot be parsed is not in the inventory."""
        topic = parse_key(key)
        if topic:
            self.put(topic, parse_topic(value))

    def put(self, topic: str, known: TopicInventory | None) -> None:
        """Set what is known about a target topic; None: nothing."""
        if known is None:
            self._topics.pop(topic, None)
        else:
            self._topics[topic] = known

    def of(self, topic: str, topic_id: str) -> TopicInventory | None:
        """Return what is known about the target topic of this name and id."""
        found = self._topics.get(topic)
        return found if found is not None and found.topic_id == topic_id else None


def encode_key(topic: str) -> bytes:
    """Return the key of a target topic's record."""
    return json.dumps({"topic": topic}, separators=(",", ":")).encode()


def parse_key(key: bytes | None) -> str:
    """Parse :func:`encode_key`; empty for anything else."""
    return stored.text(stored.parse_object(key).get("topic"))


def encode_topic(known: TopicInventory) -> bytes:
    """Return the record of a topic as JSON."""
    configs = {key: [one.mark.value, one.value, *one.before] for key, one in sorted(known.configs.items())}
    fields = {"v": _VERSION, "id": known.topic_id, "created": known.created, "configs": configs}
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_topic(value: bytes | None) -> TopicInventory | None:
    """Parse :func:`encode_topic`, without what cannot be parsed; None if there is nothing."""
    fields = stored.parse_object(value)
    topic_id, configs = stored.text(fields.get("id")), fields.get("configs")
    if fields.get("v") != _VERSION or not topic_id or not isinstance(configs, dict):
        return None
    known = {key: one for key, given in configs.items() if (one := _known(given)) is not None}
    return TopicInventory(topic_id, fields.get("created") is True, known)


def _known(given: Any) -> Known | None:
    if not isinstance(given, list) or len(given) < _FIELDS:
        return None
    mark, *values = given
    if not isinstance(mark, str) or mark not in set(Mark):
        return None
    if any(value is not None and not isinstance(value, str) for value in values):
        return None
    return Known(Mark(mark), values[0], tuple(values[1:]))
