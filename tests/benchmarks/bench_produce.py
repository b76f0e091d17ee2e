"""Ready-made batches into real brokers: this client beside Kafka's own ``ProducerPerformance``, taking turns.

    python tests/benchmarks/bench_produce.py

Records of 1 KB in batches of at most 64 KiB on the wire, with 2 and 5 in flight, into 4 partitions of one broker,
uncompressed and lz4, and of three brokers with 3 replicas, lz4. Both are idempotent with acks=all, 32 MiB of memory and
requests of up to 1 MiB; the batches that this client sends are those that ProducerPerformance made, fetched again: the
same bytes.

BENCH_MB megabytes of records a run (default 300) in BENCH_ROUNDS rounds (default 3). MB and GB are decimal, of batches
on the wire. CPU is given without the start of the process, and with it. Writes results-produce.json beside this file.
"""

from __future__ import annotations

import json
import os
import platform
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from mirror.client import Admin, Consumer, NewTopic, TopicPartition
from mirror.sandbox import demo_data
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java

HERE: Final = Path(__file__).parent
PARTITIONS: Final = 4
RECORD_BYTES: Final = 1000
BATCH_SIZE: Final = 64 * 1024
PAYLOADS: Final = 5_000
OURS: Final = "mirror"
THEIRS: Final = "ProducerPerformance"
ONE_RUN_WITHIN_S: Final = 300.0
_LOGGING: Final = Path(demo_data.__file__).with_name("log4j2.properties")

Run = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """How to send: replicas are as many as brokers."""

    brokers: int
    codec: str
    in_flight: int

    def __str__(self) -> str:
        return f"{self.brokers} replica{'s' * (self.brokers > 1)}, {self.codec}, {self.in_flight} in flight"


CASES: Final = (
    *(Case(1, codec, in_flight) for codec in ("none", "lz4") for in_flight in (2, 5)),
    *(Case(3, "lz4", in_flight) for in_flight in (2, 5)),
)


class Bench:
    """One cluster; each run has a topic of its own, which is deleted after it."""

    def __init__(self, cluster: Cluster, brokers: int, payloads: Path, records: int) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._payloads = payloads
        self._records = records
        self._count = 0
        self._java = [find_java().path, "-Xmx512m", f"-Dlog4j2.configurationFile={_LOGGING}", "-cp"]
        self._java += [class_path(fetch()), "org.apache.kafka.tools.ProducerPerformance"]

    def topic(self, admin: Admin) -> str:
        """A new one, whose events' times are past: under the default retention the broker would delete them."""
        self._count += 1
        name = f"bench-{self._count}"
        admin.create_topics([NewTopic(name, PARTITIONS, self._brokers, {"retention.ms": "-1"})])
        return name

    def run(self, name: str, case: Case, batches: Path) -> Run:
        """One client in a process of its own, and what it costs the brokers."""
        with Admin({"bootstrap.servers": self._cluster.bootstrap_servers}) as admin:
            topic = self.topic(admin)
            before = self._brokers_cpu_s()
            result = self.ours(topic, case, batches) if name == OURS else self.theirs(topic, case)
            broker_cpu_s = self._brokers_cpu_s() - before
            size = result["bytes"] if name == OURS else log_size(admin, topic)
            admin.delete_topics([topic])
        gigabytes = size / 1e9
        return {
            "mb_per_s": gigabytes * 1000 / result["seconds"],
            "cpu_s_per_gb": result["cpu_s"] / gigabytes,
            "process_cpu_s_per_gb": result["process_cpu_s"] / gigabytes,
            "broker_cpu_s_per_gb": broker_cpu_s / gigabytes,
        }

    def ours(self, topic: str, case: Case, batches: Path) -> Run:
        program = [sys.executable, HERE / "produce_clients.py"]
        done, _ = _measured([*program, self._cluster.bootstrap_servers, topic, batches, case.in_flight])
        result: Run = json.loads(done)
        return result

    def theirs(self, topic: str, case: Case) -> Run:
        """Its start is what a run of one record costs."""
        start = self._perform(topic, case, 1)["process_cpu_s"]
        result = self._perform(topic, case, self._records)
        return {**result, "cpu_s": result["process_cpu_s"] - start}

    def _perform(self, topic: str, case: Case, records: int) -> Run:
        settings = {
            "bootstrap.servers": self._cluster.bootstrap_servers,
            "batch.size": BATCH_SIZE,
            "compression.type": case.codec,
            "max.in.flight.requests.per.connection": case.in_flight,
            "acks": "all",
            "enable.idempotence": "true",
        }
        result, used = _measured(
            [
                *self._java,
                *("--topic", topic, "--num-records", records, "--payload-file", self._payloads, "--throughput", -1),
                *("--producer-props", *(f"{key}={value}" for key, value in settings.items())),
            ]
        )
        total = re.findall(rf"^{records} records sent, ([\d.]+) records/sec", result, re.MULTILINE)
        if not total:
            raise SystemExit(f"ProducerPerformance did not send {records} records; it said:\n{result}")
        return {"seconds": records / float(total[-1]), "process_cpu_s": used}

    def make_batches(self, codec: str, folder: Path) -> None:
        """Have ProducerPerformance write a topic, and keep its batches in ``folder``, a file for each partition."""
        folder.mkdir()
        servers = self._cluster.bootstrap_servers
        with Admin({"bootstrap.servers": servers}) as admin:
            topic = self.topic(admin)
            self._perform(topic, Case(self._brokers, codec, 5), self._records)
            save(servers, topic, folder)
            admin.delete_topics([topic])

    def _brokers_cpu_s(self) -> float:
        times = [psutil.Process(pid).cpu_times() for pid in self._cluster.pids.values()]
        return float(sum(one.user + one.system for one in times))


def _measured(command: Sequence[object]) -> tuple[str, float]:
    """What ``command`` prints, and the CPU seconds of its process. The brokers count only where they have ended."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=ONE_RUN_WITHIN_S, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{Path(str(command[0])).name} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def log_size(admin: Admin, topic: str) -> int:
    """Bytes of the topic's log, of one replica of each partition."""
    sizes = {
        tp: log.size_bytes
        for folders in admin.describe_log_dirs().values()
        for folder in folders.values()
        for tp, log in folder.logs.items()
        if tp.topic == topic
    }
    return sum(sizes.values())


def save(servers: str, topic: str, folder: Path) -> None:
    """Write each partition's batches to a file."""
    with Consumer({"bootstrap.servers": servers}) as consumer:
        tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(tps)
        left = {tp: found for tp, found in consumer.end_offsets(tps).items() if found}
        for tp in tps:
            consumer.seek(tp, 0)
        while left:
            for fetched in consumer.poll(timeout_ms=1_000):
                if fetched.error is not None:
                    raise fetched.error
                with (folder / str(fetched.tp.partition)).open("ab") as file:
                    file.writelines(batch.view for batch in fetched.batches)
                if fetched.next_offset >= left.get(fetched.tp, 0):
                    left.pop(fetched.tp, None)


def write_payloads(path: Path) -> None:
    """Events of about 1 KB, a line each."""
    rng = random.Random(1)
    path.write_bytes(b"\n".join(demo_data.make_order(rng, number, RECORD_BYTES)[1] for number in range(PAYLOADS)))


def measure(rounds: int, records: int, console: Console) -> dict[Case, dict[str, list[Run]]]:
    """Every case ``rounds`` times, both clients in turn."""
    runs: dict[Case, dict[str, list[Run]]] = {case: {OURS: [], THEIRS: []} for case in CASES}
    with tempfile.TemporaryDirectory() as folder, Progress(console=console) as progress:
        payloads = Path(folder) / "payloads"
        write_payloads(payloads)
        bar = progress.add_task("producing", total=len(CASES) * rounds * 2)
        for brokers in sorted({case.brokers for case in CASES}):
            with Cluster(brokers, on_progress=console.print) as cluster:
                bench = Bench(cluster, brokers, payloads, records)
                cases = [case for case in CASES if case.brokers == brokers]
                for codec in sorted({case.codec for case in cases}):
                    if not (Path(folder) / codec).exists():
                        bench.make_batches(codec, Path(folder) / codec)
                for _ in range(rounds):
                    for case in random.sample(cases, len(cases)):
                        for name in random.sample((OURS, THEIRS), 2):
                            runs[case][name].append(bench.run(name, case, Path(folder) / case.codec))
                            progress.advance(bar)
    return runs


def medians(runs: Sequence[Run]) -> dict[str, float]:
    """Of each figure."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def table(runs: Mapping[Case, Mapping[str, Sequence[Run]]], title: str) -> Table:
    """Medians, and this client's by the other's."""
    found = Table("case", "client", title=title)
    for column in ("MB/s", "CPU s/GB", "with start", "brokers' CPU s/GB"):
        found.add_column(column, justify="right")
    for case, clients in runs.items():
        result = {name: medians(measured) for name, measured in clients.items()}
        for name, values in result.items():
            mb_per_s, *cpu = values.values()
            found.add_row(str(case), name, f"{mb_per_s:,.0f}", *(f"{value:.2f}" for value in cpu))
        ratios = [result[OURS][key] / result[THEIRS][key] for key in result[OURS]]
        found.add_row(str(case), "ratio", *(f"{ratio:.2f}" for ratio in ratios), end_section=True)
    return found


def main() -> None:
    """Measure, print, and write the file."""
    megabytes = int(os.environ.get("BENCH_MB", "300"))
    rounds = int(os.environ.get("BENCH_ROUNDS", "3"))
    console = Console()
    runs = measure(rounds, megabytes * 1_000_000 // RECORD_BYTES, console)
    console.print(table(runs, f"{megabytes} MB of 1 KB records in batches of up to 64 KiB, medians of {rounds}"))
    result: dict[str, Any] = {
        "megabytes": megabytes,
        "rounds": rounds,
        "batch_bytes": BATCH_SIZE,
        "partitions": PARTITIONS,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "median": {str(case): {name: medians(one) for name, one in each.items()} for case, each in runs.items()},
        "runs": {str(case): each for case, each in runs.items()},
    }
    (HERE / "results-produce.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
