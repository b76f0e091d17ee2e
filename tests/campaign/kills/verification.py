"""Verifies that the target has what the progress says, as confluent-kafka reads it at read_committed.

In transactions it has exactly that. By sequences it has at least that, and nothing but the source's next records.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

import mirror.client
import mirror.errors
from mirror.relay.progress.committed import group_of, lazy_group_of
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
    """A partition: its source and its target. ``plain``: nothing of it goes in transactions."""

    source: GrowingTopic
    target_topic: str
    partition: int
    plain: bool = False

    @property
    def truth(self) -> Truth:
        return self.source.truth[self.partition]

    @property
    def target(self) -> tuple[str, int]:
        return self.target_topic, self.partition

    def __str__(self) -> str:
        return f"{self.target_topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed progress of a place: the next source offset to copy, and whether the target ends there."""

    offset: int
    exact: bool = True

    def __str__(self) -> str:
        return str(self.offset) if self.exact else f"at least {self.offset}"


class Verifier:
    """Verifies the copies of one flow."""

    def __init__(self, flow: str, source: Side, target: Side) -> None:
        self._flow: Final = flow
        self._source: Final = source
        self._target: Final = target

    def progress(self, places: list[Place]) -> list[Committed]:
        """Return the committed progress of each place, without the transactions that killed attempts have left open."""
        with mirror.client.Admin({"bootstrap.servers": self._target.address}) as admin:
            return [self._committed(admin, mirror.client.TopicPartition(*place.target)) for place in places]

    def _committed(self, admin: mirror.client.Admin, tp: mirror.client.TopicPartition) -> Committed:
        claim, of_claim = self._kept(admin, tp, group_of(self._flow, tp))
        if of_claim.get("way") != "sequences":
            return Committed(max(0, claim))
        lazy, of_lazy = self._kept(admin, tp, lazy_group_of(self._flow, tp))
        counts = of_lazy.get("generation") == of_claim.get("generation")
        return Committed(max(claim, lazy if counts else claim), exact=False)

    def _kept(
        self, admin: mirror.client.Admin, tp: mirror.client.TopicPartition, group: str
    ) -> tuple[int, dict[str, Any]]:
        """Return the offset that the group has, negative if there is none, and its metadata.

        confluent-kafka reads beyond the end of metadata, so these come from the product's client.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self._target.address,
                "group.id": group,
                "isolation.level": "read_uncommitted",  # It must not wait for the end of open transactions.
            }
        )
        found = list[tuple[int, str]]()

        def asked() -> bool:
            # The coordinators of a restarted broker are not available yet.
            with contextlib.suppress(KafkaException, mirror.errors.KafkaError):
                (one,) = consumer.committed([TopicPartition(*tp)], _SILENCE_S)
                own = admin.group_offsets(group, [tp], require_stable=False).get(tp)
                # An attempt that was killed may have sent a commit that is executed between the two.
                if max(-1, one.offset) == (-1 if own is None else own.offset):
                    found.append((one.offset, "" if own is None else own.metadata or ""))
            return bool(found)

        try:
            eventually(asked, within_s=_SILENCE_S, what=f"the progress of {tp}")
        finally:
            consumer.close()
        return found[0][0], json.loads(found[0][1] or "{}")

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

    def check(self, places: list[Place], *, complete: bool) -> list[Committed]:
        """Verify all places and return their progress. AssertionError where a copy is wrong and remains wrong.

        ``complete``: the target must have all that the source has; by sequences the progress may say less.
        """
        until = time.monotonic() + SETTLED_WITHIN_S
        while True:
            progress = self.progress(places)
            wrong = self._wrong(places, progress, complete=complete)
            if not wrong:
                return progress
            assert time.monotonic() < until, "; ".join((*wrong, *self._pending(places)))

    def check_finished(self, places: list[Place]) -> None:
        """Verify after an undisturbed copy: the target must be complete, and the progress must say so."""
        for place, at, end in zip(places, self.check(places, complete=True), self.ends(places), strict=True):
            assert at.offset == end, f"{place}: progress {at}, source end {end}"

    def _wrong(self, places: list[Place], progress: list[Committed], *, complete: bool) -> list[str]:
        targets = [place.target for place in places]
        found = read(self._target, targets)
        wrong = []
        for place, at in zip(places, progress, strict=True):
            if difference := self._difference(place, at, found[place.target]):
                wrong.append(f"{place} at progress {at}: {difference}")
        if complete:
            for place, at, end in zip(places, progress, self.ends(places), strict=True):
                if lack := _lack(place, at, end, found[place.target]):
                    wrong.append(f"{place} at progress {at}: {lack}")
        plain = [(place, at) for place, at in zip(places, progress, strict=True) if place.plain]
        whole = read(self._target, [place.target for place, _ in plain], isolation="read_uncommitted") if plain else {}
        for place, at in plain:
            if at.exact and at.offset > 0:
                wrong.append(f"{place} at progress {at}: it was copied in transactions")
            if difference := prefix_difference(place.truth, at.offset, whole[place.target]):
                wrong.append(f"{place} at progress {at}, read uncommitted: {difference}")
        return wrong

    def _difference(self, place: Place, at: Committed, actual: list[Record]) -> str:
        if not at.exact:
            return prefix_difference(place.truth, at.offset, actual)
        due = {offset: record for offset, record in place.truth.items() if offset < at.offset}
        return self._of_compacted(place, due, actual) if place.source.compacted else _of_plain(due, actual)

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


def _lack(place: Place, at: Committed, end: int, actual: list[Record]) -> str:
    """Return what of the source's records, which end at ``end``, the target does not have."""
    if at.exact:
        return "" if at.offset == end else f"source end {end}"
    due = sum(offset < end for offset in place.truth)
    return "" if len(actual) == due else f"{len(actual)} records, not {due}"


def prefix_difference(truth: Truth, offset: int, actual: list[Record]) -> str:
    """Compare with the source's first records, which have to be all those before ``offset`` at least."""
    least = sum(before < offset for before in truth)
    due = sorted(truth.items())[: max(least, len(actual))]
    return _of_plain(dict(due), actual)


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
