"""Fetch a topic to nothing: MB/s and CPU seconds per GB of this client beside others, interleaved on one machine.

A sandbox broker, 1 KB records in 4 partitions, uncompressed, BENCH_MB megabytes (default 1000) in BENCH_ROUNDS rounds
(default 5). MB and GB are decimal, of record values. Writes results-fetch.json beside this file.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mirror.sandbox.cluster import Cluster

HERE: Final = Path(__file__).parent
CLIENT: Final = HERE / "fetch_clients.py"
TOPIC: Final = "bench"
PARTITIONS: Final = 4
VALUE_BYTES: Final = 1000
NAMES: Final = ("mirror, CRC verified", "mirror, CRC not verified", "confluent-kafka (librdkafka)", "kafka-python")
ONE_RUN_WITHIN_S: Final = 900.0

Run = Mapping[str, float]


def fill(servers: str, count: int) -> None:
    """``count`` records of random bytes, from a few hundred different values."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    values = [random.randbytes(VALUE_BYTES) for _ in range(500)]
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 250_000})
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, values[number % len(values)], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled within 120 s: is the disk full, or the machine too busy?")


def run_once(name: str, servers: str, count: int) -> Run:
    """One client in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(CLIENT), name, servers, TOPIC, str(count)],
        capture_output=True,
        text=True,
        timeout=ONE_RUN_WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout)
    if result["records"] != count:
        raise SystemExit(f"{name} read {result['records']} records instead of {count}")
    gigabytes = count * VALUE_BYTES / 1e9
    return {"mb_per_s": gigabytes * 1000 / result["seconds"], "cpu_s_per_gb": result["cpu_s"] / gigabytes}


def table(runs: Mapping[str, list[Run]], title: str) -> Table:
    """Medians, and from the least to the most."""
    found = Table("client", title=title)
    for column in ("MB/s", "from, to", "CPU s/GB", "from, to"):
        found.add_column(column, justify="right", no_wrap=True)
    for name, measured in runs.items():
        cells: list[str] = []
        for key, form in (("mb_per_s", ",.0f"), ("cpu_s_per_gb", ".2f")):
            values = [run[key] for run in measured]
            cells += [f"{statistics.median(values):{form}}", f"{min(values):{form}}, {max(values):{form}}"]
        found.add_row(name, *cells)
    return found


def main() -> None:
    """Measure, print, and write the file."""
    megabytes = int(os.environ.get("BENCH_MB", "1000"))
    rounds = int(os.environ.get("BENCH_ROUNDS", "5"))
    count = megabytes * 1_000_000 // VALUE_BYTES
    console = Console()
    runs: dict[str, list[Run]] = {name: [] for name in NAMES}
    with Cluster(on_progress=console.print) as cluster:
        console.print(f"filling a topic with {megabytes} MB")
        fill(cluster.bootstrap_servers, count)
        # The first reader warms the broker and the page cache, for nobody's good.
        run_once(NAMES[0], cluster.bootstrap_servers, count)
        order = [name for _ in range(rounds) for name in random.sample(NAMES, len(NAMES))]
        for name in track(order, "fetching", console=console):
            runs[name].append(run_once(name, cluster.bootstrap_servers, count))
    console.print(table(runs, f"fetching {megabytes} MB of 1 KB records to nothing, {rounds} rounds: median (spread)"))
    result = {
        "megabytes": megabytes,
        "rounds": rounds,
        "value_bytes": VALUE_BYTES,
        "partitions": PARTITIONS,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "median": {
            name: {key: statistics.median(run[key] for run in measured) for key in ("mb_per_s", "cpu_s_per_gb")}
            for name, measured in runs.items()
        },
        "runs": runs,
    }
    (HERE / "results-fetch.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
