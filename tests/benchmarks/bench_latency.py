"""How long a record takes from its producer at the source to a reader of committed records at the target.

    PYTHONPATH=. python tests/benchmarks/bench_latency.py [--rate 1000] [--partitions 4] [--seconds 180]
        [--epoch-ms 60000] [--profile FILE] [--output FILE] [--records FILE] [NAME ...]

NAME: ``mirror`` (`mirror stream` as it comes), ``mirror-sequences``, ``mirror-transactions``, ``mirror-at-least-once``;
``task-sequences``, ``task-transactions`` and ``task`` (at least once), which are one task in a process of its own
without Spark; ``mirrormaker`` (MirrorMaker 2 with exactly-once support),
``mirrormaker-default`` (as it comes) and ``mirrormaker-low-latency`` (with exactly-once support, a producer that does
not linger); ``plain-spark`` (micro-batches), ``plain-spark-real-time`` (real-time mode,
which commits each 5 minutes by default) and ``plain-spark-real-time-shortest`` (each 5 s). They run one after the
other, on clusters of their own, and may be repeated; by default ``mirror`` and ``mirrormaker``.

``rate`` records of 100 bytes a second are spread evenly over the partitions, by one producer without linger. Measured
is from when a record is handed to the producer, by its number, to when another client has it: Spark's sink gives copies
timestamps of their own. Prints percentiles, the CPU seconds of the copier's processes and of both brokers, and of a
task the requests a second by API; the first 20 s after a record of each partition arrived are left out, and the gap
between epochs is in. Results go to results-latency.json, or to the file of ``--output``. Each record's (name, seconds
since the first one that is measured, partition, latency in ms) goes to the file of ``--records``, as JSON lines.
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
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from mirror.sandbox.cluster import HEAP as HEAP_OF_BROKERS
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.process import start_time
from tests.benchmarks.brokers import cluster
from tests.benchmarks.mirrormaker import NO_LINGER, mirrormaker, properties
from tests.benchmarks.plain_spark import command as plain
from tests.benchmarks.side_by_side.mirrormaker_settings import java
from tests.benchmarks.side_by_side.running import last_line

PARTITIONS: Final = 4
BROKERS: Final = {"log.index.size.max.bytes": "262144"}
"""With the default, a partition's first entry in an index maps 10 MB of a sparse file, after 4 KB of records. 300
partitions get there at the same time: the broker was in the kernel (6.18, ext4) for 8 s, and answered nothing."""
READ_WAIT_MS: Final = 100
WARM_S: Final = 20.0
START_WITHIN_S: Final = 300.0
PLAIN_LOG: Final = "plain-spark.log"
TOPIC: Final = "orders"
COPY: Final = f"a.{TOPIC}"
MOST_OFFSETS: Final = 100_000
"""Of a micro-batch of plain Spark: this bounds what a failure makes it write again."""
_MOST_SLOTS: Final = 16
"""Of micro-batches, for one JVM on two cores."""
RESULTS: Final = Path(__file__).with_name("results-latency.json")
_PORTION: Final = 2_000
"""A controller takes no request that makes 10,000 records, and a partition makes one."""


class Feeding(threading.Thread):
    """A record each ``1 / rate`` seconds, until ``over`` is set."""

    def __init__(self, address: str, rate: int, partitions: int) -> None:
        super().__init__(name="feeding", daemon=True)
        self.rate = rate
        self.partitions = partitions
        self.over = threading.Event()
        self.sent = 0
        self.sent_at: list[float] = []
        """When each record was handed to the producer (monotonic seconds), by its number."""
        # Otherwise a source that does not answer for long gets records twice, as if the copy had doubled them.
        self._producer = Producer(
            {"bootstrap.servers": address, "linger.ms": 0, "log_level": 0, "enable.idempotence": True}
        )

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.is_set():
            self.sent_at.append(time.monotonic())
            self._producer.produce(TOPIC, b"%-100d" % self.sent, partition=self.sent % self.partitions)
            self.sent += 1
            self._producer.poll(0)
            if (early := began + self.sent / self.rate - time.monotonic()) > 0:
                time.sleep(early)
        self._producer.flush(30)


class Reading(threading.Thread):
    """Each record's partition and latency in ms, by when it came (monotonic seconds), and the records' numbers."""

    def __init__(self, address: str, partitions: int, sent_at: Sequence[float], most: int | None = None) -> None:
        """``sent_at``: the feeding's. ``most``: of more partitions than that it reads so many, evenly spread."""
        super().__init__(name="reading", daemon=True)
        self.read: Final = range(0, partitions, -(-partitions // most) if most else 1)
        """The partitions that it reads."""
        self.over = threading.Event()
        self.found: list[tuple[float, int, float]] = []
        self.numbers: list[int] = []
        self._sent_at = sent_at
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "latency",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
                "fetch.wait.max.ms": READ_WAIT_MS,
            }
        )
        self._consumer.assign([TopicPartition(COPY, number, 0) for number in self.read])

    def run(self) -> None:
        while not self.over.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                now, number = time.monotonic(), int(message.value() or b"")
                self.numbers.append(number)
                self.found.append((now, message.partition() or 0, (now - self._sent_at[number]) * 1000))
        self._consumer.close()


def create(address: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, min(partitions, _PORTION), 1)])[topic].result(timeout=60)
    for count in [*range(2 * _PORTION, partitions, _PORTION), partitions] if partitions > _PORTION else ():
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(timeout=120)
    while len(admin.list_topics(topic, timeout=60).topics[topic].partitions) < partitions:
        time.sleep(0.2)  # the broker applies what the controller has made
    while not _have_logs(admin, topic, partitions):
        time.sleep(0.2)


def _have_logs(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether the broker has a log for each partition.

    It makes 1,000 in 8 s of both cores, after it shows the topic. A copier that begins meanwhile would wait for that,
    also for the topics of its own, which come after them: 23 s of the 31 s until the first record.
    """
    for found in admin.list_offsets(
        {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)},  # type: ignore[no-untyped-call]
        request_timeout=60,
    ).values():
        try:
            found.result()
        except KafkaException:
            return False
    return True


def records_in(address: str, partitions: Iterable[int]) -> int:
    """Return how many records these partitions of the source have: those that the copy can copy.

    librdkafka's idempotent producer may report the first record of a new partition as delivered, without an offset,
    although the log does not have it.
    """
    consumer = Consumer({"bootstrap.servers": address, "group.id": "ends", "log_level": 0})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=30) for n in partitions]
        return sum(high - low for low, high in marks)
    finally:
        consumer.close()


@dataclass(frozen=True)
class Load:
    """What is copied, and for how long an epoch of ours lasts."""

    source: str
    target: str
    folder: Path
    partitions: int
    epoch_ms: int
    profile: str = ""


@contextlib.contextmanager
def ended_after(child: subprocess.Popen[Any]) -> Iterator[int]:
    """The process id while the block runs; the process is stopped behind it."""
    try:
        yield child.pid
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(60)
        child.kill()
        child.wait()


def our_stream(line: str, load: Load, topics: str = TOPIC) -> contextlib.AbstractContextManager[int]:
    config = load.folder / "mirror.toml"
    flow = f'source = "a"\ntarget = "b"\ntopics = ["{topics}"]\nperiod-ms = {load.epoch_ms}\n{line}'
    addresses = (("a", load.source), ("b", load.target))
    clusters = [f'[clusters.{name}]\n"bootstrap.servers" = "{at}"' for name, at in addresses]
    config.write_text("\n".join([*clusters, "[flows.f]", flow]), encoding="utf-8")
    command = [sys.executable, "-m", "mirror.cli", "stream", "--config", str(config)]
    command += ["--report-dir", str(load.folder / "report"), "--master", "local[2,4]"]
    return ended_after(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ))


def one_task(way: str, load: Load) -> contextlib.AbstractContextManager[int]:
    asked: dict[str, object] = {"source": load.source, "target": load.target, "topic": TOPIC, "copy": COPY}
    asked |= {"partitions": load.partitions, "profile": load.profile, "requests": str(requests_file(load))}
    asked |= {"way": way}
    command = [sys.executable, "-m", "tests.benchmarks.one_task", json.dumps(asked)]
    return ended_after(subprocess.Popen(command, env=os.environ))


def requests_file(load: Load) -> Path:
    """Where the task writes how many requests it has made, by cluster and API."""
    return load.folder / "requests.json"


@contextlib.contextmanager
def their_stream(exactly_once: bool, load: Load, *, low_latency: bool = False) -> Iterator[int]:
    settings = properties(load.source, load.target, TOPIC, exactly_once=exactly_once, tasks=PARTITIONS)
    if low_latency:
        settings |= NO_LINGER
    with mirrormaker(load.folder, settings, heap=java(PARTITIONS)) as process:
        yield process.pid


def plain_spark(trigger: dict[str, str], load: Load) -> contextlib.AbstractContextManager[int]:
    """Spark alone, whose producer does not linger by default. Started again it goes on by its checkpoint."""
    # Real-time mode needs a slot for each partition.
    slots = load.partitions if "realTime" in trigger else min(load.partitions, _MOST_SLOTS)
    checkpoint, master = str(load.folder / "checkpoint"), f"local[{slots}]"
    asked = plain.PlainSpark(
        *(load.source, load.target, TOPIC, COPY, checkpoint, trigger),
        master=master,
        most_offsets=MOST_OFFSETS,
        consumers=load.partitions + slots,
    )
    with (load.folder / PLAIN_LOG).open("ab") as log:
        return ended_after(subprocess.Popen(plain.command(asked), stdout=log, stderr=log, env=os.environ))


STREAMS: Final[dict[str, Callable[[Load], contextlib.AbstractContextManager[int]]]] = {
    "mirror": partial(our_stream, ""),
    "mirror-sequences": partial(our_stream, 'exactly-once-by = "sequences"'),
    "mirror-transactions": partial(our_stream, 'exactly-once-by = "transactions"'),
    "mirror-at-least-once": partial(our_stream, 'delivery = "at-least-once"'),
    "task": partial(one_task, ""),
    "task-sequences": partial(one_task, "sequences"),
    "task-transactions": partial(one_task, "transactions"),
    "mirrormaker": partial(their_stream, True),
    "mirrormaker-default": partial(their_stream, False),
    "mirrormaker-low-latency": partial(their_stream, True, low_latency=True),
    "plain-spark": partial(plain_spark, plain.MICRO_BATCHES),
    "plain-spark-real-time": partial(plain_spark, plain.REAL_TIME),
    "plain-spark-real-time-shortest": partial(plain_spark, plain.REAL_TIME_SHORTEST),
}


class Meter:
    """What the copier's processes and both brokers have used since it was made."""

    def __init__(self, processes: Mapping[str, int], requests: Path) -> None:
        """``processes``: the ids by what their figures are called."""
        self._processes = {name: psutil.Process(process) for name, process in processes.items()}
        self._requests = requests
        self._began = time.monotonic()
        self._first = self._read()

    def figures(self) -> dict[str, float]:
        seconds = time.monotonic() - self._began
        last = self._read()
        used = {name: value - self._first.get(name, 0) for name, value in last.items()}
        cpu = {name: value for name, value in used.items() if name.endswith("_cpu_s")}
        return cpu | {f"{name}/s": value / seconds for name, value in used.items() if name not in cpu and value}

    def _read(self) -> dict[str, float]:
        found = {f"{name}_cpu_s": _cpu(process) for name, process in self._processes.items()}
        if self._requests.exists():
            found |= json.loads(self._requests.read_text(encoding="utf-8"))
        return found


def _cpu(root: psutil.Process) -> float:
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


@dataclass(frozen=True)
class Fed:
    """Two clusters, a producer at the source and a reader at the target."""

    source: Cluster
    target: Cluster
    folder: Path
    feeding: Feeding
    reading: Reading

    def await_first(self, name: str, copier: int) -> None:
        """Wait for the first record of the stream ``name``, whose process id is ``copier``.

        Raises AssertionError if none comes in time, or the process ends.
        """
        self._await_partitions(name, copier, 1)

    def await_each(self, name: str, copier: int) -> None:
        """As :meth:`await_first`, for a record of each partition that is read."""
        self._await_partitions(name, copier, len(self.reading.read))

    def _await_partitions(self, name: str, copier: int, wanted: int) -> None:
        until = time.monotonic() + START_WITHIN_S
        while (have := len({partition for _, partition, _ in self.reading.found})) < wanted:
            assert start_time(copier) is not None, f"{name} has ended before it had begun{self._reason()}"
            assert time.monotonic() < until, f"{name} began {have} of {wanted} partitions within {START_WITHIN_S} s"
            time.sleep(0.2)

    def _reason(self) -> str:
        log = self.folder / PLAIN_LOG
        return f": {last_line(log)}" if log.exists() else ""

    def stop(self) -> int:
        """Stop the producer, and return how many records the source has, once these have come, or after 30 s."""
        self.feeding.over.set()
        self.feeding.join()
        appended = records_in(self.source.bootstrap_servers, self.reading.read)
        deadline = time.monotonic() + 30
        while len(set(self.reading.numbers)) < appended and time.monotonic() < deadline:
            time.sleep(0.2)
        return appended


@contextlib.contextmanager
def fed(
    rate: int, partitions: int, heap: tuple[str, ...] = HEAP_OF_BROKERS, most_read: int | None = None
) -> Iterator[Fed]:
    """Records come while the block runs; all threads and clusters end with it. ``heap``: of each broker.

    ``most_read``: of more partitions than that so many are read.
    """
    with (
        cluster(properties=BROKERS, heap=heap) as a,
        cluster(properties=BROKERS, heap=heap) as b,
        tempfile.TemporaryDirectory(prefix="latency-") as folder,
    ):
        create(a.bootstrap_servers, TOPIC, partitions)
        create(b.bootstrap_servers, COPY, partitions)
        feeding = Feeding(a.bootstrap_servers, rate, partitions)
        reading = Reading(b.bootstrap_servers, partitions, feeding.sent_at, most_read)
        reading.start()
        feeding.start()
        try:
            yield Fed(a, b, Path(folder), feeding, reading)
        finally:
            feeding.over.set()
            reading.over.set()
            feeding.join()
            reading.join()


def measure(
    name: str,
    rate: int,
    seconds: float,
    epoch_ms: int,
    partitions: int = PARTITIONS,
    profile: str = "",
    records: Path | None = None,
) -> dict[str, float]:
    with fed(rate, partitions) as site:
        a, b, reading = site.source, site.target, site.reading
        load = Load(a.bootstrap_servers, b.bootstrap_servers, site.folder, partitions, epoch_ms, profile)
        with STREAMS[name](load) as copier:
            site.await_each(name, copier)
            begins = time.monotonic() + WARM_S
            time.sleep(WARM_S)
            brokers = {name: next(iter(cluster.pids.values())) for name, cluster in (("source", a), ("target", b))}
            meter = Meter({"copier": copier, **brokers}, requests_file(load))
            time.sleep(seconds)
            used = meter.figures()
            ends = time.monotonic()
            appended = site.stop()
    if records is not None:
        with records.open("a", encoding="utf-8") as lines:
            lines.writelines(f"{json.dumps([name, at - begins, tp, ms])}\n" for at, tp, ms in reading.found)
    found = sorted(ms for at, _, ms in reading.found if begins <= at <= ends)
    percentiles = {f"p{q}": found[min(len(found) - 1, int(len(found) * q / 100))] for q in (50, 90, 99, 99.9)}
    missing = appended - len(reading.found)
    return {**percentiles, "max": found[-1], "records": len(found), "missing": missing, **used}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STREAMS)}")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--profile", default="", help="where cProfile's figures of `task` go")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--epoch-ms", type=int, default=60_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--records", type=Path)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - STREAMS.keys():
        parser.error(f"no such stream: {', '.join(sorted(unknown))}")
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    for name in asked.names or ("mirror", "mirrormaker"):
        figures = measure(
            name,
            asked.rate,
            asked.seconds,
            asked.epoch_ms,
            partitions=asked.partitions,
            profile=asked.profile,
            records=asked.records,
        )
        results[name].append(figures)
        sys.stdout.write(f"{name} {json.dumps({key: round(value, 1) for key, value in figures.items()})}\n")
        sys.stdout.flush()
    report = {"asked": vars(asked), "ms": results}
    asked.output.write_text(json.dumps(report, indent=2, default=str) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
