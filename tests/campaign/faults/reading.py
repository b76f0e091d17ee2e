"""What is in partitions, as confluent-kafka reads it at read_committed: the campaign's independent reader."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.campaign.faults.compare import Record

Place = tuple[str, int]
_CHUNK: Final = 5_000
_CALL_S: Final = 20.0


def read(
    address: str,
    places: Iterable[Place],
    within_s: float,
    enough: Callable[[Place, list[Record]], bool] = lambda _place, _records: True,
    first: Mapping[Place, int] | None = None,
) -> tuple[Mapping[Place, list[Record]], set[Place]]:
    """All of each partition from its beginning, up to an end at which there is ``enough`` of it; at most ``within_s``.

    Second is what did not come to that. ``first`` are offsets to begin at instead.
    """
    found: dict[Place, list[Record]] = {place: [] for place in places}
    missing = set(found)
    until = time.monotonic() + within_s
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(*place, (first or {}).get(place, 0)) for place in found])
        while missing and time.monotonic() < until:
            for message in consumer.consume(_CHUNK, timeout=0.2):
                place = message.topic() or "", message.partition() or 0
                error = message.error()
                if error is None:
                    found[place].append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF and enough(place, found[place]):
                    missing.discard(place)
    finally:
        consumer.close()
    return found, missing


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()
    return Record(message.key(), message.value(), tuple(headers), message.timestamp()[1])


def ends(address: str, places: Iterable[Place], *, committed: bool) -> list[int]:
    """Where each partition ends, or its first open transaction begins; KafkaException where that cannot be told."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return [int(each.result(_CALL_S).offset) for each in admin.list_offsets(asked, isolation_level=level).values()]


def settled(address: str, places: Iterable[Place]) -> bool:
    """Whether no transaction is open in any of the partitions."""
    places = list(places)
    try:
        return ends(address, places, committed=True) == ends(address, places, committed=False)
    except KafkaException:
        return False


def begun(address: str, places: Iterable[Place]) -> bool:
    """Whether there is something to be read in all of the partitions."""
    try:
        return all(ends(address, places, committed=True))
    except KafkaException:
        return False
