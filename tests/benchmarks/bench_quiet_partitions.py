"""What `mirror run` costs with many partitions of which few have something new, on real brokers.

    PYTHONPATH=. python tests/benchmarks/bench_quiet_partitions.py [--partitions 10000] [--rounds 3]

Topics of 10 partitions each are copied between two clusters of one broker each. In the first run every partition has
one record, and the target's topics are made. The second one, which is not measured, writes the archive of Spark's
classes. Then, in turns: one partition of a hundred gets 10 more records, and a run copies them; a run finds nothing
new. Another client counts the target's records after each run.

Measured from the start of the command to its exit: seconds, CPU seconds and peak memory (proportional, PSS) by role
(``copying``: the processes of Spark's tasks, ``spark``: the JVM, ``driver``: the Python driver), and the brokers' CPU
seconds. What an executor needs for a partition is the difference between the first run and the later ones. The figures
replace those of the same number of partitions in results-quiet-partitions.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.sandbox.cluster import Cluster
from tests.benchmarks.bench_latency import BROKERS
from tests.benchmarks.bench_new_topics import HEAP
from tests.benchmarks.brokers import cluster
from tests.benchmarks.side_by_side.metering import Meter, Sample

RESULTS: Final = Path(__file__).with_name("results-quiet-partitions.json")
COMMAND: Final = Path(__file__).parents[2] / ".venv/bin/mirror"
PER_TOPIC: Final = 10
NEW_EACH: Final = 100
NEW_RECORDS: Final = 10
WITHIN_S: Final = 900.0
_PORTION: Final = 50


class Site:
    """Two clusters, and the flow between them."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path, partitions: int) -> None:
        self.partitions: Final = partitions
        self.records = 0
        self._source, self._target, self._folder = source, target, folder
        self._topics: Final = [f"orders-{number}" for number in range(partitions // PER_TOPIC)]
        self._producer: Final = Producer(
            {"bootstrap.servers": source.bootstrap_servers, "linger.ms": 20, "log_level": 0}
        )
        (folder / "mirror.toml").write_text(
            f'[clusters.a]\n"bootstrap.servers" = "{source.bootstrap_servers}"\n'
            f'[clusters.b]\n"bootstrap.servers" = "{target.bootstrap_servers}"\n'
            '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["orders-.*"]\n',
            encoding="utf-8",
        )

    def create(self) -> None:
        """Create the topics on the source."""
        admin = AdminClient({"bootstrap.servers": self._source.bootstrap_servers})
        for begin in range(0, len(self._topics), _PORTION):
            wanted = [NewTopic(name, PER_TOPIC, 1) for name in self._topics[begin : begin + _PORTION]]
            for made in admin.create_topics(wanted).values():
                made.result(timeout=120)
        while len(admin.list_topics(timeout=60).topics) < len(self._topics):  # the broker takes its time
            time.sleep(0.5)

    def produce(self, every: int, count: int) -> None:
        """Produce ``count`` records into each partition whose number is a multiple of ``every``."""
        for number in range(0, self.partitions, every):
            topic, partition = self._topics[number // PER_TOPIC], number % PER_TOPIC
            for _ in range(count):
                self._producer.produce(topic, b"%0100d" % number, partition=partition)
                self.records += 1
            self._producer.poll(0)
        assert self._producer.flush(120) == 0, "the source does not take all records"

    def run(self) -> dict[str, Any]:
        """Run the flow once, and return what it has cost."""
        brokers = {"source": self._source.pids.values(), "target": self._target.pids.values()}
        output = self._folder / "output.txt"
        with (
            output.open("wb") as written,
            subprocess.Popen(
                [COMMAND, "run", "--config", "mirror.toml", "--report-dir", "report"],
                cwd=self._folder,
                env={**os.environ, "XDG_CACHE_HOME": str(self._folder / "cache")},
                stdout=written,
                stderr=written,
            ) as run,
        ):
            meter = Meter(run.pid, brokers, roles=True)
            began = time.monotonic()
            meter.start()
            try:
                run.wait(WITHIN_S)
            finally:
                run.kill()
                seconds = time.monotonic() - began
                meter.stop()
        if run.returncode:
            sys.exit(f"mirror run ended with {run.returncode}: {output.read_text(encoding='utf-8')[-3000:]}")
        copied = self._count()
        assert copied == self.records, f"the target has {copied} records, the source {self.records}"
        return {"seconds": round(seconds, 1), **costs(meter.samples)}

    def _count(self) -> int:
        """Return how many records another client reads on the target."""
        options = {
            "bootstrap.servers": self._target.bootstrap_servers,
            "group.id": "check",
            "enable.auto.commit": False,
        }
        consumer = Consumer({**options, "isolation.level": "read_committed", "enable.partition.eof": True})
        consumer.assign(
            [TopicPartition(f"a.{name}", number, 0) for name in self._topics for number in range(PER_TOPIC)]
        )
        count, ended = 0, set[tuple[str, int]]()
        until = time.monotonic() + WITHIN_S
        while len(ended) < self.partitions:
            assert time.monotonic() < until, "the target is not read to its end"
            for message in consumer.consume(10_000, timeout=1.0):
                if message.error() is None:
                    count += 1
                else:
                    ended.add((str(message.topic()), message.partition() or 0))
        consumer.close()
        return count


def costs(samples: list[Sample]) -> dict[str, Any]:
    """CPU seconds and peak memory by role, and the brokers' CPU seconds."""
    first, last = samples[0], samples[-1]
    roles = sorted(last.cpu)
    return {
        "cpu_seconds": {role: round(last.cpu[role], 1) for role in roles},
        "peak_pss_mb": {
            role: round(max(sample.proportional.get(role, 0) for sample in samples) / 1e6) for role in roles
        },
        "broker_cpu_seconds": {side: round(last.brokers[side] - first.brokers[side], 1) for side in last.brokers},
    }


def measure(partitions: int, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"first run, a record in each": [], "one of a hundred": [], "nothing new": []}
    with (
        cluster(properties=BROKERS, heap=HEAP) as source,
        cluster(properties=BROKERS, heap=HEAP) as target,
        tempfile.TemporaryDirectory(prefix="quiet-") as folder,
    ):
        site = Site(source, target, Path(folder), partitions)
        site.create()
        site.produce(1, 1)

        def run(name: str) -> None:
            found[name].append(site.run())
            print(f"{name:30} {found[name][-1]}", flush=True)  # noqa: T201

        run("first run, a record in each")
        site.run()  # writes the archive of Spark's classes
        for _ in range(rounds):
            site.produce(NEW_EACH, NEW_RECORDS)
            run("one of a hundred")
            run("nothing new")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    results[str(options.partitions)] = measure(options.partitions, options.rounds)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
