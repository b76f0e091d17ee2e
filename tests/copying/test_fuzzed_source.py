"""A source with malformed responses for some seconds: what was copied by then is right, and the rest is copied later.

A response that can be read but contains wrong values cannot always be detected. So responses with records or offsets
are damaged in their frames only. MIRROR_FUZZ_SEEDS is the number of sources (default 3).
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.copying.pair import TwoClusters
from tests.copying.site import name
from tests.copying.writers import batch_of, made, write_batches
from tests.faults.frames import Seen
from tests.faults.fuzzer import Fuzzer
from tests.faults.proxy import Proxy
from tests.polling import eventually

pytestmark = pytest.mark.brokers

SEEDS: Final = int(os.environ.get("MIRROR_FUZZ_SEEDS", "3"))
PARTITIONS: Final = 3
ANSWERS: Final = 60
"""The number of responses that are changed before the source is healed."""
READING: Final = {
    "request.timeout.ms": 2_000,
    "default.api.timeout.ms": 10_000,
    "max.partition.fetch.bytes": 4_000,
    "socket.connection.setup.timeout.ms": 1_000,
}
_WITH_RECORDS_OR_OFFSETS: Final = {
    Api.FETCH.value.key,
    Api.LIST_OFFSETS.value.key,
    Api.OFFSET_FOR_LEADER_EPOCH.value.key,
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.cluster) for seed in range(1, SEEDS))])
def test_malformed_responses_lose_duplicate_or_reorder_nothing(
    source_cluster: Cluster, target_cluster: Cluster, seed: int
) -> None:
    pair = TwoClusters(source_cluster, target_cluster, name)
    topic = pair.topics(PARTITIONS)
    for partition in range(PARTITIONS):
        batches = [batch_of(made(40, first=10_000 * partition + 40 * n)) for n in range(40)]
        write_batches(pair.source.address, topic, batches, partition)
    fuzzer, lock = Fuzzer(seed), threading.Lock()

    def mangle(seen: Seen, data: bytes) -> bytes:
        with lock:
            if fuzzer.made >= ANSWERS or fuzzer.chance() > 0.3:
                return data
            return fuzzer.frame(data, readable=seen.api_key not in _WITH_RECORDS_OR_OFFSETS)

    with Proxy(source_cluster.bootstrap_servers, keep_bytes=64) as proxy, ThreadPoolExecutor(1) as other:
        ranges = pair.ranges(topic)
        proxy.mangle = mangle
        copying = other.submit(pair.copy, ranges, reading={"bootstrap.servers": proxy.bootstrap_servers, **READING})
        eventually(lambda: fuzzer.made >= ANSWERS or copying.done(), within_s=120, what=f"the fuzzing with {seed}")
        results = copying.result(timeout=120)
        assert fuzzer.made
        proxy.heal()
        for result in results:
            assert result.outcome in {Outcome.COMPLETE, Outcome.FAILED}, result
            assert (result.error is None or not result.error) == (result.outcome is Outcome.COMPLETE)
            assert "\n" not in str(result.error)
            assert "Error:" not in str(result.error), "no unexpected exception"
        for partition, (theirs, ours) in enumerate(pair.both(topic, PARTITIONS)):
            assert ours == theirs[: len(ours)], f"partition {partition} with seed {seed}"
        pair.complete(topic)
        pair.equal(topic, PARTITIONS)
