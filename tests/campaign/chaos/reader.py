"""The independent reader of partitions: confluent-kafka, at read_committed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.campaign.chaos.compare import Record
from tests.campaign.chaos.kafka_side import Place

_CHUNK: Final = 5_000
_CALL_S: Final = 20.0


def read(
    address: str,
    places: Iterable[Place],
    within_s: float,
    enough: Callable[[Place, list[Record]], bool] = lambda _place, _records: True,
    first: Mapping[Place, int] | None = None,
) -> tuple[Mapping[Place, list[Record]], set[Place]]:
    """Read partitions from their beginning, each up to an end at which it has ``enough``, for ``within_s`` at most.

    Returns the records, and the partitions that did not have enough in time. ``first`` are offsets to begin at.
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
    """Return the high watermarks, or the last stable offsets (``committed``). KafkaException where a call fails."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    wanted = {TopicPartition(*place): OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    return [int(found.result(_CALL_S).offset) for found in admin.list_offsets(wanted, isolation_level=level).values()]


def transactions_ended(address: str, places: Iterable[Place]) -> bool:
    """Return whether no transaction is open in any of the partitions."""
    places = list(places)
    try:
        return ends(address, places, committed=True) == ends(address, places, committed=False)
    except KafkaException:
        return False


def all_have_records(address: str, places: Iterable[Place]) -> bool:
    """Return whether all of the partitions have committed records."""
    try:
        return all(ends(address, places, committed=True))
    except KafkaException:
        return False
