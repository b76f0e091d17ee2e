"""Fences MirrorMaker 2's tasks where they copied exactly once, as Kafka Connect does (KIP-618), and a flow's copies.

A task writes in transactions only, and a new epoch of its id is enough. A copy of the flow may send plain batches with
sequences: these are refused by a partition behind a transaction marker of the new epoch (KIP-98), which an empty
transaction writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mirror.client import Admin, Producer, TopicPartition
from mirror.errors import BrokerError, KafkaError
from mirror.relay.partition.writers.fence import transactional_id as flow_id
from mirror.takeover.places import transactional_id
from mirror.wire.error_codes import TRANSACTIONAL_ID_NOT_FOUND

_PROBED: Final = 32
"""So many ids are asked for at once: tasks are numbered from 0."""
_DESCRIBED: Final = 500
"""So many ids of a flow are asked for at once."""


def known_ids(admin: Admin, group: str, connector: str) -> list[str]:
    """Return the transactional ids of a connector's tasks that the brokers know: none if it was not exactly once.

    Raises KafkaError.
    """
    found: list[str] = []
    while True:
        ids = [transactional_id(group, connector, len(found) + number) for number in range(_PROBED)]
        described = admin.describe_transactions(ids, partial=True)
        for error in described.failed.values():
            if not (isinstance(error, BrokerError) and error.code == TRANSACTIONAL_ID_NOT_FOUND):
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


# Invariant: A late attempt of the flow appends nothing behind what was handed back.
# Test: tests/takeover/test_hand_back_on_fakes.py::test_a_late_attempt_of_the_flow_appends_nothing_behind_it
def fence_flow(
    admin: Admin, options: Mapping[str, object], flow: str, tps: Sequence[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, KafkaError]:
    """Have the leaders of the target partitions ``tps`` refuse what earlier attempts of a flow may send late.

    ``options`` are those of the target. The flow's next attempt fences again, and is not delayed. Partitions whose id
    the brokers do not know never had an attempt. Return the errors of those that may not be fenced.
    """
    failed: dict[TopicPartition, KafkaError] = {}
    ids = {flow_id(flow, tp): tp for tp in tps}
    names = [*ids]
    for first in range(0, len(names), _DESCRIBED):
        described = admin.describe_transactions(names[first : first + _DESCRIBED], partial=True, timeout_ms=timeout_ms)
        for one, error in described.failed.items():
            if not (isinstance(error, BrokerError) and error.code == TRANSACTIONAL_ID_NOT_FOUND):
                failed[ids[one]] = error
        for one in described:
            try:
                _write_marker({**options, "transactional.id": one, "max.block.ms": timeout_ms}, ids[one], timeout_ms)
            except KafkaError as error:
                failed[ids[one]] = error
    return failed


def _write_marker(options: Mapping[str, object], tp: TopicPartition, timeout_ms: int) -> None:
    producer = Producer(options)
    try:
        producer.init_transactions(timeout_ms)
        producer.begin_transaction()
        producer.add_partitions([tp])
        producer.commit_transaction(timeout_ms)
    finally:
        producer.close(timeout_ms=0)
