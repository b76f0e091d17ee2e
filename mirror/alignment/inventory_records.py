"""The records of a flow's inventory topic: what it knows about the target, and is about to change there. Pure.

An intent is stored before a topic is created, and the topic with its id afterwards. What only has an intent may have
been created by others: it never counts as the flow's own. What others have created a person may adopt for the flow.
The configurations of a topic share a record, and the ACLs of a resource. A record about a topic is of one topic id: of
a topic that was made again nothing is known.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mirror.alignment.acl_decision import AclMark
from mirror.alignment.config_decision import ConfigMark, Known
from mirror.cluster.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress import stored_record
from mirror.relay.progress.flow_topic import KeyValue

_OF_CONFIG: Final = 2
"""Fields of a key of a configuration at least: the mark and the value."""
_OF_RESOURCE: Final = 3
_OF_ACL: Final = 5


class Subject(enum.StrEnum):
    """What a record is about; the values are in the keys."""

    CONFIGS = "topic"
    CREATED = "created"
    INTENT = "intent"
    """A creation that was begun, and of which nothing more is known."""
    ADOPTED = "adopted"
    REDUCED = "reduced"
    ACLS = "acls"


class Resource(NamedTuple):
    """Whose ACLs a record has."""

    kind: ResourceType
    pattern: PatternType
    name: str


def resource_of(acl: AclBinding) -> Resource:
    """Return what an ACL is about."""
    return Resource(acl.resource_type, acl.pattern, acl.name)


class Key(NamedTuple):
    """Identifies a record."""

    subject: Subject
    name: str | Resource
    """The target topic, or the resource of ACLs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic of the source, of which another one is the copy."""

    name: str
    topic_id: str
    cluster_id: str


# Invariant: A topic is the flow's own by its id alone: neither an intent to create one nor its name is evidence, and a
#   deletion by id spares one that was created again.
# Test: tests/alignment/deletions/
#   test_interrupted_on_fakes.py::test_a_topic_that_was_created_just_before_a_run_was_killed_is_never_deleted
# Test: tests/cluster/test_admin_topics.py::test_a_deletion_by_id_spares_a_topic_that_was_made_again
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


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """What the flow knows about the configuration of one target topic."""

    topic_id: str
    created: bool = False
    """Whether the flow has created it."""
    configs: Mapping[str, Known] = field(default_factory=dict)
    """By key."""


Acls = Mapping[AclBinding, AclMark]


class Inventory:
    """What the topic says: each record replaces an earlier one of its key. What cannot be parsed says nothing."""

    def __init__(self) -> None:
        self._tables: Final[dict[Subject, dict[Any, Any]]] = {subject: {} for subject in Subject}

    @property
    def configs(self) -> Mapping[str, TopicConfigs]:
        """The target topics that the flow keeps in step, created by it or not."""
        return self._tables[Subject.CONFIGS]

    @property
    def created(self) -> Mapping[str, CreatedTopic]:
        """By target topic."""
        return self._tables[Subject.CREATED]

    @property
    def intents(self) -> Mapping[str, SourceTopic]:
        """By target topic that is about to be created, or was."""
        return self._tables[Subject.INTENT]

    @property
    def reductions(self) -> Mapping[str, Reduction]:
        """By target topic."""
        return self._tables[Subject.REDUCED]

    @property
    def acls(self) -> dict[AclBinding, AclMark]:
        """How the flow knows ACLs of the target."""
        return {acl: mark for acls in self._tables[Subject.ACLS].values() for acl, mark in acls.items()}

    def configs_of(self, topic: str, topic_id: str) -> TopicConfigs | None:
        """Return what is known about the target topic of this name and id."""
        found = self.configs.get(topic)
        return found if found is not None and found.topic_id == topic_id else None

    def claimed_ids(self, topic: str) -> frozenset[str]:
        """Return the ids under which the target topic of this name is the flow's: created by it, or adopted."""
        created, configs = self.created.get(topic), self.configs.get(topic)
        ids = {
            "" if created is None else created.topic_id,
            configs.topic_id if configs is not None and configs.created else "",
            self._tables[Subject.ADOPTED].get(topic, ""),
        }
        return frozenset(ids - {""})

    def clear(self) -> None:
        """Forget everything: the topic is read from its beginning."""
        for table in self._tables.values():
            table.clear()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record of the topic."""
        parsed = parse_key(key)
        if parsed is not None:
            self.put(parsed, _parse(parsed, value))

    def get(self, key: Key) -> Any:
        """Return what a record says; None if there is none."""
        return self._tables[key.subject].get(key.name)

    def put(self, key: Key, value: Any) -> None:
        """Set what a record says; None or nothing in it: that there is none."""
        if value is None or value == {}:
            self._tables[key.subject].pop(key.name, None)
        else:
            self._tables[key.subject][key.name] = value

    def acl_records(self, acls: Acls) -> dict[Key, Acls | None]:
        """Return the records with which exactly ``acls`` are known."""
        found: dict[Key, dict[AclBinding, AclMark]] = {}
        for acl, mark in acls.items():
            found.setdefault(Key(Subject.ACLS, resource_of(acl)), {})[acl] = mark
        stored_now = (Key(Subject.ACLS, resource) for resource in self._tables[Subject.ACLS])
        return {key: found.get(key) for key in sorted({*found, *stored_now})}


def record_of(key: Key, value: Any) -> KeyValue:
    """Return the record that says ``value``; None removes it."""
    name = [key.name.kind.name, key.name.pattern.name, key.name.name] if isinstance(key.name, Resource) else key.name
    return KeyValue(_json({key.subject.value: name}), None if not value else stored_record.encode_plain(_fields(value)))


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _fields(value: Any) -> dict[str, Any]:
    match value:
        case TopicConfigs(topic_id, created, configs):
            known = {key: [one.mark.value, one.value, *one.before] for key, one in sorted(configs.items())}
            return {"id": topic_id, "created": created, "configs": known}
        case str():
            return {"topic_id": value}
        case SourceTopic() | CreatedTopic() | Reduction():
            fields: dict[str, Any] = stored_record.plain(value)
            return fields
    entries = [[one.principal, one.host, one.operation.name, one.permission.name, mark] for one, mark in value.items()]
    return {"acls": sorted(entries)}


def parse_key(key: bytes | None) -> Key | None:
    """Return the key of a record; None for anything else."""
    for name, given in stored.parse_object(key).items():
        if name in set(Subject):
            subject = Subject(name)
            parsed = _parse_resource(given) if subject is Subject.ACLS else stored.text(given)
            return Key(subject, parsed) if parsed else None
    return None


def _parse_resource(given: Any) -> Resource | None:
    texts = _texts(given, _OF_RESOURCE)
    try:
        return Resource(ResourceType[texts[0]], PatternType[texts[1]], texts[2]) if texts else None
    except KeyError:
        return None


def _texts(given: Any, count: int) -> list[str]:
    """Return ``given`` if it is a list of so many texts; otherwise nothing."""
    is_valid = isinstance(given, list) and len(given) == count and all(isinstance(one, str) for one in given)
    return given if is_valid else []


def _parse(key: Key, value: bytes | None) -> Any:
    fields = stored_record.parse_plain(value)
    if fields is None:
        return None
    if isinstance(key.name, Resource):
        entries = fields.get("acls")
        return dict(_parse_acls(key.name, entries if isinstance(entries, list) else ()))
    match key.subject:
        case Subject.CONFIGS:
            return _parse_configs(fields)
        case Subject.ADOPTED:
            return stored.text(fields.get("topic_id")) or None
        case _:
            return _parse_record(key, fields)


def _parse_configs(fields: Mapping[str, Any]) -> TopicConfigs | None:
    topic_id, configs = stored.text(fields.get("id")), fields.get("configs")
    if not topic_id or not isinstance(configs, dict):
        return None
    known = {key: one for key, given in configs.items() if (one := _parse_known(given)) is not None}
    return TopicConfigs(topic_id, fields.get("created") is True, known)


def _parse_known(given: Any) -> Known | None:
    if not isinstance(given, list) or len(given) < _OF_CONFIG:
        return None
    mark, *values = given
    if not isinstance(mark, str) or mark not in set(ConfigMark):
        return None
    if any(value is not None and not isinstance(value, str) for value in values):
        return None
    return Known(ConfigMark(mark), values[0], tuple(values[1:]))


def _parse_record(key: Key, fields: Mapping[str, Any]) -> CreatedTopic | SourceTopic | Reduction | None:
    found = stored_record.record_of(_RECORDS[key.subject], fields)
    return found if found is not None and _has_ids(found) else None


def _has_ids(found: CreatedTopic | SourceTopic | Reduction) -> bool:
    if isinstance(found, SourceTopic):
        return bool(found.name and found.topic_id and found.cluster_id)
    return bool(found.topic_id) and (isinstance(found, Reduction) or _has_ids(found.source))


def _parse_acls(resource: Resource, entries: Iterable[Any]) -> Iterable[tuple[AclBinding, AclMark]]:
    for given in entries:
        texts = _texts(given, _OF_ACL)
        if not texts:
            continue
        principal, host, operation, permission, mark = texts
        kind, pattern, name = resource
        try:
            known = AclOperation[operation], AclPermission[permission], AclMark(mark)
        except (KeyError, ValueError):
            continue
        yield AclBinding(kind, name, principal, known[0], known[1], pattern, host), known[2]


_RECORDS: Final[Mapping[Subject, type[CreatedTopic | SourceTopic | Reduction]]] = {
    Subject.CREATED: CreatedTopic,
    Subject.INTENT: SourceTopic,
    Subject.REDUCED: Reduction,
}
