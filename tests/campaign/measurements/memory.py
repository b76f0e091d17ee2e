"""Measures the memory of a copying process by the kernel's own peak (Linux), which no sampling can miss.

    python tests/campaign/measurements/memory.py [case] ...

A case takes a minute. Prints a table; the exit status is 1 where a copy took more than ``buffer.memory``,
``fetch.max.bytes``, 50 KB for each partition and half a MB.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import NewTopic as ConfluentTopic

from mirror.client import Admin, Consumer, Producer, TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from tests.campaign.measurements.healthy_copy import Pair, whole
from tests.conformance.topics import Topics
from tests.polling import eventually

KILOBYTE: Final = 1 << 10
MEGABYTE: Final = 1 << 20
PER_PARTITION: Final = 50 * KILOBYTE
PER_TASK: Final = 512 * KILOBYTE
"""For threads and connections. Without it, two partitions of 20 MB batches exceeded the bound by 0.04 MB."""
FETCH: Final = 16 * MEGABYTE
BUFFER: Final = 24 * MEGABYTE
LARGEST: Final = 20 * MEGABYTE
_ROOM_FOR_LARGEST: Final = 24 * MEGABYTE
_COORDINATORS: Final = 8
_SMALL: Final[dict[str, Any]] = {"batch_size": 64_000}
_PROCESSES: Final = multiprocessing.get_context("spawn")
"""Spawned, not forked: a forked child would begin with the memory of its parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to copy, with which options, after ``first``: a few records, so that all that is loaded late is loaded."""

    ranges: list[Range]
    first: list[Range]
    source: dict[str, Any]
    target: dict[str, Any]
    policy: CopyPolicy = field(default_factory=CopyPolicy)

    @property
    def allowed(self) -> int:
        """The bytes that the copy may take, beyond those of the imports."""
        bounds = int(self.source["fetch.max.bytes"]) + int(self.target["buffer.memory"])
        return bounds + PER_PARTITION * len(self.ranges) + PER_TASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Resident bytes ``before`` and at the ``peak``; what came of it, and the time and the CPU that it took."""

    before: int
    peak: int
    allowed: int
    copied: int
    seconds: float
    cpu_s: float
    outcomes: list[str]
    errors: list[str]

    @property
    def used(self) -> int:
        """The bytes that the copy took."""
        return self.peak - self.before


def order(
    ranges: list[Range], first: list[Range], address: str, *, fetch: int = FETCH, buffer: int = BUFFER, **target: object
) -> Order:
    """With small bounds: what is over them is soon seen. ``target`` are a producer's keys, dots as underscores."""
    own = {key.replace("_", "."): value for key, value in target.items()}
    return Order(
        ranges=ranges,
        first=first,
        source={"bootstrap.servers": address, "fetch.max.bytes": fetch},
        target={"bootstrap.servers": address, "buffer.memory": buffer, **own},
    )


def measure(order: Order) -> Measurement:
    """Measure a copy in its own process."""
    ours, theirs = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_work, args=(order, theirs))
    process.start()
    theirs.close()
    try:
        measurement: Measurement = ours.recv()
    finally:
        process.kill()
        process.join()
    return measurement


def _work(order: Order, line: Connection[Any, Any]) -> None:
    for make, options in ((Consumer, order.source), (Producer, order.target), (Admin, None)):
        servers = {"bootstrap.servers": order.source["bootstrap.servers"]}
        with make(servers if options is None else {**servers, **options}) as client:
            if isinstance(client, Admin):
                client.list_topics()
    copy_ranges(order.first, source_options=order.source, target_options=order.target, policy=order.policy)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # The peak is measured from here on.
    began, began_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    results = copy_ranges(order.ranges, source_options=order.source, target_options=order.target, policy=order.policy)
    used = resource.getrusage(resource.RUSAGE_SELF)
    line.send(
        Measurement(
            before=before,
            peak=_status("VmHWM"),
            allowed=order.allowed,
            copied=sum(one.bytes for one in results),
            seconds=time.monotonic() - began_s,
            cpu_s=used.ru_utime + used.ru_stime - began.ru_utime - began.ru_stime,
            outcomes=[one.outcome.value for one in results],
            errors=[one.error for one in results if one.error],
        )
    )


def _status(name: str) -> int:
    """Return the bytes of a line of /proc/self/status."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * KILOBYTE


# --- the cases


def first_of(pair: Pair) -> list[Range]:
    """Return ranges of ten records, to be copied first."""
    sources = pair.source(1)
    pair.fill(sources, 1_000, 100)
    return pair.ranges(sources)


@dataclass(frozen=True, slots=True)
class Backlog:
    """``partitions`` with ``each`` bytes, in records of ``record`` bytes; ``options`` are the filling producer's."""

    partitions: int
    each: int
    record: int
    options: dict[str, Any] = field(default_factory=dict)


CASES: Final[dict[str, Sequence[Backlog]]] = {
    "60 KB batches": [Backlog(8, 40 * MEGABYTE, 10_000, _SMALL)],
    "4 MB batches": [Backlog(8, 40 * MEGABYTE, 4 * MEGABYTE)],
    "mixed": [Backlog(6, 40 * MEGABYTE, 10_000, _SMALL), Backlog(2, 40 * MEGABYTE, 4 * MEGABYTE)],
    "20 MB batches": [Backlog(3, 100 * MEGABYTE, LARGEST - KILOBYTE)],
    "20 MB among 60 KB": [Backlog(6, 40 * MEGABYTE, 10_000, _SMALL), Backlog(1, 100 * MEGABYTE, LARGEST - KILOBYTE)],
    "200 partitions": [Backlog(200, MEGABYTE, 10_000, _SMALL)],
    "batches of 170 bytes": [Backlog(8, 2 * MEGABYTE, 100, {"batch_num_messages": 1, "linger_ms": 0})],
}
HALF_STUCK: Final = "half stuck"


def fill(pair: Pair, backlogs: Sequence[Backlog]) -> list[TopicPartition]:
    """Create one topic with all of them."""
    sources = pair.source(sum(one.partitions for one in backlogs), max_message_bytes=_ROOM_FOR_LARGEST)
    begin = 0
    for one in backlogs:
        some = sources[begin : begin + one.partitions]
        pair.fill(some, one.each, one.record, message_max_bytes=_ROOM_FOR_LARGEST, **one.options)
        begin += one.partitions
    return sources


def run_case(pair: Pair, backlogs: Sequence[Backlog], **bounds: int) -> tuple[Measurement, list[str]]:
    """Measure a copy of everything, and return its result with the expected outcomes."""
    ranges = pair.ranges(fill(pair, backlogs), max_message_bytes=_ROOM_FOR_LARGEST)
    measurement = measure(order(ranges, first_of(pair), pair.side.address, **bounds))
    return measurement, [Outcome.COMPLETE.value] * len(ranges)


def run_alone(backlogs: Sequence[Backlog]) -> tuple[Measurement, list[str]]:
    """Run a case with its own broker."""
    with Cluster() as cluster:
        return run_case(Pair(cluster.bootstrap_servers), backlogs)


def run_half_stuck() -> tuple[Measurement, list[str]]:
    """Of 16 targets the brokers of 8 are gone, after some was copied: what is taken for these stays, until it expires.

    Broker 1 has all the rest: the source, the healthy targets, and the coordinators.
    """
    half, first = 8, 5
    properties = {
        "auto.leader.rebalance.enable": "false",
        "offsets.topic.num.partitions": str(_COORDINATORS),
        "transaction.state.log.num.partitions": str(_COORDINATORS),
        "transaction.state.log.min.isr": "1",
    }
    with Cluster(2, properties=properties) as cluster:
        address = cluster.bootstrap_servers.split(",")[0]
        pair = Pair(address)
        for name in ("__consumer_offsets", "__transaction_state"):
            made = ConfluentTopic(
                name, _COORDINATORS, replica_assignment=[[1]] * _COORDINATORS, config={"cleanup.policy": "compact"}
            )
            pair.side.admin.create_topics([made])[name].result(timeout=20)
        topics = Topics(address, lambda name: f"{name}-{uuid.uuid4().hex[:8]}")
        kept = {"retention.ms": "-1"}
        sources = topics.create(assignment=[[1]] * (2 * half), config=kept)
        pair.fill(sources, 40 * MEGABYTE, **_SMALL)
        target = topics.create(assignment=[[1]] * half + [[2]] * half, config=kept)[0].topic
        flow = f"stuck-{uuid.uuid4().hex[:8]}"
        for own in (topic_of(flow), offset_topic_of(flow)):
            notes = ConfluentTopic(own, 1, replica_assignment=[[1]], config={"cleanup.policy": "compact"})
            pair.side.admin.create_topics([notes])[own].result(timeout=20)
        ranges = whole(address, sources, flow, target)
        begun = pair.copy([replace(one, end=first) for one in ranges], CopyPolicy())
        assert {one.outcome for one in begun} == {Outcome.COMPLETE}, begun
        os.kill(cluster.pids[2], signal.SIGTERM)
        eventually(lambda: 2 not in cluster.pids, within_s=60, what="the end of broker 2")
        ours = order(
            ranges,
            [replace(ranges[0], end=20 * first)],
            address,
            delivery_timeout_ms=4_000,
            request_timeout_ms=1_500,
            linger_ms=0,
        )
        return measure(ours), [Outcome.COMPLETE.value] * half + [Outcome.EXPIRED.value] * half


def findings(measurement: Measurement, outcomes: list[str]) -> list[str]:
    """Return what exceeds the bounds or ended wrongly."""
    wrong = (
        []
        if measurement.used <= measurement.allowed
        else [f"{(measurement.used - measurement.allowed) / MEGABYTE:.1f} MB too much"]
    )
    return (
        wrong
        if measurement.outcomes == outcomes
        else [*wrong, f"outcomes {measurement.outcomes}: {measurement.errors[:2]}"]
    )


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(names: Sequence[str]) -> int:
    """Run the given cases, or all, and return the exit status."""
    cases: dict[str, Callable[[], tuple[Measurement, list[str]]]] = {
        name: lambda backlogs=backlogs: run_alone(backlogs)  # type: ignore[misc]
        for name, backlogs in CASES.items()
    }
    cases[HALF_STUCK] = run_half_stuck
    failed = 0
    say(f"{'case':22} {'MB used':>8} {'allowed':>8} {'copied':>8} {'s':>6} {'CPU s':>6}")
    for name in names or cases:
        measurement, outcomes = cases[name]()
        wrong = findings(measurement, outcomes)
        failed += bool(wrong)
        figures = " ".join(
            f"{size / MEGABYTE:8.1f}" for size in (measurement.used, measurement.allowed, measurement.copied)
        )
        verdict = "; ".join(wrong) or "within the bounds"
        say(f"{name:22} {figures} {measurement.seconds:6.1f} {measurement.cpu_s:6.2f} {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
