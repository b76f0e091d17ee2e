"""A short round of faults: a copy between two brokers behind proxies, without Spark; see also ``make faults``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from typing import Final

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.campaign.chaos.compare import difference
from tests.campaign.chaos.load import CLIENT_ID, Load
from tests.campaign.chaos.reader import ends, read, transactions_ended
from tests.campaign.measurements.healthy_copy import whole
from tests.e2e.broker_side import Side
from tests.faults.proxy import Action, Fault, On, Proxy
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(240)]

PARTITIONS: Final = 2
RECORDS: Final = 2_000
"""How many records the source has before the first copy."""
MOST_COPIES: Final = 10
TIMES: Final = 2
IN_A_BATCH: Final = 5_000
"""Some byte of the records."""
SOURCE_FAULTS: Final = [
    *(Fault(action=action, api=Api.FETCH, after=IN_A_BATCH, delay_ms=500, times=TIMES) for action in Action),
    # The load's and the copy's.
    Fault(action=Action.CUT, on=On.REQUEST, after=8, times=5),
]
TARGET_FAULTS: Final = [
    Fault(action=action, api=api, on=On.REQUEST if api is Api.PRODUCE else On.ANSWER, after=4, delay_ms=500, times=1)
    for action, api in product(Action, (Api.PRODUCE, Api.END_TXN))
]
TIMEOUTS: Final = {"request.timeout.ms": 2_000, "delivery.timeout.ms": 20_000}


@pytest.fixture
def proxies(source_cluster: Cluster, target_cluster: Cluster) -> Iterator[tuple[Proxy, Proxy]]:
    """In front of the source and of the target."""
    with ExitStack() as stack:
        source, target = (
            stack.enter_context(Proxy(cluster.bootstrap_servers, keep_bytes=64))
            for cluster in (source_cluster, target_cluster)
        )
        yield source, target


def test_copy_has_every_record_once_after_faults_of_all_connections(
    source_cluster: Cluster,
    target_cluster: Cluster,
    proxies: tuple[Proxy, Proxy],
    unique: Callable[[str], str],
) -> None:
    source, target = Side(source_cluster.bootstrap_servers), Side(target_cluster.bootstrap_servers)
    plain, transactional, flow = unique("plain"), unique("transactional"), unique("faults")
    for topic in (plain, transactional):
        source.create(topic, PARTITIONS)
        target.create(topic, PARTITIONS)
    for own in (topic_of(flow), offset_topic_of(flow)):
        target.create(own, cleanup_policy="compact")
    places = [(topic, n) for topic in (plain, transactional) for n in range(PARTITIONS)]

    def copied() -> list[RangeResult]:
        ranges = [
            planned
            for topic in (plain, transactional)
            for planned in whole(source.address, [TopicPartition(topic, n) for n in range(PARTITIONS)], flow, topic)
        ]
        return copy_ranges(
            ranges,
            source_options={"bootstrap.servers": proxies[0].bootstrap_servers, "request.timeout.ms": 2_000},
            target_options={"bootstrap.servers": proxies[1].bootstrap_servers, **TIMEOUTS},
            policy=CopyPolicy(commit_interval_ms=300),
        )

    with Load(proxies[0].bootstrap_servers, 1, {plain: "lz4", transactional: "zstd"}) as load:
        load.write(plain, PARTITIONS, 600)
        load.write_transactions(transactional, PARTITIONS, 300)
        eventually(lambda: sum(ends(source.address, places, committed=True)) > RECORDS, what="the load")
        proxies[0].fault(*SOURCE_FAULTS)
        proxies[1].fault(*TARGET_FAULTS)
        for _ in range(MOST_COPIES):
            copied()
            if not _left(proxies):
                break
        load.stop()
    effects = [
        Counter(fault.action for fault, seen in proxy.injected if seen.client_id != CLIENT_ID) for proxy in proxies
    ]
    assert all(effect[action] for effect in effects for action in Action), effects
    for proxy in proxies:
        proxy.heal()
    eventually(lambda: transactions_ended(source.address, places), within_s=60, what="the end of the load")
    results = copied()
    assert [result.outcome for result in results] == [Outcome.COMPLETE] * len(places), results
    wanted, _ = read(source.address, places, 30)
    actual, _ = read(target.address, places, 30)
    assert {place: difference(wanted[place], actual[place]) for place in places} == dict.fromkeys(places, "")
    assert {place: difference(sent, wanted[place]) for place, sent in load.sent().items()} == dict.fromkeys(
        load.sent(), ""
    )
    assert sum(map(len, wanted.values())) > RECORDS
    assert transactions_ended(target.address, places), "no transaction of the target hangs"


def _left(proxies: tuple[Proxy, Proxy]) -> int:
    """Return how many faults of the copy's own requests have not been injected yet."""
    wanted = Counter({fault: fault.times or 0 for fault in (*SOURCE_FAULTS[:-1], *TARGET_FAULTS)})
    for proxy in proxies:
        wanted.subtract(fault for fault, _ in proxy.injected)
    return sum(count for fault, count in wanted.items() if count > 0)
