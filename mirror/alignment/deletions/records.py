"""The records of a flow's inventory topic about whose target topics are, and what was reduced in them. Pure.

An intent is stored before a topic is created, and the topic with its id afterwards. What only has an intent may have
been created by others: it never counts as the flow's own. What others have created a person may adopt for the flow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.flow_topic import KeyValue

_VERSION: Final = 1
_CREATED: Final = "created"
_INTENT: Final = "intent"
_ADOPTED: Final = "adopted"
_REDUCED: Final = "reduced"
_TOPIC: Final = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic of the source, of which another one is the copy."""

    name: str
    topic_id: str
    cluster_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that this flow has created on the target. Times are in ms since 1970; 0 for never."""

    topic_id: str
    """Its id on the target."""
    source: SourceTopic
    """As it was when the copy was created, or when a copy of a topic that was created again was settled."""
    again: str = ""
    """Another id under which the source topic was seen, and which is not settled."""
    gone_ms: int = 0
    """When a round first saw that the source topic does not exist, unless one has seen it since."""
    deleting: bool = False
    """Whether it is about to be deleted, or was."""
    deleted_ms: int = 0
    cleaned_ms: int = 0
    """When the flow's records about it were last removed after the deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A change of a target topic's configuration that makes its brokers delete records. Times are in ms since 1970."""

    topic_id: str
    """The id of the target topic."""
    seen_ms: int = 0
    """Since when each round has seen that ``wanted`` is to be set; 0 if the last one has not."""
    wanted: Mapping[str, str | None] = field(default_factory=dict)
    """The values that make them do so, by key; None for the brokers' default."""
    done_ms: int = 0
    """When one was last made; 0 for never."""


class Creations:
    """What the inventory topic says about topics: each record replaces an earlier one of its key."""

    def __init__(self) -> None:
        self.topics: dict[str, CreatedTopic] = {}
        """By target topic."""
        self.intents: dict[str, SourceTopic] = {}
        """By target topic: a creation that was begun, and of which nothing more is known."""
        self.adopted: dict[str, str] = {}
        """By target topic: the id under which a person has made it the flow's."""
        self.reductions: dict[str, Reduction] = {}
        """By target topic."""
        self.configured: dict[str, str] = {}
        """By target topic: the id under which the record of its configurations has it as created by the flow."""
        self.known: set[str] = set()
        """Target topics that the flow keeps in step, created by it or not."""

    def clear(self) -> None:
        """Forget everything: the topic is read from its beginning."""
        self.topics.clear()
        self.intents.clear()
        self.adopted.clear()
        self.reductions.clear()
        self.configured.clear()
        self.known.clear()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the topic. What cannot be parsed says nothing."""
        fields = stored.parse_object(key)
        created, intent = stored.text(fields.get(_CREATED)), stored.text(fields.get(_INTENT))
        if created:
            _put(self.topics, created, _parse_created(value))
        elif intent:
            _put(self.intents, intent, _parse_source(stored.parse_object(value)))
        elif adopted := stored.text(fields.get(_ADOPTED)):
            _put(self.adopted, adopted, _parse_adopted(value))
        elif reduced := stored.text(fields.get(_REDUCED)):
            _put(self.reductions, reduced, _parse_reduction(value))
        elif topic := stored.text(fields.get(_TOPIC)):
            (self.known.discard if value is None else self.known.add)(topic)
            _put(self.configured, topic, _parse_configured(value))

    def put(self, topic: str, created: CreatedTopic | None) -> None:
        """Set what is known about a target topic; None: nothing."""
        _put(self.topics, topic, created)

    def put_reduction(self, topic: str, reduction: Reduction | None) -> None:
        """Set what is known about what was reduced in a target topic; None: nothing."""
        _put(self.reductions, topic, reduction)


def _put(found: dict[str, Any], key: str, value: object) -> None:
    if value is None:
        found.pop(key, None)
    else:
        found[key] = value


def intent_record(topic: str, source: SourceTopic) -> KeyValue:
    """Return the record that says that target topic ``topic`` is about to be created."""
    return _record(_INTENT, topic, asdict(source))


def intent_removal(topic: str) -> KeyValue:
    """Return the record that removes :func:`intent_record`."""
    return _record(_INTENT, topic, None)


def created_record(topic: str, created: CreatedTopic | None) -> KeyValue:
    """Return the record of a target topic that the flow has created; None removes it."""
    return _record(_CREATED, topic, None if created is None else asdict(created))


def adopted_record(topic: str, topic_id: str) -> KeyValue:
    """Return the record that says that a person has made the target topic of this id the flow's."""
    return _record(_ADOPTED, topic, {"topic_id": topic_id})


def reduction_record(topic: str, reduction: Reduction | None) -> KeyValue:
    """Return the record of what was reduced in a target topic, or is to be; None removes it."""
    return _record(_REDUCED, topic, None if reduction is None else asdict(reduction))


def _record(kind: str, topic: str, fields: dict[str, Any] | None) -> KeyValue:
    key = json.dumps({kind: topic}, separators=(",", ":")).encode()
    value = None if fields is None else json.dumps({"v": _VERSION, **fields}, separators=(",", ":")).encode()
    return KeyValue(key, value)


def _parse_created(value: bytes | None) -> CreatedTopic | None:
    fields = stored.parse_object(value)
    topic_id, source = stored.text(fields.get("topic_id")), fields.get("source")
    parsed = _parse_source({**source, "v": fields.get("v")} if isinstance(source, dict) else {})
    if not topic_id or parsed is None:
        return None
    return CreatedTopic(
        topic_id=topic_id,
        source=parsed,
        again=stored.text(fields.get("again")),
        gone_ms=stored.time_ms(fields.get("gone_ms")) or 0,
        deleting=fields.get("deleting") is True,
        deleted_ms=stored.time_ms(fields.get("deleted_ms")) or 0,
        cleaned_ms=stored.time_ms(fields.get("cleaned_ms")) or 0,
    )


def _parse_adopted(value: bytes | None) -> str | None:
    fields = stored.parse_object(value)
    return stored.text(fields.get("topic_id")) or None if fields.get("v") == _VERSION else None


def _parse_configured(value: bytes | None) -> str | None:
    fields = stored.parse_object(value)
    is_own = fields.get("v") == _VERSION and fields.get("created") is True
    return stored.text(fields.get("id")) or None if is_own else None


def _parse_reduction(value: bytes | None) -> Reduction | None:
    fields = stored.parse_object(value)
    topic_id = stored.text(fields.get("topic_id"))
    if fields.get("v") != _VERSION or not topic_id:
        return None
    times = {name: stored.time_ms(fields.get(name)) or 0 for name in ("seen_ms", "done_ms")}
    given = fields.get("wanted")
    wanted = (
        {key: value for key, value in given.items() if value is None or isinstance(value, str)}
        if isinstance(given, dict)
        else {}
    )
    return Reduction(topic_id=topic_id, wanted=wanted, **times)


def _parse_source(fields: dict[str, Any]) -> SourceTopic | None:
    name, topic_id, cluster_id = (stored.text(fields.get(key)) for key in ("name", "topic_id", "cluster_id"))
    if fields.get("v") != _VERSION or not (name and topic_id and cluster_id):
        return None
    return SourceTopic(name=name, topic_id=topic_id, cluster_id=cluster_id)
