"""Leaders that move, die and come back shorter, on three real brokers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mirror.client import Consumer, TopicPartition
from mirror.errors import LogTruncated
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.probe import alive_brokers
from mirror.wire.api import Api
from tests.conformance.conftest import NewConsumer
from tests.conformance.topics import Topics, read
from tests.faults.proxy import Proxy
from tests.polling import eventually

pytestmark = pytest.mark.brokers

LONG_BACKOFF_MS = 20_000
OPTIONS = {"default.api.timeout.ms": 60_000, "request.timeout.ms": 2_000, "fetch.max.wait.ms": 100}


def numbers(found: list[tuple[int, bytes]]) -> list[int]:
    """The records' values; their offsets must be in step with them."""
    assert [offset for offset, _ in found] == [int(value) for _, value in found]
    return [offset for offset, _ in found]


@pytest.fixture
def whole(trio: Cluster) -> Iterator[Cluster]:
    """The three brokers, which the test may pause and kill; all are up again afterwards."""
    yield trio
    for broker in (1, 2, 3):
        if broker in trio.pids:
            trio.resume(broker)
        else:
            trio.restart(broker)
    port = int(trio.bootstrap_servers.split(",")[0].rpartition(":")[2])
    eventually(lambda: alive_brokers(port) == {1, 2, 3}, within_s=60, what="all are back")


def test_new_leader_skips_backoff(proxies: Proxy, trio_topics: Topics, new_consumer: NewConsumer) -> None:
    """The old leader names the new one in its refusal (KIP-951): the next request goes there at once."""
    (tp,) = trio_topics.create(assignment=[[1, 2]])
    trio_topics.fill(tp, 100)
    backoff = {"retry.backoff.ms": LONG_BACKOFF_MS, "retry.backoff.max.ms": LONG_BACKOFF_MS}
    # What a slow broker answers late is no failure here: it would be followed by a backoff of that length.
    consumer = new_consumer(proxies.bootstrap_servers, **OPTIONS | backoff | {"request.timeout.ms": 30_000})
    consumer.assign([tp])
    assert numbers(read(consumer, 100)) == list(range(100))

    trio_topics.move_leader(tp, [2, 1])
    eventually(lambda: trio_topics.leader(tp) == 2, what="broker 2 leads")
    trio_topics.fill(tp, 100, first=100)
    assert numbers(read(consumer, 100)) == list(range(100, 200))
    refused_ms = proxies.requests(Api.FETCH, broker=1)[-1].answered_ms
    # The position is validated first. A new leader that does not lead yet refuses that, and a backoff follows.
    first_at_new = proxies.requests(Api.OFFSET_FOR_LEADER_EPOCH, broker=2)[0].at_ms
    assert first_at_new - refused_ms < LONG_BACKOFF_MS / 2


def test_reading_goes_on_when_the_leader_dies(whole: Cluster, trio_topics: Topics, new_consumer: NewConsumer) -> None:
    """Nothing is lost and nothing comes twice, with a producer that goes on all the time."""
    (tp,) = trio_topics.create(assignment=[[1, 2, 3]], config={"min.insync.replicas": "2"})
    consumer = new_consumer(whole.bootstrap_servers, **OPTIONS)
    consumer.assign([tp])
    trio_topics.fill(tp, 500)
    found = read(consumer, 100)
    with _filling(trio_topics, tp, first=500, count=2_500) as producing:
        found += read(consumer, 100)
        whole.kill(1)
        found += read(consumer, 3_000 - len(found))
        producing.join(120)
    assert numbers(found) == list(range(3_000))
    assert consumer.position(tp) == 3_000
    assert consumer.poll(timeout_ms=200) == []
    assert trio_topics.leader(tp) in {2, 3}


class _filling:  # noqa: N801 - reads as what it does
    """A thread that writes records while the block runs."""

    def __init__(self, topics: Topics, tp: TopicPartition, *, first: int, count: int) -> None:
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._fill, args=(topics, tp, first, count), daemon=True)

    def _fill(self, topics: Topics, tp: TopicPartition, first: int, count: int) -> None:
        try:
            # In portions, so that some are written before, some during and some after the election.
            for start in range(first, first + count, 500):
                topics.fill(tp, 500, first=start, acks="all", enable_idempotence=True)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's own thread
            self._failed.append(error)

    def __enter__(self) -> threading.Thread:
        self._thread.start()
        return self._thread

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)
        if self._failed:
            raise self._failed[0]


def test_a_follower_in_our_rack_is_read_from(proxies: Proxy, trio_topics: Topics, new_consumer: NewConsumer) -> None:
    (tp,) = trio_topics.create(assignment=[[1, 3]])
    trio_topics.fill(tp, 100, acks="all")
    consumer = new_consumer(proxies.bootstrap_servers, **OPTIONS | {"client.rack": "r3"})
    consumer.assign([tp])
    assert numbers(read(consumer, 100)) == list(range(100))
    trio_topics.fill(tp, 100, first=100, acks="all")
    assert numbers(read(consumer, 100)) == list(range(100, 200))
    eventually(lambda: len(proxies.requests(Api.FETCH, broker=3)) >= 3, what="fetches from the follower")
    # The leader is not asked again while the follower serves.
    assert len(proxies.requests(Api.FETCH, broker=1)) <= 2
    # A follower that is gone costs the way back to the leader, which may well send us there again.
    since = proxies.now()
    proxies.refuse(3)
    eventually(lambda: proxies.requests(Api.FETCH, broker=1, since=since), what="the leader is asked again")
    proxies.accept(3)
    trio_topics.fill(tp, 100, first=200, acks="all")
    assert numbers(read(consumer, 100)) == list(range(200, 300))


def test_a_log_that_came_back_shorter_is_reported_not_skipped(
    whole: Cluster, unique: Callable[[str], str], new_consumer: NewConsumer
) -> None:
    """Unclean election (KIP-320): records that were read are gone, and the position lies behind the new log's end."""
    unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    # By way of broker 3: the other two will stand still.
    topics = Topics(whole.bootstrap_servers.split(",")[2], unique)
    (tp,) = topics.create(assignment=[[1, 2]], config=unclean)
    topics.fill(tp, 10, acks="all")
    consumer = new_consumer(whole.bootstrap_servers, **OPTIONS)
    consumer.assign([tp])
    whole.pause(2)
    eventually(lambda: topics.in_sync(tp) == [1], within_s=60, what="broker 2 falls behind")
    topics.fill(tp, 10, first=10, acks=1)
    assert numbers(read(consumer, 20)) == list(range(20))
    whole.pause(1)
    whole.resume(2)
    eventually(lambda: topics.leader(tp) == 2, within_s=60, what="broker 2 leads, uncleanly")

    error = _first_error(consumer)
    assert isinstance(error, LogTruncated)
    assert error.diverging_offset == 10
    assert str(tp) in str(error)
    assert consumer.position(tp) == 20
    # Not skipped: nothing comes until the application decides where to go on.
    topics.fill(tp, 5, first=10, acks=1)
    assert consumer.poll(timeout_ms=300) == []
    consumer.seek(tp, 10)
    assert numbers(read(consumer, 5)) == list(range(10, 15))


def _first_error(consumer: Consumer, within_s: float = 60.0) -> object:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        for fetched in consumer.poll(timeout_ms=500):
            assert fetched.error is not None, f"records instead of an error: {fetched}"
            return fetched.error
    return None
