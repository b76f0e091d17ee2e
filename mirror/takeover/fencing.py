"""Fences the tasks of MirrorMaker 2 where it copied exactly once, as Kafka Connect does itself (KIP-618)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mirror.client import Admin, Producer
from mirror.errors import BrokerError
from mirror.takeover.places import transactional_id

_NOT_FOUND: Final = 105
"""Kafka's error code (``Errors.TRANSACTIONAL_ID_NOT_FOUND``)."""
_PROBED: Final = 32
"""So many ids are asked for at once: tasks are numbered from 0."""


def known_ids(admin: Admin, group: str, connector: str) -> list[str]:
    """Return the transactional ids of a connector's tasks that the brokers know: none if it was not exactly once.

    Raises KafkaError.
    """
    found: list[str] = []
    while True:
        ids = [transactional_id(group, connector, len(found) + number) for number in range(_PROBED)]
        described = admin.describe_transactions(ids, partial=True)
        for error in described.failed.values():
            if not (isinstance(error, BrokerError) and error.code == _NOT_FOUND):
                raise error
        if not described:
            return found
        # Brokers forget an id that was not used for a week, and so perhaps one in the middle.
        last = max(number for number, one in enumerate(ids) if one in described)
        found += ids[: last + 1]


def fence(options: Mapping[str, object], ids: Iterable[str], timeout_ms: int) -> None:
    """Abort the open transactions of these ids; tasks that used them write nothing more. Raises KafkaError."""
    for one in ids:
        producer = Producer({**options, "transactional.id": one, "max.block.ms": timeout_ms})
        try:
            producer.init_transactions(timeout_ms)
        finally:
            producer.close(timeout_ms=0)
