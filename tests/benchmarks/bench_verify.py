"""Compare two topics as bytes, beside fetching both to nothing: GB/s and CPU seconds per GB of each side.

Two sandbox brokers, 1 KB records in 4 partitions, lz4, BENCH_MB megabytes of values (default 1000), compared in
BENCH_ROUNDS rounds (default 5), each in a process of its own: `fetch` reads both logs with the same reader and looks at
nothing, `compare` compares them, `prove` hashes them, too, and `records` compares record by record. `confluent` does
that with two of confluent-kafka's consumers and a loop in Python (keys, values, headers and timestamps). GB are
decimal, of the bytes in both logs. Run it with ``python -m tests.benchmarks.bench_verify``.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from mirror.client import LATEST, Admin, TopicPartition
from mirror.runtime.clock import SystemClock
from mirror.sandbox.cluster import Cluster
from mirror.spark.verification.verify_task import prepare_process
from mirror.verify.comparison import Comparison
from mirror.verify.log_reader import LogReader
from mirror.verify.values import Bounds, Rules

TOPIC: Final = "bench"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 1000
WAYS: Final = ("fetch", "compare", "prove", "records", "confluent")
_AT_ONCE: Final = 10_000
_WITHIN_S: Final = 900.0


def fill(addresses: list[str], count: int) -> None:
    """The same batches for both brokers: each is given the same records by a producer that batches by size."""
    words = [b"%016x" % random.getrandbits(64) for _ in range(4_000)]
    for address in addresses:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})])[TOPIC].result(30)
    producers = [
        Producer({"bootstrap.servers": address, "linger.ms": 10_000, "compression.type": "lz4", "batch.size": 200_000})
        for address in addresses
    ]
    per_batch = 190
    for number in range(count):
        value = b'{"id":%d,"words":"' % number + b" ".join(random.choices(words, k=56))[: VALUE_BYTES - 40] + b'"}'
        for producer in producers:
            producer.produce(
                TOPIC, value, partition=number // per_batch % PARTITIONS, timestamp=1_700_000_000_000 + number
            )
        if number % (per_batch * PARTITIONS * 20) == 0:
            for producer in producers:
                producer.flush(120)
    for producer in producers:
        producer.flush(120)


def compare_with_confluent(addresses: list[str], end: int, number: int) -> None:
    """Compare one partition of both sides, record by record, as a script for this purpose would."""
    sides = []
    for address in addresses:
        consumer = Consumer({"bootstrap.servers": address, "group.id": "compare", "enable.auto.commit": False})
        consumer.assign([ConfluentPartition(TOPIC, number, OFFSET_BEGINNING)])
        sides.append(consumer)
    waiting: list[list[Any]] = [[], []]
    compared = 0
    while compared < end:
        for side, found in zip(sides, waiting, strict=True):
            if not found:
                found.extend(side.consume(_AT_ONCE, timeout=1.0))
        count = min(map(len, waiting))
        for one, other in zip(waiting[0][:count], waiting[1][:count], strict=True):
            if (one.key(), one.value(), one.headers(), one.timestamp()) != (
                other.key(),
                other.value(),
                other.headers(),
                other.timestamp(),
            ):
                raise SystemExit(f"partition {number} differs at offset {one.offset()}")
        waiting = [found[count:] for found in waiting]
        compared += count
    for side in sides:
        side.close()


def measure(way: str, addresses: list[str]) -> dict[str, float]:
    """Read both logs in this process; return seconds, CPU seconds and bytes."""
    ends = []
    for address in addresses:
        with Admin({"bootstrap.servers": address}) as admin:
            found = admin.list_offsets({TopicPartition(TOPIC, number): LATEST for number in range(PARTITIONS)})
            ends.append({tp: one.offset for tp, one in found.items()})
    began_s, cpu_s, size = time.perf_counter(), time.process_time(), 0
    clock = SystemClock()
    if way == "confluent":
        for number in range(PARTITIONS):
            compare_with_confluent(addresses, ends[0][TopicPartition(TOPIC, number)], number)
        return {"seconds": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s, "bytes": 0}
    prepare_process()
    with (
        LogReader({"bootstrap.servers": addresses[0]}, clock, 60_000) as source,
        LogReader({"bootstrap.servers": addresses[1]}, clock, 60_000) as target,
    ):
        for number in range(PARTITIONS):
            tp = TopicPartition(TOPIC, number)
            sides = source.read(tp, 0, ends[0][tp]), target.read(tp, 0, ends[1][tp])
            if way == "fetch":
                left = {0, 1}
                while left:
                    for side in tuple(left):
                        fetched = next(sides[side], None)
                        if fetched is None:
                            left.discard(side)
                        else:
                            size += fetched.size
                continue
            rules = Rules(hashes=way == "prove", transform=(lambda record: record) if way == "records" else None)
            bounds = Bounds(source_start=0, source_end=ends[0][tp], target_start=0, target_end=ends[1][tp])
            verdict = Comparison(*sides, bounds, rules, ((), ())).run()  # nothing is compacted
            if not verdict.equal or verdict.records != ends[0][tp] or (way != "records" and verdict.decoded):
                raise SystemExit(f"{tp} is not equal, or was decoded: {verdict}")
            size += 2 * verdict.bytes
    return {"seconds": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s, "bytes": size}


def run_once(way: str, addresses: list[str], gigabytes: float = 0.0) -> dict[str, float]:
    """Measure in a process of its own. ``gigabytes``: of both logs, if it does not count them."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_verify", way, *addresses]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr}")
    measured: dict[str, float] = json.loads(done.stdout)
    gigabytes = measured["bytes"] / 1e9 or gigabytes
    return {"gb_per_s": gigabytes / measured["seconds"], "cpu_s_per_gb": measured["cpu_s"] / gigabytes, "gb": gigabytes}


def main() -> None:
    """Measure and print."""
    count = int(os.environ.get("BENCH_MB", "1000")) * 1_000_000 // VALUE_BYTES
    rounds = int(os.environ.get("BENCH_ROUNDS", "5"))
    console = Console()
    with Cluster(on_progress=console.print) as source, Cluster(on_progress=console.print) as target:
        addresses = [source.bootstrap_servers, target.bootstrap_servers]
        fill(addresses, count)
        gigabytes = run_once(WAYS[0], addresses)["gb"]  # warms the page cache
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in random.sample(WAYS, len(WAYS)):
                runs[way].append(run_once(way, addresses, gigabytes))
    table = Table("way", "GB/s", "from, to", "of fetching", "CPU s/GB", title="both logs, medians")
    base = statistics.median(run["gb_per_s"] for run in runs["fetch"])
    for way, measured in runs.items():
        rates = [run["gb_per_s"] for run in measured]
        cpu = statistics.median(run["cpu_s_per_gb"] for run in measured)
        rate = statistics.median(rates)
        table.add_row(way, f"{rate:.2f}", f"{min(rates):.2f}, {max(rates):.2f}", f"{rate / base:.2f}", f"{cpu:.2f}")
    console.print(table, f"{runs['fetch'][0]['gb']:.2f} GB of both logs, {rounds} rounds, {os.cpu_count()} cores")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(sys.argv[1], sys.argv[2:])))
    else:
        main()
