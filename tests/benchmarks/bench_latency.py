"""How long a record takes from its producer at the source to a reader of committed records at the target.

    PYTHONPATH=. python tests/benchmarks/bench_latency.py [--rate 1000] [--seconds 180] [--epoch-ms 60000] [NAME ...]

NAME: ``mirror`` (`mirror stream`, exactly once) and ``mirrormaker`` (MirrorMaker 2 with exactly-once support), one
after the other, on clusters of their own; both by default. ``rate`` records of 100 bytes a second over four partitions,
one producer without linger. Measured is from a record's own time (ms, set when it is handed to the producer) to when
another client has it. Prints percentiles; the first 20 s after the first record arrived are left out, and the gap
between epochs is in. Results go to results-latency.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.sandbox.cluster import Cluster
from tests.benchmarks.mirrormaker import mirrormaker, properties

PARTITIONS: Final = 4
WARM_S: Final = 20.0
START_WITHIN_S: Final = 120.0
TOPIC: Final = "orders"
COPY: Final = f"a.{TOPIC}"
RESULTS: Final = Path(__file__).with_name("results-latency.json")


class Feeding(threading.Thread):
    """A record each ``1 / rate`` seconds, until told to stop."""

    def __init__(self, address: str, rate: int) -> None:
        super().__init__(name="feeding", daemon=True)
        self.rate = rate
        self.over = threading.Event()
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 0})

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.is_set():
            self._producer.produce(TOPIC, b"%-100d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
            self._producer.poll(0)
            if (early := began + self.sent / self.rate - time.monotonic()) > 0:
                time.sleep(early)
        self._producer.flush(30)


class Reading(threading.Thread):
    """Each record's latency in ms, by when it came (monotonic seconds)."""

    def __init__(self, address: str) -> None:
        super().__init__(name="reading", daemon=True)
        self.over = threading.Event()
        self.found: list[tuple[float, float]] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "latency",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(COPY, number, 0) for number in range(PARTITIONS)])

    def run(self) -> None:
        while not self.over.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                now = time.time()
                self.found.append((time.monotonic(), now * 1000 - message.timestamp()[1]))
        self._consumer.close()


def create(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(timeout=30)


@contextlib.contextmanager
def our_stream(source: str, target: str, folder: Path, epoch_ms: int) -> Iterator[Any]:
    config = folder / "mirror.toml"
    flow = f'source = "a"\ntarget = "b"\ntopics = ["{TOPIC}"]\nepoch-ms = {epoch_ms}'
    clusters = [f'[clusters.{name}]\n"bootstrap.servers" = "{at}"' for name, at in (("a", source), ("b", target))]
    config.write_text("\n".join([*clusters, "[flows.f]", flow]), encoding="utf-8")
    command = [sys.executable, "-m", "mirror.cli", "stream", "--config", str(config)]
    command += ["--report-dir", str(folder / "report")]
    child = subprocess.Popen([*command, "--master", "local[2,4]"], stdout=subprocess.DEVNULL, env=os.environ)
    try:
        yield child
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(60)
        child.kill()
        child.wait()


@contextlib.contextmanager
def their_stream(source: str, target: str, folder: Path, _epoch_ms: int) -> Iterator[Any]:
    with mirrormaker(folder, properties(source, target, TOPIC, exactly_once=True, tasks=PARTITIONS)) as process:
        yield process


STREAMS: Final[dict[str, Callable[[str, str, Path, int], contextlib.AbstractContextManager[Any]]]] = {
    "mirror": our_stream,
    "mirrormaker": their_stream,
}


def measure(name: str, rate: int, seconds: float, epoch_ms: int) -> dict[str, float]:
    with Cluster() as a, Cluster() as b, tempfile.TemporaryDirectory(prefix="latency-") as folder:
        create(a.bootstrap_servers, TOPIC)
        create(b.bootstrap_servers, COPY)
        feeding, reading = Feeding(a.bootstrap_servers, rate), Reading(b.bootstrap_servers)
        reading.start()
        feeding.start()
        with STREAMS[name](a.bootstrap_servers, b.bootstrap_servers, Path(folder), epoch_ms):
            until = time.monotonic() + START_WITHIN_S
            while not reading.found and time.monotonic() < until:
                time.sleep(0.2)
            assert reading.found, f"{name} copied nothing within {START_WITHIN_S} s"
            begins = reading.found[0][0] + WARM_S
            time.sleep(WARM_S + seconds)
            ends = time.monotonic()
            feeding.over.set()
            feeding.join()
            deadline = time.monotonic() + 30
            while len(reading.found) < feeding.sent and time.monotonic() < deadline:
                time.sleep(0.2)
        reading.over.set()
        reading.join()
    found = sorted(ms for at, ms in reading.found if begins <= at <= ends)
    told = {f"p{q}": found[min(len(found) - 1, int(len(found) * q / 100))] for q in (50, 99, 99.9)}
    return {**told, "max": found[-1], "records": len(found), "missing": feeding.sent - len(reading.found)}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STREAMS)}")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--epoch-ms", type=int, default=60_000)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - STREAMS.keys():
        parser.error(f"no such stream: {', '.join(sorted(unknown))}")
    results = {}
    for name in asked.names or STREAMS:
        results[name] = measure(name, asked.rate, asked.seconds, asked.epoch_ms)
        told = json.dumps({key: round(value, 1) for key, value in results[name].items()})
        sys.stdout.write(f"{name} {told}\n")
        sys.stdout.flush()
    RESULTS.write_text(json.dumps({"asked": vars(asked), "ms": results}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
