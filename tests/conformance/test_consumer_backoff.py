"""Behaviours 25 to 28 (KIP-580, KIP-144) on the wire, the consumer's side: intervals as the proxy sees them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.client import Consumer, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.wire.api import Api
from tests.conformance.conftest import NewConsumer
from tests.conformance.topics import Topics, read
from tests.faults.frames import Seen
from tests.faults.proxy import Proxy
from tests.polling import eventually

pytestmark = pytest.mark.brokers

INITIAL_MS, MAX_MS = 100, 400
LATE_MS = 150
"""What a slow machine may add to each interval: an answer is on its way for some of it."""
OPTIONS = {
    "retry.backoff.ms": INITIAL_MS,
    "retry.backoff.max.ms": MAX_MS,
    "reconnect.backoff.ms": INITIAL_MS,
    "reconnect.backoff.max.ms": MAX_MS,
    "default.api.timeout.ms": 20_000,
    "fetch.max.wait.ms": 20,
}


def in_bounds(times_ms: Sequence[float], first_failures: int = 1) -> None:
    """Each interval is KIP-580's: ``MIN(max, initial * 2**(failures - 1) * uniform(0.8, 1.2))``, and not much more."""
    intervals = [later - earlier for earlier, later in itertools.pairwise(times_ms)]
    assert len(intervals) >= 3
    for failures, interval in enumerate(intervals, start=first_failures):
        doubled = INITIAL_MS * 2 ** (failures - 1)
        # 2 ms: two clocks, in whole ms.
        assert min(MAX_MS, doubled * 0.8) - 2 <= interval <= min(MAX_MS, doubled * 1.2) + LATE_MS, intervals


def _refused_partitions(outer: str, inner: str, code: ErrorCode) -> Callable[[Seen, Any], Any]:
    """Makes every partition of an answer say ``code``; ``outer`` and ``inner`` name kio's fields."""

    def change(_: Seen, body: Any) -> Any:
        topics = [
            replace(topic, **{inner: tuple(replace(part, error_code=code) for part in getattr(topic, inner))})
            for topic in getattr(body, outer)
        ]
        return replace(body, **{outer: tuple(topics)})

    return change


def _refused_group(_: Seen, body: Any) -> Any:
    code = ErrorCode.coordinator_load_in_progress
    return replace(body, groups=tuple(replace(group, error_code=code) for group in body.groups))


@pytest.fixture
def tp(topics: Topics) -> TopicPartition:
    (tp,) = topics.create()
    topics.fill(tp, 10)
    return tp


@pytest.fixture
def consumer(proxy: Proxy, new_consumer: NewConsumer, unique: Any) -> Consumer:
    return new_consumer(proxy.bootstrap_servers, **OPTIONS, **{"group.id": unique("readers")})


CASES: dict[str, tuple[Api, Callable[[Seen, Any], Any], Callable[[Consumer, TopicPartition], object]]] = {
    "list offsets": (
        Api.LIST_OFFSETS,
        _refused_partitions("topics", "partitions", ErrorCode.leader_not_available),
        lambda consumer, tp: consumer.beginning_offsets([tp], timeout_ms=1_200),
    ),
    "commit": (
        Api.OFFSET_COMMIT,
        _refused_partitions("topics", "partitions", ErrorCode.coordinator_load_in_progress),
        lambda consumer, tp: consumer.commit_sync({tp: 3}, timeout_ms=1_200),
    ),
    "committed": (
        Api.OFFSET_FETCH,
        _refused_group,
        lambda consumer, tp: consumer.committed([tp], timeout_ms=1_200),
    ),
    "list topics": (
        Api.METADATA,
        lambda _, body: replace(
            body, topics=tuple(replace(topic, error_code=ErrorCode.leader_not_available) for topic in body.topics)
        ),
        lambda consumer, _: consumer.list_topics(timeout_ms=1_200),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wire_intervals_of_calls_in_bounds(case: str, proxy: Proxy, consumer: Consumer, tp: TopicPartition) -> None:
    api, change, call = CASES[case]
    consumer.committed([tp])
    if api is not Api.METADATA:
        consumer.beginning_offsets([tp])
    proxy.change(api, change)
    since = proxy.now()
    with pytest.raises(KafkaTimeout):
        call(consumer, tp)
    asked = proxy.requests(api, since=since)
    if api is Api.METADATA:  # apart from the updates of what the client knows, which is no topic yet
        asked = [one for one in asked if one.body().topics != ()]
    in_bounds([one.at_ms for one in asked])


def test_wire_intervals_of_metadata_in_bounds(proxy: Proxy, consumer: Consumer, unique: Any) -> None:
    """A topic that is not there is asked for again and again while a call wants it."""
    consumer.list_topics()
    missing = TopicPartition(unique("missing"), 0)
    since = proxy.now()
    with pytest.raises(KafkaTimeout, match="does not exist"):
        consumer.beginning_offsets([missing], timeout_ms=1_200)
    in_bounds([one.at_ms for one in proxy.requests(Api.METADATA, since=since)])


def test_wire_intervals_of_fetch_in_bounds_and_success_resets_attempts(
    proxy: Proxy, consumer: Consumer, tp: TopicPartition
) -> None:
    refuse = _refused_partitions("responses", "partitions", ErrorCode.not_leader_or_follower)
    consumer.beginning_offsets([tp])
    consumer.assign([tp])
    for _ in range(2):
        proxy.change(Api.FETCH, refuse)
        consumer.seek(tp, 0)
        since = proxy.now()
        fetches = functools.partial(_from_the_seek_on, proxy, since)
        eventually(lambda fetches=fetches: len(fetches()) >= 5, what="five fetches")  # type: ignore[misc]
        in_bounds([one.at_ms for one in fetches()][:5])
        proxy.change(Api.FETCH, None)
        assert len(read(consumer, 10)) == 10


def _from_the_seek_on(proxy: Proxy, since: float) -> list[Seen]:
    """The first fetch that tells the new offset, and those that follow: in its session they need not name it again."""
    fetches = proxy.requests(Api.FETCH, since=since)
    start = max((index for index, one in enumerate(fetches) if one.body().topics), default=len(fetches))
    return fetches[start:]


def test_reconnect_backoff_grows_and_resets(proxies: Proxy, trio_topics: Topics, new_consumer: NewConsumer) -> None:
    """Broker 2 hangs up on every connection; the others answer, so that only who wants broker 2 goes there."""
    (tp,) = trio_topics.create(assignment=[[2]])
    # Calls retry at once here: what keeps them waiting is the reconnect backoff alone.
    consumer = new_consumer(proxies.bootstrap_servers, **OPTIONS | {"retry.backoff.ms": 1, "retry.backoff.max.ms": 1})
    for _ in range(2):
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        since = proxies.now()
        proxies.hang_up(2)
        with pytest.raises(KafkaTimeout):
            consumer.beginning_offsets([tp], timeout_ms=1_500)
        opened = [at for broker, at in list(proxies.opened) if broker == 2 and at >= since]
        # The open connection broke first: that is the first failure.
        in_bounds(opened, first_failures=2)
        proxies.accept(2)
