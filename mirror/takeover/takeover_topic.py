"""The takeover topic: what a flow has taken over from MirrorMaker 2, so that one that starts again is seen.

The topic is compacted, and there only if the flow was taken over. A record holds how far MirrorMaker 2's own topics
went when it did not run: what is behind that, it has written since.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, takeover_topic_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

_log: Final = logging.getLogger(__name__)

_VERSION: Final = 1


class TakeoverKey(NamedTuple):
    """Identifies a source connector whose copies a flow continues."""

    source: str
    """MirrorMaker 2's alias of the source."""
    connector: str
    offsets_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverRecord:
    """What a flow has taken over from one source connector."""

    key: TakeoverKey
    cluster: str | None
    """The name in the configuration of the cluster that has the connector's topics; None: the flow's target."""
    status_topic: str
    """The topic of the states of connectors; empty if it was not found."""
    ends: Mapping[TopicPartition, int]
    """The last stable offsets of the connector's topics at that time."""
    time_ms: int
    """When that was (ms since 1970)."""
    others: bool = False
    """Whether the connector may run, because it copies topics that the flow does not (``--while-it-writes``)."""
    resumed: str = ""
    """What has shown that it copies again; empty as long as nothing has."""


class TakeoverTopic:
    """A flow's takeover topic. It may be used by several threads: each call opens and closes its own clients."""

    def __init__(self, target_options: Mapping[str, object], flow: str) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._topic: Final = FlowTopic(target_options, takeover_topic_of(flow))

    def read(self, timeout_ms: int) -> list[TakeoverRecord]:
        """Return the records; none if there is no such topic. Raises KafkaError."""
        last = {one.key: one.value for one in self._topic.records(Timer(SystemClock(), timeout_ms))}
        found = {key: parse(key, value) for key, value in last.items() if value is not None}
        if unknown := sum(one is None for one in found.values()):
            _log.warning(
                "%s: %d records are not understood, and MirrorMaker 2 is not watched for these; another program writes"
                " to this topic, or a newer version of this one did",
                self._topic.tp.topic,
                unknown,
            )
        return [one for one in found.values() if one is not None]

    def write(self, record: TakeoverRecord, timeout_ms: int) -> None:
        """Write a record. Raises KafkaError."""
        self._write(record.key, encode(record), timeout_ms)

    def remove(self, key: TakeoverKey, timeout_ms: int) -> None:
        """Remove a record. Raises KafkaError."""
        self._write(key, None, timeout_ms)

    def _write(self, key: TakeoverKey, value: bytes | None, timeout_ms: int) -> None:
        for error in self._topic.write({key: KeyValue(encode_key(key), value)}, timeout_ms).values():
            raise KafkaError(
                f"topic {self._topic.tp.topic} (one partition, cleanup.policy = compact): {error}"
            ) from error


def encode_key(key: TakeoverKey) -> bytes:
    """Return ``key`` as JSON."""
    return json.dumps(key._asdict(), separators=(",", ":")).encode()


def encode(record: TakeoverRecord) -> bytes:
    """Return ``record`` as JSON."""
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for tp, end in record.ends.items():
        ends[tp.topic][str(tp.partition)] = end
    fields = {
        "v": _VERSION,
        "time": record.time_ms,
        "on": record.cluster,
        "status": record.status_topic,
        "ends": ends,
        **({"others": True} if record.others else {}),
        **({"resumed": record.resumed} if record.resumed else {}),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse(data: bytes | None, value: bytes | None) -> TakeoverRecord | None:
    """Parse a record's key and value; None for anything else, such as a record of a later version. Pure."""
    key, fields = stored.parse_object(data), stored.parse_object(value)
    names: Sequence[str] = [stored.text(key.get(name)) for name in TakeoverKey._fields]
    time_ms = stored.time_ms(fields.get("time"))
    if fields.get("v") != _VERSION or time_ms is None or not all(names):
        return None
    return TakeoverRecord(
        key=TakeoverKey(*names),
        cluster=stored.text(fields.get("on")) or None,
        status_topic=stored.text(fields.get("status")),
        ends=dict(_ends(fields.get("ends"))),
        time_ms=time_ms,
        others=fields.get("others") is True,
        resumed=stored.text(fields.get("resumed")),
    )


def _ends(value: Any) -> Iterable[tuple[TopicPartition, int]]:
    for topic, partitions in value.items() if isinstance(value, dict) else ():
        for partition, end in partitions.items() if isinstance(partitions, dict) else ():
            if partition.isascii() and partition.isdigit() and (offset := stored.number(end)) is not None:
                yield TopicPartition(topic, int(partition)), offset
