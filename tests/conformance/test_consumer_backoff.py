"""Behaviours 25 to 28 (KIP-580, KIP-144) on the wire, the consumer's side: intervals as the proxy sees them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.client import Consumer, TopicPartition
from mirror.wire.api import Api
from tests.conformance.conftest import NewConsumer
from tests.conformance.intervals import ATTEMPTS, OPTIONS, attempts_in_bounds, in_bounds, waits_between
from tests.conformance.topics import Topics, read
from tests.faults.changes import refused
from tests.faults.frames import Seen
from tests.faults.proxy import Proxy
from tests.polling import eventually
from tests.stalls import Stalls

pytestmark = pytest.mark.brokers

SHORT_WAITS = {"fetch.max.wait.ms": 20}


@pytest.fixture
def tp(topics: Topics) -> TopicPartition:
    (tp,) = topics.create()
    topics.fill(tp, 10)
    return tp


@pytest.fixture
def consumer(proxy: Proxy, new_consumer: NewConsumer, unique: Any) -> Consumer:
    return new_consumer(proxy.bootstrap_servers, **OPTIONS, **SHORT_WAITS, **{"group.id": unique("readers")})


CASES: dict[str, tuple[Api, Callable[[Seen, Any], Any], Callable[[Consumer, TopicPartition], object]]] = {
    "list offsets": (
        Api.LIST_OFFSETS,
        refused(ErrorCode.leader_not_available, "topics", "partitions"),
        lambda consumer, tp: consumer.beginning_offsets([tp]),
    ),
    "commit": (
        Api.OFFSET_COMMIT,
        refused(ErrorCode.coordinator_load_in_progress, "topics", "partitions"),
        lambda consumer, tp: consumer.commit_sync({tp: 3}),
    ),
    "committed": (
        Api.OFFSET_FETCH,
        refused(ErrorCode.coordinator_load_in_progress, "groups"),
        lambda consumer, tp: consumer.committed([tp]),
    ),
    "list topics": (
        Api.METADATA,
        refused(ErrorCode.leader_not_available, "topics"),
        lambda consumer, _: consumer.list_topics(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wire_intervals_of_calls_in_bounds(
    case: str, proxy: Proxy, consumer: Consumer, tp: TopicPartition, all_stalls: Stalls
) -> None:
    api, change, call = CASES[case]
    consumer.committed([tp])
    if api is not Api.METADATA:
        consumer.beginning_offsets([tp])
    proxy.change(api, change)
    since = proxy.now()

    def asked() -> list[Seen]:
        found = proxy.requests(api, since=since)
        # Apart from the updates of what the client knows, which is no topic yet.
        return found if api is not Api.METADATA else [one for one in found if one.body().topics != ()]

    with ThreadPoolExecutor(1) as other:
        outcome = attempts_in_bounds(
            asked, lambda: other.submit(call, consumer, tp), lambda: proxy.change(api, None), all_stalls
        )
    outcome.result(0)


def test_wire_intervals_of_metadata_in_bounds(
    proxy: Proxy, consumer: Consumer, topics: Topics, unique: Any, all_stalls: Stalls
) -> None:
    """A topic that is not there is asked for again and again while a call wants it."""
    consumer.list_topics()
    missing = TopicPartition(unique("missing"), 0)
    with ThreadPoolExecutor(1) as other:
        outcome = attempts_in_bounds(
            lambda: [
                one
                for one in proxy.requests(Api.METADATA)
                if missing.topic in {topic.name for topic in one.body().topics or ()}
            ],
            lambda: other.submit(consumer.beginning_offsets, [missing]),
            lambda: topics.create_named(missing.topic),
            all_stalls,
        )
    assert outcome.result(0) == {missing: 0}


def test_wire_intervals_of_fetch_in_bounds_and_success_resets_attempts(
    proxy: Proxy, consumer: Consumer, tp: TopicPartition, all_stalls: Stalls
) -> None:
    refuse = refused(ErrorCode.not_leader_or_follower, "responses", "partitions")
    consumer.beginning_offsets([tp])
    consumer.assign([tp])
    for _ in range(2):
        # Until the session knows another offset, the fetch after the seek would not name the topic again.
        eventually(lambda: _offset_in_session(proxy) == 10, what="a fetch from the log's end")
        proxy.change(Api.FETCH, refuse)
        since = proxy.now()  # the network thread may send the fetch of the new offset before seek() returns
        consumer.seek(tp, 0)
        fetches = functools.partial(_from_the_seek_on, proxy, since)
        eventually(lambda fetches=fetches: len(fetches()) >= ATTEMPTS, what=f"{ATTEMPTS} fetches")  # type: ignore[misc]
        in_bounds(waits_between(fetches()[:ATTEMPTS]), all_stalls)
        proxy.change(Api.FETCH, None)
        assert len(read(consumer, 10)) == 10


def _offset_in_session(proxy: Proxy) -> int | None:
    """Return the fetch offset of the last request that named the topic."""
    topics = [one.body().topics for one in proxy.requests(Api.FETCH) if one.body().topics]
    return int(topics[-1][0].partitions[0].fetch_offset) if topics else None


def _from_the_seek_on(proxy: Proxy, since: float) -> list[Seen]:
    """The first fetch that tells the new offset, and those that follow: in its session they need not name it again."""
    fetches = proxy.requests(Api.FETCH, since=since)
    start = max((index for index, one in enumerate(fetches) if one.body().topics), default=len(fetches))
    return fetches[start:]


def test_reconnect_backoff_grows_and_resets(
    proxies: Proxy, trio_topics: Topics, new_consumer: NewConsumer, all_stalls: Stalls
) -> None:
    """Broker 2 hangs up on every connection; the others answer, so that only who wants broker 2 goes there."""
    (tp,) = trio_topics.create(assignment=[[2]])
    # Calls retry at once here: what keeps them waiting is the reconnect backoff alone.
    consumer = new_consumer(proxies.bootstrap_servers, **OPTIONS | {"retry.backoff.ms": 1, "retry.backoff.max.ms": 1})
    for _ in range(2):
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        since = proxies.now()
        proxies.hang_up(2)
        opened = functools.partial(_opened, proxies, since)
        with ThreadPoolExecutor(1) as other:
            outcome = other.submit(consumer.beginning_offsets, [tp])
            try:
                eventually(lambda opened=opened: len(opened()) >= ATTEMPTS, what=f"{ATTEMPTS} connections")  # type: ignore[misc]
            finally:
                proxies.accept(2)
        # The open connection broke first: that is the first failure.
        in_bounds(list(itertools.pairwise(opened()[:ATTEMPTS])), all_stalls, first_failures=2)
        assert outcome.result(0) == {tp: 0}


def _opened(proxies: Proxy, since: float) -> list[float]:
    """When broker 2 was connected to."""
    return [at for broker, at in list(proxies.opened) if broker == 2 and at >= since]
