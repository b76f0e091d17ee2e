"""Measures what sick target partitions cost healthy ones, and what a quota and a slow follower do to a copy.

    python tests/campaign/measurements/isolation.py [sick] [silent] [trickle]

Each takes a few minutes. Prints the findings; the exit status is 1 where there are any.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests.campaign.measurements.healthy_copy import Pair
from tests.campaign.measurements.quotas import limit_producer
from tests.campaign.measurements.sick_partitions import (
    GOOD_BROKER,
    HEALTHY,
    SILENT,
    STOPPED_BROKER,
    SickPartitions,
    sick_partitions,
)
from tests.faults.proxy import Action, Fault, On, Proxy
from tests.relay.stopping import RUN, stopped_after

SESSION_S: Final = 80
HEALTHY_BYTES: Final = 300_000_000
ROUNDS: Final = 4
DELIVERY_MS: Final = 4_000
SHORT: Final[dict[str, Any]] = {"delivery_timeout_ms": DELIVERY_MS, "request_timeout_ms": 1_500}
MOST_SLOWER: Final = 0.10
QUOTA: Final = 1_000_000
TRICKLE_S: Final = 40


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def rate(results: Sequence[RangeResult]) -> float:
    """Return the MB per second of the healthy partitions, from the beginning to the end of the last one."""
    healthy = results[:HEALTHY]
    return sum(one.bytes for one in healthy) / max(one.seconds for one in healthy) / 1e6


def findings(partitions: SickPartitions, ranges: Sequence[Range], *, exactly_once: bool) -> list[str]:
    """Copy again after the faults have ended, and describe what is wrong."""
    results = partitions.copy(ranges, CopyPolicy(exactly_once=exactly_once))
    wrong = [f"{one.target_topic}-{one.partition}: {one.error}" for one in results if one.outcome != Outcome.COMPLETE]
    return wrong + [text for one in ranges for text in partitions.missing(one, exactly_once=exactly_once)]


def run_sick() -> list[str]:
    """Measure healthy throughput with and without sick partitions, alternating; then end the faults and verify."""
    wrong: list[str] = []
    with sick_partitions(SESSION_S) as partitions:
        partitions.fill(HEALTHY_BYTES, 200)
        for exactly_once in (True, False):
            policy = CopyPolicy(exactly_once=exactly_once)
            partitions.copy(partitions.target()[:HEALTHY], policy)  # To warm up the brokers.
            rounds = [(partitions.target(), partitions.target()) for _ in range(ROUNDS)]
            partitions.inject()
            alone, among = [], []
            for apart, together in rounds:
                alone.append(rate(partitions.copy(apart[:HEALTHY], policy, **SHORT)))
                results = partitions.copy(together, policy, **SHORT)
                among.append(rate(results))
                wrong += [f"{one}" for one in results[:HEALTHY] if one.outcome is not Outcome.COMPLETE or one.expiries]
                for one in results[HEALTHY:]:
                    found = sorted({(e["phase"], e["cause"], e["age_ms"]) for e in one.expiries})
                    say(f"  {one.partition}: {one.outcome.value}, {one.retries} retries, {found}; {one.error}")
            partitions.heal()
            ratio = statistics.median(among) / statistics.median(alone)
            say(f"exactly once {exactly_once}: alone {alone}, among sick {among} MB/s, ratio {ratio:.3f}")
            if ratio < 1 - MOST_SLOWER:
                wrong.append(f"healthy throughput among sick ones is {ratio:.3f} of that without")
            wrong += findings(partitions, rounds[-1][1], exactly_once=exactly_once)
            for pair in rounds:
                for ranges in pair:
                    partitions.side.delete(ranges[0].target_topic)
    return wrong


def run_silent() -> list[str]:
    """Withhold a broker's responses: its batches expire in flight, perhaps written; then end that during a copy."""
    wrong: list[str] = []
    with sick_partitions(SESSION_S) as partitions, Proxy(partitions.cluster.bootstrap_servers, keep_bytes=0) as proxy:
        partitions.fill(20_000_000, 200)
        servers = proxy.bootstrap_servers.split(",")[GOOD_BROKER - 1]
        for exactly_once in (True, False):
            policy = CopyPolicy(exactly_once=exactly_once)
            ranges = [one for one in partitions.target() if one.partition < HEALTHY or one.partition == SILENT]
            proxy.fault(Fault(action=Action.SILENCE, api=Api.PRODUCE, broker=STOPPED_BROKER, on=On.ANSWER))
            sick = partitions.copy(ranges, policy, target=servers, **SHORT)[-1]
            say(f"exactly once {exactly_once}: {sick.outcome.value}, {sick.error}; {sick.expiries}")
            reported = {(one["phase"], one["cause"], one["may_have_been_written"]) for one in sick.expiries}
            if sick.outcome is not Outcome.EXPIRED or reported != {("in flight", "no answer", True)}:
                wrong.append(f"silent: {sick}")
            proxy.heal()
            wrong += findings(partitions, ranges, exactly_once=exactly_once)
    return wrong


def run_trickle() -> list[str]:
    """Throttle a healthy target strongly, with the smallest legal delivery.timeout.ms."""
    wrong: list[str] = []
    with Cluster() as cluster:
        pair = Pair(cluster.bootstrap_servers)
        sources = pair.source(8)
        pair.fill(sources, TRICKLE_S * QUOTA // 4)
        limit_producer(pair.side.address, "trickle", QUOTA)
        for exactly_once in (True, False):
            for request_ms in (1_000, 2_000):
                began = time.time()
                ranges = pair.ranges(sources)
                with stopped_after(TRICKLE_S, cluster.bootstrap_servers, ranges[0].flow):
                    results = pair.copy(
                        ranges,
                        CopyPolicy(exactly_once=exactly_once, run=RUN),
                        client_id="trickle",
                        request_timeout_ms=request_ms,
                        delivery_timeout_ms=request_ms + 100,
                        linger_ms=0,
                    )
                speed = sum(one.bytes for one in results) / (time.time() - began)
                say(f"trickle, exactly once {exactly_once}, {request_ms} ms: {speed / QUOTA:.2f} of the quota")
                wrong += [f"{one}" for one in results if one.outcome is not Outcome.UNFINISHED or one.expiries]
    return wrong


CAMPAIGNS: Final[dict[str, Callable[[], list[str]]]] = {
    "sick": run_sick,
    "silent": run_silent,
    "trickle": run_trickle,
}


def main(names: Sequence[str]) -> int:
    wrong = [f"{name}: {text}" for name in names or CAMPAIGNS for text in CAMPAIGNS[name]()]
    for text in wrong:
        say(f"WRONG {text}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
