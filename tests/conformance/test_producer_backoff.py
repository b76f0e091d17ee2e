"""Behaviour 25 (KIP-580) on the wire, the producer's side: intervals between retries as the proxy sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.client import Producer, TopicPartition
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from mirror.wire.encode import BatchBuilder
from tests.conformance.intervals import INITIAL_MS, MAX_MS, attempts_in_bounds
from tests.conformance.topics import Topics
from tests.faults.changes import refused
from tests.faults.frames import Seen
from tests.faults.proxy import Change, Proxy
from tests.stalls import Stalls

pytestmark = pytest.mark.brokers

OPTIONS = {
    "retry.backoff.ms": INITIAL_MS,
    "retry.backoff.max.ms": MAX_MS,
    "request.timeout.ms": 30_000,
    "delivery.timeout.ms": 60_000,
}
WITHIN_S = 50


def _not_written(_: Seen, body: Any) -> Any:
    """As a broker that does not lead the partition answers: with no offset."""
    topics = [
        replace(
            topic,
            partition_responses=tuple(
                replace(part, error_code=ErrorCode.not_leader_or_follower, base_offset=-1)
                for part in topic.partition_responses
            ),
        )
        for topic in body.responses
    ]
    return replace(body, responses=tuple(topics))


@pytest.fixture
def tp(leveled: Cluster, unique: Callable[[str], str]) -> TopicPartition:
    (tp,) = Topics(leveled.bootstrap_servers, unique).create()
    return tp


@pytest.fixture
def transactional(leveled_proxy: Proxy, unique: Callable[[str], str]) -> Iterator[Producer]:
    servers = leveled_proxy.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("copier"), **OPTIONS})
    yield producer
    leveled_proxy.heal()
    producer.close(timeout_ms=5_000)


def _send(producer: Producer, tp: TopicPartition) -> Future[Any]:
    builder = BatchBuilder("none", 1_000)
    builder.append(None, b"value", (), 0)
    return producer.send_batch(tp, builder.build())


def _in_bounds_until_healed(
    proxy: Proxy, all_stalls: Stalls, api: Api, change: Change, begin: Callable[[], Future[Any]]
) -> None:
    """What ``begin`` asks is refused some times, each later than the last by KIP-580, and then succeeds."""
    proxy.change(api, change)
    since = proxy.now()
    outcome = attempts_in_bounds(
        lambda: proxy.requests(api, since=since), begin, lambda: proxy.change(api, None), all_stalls
    )
    outcome.result(WITHIN_S)


def test_wire_intervals_for_produce_in_bounds(proxy: Proxy, topics: Topics, all_stalls: Stalls) -> None:
    (tp,) = topics.create()
    with Producer({"bootstrap.servers": proxy.bootstrap_servers, **OPTIONS}) as producer:
        _send(producer, tp).result(WITHIN_S)
        for _ in range(2):  # success_resets_attempts
            _in_bounds_until_healed(proxy, all_stalls, Api.PRODUCE, _not_written, lambda: _send(producer, tp))


def test_wire_intervals_for_a_producers_id_in_bounds(proxy: Proxy, topics: Topics, all_stalls: Stalls) -> None:
    (tp,) = topics.create()
    loading = refused(ErrorCode.coordinator_load_in_progress)
    with Producer({"bootstrap.servers": proxy.bootstrap_servers, **OPTIONS}) as producer:
        _in_bounds_until_healed(proxy, all_stalls, Api.INIT_PRODUCER_ID, loading, lambda: _send(producer, tp))


@pytest.mark.parametrize(
    ("api", "change"),
    [
        (Api.INIT_PRODUCER_ID, refused(ErrorCode.coordinator_load_in_progress)),
        (Api.FIND_COORDINATOR, refused(ErrorCode.coordinator_not_available, "coordinators")),
    ],
)
def test_wire_intervals_for_fencing_in_bounds(
    api: Api, change: Change, leveled_proxy: Proxy, transactional: Producer, all_stalls: Stalls
) -> None:
    _in_bounds_until_healed(leveled_proxy, all_stalls, api, change, transactional.init_transactions_async)


def _to_commit(producer: Producer, tp: TopicPartition) -> Callable[[], Future[Any]]:
    _send(producer, tp).result(WITHIN_S)
    return producer.commit_transaction_async


def _to_send(producer: Producer, tp: TopicPartition) -> Callable[[], Future[Any]]:
    return lambda: _send(producer, tp)


def _to_commit_offsets(producer: Producer, tp: TopicPartition) -> Callable[[], Future[Any]]:
    producer.send_offsets_to_transaction({tp: 1}, "others")  # the first ever makes the topic that offsets are kept in
    return lambda: producer.send_offsets_to_transaction_async({tp: 3}, "readers")


CASES: dict[str, tuple[Api, Change, Callable[[Producer, TopicPartition], Callable[[], Future[Any]]], bool]] = {
    "end": (Api.END_TXN, refused(ErrorCode.coordinator_load_in_progress), _to_commit, False),
    "add partitions": (
        Api.ADD_PARTITIONS_TO_TXN,
        refused(
            ErrorCode.coordinator_load_in_progress,
            "results_by_topic_v3_and_below",
            "results_by_partition",
            named="partition_error_code",
        ),
        _to_send,
        True,
    ),
    "add offsets": (
        Api.ADD_OFFSETS_TO_TXN,
        refused(ErrorCode.coordinator_load_in_progress),
        _to_commit_offsets,
        True,
    ),
    "commit offsets": (
        Api.TXN_OFFSET_COMMIT,
        refused(ErrorCode.coordinator_load_in_progress, "topics", "partitions"),
        _to_commit_offsets,
        False,
    ),
    "produce": (Api.PRODUCE, _not_written, _to_send, False),
}
"""Name -> API, what its answers become, what leads to it, and whether version 2 has no such request."""


@pytest.mark.parametrize(
    ("leveled", "case"),
    [
        # Version 2 has no such request (KIP-890); of the others the suite has version 2.
        *(("version_1", case) for case, (*_, only_version_1) in CASES.items() if only_version_1),
        *(("version_2", case) for case, (*_, only_version_1) in CASES.items() if not only_version_1),
        *(
            pytest.param("version_1", case, marks=pytest.mark.cluster)
            for case, (*_, only_version_1) in CASES.items()
            if not only_version_1
        ),
    ],
    indirect=["leveled"],
)
def test_wire_intervals_for_transaction_requests_in_bounds(
    case: str, leveled_proxy: Proxy, transactional: Producer, tp: TopicPartition, all_stalls: Stalls
) -> None:
    api, change, prepare, _ = CASES[case]
    transactional.init_transactions()
    transactional.begin_transaction()
    _in_bounds_until_healed(leveled_proxy, all_stalls, api, change, prepare(transactional, tp))
    if case != "end":
        transactional.commit_transaction()
