"""How long a new topic takes until its first record is on the target, beside many topics that a stream follows.

    PYTHONPATH=. python tests/benchmarks/bench_new_topics.py [--existing 10] [--new 50] [--every 2] [--idle 20]
        [--partitions] [--epoch-ms 180000] [--output FILE]

A `mirror stream` with the default epoch follows ``existing`` topics of one partition, which both sides have. Then one
more is created every ``every`` seconds, and a record produced into it at once; with ``--partitions`` an existing topic
gets a second partition instead. Measured is the time from before the creation to the moment at which the record is
committed on the target, as its last stable offset says, and until the target has the topic or partition (``created``):
percentiles in ms. At the end each copy is read by another client. A shorter ``epoch-ms`` lets what is new come at the
edges of epochs.

Prints the CPU seconds a second of the driver and of all of the stream's processes, and of both brokers, during ``idle``
seconds before, and while the topics come, and how many epochs ended meanwhile. The clusters have one broker each. The
figures replace those of the same options in results-new-topics.json, or the file of ``--output``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from mirror.client import LATEST, Admin
from mirror.client import TopicPartition as Tp
from mirror.errors import KafkaError
from mirror.sandbox.cluster import Cluster
from tests.benchmarks.bench_groups import Meter
from tests.benchmarks.bench_latency import BROKERS, Load, our_stream

RESULTS: Final = Path(__file__).with_name("results-new-topics.json")
EPOCH_MS: Final = 180_000
HEAP: Final = ("-Xms1g", "-Xmx1g")
"""Kafka's own default. With the sandbox's 640 MB a broker of 10,000 topics answered nothing after some more."""
START_WITHIN_S: Final = 400.0
ARRIVE_WITHIN_S: Final = 60.0
_PERCENTILES: Final = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
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


def add_partition(address: str, topic: str) -> None:
    """Give a topic of one partition a second one, and wait until the broker shows it."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=120)
    while len(admin.list_topics(topic, timeout=60).topics[topic].partitions) < 2:
        time.sleep(_POLL_S)


class Arrivals:
    """When the first record of each new partition was committed on the target, in seconds since its creation."""

    def __init__(self, admin: Admin) -> None:
        self._admin: Final = admin
        self.awaited: dict[Tp, float] = {}
        """By partition of the source."""
        self.took: dict[Tp, float] = {}
        self.created: dict[Tp, float] = {}
        """When the target had the partition."""

    def observe(self) -> None:
        if not self.awaited:
            return
        with contextlib.suppress(KafkaError):
            copies = {Tp(f"a.{tp.topic}", tp.partition): tp for tp in self.awaited}
            there = self._admin.describe_topics({tp.topic for tp in copies}, partial=True)
            asked = {
                tp: LATEST for tp in copies if tp.topic in there and len(there[tp.topic].partitions) > tp.partition
            }
            for tp in asked:
                self.created.setdefault(copies[tp], time.monotonic() - self.awaited[copies[tp]])
            found = self._admin.list_offsets(asked, isolation="read_committed", partial=True, timeout_ms=1_000)
            for tp, result in found.items():
                if result.offset > 0:
                    self.took[copies[tp]] = time.monotonic() - self.awaited.pop(copies[tp])

    def wait(self, seconds: float) -> None:
        """Observe for ``seconds``."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.observe()
            time.sleep(_POLL_S)


def value_of(tp: Tp) -> bytes:
    """Return the value of the one record of a new partition."""
    return f"{tp.topic}-{tp.partition}".encode()


def check(address: str, partitions: Sequence[Tp]) -> None:
    """Each copy has its record, once, as another client reads it."""
    options = {"bootstrap.servers": address, "group.id": "check", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.assign([TopicPartition(f"a.{tp.topic}", tp.partition, 0) for tp in partitions])
    found: list[bytes] = []
    while (message := consumer.poll(5.0)) is not None:
        assert message.error() is None, message.error()
        found.append(bytes(message.value() or b""))
    consumer.close()
    assert sorted(found) == sorted(map(value_of, partitions))


def epochs(folder: Path) -> int:
    return len([*folder.glob("report/ledger/f/*/results-*.jsonl.gz")])


def measure(asked: argparse.Namespace) -> dict[str, float]:
    existing, every, idle = asked.existing, asked.every, asked.idle
    with (
        Cluster(properties=BROKERS, heap=HEAP) as a,
        Cluster(properties=BROKERS, heap=HEAP) as b,
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
        load = Load(source, b.bootstrap_servers, folder, 1, asked.epoch_ms)
        with our_stream("", load, topics="orders.*") as pid:
            arrivals = Arrivals(target)
            arrivals.awaited[Tp(f"orders-{existing - 1}", 0)] = began = time.monotonic()
            while arrivals.awaited:
                arrivals.wait(0.5)
                assert time.monotonic() - began < START_WITHIN_S, "the stream copies nothing"
            arrivals.wait(idle / 2)  # the first round of everything is over
            meter = Meter(a, b, pid)
            time.sleep(idle)
            found = {f"idle_{name}": value for name, value in meter.figures().items()}
            meter, before = Meter(a, b, pid), epochs(folder)
            arrivals.took.clear()
            arrivals.created.clear()
            for number in range(asked.new):
                tp = Tp(followed[number], 1) if asked.partitions else Tp(f"orders-new-{number}", 0)
                began = time.monotonic()
                if asked.partitions:
                    add_partition(source, tp.topic)
                else:
                    create(source, [tp.topic])
                producer.produce(tp.topic, value_of(tp), partition=tp.partition)
                producer.flush(30)
                arrivals.awaited[tp] = began
                arrivals.wait(every - (time.monotonic() - began))
            found |= meter.figures()
            until = time.monotonic() + ARRIVE_WITHIN_S
            while arrivals.awaited and time.monotonic() < until:
                arrivals.wait(_POLL_S)
            found["epochs"] = epochs(folder) - before
            check(b.bootstrap_servers, list(arrivals.took))
    found |= {f"created_{name}": value for name, value in percentiles(arrivals.created).items()}
    return {**found, **percentiles(arrivals.took), "missing": len(arrivals.awaited)}


def percentiles(seconds: Mapping[Tp, float]) -> dict[str, int]:
    """Return percentiles in ms."""
    took = sorted(round(each * 1000) for each in seconds.values())
    return {name: took[min(len(took) - 1, len(took) * q // 100)] for name, q in _PERCENTILES.items()} if took else {}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--existing", type=int, default=10)
    parser.add_argument("--new", type=int, default=50)
    parser.add_argument("--every", type=float, default=2)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--partitions", action="store_true", help="new partitions of existing topics")
    parser.add_argument("--epoch-ms", type=int, default=EPOCH_MS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    results = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {}
    if asked.partitions and asked.new > asked.existing:
        parser.error("--partitions needs as many existing topics as there are to be new partitions")
    figures = measure(asked)
    shown = {key: round(value, 3) for key, value in figures.items()}
    words = [str(asked.existing), *(["partitions"] if asked.partitions else [])]
    words += [f"epoch-ms {asked.epoch_ms}"] if asked.epoch_ms != EPOCH_MS else []
    name = ", ".join(words)
    results[name] = {"new": asked.new, "every": asked.every, **shown}
    sys.stdout.write(f"{name}: {json.dumps(shown)}\n")
    asked.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
