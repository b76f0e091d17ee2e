"""Fetch sessions (KIP-227) and what a poll gives, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mirror.client import Consumer, TopicPartition
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.conformance.conftest import NewConsumer
from tests.conformance.timed_calls import FINAL_EPOCH
from tests.conformance.topics import Topics, read
from tests.faults.frames import Seen
from tests.faults.proxy import Proxy
from tests.polling import eventually

pytestmark = pytest.mark.brokers

MANY = 200
NEW_SESSION = 0


@pytest.fixture(scope="module")
def many(broker: Cluster) -> list[TopicPartition]:
    """200 empty partitions."""
    return Topics(broker.bootstrap_servers, lambda name: f"{name}-many").create(MANY)


@pytest.fixture
def consumer(proxy: Proxy, new_consumer: NewConsumer) -> Consumer:
    return new_consumer(proxy.bootstrap_servers, **{"default.api.timeout.ms": 60_000, "fetch.max.wait.ms": 50})


def partitions(seen: Seen, field: str = "topics") -> list[int]:
    """The partitions that a Fetch names, or forgets."""
    return [getattr(part, "partition", part) for topic in getattr(seen.body(), field) for part in topic.partitions]


def steady(proxy: Proxy) -> list[Seen]:
    """Wait for two more fetches; those."""
    since = proxy.now()
    eventually(lambda: len(proxy.requests(Api.FETCH, since=since)) >= 2, what="two more fetches")
    return proxy.requests(Api.FETCH, since=since)[:2]


def settle(proxy: Proxy, consumer: Consumer) -> None:
    """Until fetches name nothing any more."""
    eventually(lambda: consumer.poll(0) == [] and not partitions(steady(proxy)[-1]), what="small fetches")


def test_a_session_says_only_what_changed(
    proxy: Proxy, consumer: Consumer, many: list[TopicPartition], topics: Topics
) -> None:
    consumer.assign(many)
    settle(proxy, consumer)
    fetches = proxy.requests(Api.FETCH)
    full = next(one for one in fetches if len(partitions(one)) == MANY)
    small = steady(proxy)[-1]
    assert len(small.frame) < 100 < len(full.frame) / 20
    assert small.body().session_id != 0
    assert small.body().session_epoch > 0

    since = proxy.now()
    topics.fill(many[7], 3)
    assert [value for _, value in read(consumer, 3)] == [b"0", b"1", b"2"]
    settle(proxy, consumer)
    changed = {part for one in proxy.requests(Api.FETCH, since=since) for part in partitions(one)}
    assert changed == {7}


def test_paused_partitions_are_forgotten_and_come_back(
    proxy: Proxy, consumer: Consumer, many: list[TopicPartition]
) -> None:
    consumer.assign(many)
    settle(proxy, consumer)
    since = proxy.now()
    consumer.pause(many[:5])
    eventually(lambda: _all(proxy, since, "forgotten_topics_data") == [0, 1, 2, 3, 4], what="they are forgotten")
    since = proxy.now()
    consumer.resume(many[:5])
    eventually(lambda: _all(proxy, since, "topics") == [0, 1, 2, 3, 4], what="they are wanted again")
    assert _all(proxy, since, "forgotten_topics_data") == []


def _all(proxy: Proxy, since: float, field: str) -> list[int]:
    return sorted(part for one in proxy.requests(Api.FETCH, since=since) for part in partitions(one, field))


def test_closing_ends_the_session(proxy: Proxy, consumer: Consumer, many: list[TopicPartition]) -> None:
    consumer.assign(many[:1])
    settle(proxy, consumer)
    session = proxy.requests(Api.FETCH)[-1].body().session_id
    consumer.close()
    last = proxy.requests(Api.FETCH)[-1].body()
    assert (last.session_id, last.session_epoch) == (session, FINAL_EPOCH)


def test_a_forgotten_session_costs_one_full_fetch(proxy: Proxy, consumer: Consumer, topics: Topics) -> None:
    """The session is ended behind the consumer's back, as when the broker evicts it or restarts."""
    tps = topics.create(20)
    consumer.assign(tps)
    settle(proxy, consumer)
    session = proxy.requests(Api.FETCH)[-1].body().session_id
    proxy.change(Api.FETCH, _session_not_found())
    since = proxy.now()
    eventually(lambda: _full(proxy, since), what="a full fetch")
    settle(proxy, consumer)
    assert proxy.requests(Api.FETCH)[-1].body().session_id not in {0, session}
    assert len(_full(proxy, since)) == 1
    topics.fill(tps[3], 1)
    assert read(consumer, 1) == [(0, b"0")]


def _full(proxy: Proxy, since: float) -> list[Seen]:
    return [one for one in proxy.requests(Api.FETCH, since=since) if one.body().session_epoch == NEW_SESSION]


def _session_not_found() -> Callable[[Seen, Any], Any]:
    """The next answer alone says error 70."""
    result: list[None] = []

    def change(_: Seen, body: Any) -> Any:
        if result:
            return body
        result.append(None)
        return replace(body, error_code=ErrorCode.fetch_session_id_not_found, responses=())

    return change


def test_reading_goes_on_after_a_restart(broker: Cluster, proxy: Proxy, consumer: Consumer, topics: Topics) -> None:
    (tp,) = topics.create()
    topics.fill(tp, 50)
    consumer.assign([tp])
    first = read(consumer, 50)
    since = proxy.now()
    broker.restart(1)
    topics.fill(tp, 50, first=50)
    assert first + read(consumer, 50) == [(number, str(number).encode()) for number in range(100)]
    assert _full(proxy, since)
