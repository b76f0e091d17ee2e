"""The records of a cluster's registry of producer ids, and what they say together. Pure.

The registry is a compacted topic with one partition, on each cluster that flows with ``origin = "local"`` connect. Its
keys and values are JSON: who writes under a producer id, where each log ended when the registry began, which registry
of its source a flow reads, and up to where a flow copies the records of all producers of a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.flow_topic import KeyValue
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch

REGISTRY_TOPIC: Final = "mirror-producers.internal"
_PRODUCER: Final = "producer"
_LOG_END: Final = "log-end"
_BEGINNING: Final = "beginning"
_SOURCE: Final = "source-registry"
_WHOLE: Final = "copied-whole"


class LogKey(NamedTuple):
    """The log of a partition: a topic that is created again has other logs."""

    topic_id: str
    """The topic's name on brokers without topic ids."""
    partition: int

    @classmethod
    def of(cls, tp: TopicPartition, topic_id: str) -> LogKey:
        """Return the log of ``tp``; ``topic_id`` is empty on brokers without topic ids."""
        return cls(topic_id or tp.topic, tp.partition)


class SourceRegistry(NamedTuple):
    """The registry that a flow reads on its source."""

    cluster_id: str
    topic_id: str
    offset: int = 0
    """Up to which the flow knows it."""
    leader_epoch: int = -1
    """That its leader had then; -1 if that is not known."""


# Invariant: Of several processes that begin a registry the log ends of the first one count, and nothing is guessed
#   about records in front of these.
# Test: tests/relay/origin/test_records.py::test_the_log_ends_of_the_process_that_began_first_count
class Registry:
    """What the records of a registry say: each record that is added replaces an earlier one of its key."""

    def __init__(self, flow: str = "") -> None:
        """``flow`` is that of :attr:`ids_of_flow` and :attr:`whole`."""
        self._flow: Final = flow
        self.producer_ids: set[int] = set()
        """Under which flows write."""
        self.ids_of_flow: set[int] = set()
        """Those of one flow."""
        self.sources: dict[str, SourceRegistry] = {}
        """The registries that flows read on their sources, by flow."""
        self.whole: dict[LogKey, int] = {}
        """Up to where the flow copies all records of each log: the other cluster has lost its own records of it."""
        self._log_ends: dict[str, dict[LogKey, int]] = {}
        self._beginning: str | None = None

    @property
    def has_begun(self) -> bool:
        """Whether producer ids may be registered: where the logs ended before that is written."""
        return self._beginning is not None

    @property
    def log_ends(self) -> Mapping[LogKey, int]:
        """Where each log ended when the registry began; a log without an entry is younger, or was empty."""
        return {} if self._beginning is None else self._log_ends.get(self._beginning, {})

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add a record of the topic, in order. One that is not understood is ignored: it is of a later version.

        Several processes may have begun the registry at the same time. The first one has: nothing was registered before
        it had written all log ends, but perhaps before another one looked them up.
        """
        name, fields = stored.parse_object(key), stored.parse_object(value)
        producer_id, partition = stored.number(name.get(_PRODUCER)), stored.number(name.get("partition"))
        topic_id, flow = stored.text(name.get(_LOG_END)), stored.text(name.get(_SOURCE))
        beginning, whole = stored.text(name.get(_BEGINNING)), stored.text(name.get(_WHOLE))
        if producer_id is not None:
            self.producer_ids.add(producer_id)
            if self._flow and stored.text(fields.get("flow")) == self._flow:
                self.ids_of_flow.add(producer_id)
        elif topic_id and partition is not None:
            log_ends = self._log_ends.setdefault(beginning, {})
            log_ends[LogKey(topic_id, partition)] = stored.number(fields.get("offset")) or 0
        elif flow and value is None:
            self.sources.pop(flow, None)
        elif flow:
            epoch = stored.number(fields.get("leader-epoch"))
            self.sources[flow] = SourceRegistry(
                stored.text(fields.get("cluster")),
                stored.text(fields.get("topic-id")),
                stored.number(fields.get("offset")) or 0,
                -1 if epoch is None else epoch,
            )
        elif whole and partition is not None:
            self._add_whole(whole, LogKey(stored.text(name.get("topic-id")), partition), value, fields)
        elif beginning and self._beginning is None:
            self._beginning = beginning

    def _add_whole(self, flow: str, log: LogKey, value: bytes | None, fields: Mapping[str, Any]) -> None:
        if flow != self._flow:
            return
        if value is None:
            self.whole.pop(log, None)
        else:
            self.whole[log] = stored.number(fields.get("offset")) or 0


def unknown_origin(tp: TopicPartition, known_from: int) -> str:
    """Return the error of a partition whose records are to be read from before ``known_from``."""
    return (
        f"origin-unknown: {tp} has records from before {REGISTRY_TOPIC} began (offsets below {known_from}), and nothing"
        ' says who wrote them: set origin-from to "earliest" if no flow or other tool has written to this topic so far,'
        ' or to "registry" to leave them out'
    )


def producer_records(producer_ids: Iterable[int], flow: str, unix_ms: int) -> dict[int, KeyValue]:
    """Return the records that register ``producer_ids`` for ``flow``, by producer id."""
    return {id_: _record({_PRODUCER: id_}, {"flow": flow, "ms": unix_ms}) for id_ in producer_ids}


def log_end_records(beginning: str, log_ends: Mapping[LogKey, int]) -> list[KeyValue]:
    """Return the records that say where the logs end; :func:`began_record` follows once they are acknowledged.

    ``beginning`` is a text that no other process uses.
    """
    return [
        _record({_LOG_END: key.topic_id, "partition": key.partition, _BEGINNING: beginning}, {"offset": offset})
        for key, offset in log_ends.items()
    ]


def began_record(beginning: str, unix_ms: int) -> KeyValue:
    """Return the record that begins the registry, unless another process has begun it before."""
    return _record({_BEGINNING: beginning}, {"ms": unix_ms})


def source_record(flow: str, source: SourceRegistry) -> KeyValue:
    """Return the record of the registry that ``flow`` reads on its source; it is written on the flow's target."""
    fields = {"cluster": source.cluster_id, "topic-id": source.topic_id, "offset": source.offset}
    return _record({_SOURCE: flow}, {**fields, "leader-epoch": source.leader_epoch})


def source_removal(flow: str) -> KeyValue:
    """Return the record that removes :func:`source_record`."""
    return source_record(flow, SourceRegistry("", ""))._replace(value=None)


def whole_record(flow: str, log: LogKey, offset: int) -> KeyValue:
    """Return the record that ``flow`` copies all of ``log`` up to ``offset``; it is written on the flow's source."""
    return _record({_WHOLE: flow, "topic-id": log.topic_id, "partition": log.partition}, {"offset": offset})


def whole_removal(flow: str, log: LogKey) -> KeyValue:
    """Return the record that removes :func:`whole_record`."""
    return whole_record(flow, log, 0)._replace(value=None)


def _record(key: Mapping[str, Any], value: Mapping[str, Any]) -> KeyValue:
    return KeyValue(*(json.dumps(part, separators=(",", ":"), sort_keys=True).encode() for part in (key, value)))


class Origins:
    """Decides which batches of a cluster were produced there, and not written by a flow."""

    def __init__(self, origin_from: str, flow: str = "") -> None:
        """``origin_from``: as of :class:`.CopyPolicy`; ``flow``: whose :attr:`Registry.whole` counts."""
        self._origin_from: Final = origin_from
        self._local: Final[set[int]] = set()
        self.registry: Final = Registry(flow)

    def undecided(self, log: LogKey, batches: Iterable[AnyBatch]) -> set[int]:
        """Return the producer ids of ``batches`` that the registry, as it was last read, says nothing about.

        Only a batch of records that was appended since the registry began shows that a flow has registered its id. The
        markers of a transaction without batches (a fence) are appended before, and so are older batches of an id that
        its transactional id keeps.
        """
        known_from = max(self.registry.log_ends.get(log, 0), self.registry.whole.get(log, 0))
        ids = {_deciding_id(batch) for batch in batches if batch.base_offset >= known_from}
        return {id_ for id_ in ids if id_ >= 0} - self.registry.producer_ids - self._local

    # Invariant: A producer id is local only once the registry was read to its end after a batch under it was: its
    #   registration would be there.
    # Test: tests/relay/origin/test_records.py::test_an_id_that_is_registered_while_it_is_decided_is_not_local
    # Test: tests/copying/
    #   test_forgotten_local_origin.py::test_nothing_comes_back_and_nothing_is_lost_once_the_producers_are_forgotten
    def decide(self, producer_ids: Iterable[int]) -> None:
        """Take what is not registered for local: the registry was read to its end after batches under them were.

        A flow registers a producer id before its first batch, and brokers never assign an id twice.
        """
        self._local.update(set(producer_ids) - self.registry.producer_ids)

    def unknown_end(self, log: LogKey) -> int:
        """Return from which offset the origin of batches is known; 0 if the flow says what to do with earlier ones."""
        end = self.registry.log_ends.get(log, 0)
        return 0 if self._origin_from or end <= self.registry.whole.get(log, 0) else end

    # Invariant: What a flow is to copy whole is copied, of all producers, and nothing behind it is.
    # Test: tests/relay/origin/test_records.py::test_a_log_that_is_copied_whole_is_local_up_to_that_offset
    # Test: tests/switch/failback/
    #   test_rebuild_on_fakes.py::test_a_topic_that_was_lost_comes_back_whole_and_nothing_is_doubled
    def is_local(self, log: LogKey, batch: AnyBatch) -> bool:
        """Whether ``batch``, no marker, counts as produced on the cluster. Its producer id must have been decided."""
        if batch.base_offset < self.registry.whole.get(log, 0):
            return True
        if batch.base_offset < self.registry.log_ends.get(log, 0):
            return self._origin_from == "earliest"
        producer_id = _deciding_id(batch)
        return producer_id < 0 or producer_id in self._local


def _deciding_id(batch: AnyBatch) -> int:
    """Return the producer id on which the origin of ``batch`` depends, -1 if there is none."""
    return -1 if isinstance(batch, MessageSet) or batch.is_control else batch.producer_id
