"""How long a new topic takes until its first record is on the target, beside many topics that a stream follows.

    PYTHONPATH=. python tests/benchmarks/bench_new_topics.py [--existing 10] [--new 50] [--every 2] [--idle 20]
        [--output FILE]

A `mirror stream` with the default epoch follows ``existing`` topics of one partition, which both sides have. Then one
more is created every ``every`` seconds, and a record produced into it at once. Measured is the time from before the
creation to the moment at which the record is committed on the target, as its last stable offset says: percentiles in
ms. At the end each copy is read by another client. Prints the CPU seconds a second of the driver and of all of the
stream's processes, and of both brokers, during ``idle`` seconds before, and while the topics come, and how many epochs
ended meanwhile. The clusters have one broker each. The figures replace those of the same number of topics in
results-new-topics.json, or the file of ``--output``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.client import LATEST, Admin
from mirror.client import TopicPartition as Tp
from mirror.errors import KafkaError
from mirror.sandbox.cluster import Cluster
from tests.benchmarks.bench_groups import Meter
from tests.benchmarks.bench_latency import BROKERS, Load, our_stream

RESULTS: Final = Path(__file__).with_name("results-new-topics.json")
EPOCH_MS: Final = 180_000
START_WITHIN_S: Final = 400.0
ARRIVE_WITHIN_S: Final = 60.0
_PORTION: Final = 500
_POLL_S: Final = 0.05


def create(address: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for begin in range(0, len(names), _PORTION):
        made = admin.create_topics([NewTopic(name, 1, 1) for name in names[begin : begin + _PORTION]])
        for each in made.values():
            each.result(timeout=120)
    while len(admin.list_topics(timeout=60).topics) < len(names):  # the broker applies what the controller has made
        time.sleep(_POLL_S)


class Arrivals:
    """When the first record of each topic was committed on the target, in seconds since the topic's creation."""

    def __init__(self, admin: Admin) -> None:
        self._admin: Final = admin
        self.awaited: dict[str, float] = {}
        self.took: dict[str, float] = {}

    def look(self) -> None:
        if not self.awaited:
            return
        with contextlib.suppress(KafkaError):
            there = self._admin.describe_topics([f"a.{name}" for name in self.awaited], partial=True)
            asked = {Tp(name, 0): LATEST for name in there}
            found = self._admin.list_offsets(asked, isolation="read_committed", partial=True, timeout_ms=1_000)
            for tp, result in found.items():
                if result.offset > 0:
                    name = tp.topic.removeprefix("a.")
                    self.took[name] = time.monotonic() - self.awaited.pop(name)

    def wait(self, seconds: float) -> None:
        """Look until then."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(_POLL_S)


def check(address: str, names: Sequence[str]) -> None:
    """Each copy has its record, once, as another client reads it."""
    options = {"bootstrap.servers": address, "group.id": "check", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.assign([TopicPartition(f"a.{name}", 0, 0) for name in names])
    found: list[str] = []
    while (message := consumer.poll(5.0)) is not None:
        assert message.error() is None, message.error()
        found.append(bytes(message.value() or b"").decode())
    consumer.close()
    assert sorted(found) == sorted(names)


def epochs(folder: Path) -> int:
    return len([*folder.glob("report/ledger/f/*/results-*.parquet")])


def measure(existing: int, new: int, every: float, idle: float) -> dict[str, float]:
    with (
        Cluster(properties=BROKERS) as a,
        Cluster(properties=BROKERS) as b,
        tempfile.TemporaryDirectory(prefix="new-topics-") as made,
        Admin({"bootstrap.servers": b.bootstrap_servers}) as target,
    ):
        folder, source = Path(made), a.bootstrap_servers
        followed = [f"orders-{number}" for number in range(existing)]
        with ThreadPoolExecutor() as pool:
            copies = pool.submit(create, b.bootstrap_servers, [f"a.{name}" for name in followed])
            create(source, followed)
            copies.result()
        producer = Producer({"bootstrap.servers": source, "linger.ms": 0})
        producer.produce(f"orders-{existing - 1}", b"first")
        producer.flush(30)
        load = Load(source, b.bootstrap_servers, folder, 1, EPOCH_MS)
        with our_stream("", load, topics="orders.*") as pid:
            arrivals = Arrivals(target)
            arrivals.awaited[f"orders-{existing - 1}"] = began = time.monotonic()
            while arrivals.awaited:
                arrivals.wait(0.5)
                assert time.monotonic() - began < START_WITHIN_S, "the stream copies nothing"
            arrivals.wait(idle / 2)  # the first round of everything is over
            meter = Meter(a, b, pid)
            time.sleep(idle)
            found = {f"idle_{name}": value for name, value in meter.figures().items()}
            meter, before = Meter(a, b, pid), epochs(folder)
            arrivals.took.clear()
            names = [f"orders-new-{number}" for number in range(new)]
            for name in names:
                began = time.monotonic()
                create(source, [name])
                producer.produce(name, name.encode())
                producer.flush(30)
                arrivals.awaited[name] = began
                arrivals.wait(every - (time.monotonic() - began))
            found |= meter.figures()
            until = time.monotonic() + ARRIVE_WITHIN_S
            while arrivals.awaited and time.monotonic() < until:
                arrivals.wait(_POLL_S)
            found["epochs"] = epochs(folder) - before
            check(b.bootstrap_servers, sorted(arrivals.took))
    took = sorted(round(seconds * 1000) for seconds in arrivals.took.values())
    found |= {f"p{q}": took[min(len(took) - 1, len(took) * q // 100)] for q in (50, 90, 99)} if took else {}
    return {**found, "max": took[-1] if took else -1, "missing": len(arrivals.awaited)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--existing", type=int, default=10)
    parser.add_argument("--new", type=int, default=50)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    results = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {}
    figures = measure(asked.existing, asked.new, asked.every, asked.idle)
    shown = {key: round(value, 3) for key, value in figures.items()}
    results[str(asked.existing)] = {"new": asked.new, "every": asked.every, **shown}
    sys.stdout.write(f"{asked.existing} {json.dumps(shown)}\n")
    asked.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
