"""Check the arguments of Consumer, Producer and Admin, in the application's thread.

The network thread serves every client of a cluster and must never receive a value that cannot be sent. Each function
returns the value in the form that the cores accept, or raises InvalidArgument. Iterables are consumed once, so
generators are allowed. The parameter ``what`` names the value in error texts.
"""

from __future__ import annotations

import reprlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from mirror.cluster.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from mirror.cluster.open_enum import OpenEnum
from mirror.cluster.types import (
    EARLIEST,
    ConfigChange,
    ConfigKind,
    ConfigOperation,
    ConfigResource,
    NewTopic,
    OffsetAndMetadata,
    TopicPartition,
)
from mirror.errors import InvalidArgument
from mirror.timing import FOREVER_MS
from mirror.wire.header_names import name_bytes
from mirror.wire.integers import INT16_MAX, INT32_MAX, INT64_MAX

_NAME_LENGTH: Final = 249
"""The longest legal topic name (Kafka's ``Topic.validate``). The broker checks which characters are legal."""
_TEXT_BYTES: Final = INT16_MAX
"""The largest length of a string on the wire."""
_PAIR: Final = 2


def timeout(value: int | None) -> int | None:
    """Check a ``timeout_ms``: None for the default, else ms from 0 to 2^63 - 1."""
    return None if value is None else _whole("timeout_ms", value, 0, FOREVER_MS)


def topic(value: str) -> str:
    """Check a topic name: 1 to 249 characters."""
    name = text("a topic name", value)
    if not 1 <= len(name) <= _NAME_LENGTH:
        msg = f"a topic name must have 1 to {_NAME_LENGTH} characters, not {len(name)}: {reprlib.repr(name)}"
        raise InvalidArgument(msg)
    return name


def topics(values: Iterable[str]) -> tuple[str, ...]:
    """Check topic names."""
    return tuple(topic(value) for value in _items("topic names", values))


def topic_ids(values: Iterable[uuid.UUID]) -> tuple[uuid.UUID, ...]:
    """Check topic ids and remove duplicates."""
    ids = tuple(dict.fromkeys(_items("topic ids", values)))
    for value in ids:
        if not isinstance(value, uuid.UUID):
            msg = f"a topic id must be a UUID, not {reprlib.repr(value)}"
            raise InvalidArgument(msg)
    return ids


def text(what: str, value: str, of: object = None, encode: Callable[[str], bytes] = str.encode) -> str:
    """Check a string: at most 32767 bytes, the limit of the protocol, as ``encode`` encodes it (default: UTF-8).

    ``of`` is as for :func:`_whole`.
    """
    if type(value) is str and value.isascii() and len(value) <= _TEXT_BYTES:
        return value
    if not isinstance(value, str):
        msg = f"{_named(what, of)} must be a str, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    try:
        size = len(encode(value))
    except UnicodeEncodeError:
        msg = f"{_named(what, of)} must be text that UTF-8 can hold, not {reprlib.repr(value)}"
        raise InvalidArgument(msg) from None
    if size > _TEXT_BYTES:
        msg = f"{_named(what, of)} must have at most {_TEXT_BYTES} bytes, not {size}: {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return value


def partition(value: object) -> TopicPartition:
    """Check a TopicPartition. A plain ``(topic, partition)`` tuple is converted."""
    if type(value) is TopicPartition and type(value.partition) is int and 0 <= value.partition <= INT32_MAX:
        topic(value.topic)  # without the texts of the errors below, which take longer than the checks
        return value
    if not isinstance(value, tuple) or len(value) != _PAIR:
        msg = f"a partition must be a TopicPartition(topic, number), not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    name, number = value
    return TopicPartition(topic(name), _whole(f"the partition of topic {name!r}", number, 0, INT32_MAX))


def partitions(values: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Check partitions and remove duplicates. The order is preserved."""
    return tuple(dict.fromkeys(partition(value) for value in _items("partitions", values)))


def producer_id(value: object, last_epoch: int) -> tuple[int, int]:
    """Check a (producer id, epoch), with an epoch from 0 to ``last_epoch``."""
    if not isinstance(value, tuple) or len(value) != _PAIR:
        msg = f"an identity must be a ProducerId(producer_id, epoch), not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return _whole("a producer id", value[0], 0, INT64_MAX), _whole("a producer epoch", value[1], 0, last_epoch)


def offset(tp: TopicPartition, value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """Check an offset of ``tp``, from 0 to 2^63 - 1, and its metadata. A leader epoch of -1 means none, as in Kafka."""
    if not isinstance(value, OffsetAndMetadata):
        return OffsetAndMetadata(_whole("the offset", value, 0, INT64_MAX, tp))
    epoch = value.leader_epoch
    if epoch is not None and _whole("the leader epoch", epoch, -1, INT32_MAX, tp) < 0:
        epoch = None
    text("the metadata", value.metadata, tp)
    topic_id = value.topic_id
    if topic_id is not None and not isinstance(topic_id, uuid.UUID):
        msg = f"the topic id of {tp} must be a UUID or None, not {reprlib.repr(topic_id)}"
        raise InvalidArgument(msg)
    _whole("the offset", value.offset, 0, INT64_MAX, tp)
    return value if epoch is value.leader_epoch else value._replace(leader_epoch=epoch)


def offsets(values: Mapping[TopicPartition, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Check offsets by partition."""
    pairs = _mapping("offsets", values).items()
    return {(tp := partition(key)): offset(tp, value) for key, value in pairs}


def times(values: Mapping[TopicPartition, int], *, low: int = 0) -> dict[TopicPartition, int]:
    """Check times in ms by partition, from 0 to 2^63 - 1. ``low`` EARLIEST also allows EARLIEST and LATEST."""
    pairs = _mapping("times", values).items()
    return {(tp := partition(key)): _whole(f"the time of {tp}", value, low, INT64_MAX) for key, value in pairs}


def times_or_ends(values: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Check times in ms by partition. EARLIEST (-2) and LATEST (-1) are allowed."""
    return times(values, low=EARLIEST)


def leader_epochs(values: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Check leader epochs by partition."""
    pairs = _mapping("leader epochs", values).items()
    return {(tp := partition(key)): _whole(f"a leader epoch of {tp}", value, 0, INT32_MAX) for key, value in pairs}


def partition_totals(values: Mapping[str, int]) -> dict[str, int]:
    """Check numbers of partitions by topic."""
    pairs = _mapping("totals", values).items()
    return {topic(name): _whole(f"the partitions of {name!r}", total, 0, INT32_MAX) for name, total in pairs}


def new_topics(values: Iterable[NewTopic]) -> tuple[NewTopic, ...]:
    """Check topics to create. -1 partitions or replicas mean the cluster's default."""
    topics_to_create = tuple(_items("topics", values))
    for new_topic in topics_to_create:
        if not isinstance(new_topic, NewTopic):
            msg = f"a topic to create must be a NewTopic, not {reprlib.repr(new_topic)}"
            raise InvalidArgument(msg)
        topic(new_topic.name)
        _whole(f"the partitions of {new_topic.name!r}", new_topic.partitions, -1, INT32_MAX)
        _whole(f"the replication factor of {new_topic.name!r}", new_topic.replication_factor, -1, INT16_MAX)
        for key, value in _mapping(f"the configs of {new_topic.name!r}", new_topic.configs).items():
            text(f"a config key of {new_topic.name!r}", key)
            text(f"{key} of {new_topic.name!r}", value)
    return topics_to_create


def payload(what: str, value: bytes | bytearray | memoryview | None) -> bytes | None:
    """Check a key or value of a record: bytes or None. None differs from empty bytes."""
    if value is None or type(value) is bytes:
        return value
    if not isinstance(value, bytes | bytearray | memoryview):
        # The text does not contain the data.
        msg = f"{what} must be bytes or None, not {type(value).__name__}: encode it first"
        raise InvalidArgument(msg)
    return bytes(value)


def headers(
    values: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None],
) -> Sequence[tuple[str, bytes | None]]:
    """Check the headers of a record: (name, value) pairs in order. Names may repeat, and values may be None.

    Names that are not UTF-8 are as in :class:`Record`.
    """
    if values == ():
        return ()
    pairs = values.items() if isinstance(values, Mapping) else _items("headers", values)
    return [_header(pair) for pair in pairs]


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != _PAIR:
        msg = f"a header must be a (name, value) pair, not {type(pair).__name__}"
        raise InvalidArgument(msg)
    name, value = pair
    return text("a header's name", name, encode=name_bytes), payload(f"the value of header {reprlib.repr(name)}", value)


def timestamp(what: str, value: int) -> int:
    """Check a time in ms since 1970, from 0 to 2^63 - 1."""
    return _whole(what, value, 0, INT64_MAX)


def texts(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Check strings and remove duplicates. ``what`` names one string."""
    return tuple(dict.fromkeys(text(what, value) for value in _items(f"{what} (several)", values)))


def brokers(values: Iterable[int]) -> tuple[int, ...]:
    """Check broker ids and remove duplicates."""
    return tuple(dict.fromkeys(_whole("a broker id", value, 0, INT32_MAX) for value in _items("broker ids", values)))


def offsets_before(values: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Check offsets by partition before which records are deleted. -1 is the high watermark."""
    pairs = _mapping("offsets", values).items()
    return {(tp := partition(key)): _whole(f"the offset of {tp}", value, -1, INT64_MAX) for key, value in pairs}


def config_resource(value: object) -> ConfigResource:
    """Check a resource: a topic, or a broker named by its id."""
    if not isinstance(value, ConfigResource) or not isinstance(value.kind, ConfigKind):
        msg = f"a resource must be ConfigResource.topic(name) or .broker(id), not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    name = text("a resource's name", value.name)
    if value.kind is ConfigKind.TOPIC:
        topic(name)
    elif name and not (name.isascii() and name.isdecimal() and int(name) <= INT32_MAX):
        msg = f"a broker's resource must be named by its id, not {reprlib.repr(name)}"
        raise InvalidArgument(msg)
    return value


def config_resources(values: Iterable[ConfigResource]) -> tuple[ConfigResource, ...]:
    """Check resources and remove duplicates."""
    return tuple(dict.fromkeys(config_resource(value) for value in _items("resources", values)))


def config_changes(
    values: Mapping[ConfigResource, Iterable[ConfigChange]],
) -> dict[ConfigResource, tuple[ConfigChange, ...]]:
    """Check configuration changes by resource. Error texts contain no values: they may be secrets."""
    pairs = _mapping("changes", values).items()
    return {
        (resource := config_resource(key)): tuple(
            _change(resource, change) for change in _items(f"the changes of {resource}", changes)
        )
        for key, changes in pairs
    }


def _change(resource: ConfigResource, change: object) -> ConfigChange:
    if not isinstance(change, ConfigChange) or not isinstance(change.operation, ConfigOperation):
        msg = f"a change of {resource} must be a ConfigChange(key, value, operation), not a {type(change).__name__}"
        raise InvalidArgument(msg)
    key = text(f"a config key of {resource}", change.key)
    if change.operation is ConfigOperation.DELETE:
        if change.value is not None:
            msg = f"{key} of {resource}: DELETE takes no value"
            raise InvalidArgument(msg)
    elif not isinstance(change.value, str):
        msg = f"{key} of {resource}: {change.operation.name} takes a str, not a {type(change.value).__name__}"
        raise InvalidArgument(msg)
    elif not _fits(change.value):
        msg = f"{key} of {resource}: the value must be UTF-8 text of at most {_TEXT_BYTES} bytes"
        raise InvalidArgument(msg)
    return change


def _fits(value: str) -> bool:
    try:
        return len(value.encode()) <= _TEXT_BYTES
    except UnicodeEncodeError:
        return False


def acl_bindings(values: Iterable[AclBinding]) -> tuple[AclBinding, ...]:
    """Check ACLs to create and remove duplicates. UNKNOWN, ANY and MATCH are not allowed."""
    return tuple(dict.fromkeys(_binding(value) for value in _items("ACLs", values)))


def _binding(value: object) -> AclBinding:
    if not isinstance(value, AclBinding):
        msg = f"an ACL must be an AclBinding, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    for what, given in (("name", value.name), ("principal", value.principal), ("host", value.host)):
        text(f"an ACL's {what}", given)
    _acl_numbers(value)
    open_names = [number.name for number in _numbers(value) if number.name in {"UNKNOWN", "ANY", "MATCH"}]
    if open_names:
        msg = f"an ACL to create may leave nothing open, but has {', '.join(open_names)}: {value}"
        raise InvalidArgument(msg)
    return value


def acl_filter(value: object) -> AclFilter:
    """Check a filter of ACLs."""
    if not isinstance(value, AclFilter):
        msg = f"a filter of ACLs must be an AclFilter, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    for what, given in (("name", value.name), ("principal", value.principal), ("host", value.host)):
        if given is not None:
            text(f"a filter's {what}", given)
    _acl_numbers(value)
    return value


def acl_filters(values: Iterable[AclFilter]) -> tuple[AclFilter, ...]:
    """Check filters of ACLs and remove duplicates."""
    return tuple(dict.fromkeys(acl_filter(value) for value in _items("filters of ACLs", values)))


def _numbers(value: AclBinding | AclFilter) -> tuple[OpenEnum, ...]:
    return value.resource_type, value.pattern, value.operation, value.permission


def _acl_numbers(value: AclBinding | AclFilter) -> None:
    kinds = (ResourceType, PatternType, AclOperation, AclPermission)
    for given, kind in zip(_numbers(value), kinds, strict=True):
        if not isinstance(given, kind):
            msg = f"an ACL's {kind.__name__} must be one of that enumeration, not {reprlib.repr(given)}"
            raise InvalidArgument(msg)


def choice(what: str, value: str, allowed: tuple[str, ...]) -> str:
    """Check that ``value`` is one of ``allowed``."""
    if value not in allowed:
        msg = f"{what} must be {' or '.join(repr(option) for option in allowed)}, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return value


def _whole(what: str, value: object, low: int, high: int, of: object = None) -> int:
    """Check a whole number. ``of`` is what it belongs to: its text costs more than this, and only errors need it."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        top = f"2^{high.bit_length()} - 1"
        msg = f"{_named(what, of)} must be a whole number from {low} to {top}, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return value


def _named(what: str, of: object) -> str:
    return what if of is None else f"{what} of {of}"


def _items(what: str, values: object) -> Iterable[Any]:
    # A string is an iterable of its characters, which is never intended here.
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        msg = f"{what} must be a list, set or other iterable, not {reprlib.repr(values)}"
        raise InvalidArgument(msg)
    return values


def _mapping(what: str, values: object) -> Mapping[Any, Any]:
    if not isinstance(values, Mapping):
        msg = f"{what} must be a dict or other mapping, not {reprlib.repr(values)}"
        raise InvalidArgument(msg)
    return values
