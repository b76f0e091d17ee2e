"""Verifies that the target has exactly what the progress says, as confluent-kafka reads it at read_committed."""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

import mirror.client
from mirror.relay.progress.committed import group_of
from tests.campaign.kills.growing_source import GrowingTopic, Record, Truth
from tests.e2e.broker_side import Side
from tests.polling import eventually

SETTLED_WITHIN_S: Final = 90.0
"""How long the coordinator may take to end a transaction whose commit was requested.

A broker that was killed asks itself for the markers while it is still coming up, and again after its request time-out,
which is 30 s.
"""
_SILENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """A partition: its source and its target."""

    source: GrowingTopic
    target_topic: str
    partition: int

    @property
    def truth(self) -> Truth:
        return self.source.truth[self.partition]

    @property
    def target(self) -> tuple[str, int]:
        return self.target_topic, self.partition

    def __str__(self) -> str:
        return f"{self.target_topic}-{self.partition}"


class Verifier:
    """Verifies the copies of one flow."""

    def __init__(self, flow: str, source: Side, target: Side) -> None:
        self._flow: Final = flow
        self._source: Final = source
        self._target: Final = target

    def progress(self, places: list[Place]) -> list[int]:
        """Return the committed progress of each place, without the transactions that killed attempts have left open."""
        return [max(0, self._kept(mirror.client.TopicPartition(*place.target))) for place in places]

    def _kept(self, tp: mirror.client.TopicPartition) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self._target.address,
                "group.id": group_of(self._flow, tp),
                "isolation.level": "read_uncommitted",  # It must not wait for the end of open transactions.
            }
        )
        try:
            found = list[TopicPartition]()

            def asked() -> bool:
                with contextlib.suppress(
                    KafkaException
                ):  # The coordinators of a restarted broker are not available yet.
                    found.extend(consumer.committed([TopicPartition(*tp)], _SILENCE_S))
                return bool(found)

            eventually(asked, within_s=_SILENCE_S, what=f"the progress of {tp}")
            return int(found[0].offset)
        finally:
            consumer.close()

    def ends(self, places: list[Place]) -> list[int]:
        """Return the source's last stable offsets."""
        asked = {
            place: self._source.admin.list_offsets(
                {TopicPartition(place.source.topic, place.partition): OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_COMMITTED,
            )
            for place in places
        }
        return [int(next(iter(asked[place].values())).result(_SILENCE_S).offset) for place in places]

    def check(self, places: list[Place], *, complete: bool) -> list[int]:
        """Verify all places and return their progress. AssertionError where a copy is wrong and remains wrong."""
        until = time.monotonic() + SETTLED_WITHIN_S
        while True:
            progress = self.progress(places)
            wrong = self._wrong(places, progress, complete=complete)
            if not wrong:
                return progress
            assert time.monotonic() < until, "; ".join((*wrong, *self._pending(places)))

    def _wrong(self, places: list[Place], progress: list[int], *, complete: bool) -> list[str]:
        found = read(self._target, [place.target for place in places])
        wrong = []
        for place, at in zip(places, progress, strict=True):
            actual = found[place.target]
            due = {offset: record for offset, record in place.truth.items() if offset < at}
            difference = self._of_compacted(place, due, actual) if place.source.compacted else _of_plain(due, actual)
            if difference:
                wrong.append(f"{place} at progress {at}: {difference}")
        if complete:
            ends = self.ends(places)
            wrong += [
                f"{place}: progress {at}, source end {end}"
                for place, at, end in zip(places, progress, ends, strict=True)
                if at != end
            ]
        return wrong

    def _pending(self, places: list[Place]) -> list[str]:
        """Return the records of transactions that have not ended: they may still become visible."""
        targets = [place.target for place in places]
        stable, whole = read(self._target, targets), read(self._target, targets, isolation="read_uncommitted")
        return [
            f"{place} has {more} records more that are not committed"
            for place in places
            if (more := len(whole[place.target]) - len(stable[place.target]))
        ]

    def _of_compacted(self, place: Place, due: Truth, actual: list[Record]) -> str:
        """Compare a compacted topic, of which unknown records were removed before they were copied."""
        offset_of = {record.serial: offset for offset, record in due.items()}
        copied = [offset_of.get(record.serial, -1) for record in actual]
        if copied != sorted(set(copied)) or copied[:1] == [-1]:
            return f"twice, out of order or too much: source offsets {_around_fall(copied)}"
        if any(due[offset] != record for offset, record in zip(copied, actual, strict=True)):
            return "a record differs"
        left = read(self._source, [(place.source.topic, place.partition)])[place.source.topic, place.partition]
        missing = {offset_of[record.serial] for record in left if record.serial in offset_of} - set(copied)
        return f"missing: source offsets {sorted(missing)[:5]}" if missing else ""


def _of_plain(due: Truth, actual: list[Record]) -> str:
    expected = [record for _, record in sorted(due.items())]
    if actual == expected:
        return ""
    for n, (one, other) in enumerate(zip(actual, expected, strict=False)):
        if one != other:
            return (
                f"record {n} of {len(actual)} (expected {len(expected)}) has serial {one.serial}, not {other.serial}"
                if one.serial != other.serial
                else f"record {n} (serial {one.serial}) differs"
            )
    return f"{len(actual)} records, not {len(expected)}"


def _around_fall(offsets: list[int]) -> str:
    for n, (one, other) in enumerate(itertools.pairwise(offsets)):
        if other <= one:
            return str(offsets[max(0, n - 2) : n + 3])
    return str(offsets[:5])


def read(
    side: Side, partitions: list[tuple[str, int]], *, isolation: str = "read_committed"
) -> Mapping[tuple[str, int], list[Record]]:
    """Read all records of each place in order; the committed ones up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.address,
            "group.id": f"verifier-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # An empty response reports the end of a partition.
            "auto.offset.reset": "earliest",
        }
    )
    found: dict[tuple[str, int], list[Record]] = {tp: [] for tp in partitions}
    open_ones = set(partitions)
    until = time.monotonic() + _SILENCE_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
        while open_ones:
            for message in consumer.consume(5_000, timeout=0.05):
                error = message.error()
                if error is None:
                    found[message.topic() or "", message.partition() or 0].append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard((message.topic() or "", message.partition() or 0))
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise KafkaException(error)
            assert time.monotonic() < until, f"{open_ones} of {side.address} could not be read to the end"
    finally:
        consumer.close()
    return found


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    return Record(message.key(), message.value(), tuple(headers), message.timestamp()[1])
