"""One run of the idempotent producer: load, one kind of fault repeatedly, and the verification."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.client import Producer
from mirror.errors import DeliveryTimeout
from tests.campaign.soak.cluster import BrokerFault, SoakCluster
from tests.campaign.soak.load import Load, Sent
from tests.campaign.soak.verification import expiry_findings, log_findings, percentile, read_logs
from tests.stalls import Stalls, now_ms

DELIVERY_MS: Final = 12_000
REQUEST_MS: Final = 5_000
OPTIONS: Final = {"delivery.timeout.ms": DELIVERY_MS, "request.timeout.ms": REQUEST_MS, "ack.timeout.ms": 2_000}
HEALTHY: Final = (4, 5)
"""Partitions without a replica at broker 3; see ``cluster.LED``."""
FAULT_S: Final = DELIVERY_MS / 1000 + 4
"""Long enough for batches that cannot be written to expire."""
WARM_S: Final = 5.0
"""How long brokers and connections need to warm up; not measured."""
_ANSWERED_S: Final = (DELIVERY_MS + REQUEST_MS) / 1000 + 10
_NOISE_MS: Final = 20


@dataclass(slots=True)
class Run:
    """The result of a run: ``wrong`` are the findings, ``figures`` the measurements. Times are monotonic ms."""

    wrong: list[str]
    figures: dict[str, Any]


@dataclass(slots=True)
class Windows:
    """When the fault was present."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def hold(self, at_ms: float) -> bool:
        return any(begin <= at_ms < end for begin, end in self.spans)


def inject_repeatedly(cluster: SoakCluster, fault: BrokerFault, seconds: float, rest_s: float) -> Windows:
    """Begin and end ``fault`` at least once during ``seconds`` of load, and return when it was present."""
    windows, until = Windows(), time.monotonic() + seconds
    time.sleep(WARM_S)
    while not windows.spans or time.monotonic() + FAULT_S + rest_s < until:
        began = now_ms()
        try:
            fault.begin(cluster)
            time.sleep(FAULT_S)
        finally:
            fault.end(cluster)
        windows.spans.append((began, now_ms()))
        cluster.recover()
        time.sleep(rest_s)
    time.sleep(max(0.0, until - time.monotonic()))
    return windows


def run(cluster: SoakCluster, fault: BrokerFault, *, seconds: float, rest_s: float, per_second: float) -> Run:
    """Run the load of two topics during ``fault``.

    One topic requires two replicas in sync, which it cannot have during the fault, so that its batches expire. Its
    producer has five batches in flight, that of the other topic two. Both share one network thread.
    """
    topics = {kind: cluster.create(fault.assignment, kind) for kind in (1, 2)}
    partitions = [tp for made in topics.values() for tp in made]
    servers = cluster.proxy.bootstrap_servers if fault.proxied else cluster.servers
    with contextlib.ExitStack() as open_producers, Stalls() as stalls:
        producers = {
            topics[kind][0].topic: open_producers.enter_context(
                Producer({"bootstrap.servers": servers, "max.in.flight.requests.per.connection": in_flight, **OPTIONS})
            )
            for kind, in_flight in ((1, 2), (2, 5))
        }
        load = Load(producers, partitions, per_second=per_second)
        try:
            windows = inject_repeatedly(cluster, fault, seconds, rest_s)
        finally:
            wrong = load.stop(_ANSWERED_S)
    cluster.recover()
    logs = read_logs(cluster.servers, partitions, committed=False)
    for tp in partitions:
        wrong += log_findings(tp, load.sent[tp], logs[tp])
    wrong += expiry_findings(load.sent, DELIVERY_MS, stalls)
    wrong += _healthy_failures(load)
    cluster.delete({tp.topic for tp in partitions})
    healthy = [
        one
        for tp in partitions
        if tp.partition in HEALTHY
        for one in load.sent[tp]
        if one.asked_ms > load.began_ms + WARM_S * 1000
    ]
    figures = _figures(load, windows, healthy) | {"longest_stall_ms": round(stalls.longest_ms)}
    return Run(wrong, figures)


def _healthy_failures(load: Load) -> list[str]:
    """Behaviour 10, one_sick_partition_costs_the_others_nothing: no batch of a healthy partition fails."""
    failed = [
        f"{tp}, which is healthy: batch {one.number} failed: {one.error}"
        for tp, all_sent in load.sent.items()
        for one in all_sent
        if tp.partition in HEALTHY and one.error is not None
    ]
    return failed[:5]


def _p99(sent: Sequence[Sent], where: Callable[[Sent], bool]) -> float:
    return percentile([one.latency_ms for one in sent if one.acknowledged and where(one)], 0.99)


def _figures(load: Load, windows: Windows, healthy: Sequence[Sent]) -> dict[str, Any]:
    everything = [one for all_sent in load.sent.values() for one in all_sent]
    expired = [one.error for one in everything if isinstance(one.error, DeliveryTimeout)]
    ages = [error.age_ms - DELIVERY_MS for error in expired]
    latencies = [one.latency_ms for one in healthy if one.acknowledged]
    return {
        "times_harmed": len(windows.spans),
        "batches": len(everything),
        "acknowledged": sum(one.acknowledged for one in everything),
        "expired": len(expired),
        "expired_may_have_been_written": sum(error.may_have_been_written for error in expired),
        "no_memory": sum(one.taken_ms < 0 for one in everything),
        "latest_expiry_ms_after_the_timeout": max(ages, default=0),
        "causes": _count(f"{error.phase.value}, {error.cause.value}" for error in expired),
        "healthy_p50_ms": round(percentile(latencies, 0.5), 1),
        "healthy_p99_ms": round(percentile(latencies, 0.99), 1),
        "healthy_p99_ms_during_harm": round(_p99(healthy, lambda one: windows.hold(one.asked_ms)), 1),
        "healthy_max_ms": round(max(latencies, default=0), 1),
    }


def _count(texts: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        found[text] = found.get(text, 0) + 1
    return found


def too_slow(run: Run, baseline: Run) -> list[str]:
    """Check that the healthy partitions' p99 during the fault is within twice that of the baseline, plus 20 ms.

    The p99 of the whole run, ``healthy_p99_ms``, includes what the restart of a broker costs others on the machine.
    """
    least, found = baseline.figures["healthy_p99_ms_during_harm"], run.figures["healthy_p99_ms_during_harm"]
    most = 2 * least + _NOISE_MS
    return [f"healthy partitions: p99 {found} ms, more than {most:.1f} ms"] if found > most else []
