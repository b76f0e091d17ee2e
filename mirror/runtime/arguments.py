"""What applications hand to Consumer, Producer and Admin, checked in their own thread.

The network thread serves every client of a cluster: it must never meet a value that cannot be sent. Each function
returns the value in the form that the cores take, or raises InvalidArgument. Iterables are gone through once, so that
generators will do.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mirror.cluster.topics import EARLIEST, NewTopic, OffsetAndMetadata, TopicPartition
from mirror.errors import InvalidArgument
from mirror.timing import FOREVER_MS

_INT16_MAX: Final = 2**15 - 1
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_NAME_LENGTH: Final = 249
"""The longest legal topic name (Kafka's ``Topic.validate``); which characters are legal is the broker's to say."""
_TEXT_BYTES: Final = _INT16_MAX
"""What the length of a string holds on the wire."""
_PAIR: Final = 2


def timeout(value: int | None) -> int | None:
    """A ``timeout_ms``: None for the default, else ms from 0 to 2^63 - 1."""
    return None if value is None else _whole("timeout_ms", value, 0, FOREVER_MS)


def topic(value: str) -> str:
    """A topic name of 1 to 249 characters."""
    name = text("a topic name", value)
    if not 1 <= len(name) <= _NAME_LENGTH:
        msg = f"a topic name must have 1 to {_NAME_LENGTH} characters, not {len(name)}: {reprlib.repr(name)}"
        raise InvalidArgument(msg)
    return name


def topics(values: Iterable[str]) -> tuple[str, ...]:
    """Topic names."""
    return tuple(topic(value) for value in _items("topic names", values))


def text(what: str, value: str) -> str:
    """A string that fits a string of the protocol: at most 32767 bytes of UTF-8. ``what`` is its name in errors."""
    if not isinstance(value, str):
        msg = f"{what} must be a str, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        msg = f"{what} must be text that UTF-8 can hold, not {reprlib.repr(value)}"
        raise InvalidArgument(msg) from None
    if size > _TEXT_BYTES:
        msg = f"{what} must have at most {_TEXT_BYTES} bytes, not {size}: {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return value


def partition(value: object) -> TopicPartition:
    """A TopicPartition; a plain ``(topic, partition)`` tuple is made one."""
    if not isinstance(value, tuple) or len(value) != _PAIR:
        msg = f"a partition must be a TopicPartition(topic, number), not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    name, number = value
    return TopicPartition(topic(name), _whole(f"the partition of topic {name!r}", number, 0, _INT32_MAX))


def partitions(values: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Partitions, each once, in the order given."""
    return tuple(dict.fromkeys(partition(value) for value in _items("partitions", values)))


def offset(tp: TopicPartition, value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """An offset of ``tp``, from 0 to 2^63 - 1, with what may come along. A leader epoch of -1 is none, as in Kafka."""
    if not isinstance(value, OffsetAndMetadata):
        return OffsetAndMetadata(_whole(f"the offset of {tp}", value, 0, _INT64_MAX))
    epoch = value.leader_epoch
    if epoch is not None and _whole(f"the leader epoch of {tp}", epoch, -1, _INT32_MAX) < 0:
        epoch = None
    metadata = text(f"the metadata of {tp}", value.metadata)
    return OffsetAndMetadata(_whole(f"the offset of {tp}", value.offset, 0, _INT64_MAX), epoch, metadata)


def offsets(values: Mapping[TopicPartition, int | OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets by partition."""
    pairs = _mapping("offsets", values).items()
    return {(tp := partition(key)): offset(tp, value) for key, value in pairs}


def times(values: Mapping[TopicPartition, int], *, low: int = 0) -> dict[TopicPartition, int]:
    """Times in ms by partition, from 0 to 2^63 - 1; with ``low`` EARLIEST also EARLIEST and LATEST."""
    pairs = _mapping("times", values).items()
    return {(tp := partition(key)): _whole(f"the time of {tp}", value, low, _INT64_MAX) for key, value in pairs}


def times_or_ends(values: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Times in ms by partition, EARLIEST (-2) and LATEST (-1) among them."""
    return times(values, low=EARLIEST)


def partition_totals(values: Mapping[str, int]) -> dict[str, int]:
    """Numbers of partitions by topic."""
    pairs = _mapping("totals", values).items()
    return {topic(name): _whole(f"the partitions of {name!r}", total, 0, _INT32_MAX) for name, total in pairs}


def new_topics(values: Iterable[NewTopic]) -> tuple[NewTopic, ...]:
    """Topics to create; -1 partitions or replicas are the cluster's default."""
    found = tuple(_items("topics", values))
    for one in found:
        if not isinstance(one, NewTopic):
            msg = f"a topic to create must be a NewTopic, not {reprlib.repr(one)}"
            raise InvalidArgument(msg)
        topic(one.name)
        _whole(f"the partitions of {one.name!r}", one.partitions, -1, _INT32_MAX)
        _whole(f"the replication factor of {one.name!r}", one.replication_factor, -1, _INT16_MAX)
        for key, value in _mapping(f"the configs of {one.name!r}", one.configs).items():
            text(f"a config key of {one.name!r}", key)
            text(f"{key} of {one.name!r}", value)
    return found


def choice(what: str, value: str, allowed: tuple[str, ...]) -> str:
    """One of ``allowed``."""
    if value not in allowed:
        msg = f"{what} must be {' or '.join(repr(one) for one in allowed)}, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return value


def _whole(what: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        top = f"2^{high.bit_length()} - 1"
        msg = f"{what} must be a whole number from {low} to {top}, not {reprlib.repr(value)}"
        raise InvalidArgument(msg)
    return value


def _items(what: str, values: object) -> Iterable[Any]:
    # A string goes as an iterable of its characters, which is never what was meant.
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        msg = f"{what} must be a list, set or other iterable, not {reprlib.repr(values)}"
        raise InvalidArgument(msg)
    return values


def _mapping(what: str, values: object) -> Mapping[Any, Any]:
    if not isinstance(values, Mapping):
        msg = f"{what} must be a dict or other mapping, not {reprlib.repr(values)}"
        raise InvalidArgument(msg)
    return values
