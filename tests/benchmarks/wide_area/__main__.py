"""How much of a wide-area link a copy uses, by where the copier runs and how it is tuned.

    PYTHONPATH=. python -m tests.benchmarks.wide_area [--rounds 1] [--seconds 25] [--line clean ...]
        [--place pull ...] [--brokers default ...] [--copier mirror ...] [--minutes 60]

A link of 200 Mbit/s and a round trip of 100 ms, which loses no packets (``clean``) or one of a thousand (``lossy``),
is between the copier and one cluster: the source (``pull``) or the target (``push``). Its brokers have Kafka's own
socket buffers of 100 KB (``default``), or leave them to the system (``tuned``). 8 partitions have a backlog of
records of 10 KB that do not compress, in batches of about 200 KB. Measured is, from 10 s after the first records have
arrived, how many bytes of records a second were appended to the target, as a part of the link's rate. Headers of IP
and TCP are not counted: no copy reaches 0.96. Without losses both senders use cubic, with losses BBR, beside which
``lossy-cubic`` shows what cubic makes of it.

Needs root on Linux (a network namespace, TUN devices), Go and Java. Each run is added to ``results.json``, with
the commit; what is there is not measured again. WIDE_AREA.md is written of it. After ``--minutes`` no run begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.fetch import class_path
from mirror.sandbox.java import find_java
from mirror.sandbox.node import render
from tests.benchmarks.brokers import cluster
from tests.benchmarks.loss.copiers import end, launch
from tests.benchmarks.mirrormaker import LOGGING, mirrormaker_jars
from tests.benchmarks.network.links import Line, Link, Namespace, network
from tests.benchmarks.side_by_side import mirrormaker_settings
from tests.benchmarks.side_by_side.results import begin, invocation, is_done
from tests.benchmarks.wide_area.page import PAGE, page
from tests.polling import eventually

FILE: Final = Path(__file__).with_name("results.json")
TOPIC: Final = "orders"
PARTITIONS: Final = 8
MBIT: Final = 200.0
ROUND_TRIP_MS: Final = 100.0
LINES: Final = {
    "clean": Line(ROUND_TRIP_MS / 2, MBIT, 0.0, congestion="cubic"),
    "lossy": Line(ROUND_TRIP_MS / 2, MBIT, 0.001, congestion="bbr"),
    "lossy-cubic": Line(ROUND_TRIP_MS / 2, MBIT, 0.001, congestion="cubic"),
}
PLACES: Final = ("pull", "push")
BROKERS: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "tuned": {"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"},
}
LINK: Final = "LINK"
_RECORD: Final = 10_000
_BACKLOG: Final = 1_300_000_000
_WARM_S: Final = 10.0
_STARTS_WITHIN_S: Final = 90.0
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """One copy, from the alias's cluster to the target; both addresses are behind the links."""

    alias: str
    source: str
    target: str
    folder: Path

    @property
    def copy(self) -> str:
        """The topic on the target."""
        return f"{self.alias}.{TOPIC}"


Command = Sequence[str | Path]

TUNED: Final = {
    "consumer": {"fetch.max.bytes": 128 * _MIB, "max.partition.fetch.bytes": 8 * _MIB},
    "producer": {"buffer.memory": 128 * _MIB, "max.in.flight.requests.per.connection": 5},
}
"""What is set for the flow of our tuned copy, by its clients."""
CONNECTIONS: Final = {"connections.per.broker": 16}
"""What is set for its target."""
TASKS: Final = {"mirror-tuned": 4}
"""Spark's slots, each of which has a task with connections of its own; 2 otherwise."""


def _mirror(name: str, job: Job) -> Command:
    tuned = name == "mirror-tuned"
    lines = [f"[clusters.{job.alias}]", f'"bootstrap.servers" = "{job.source}"']
    lines += ["[clusters.target]", f'"bootstrap.servers" = "{job.target}"', *(_lines(CONNECTIONS) if tuned else ())]
    lines += [f"[flows.{job.alias}]", f'source = "{job.alias}"', 'target = "target"', f'topics = ["{TOPIC}"]']
    for client, keys in TUNED.items() if tuned else ():
        lines += [f"[flows.{job.alias}.{client}]", *_lines(keys)]
    config = job.folder / "mirror.toml"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command: list[str | Path] = [sys.executable, "-m", "mirror.cli", "stream", "--config", config]
    return [*command, "--report-dir", job.folder / "report", "--master", f"local[{TASKS.get(name, 2)},4]"]


def _lines(keys: Mapping[str, int]) -> list[str]:
    return [f'"{key}" = {value}' for key, value in keys.items()]


def _mirrormaker(name: str, job: Job) -> Command:
    found = mirrormaker_settings.settings(
        mirrormaker_settings.DEFAULT if name == "mirrormaker" else mirrormaker_settings.TUNED,
        job.source,
        job.target,
        alias=job.alias,
        topic=TOPIC,
        codec="none",
        partitions=PARTITIONS,
        replicas=1,
        transactional=False,
    )
    if name == "mirrormaker-tuned":
        found |= _wide(job.alias)
    file = job.folder / "mm2.properties"
    file.write_text(render(found), encoding="ascii")
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    java: Command = [find_java().path, *mirrormaker_settings.java(PARTITIONS), LOGGING]
    return [*java, "-cp", class_path(mirrormaker_jars()), main, file]


def _wide(alias: str) -> dict[str, str]:
    """What is set beside the settings of the other benchmarks (a task for each partition, larger batches)."""
    return {
        f"{alias}.consumer.receive.buffer.bytes": "-1",
        f"{alias}.consumer.fetch.max.bytes": str(64 * _MIB),
        f"{alias}.consumer.max.partition.fetch.bytes": str(16 * _MIB),
        "target.producer.send.buffer.bytes": "-1",
        "target.producer.batch.size": str(_MIB),
    }


COPIERS: Final = {
    "mirror": _mirror,
    "mirror-tuned": _mirror,
    "mirrormaker": _mirrormaker,
    "mirrormaker-tuned": _mirrormaker,
}


@dataclass(frozen=True, slots=True)
class Site:
    """Two clusters, one of them far from the copier."""

    source: Cluster
    target: Cluster
    namespace: Namespace
    far: Link
    place: str


@contextlib.contextmanager
def site(place: str, line: str, brokers: str) -> Iterator[Site]:
    """The source has its backlog."""
    far = LINES[line]
    lines = [far, Line()] if place == "pull" else [Line(), far]
    with tempfile.TemporaryDirectory(prefix="wide-area-") as folder, contextlib.ExitStack() as stack:
        namespace, links = stack.enter_context(network(Path(folder), lines))
        clusters = [
            stack.enter_context(
                cluster(
                    listeners={LINK: "PLAINTEXT"},
                    address=link.near,
                    properties=BROKERS[brokers] if is_far else BROKERS["tuned"],
                )
            )
            for link, is_far in zip(links, (place == "pull", place == "push"), strict=True)
        ]
        fill(clusters[0].bootstrap_servers)
        yield Site(clusters[0], clusters[1], namespace, links[0 if place == "pull" else 1], place)


def fill(address: str) -> None:
    """Write the backlog."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    settings = {"batch.size": 200_000, "linger.ms": 50, "queue.buffering.max.kbytes": 65536}
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0, **settings})
    values = [os.urandom(_RECORD) for _ in range(64)]
    for number in range(_BACKLOG // _RECORD):
        while True:
            try:
                # As many in a row as a batch holds.
                producer.produce(TOPIC, values[number % 64], partition=number // 19 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


class Ends:
    """The records that the target has."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer: Final = Consumer({"bootstrap.servers": address, "group.id": "ends", "log_level": 0})
        self._topic: Final = topic

    def total(self) -> int:
        """Return how many there are; 0 while there is no such topic."""
        if len(self._consumer.list_topics(self._topic, timeout=30).topics[self._topic].partitions) < PARTITIONS:
            return 0
        places = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        return sum(self._consumer.get_watermark_offsets(one, timeout=30)[1] for one in places)

    def begun(self) -> bool:
        """Return whether there are some; a partition that was just created may have no leader yet."""
        try:
            return self.total() > 0
        except KafkaException:
            return False

    def close(self) -> None:
        self._consumer.close()


def measure(made: Site, copier: str, seconds: float, number: int) -> dict[str, float]:
    """Copy for so long; return the part of the link that was used, and what has passed it."""
    with tempfile.TemporaryDirectory(prefix="wide-area-run-") as folder:
        alias = f"c{number}"
        job = Job(alias, made.source.bootstrap(LINK), made.target.bootstrap(LINK), Path(folder))
        ends = Ends(made.target.bootstrap_servers, job.copy)
        with made.namespace.entered():
            child = launch(COPIERS[copier](copier, job), job.folder / "output.txt")
        try:
            eventually(ends.begun, within_s=_STARTS_WITHIN_S, every_s=0.2, what=f"records of {copier}")
            time.sleep(_WARM_S)
            first, at, passed = ends.total(), time.monotonic(), _passed(made)
            time.sleep(seconds)
            last, took, then = ends.total(), time.monotonic() - at, _passed(made)
        finally:
            end([child])
            ends.close()
            with contextlib.suppress(KafkaException):  # it may not have been created
                admin = AdminClient({"bootstrap.servers": made.target.bootstrap_servers})
                admin.delete_topics([job.copy])[job.copy].result(60)
        assert last < _BACKLOG // _RECORD, "the backlog is too small"
    bits = (last - first) * _RECORD * 8
    return {
        "used": round(bits / took / (MBIT * 1e6), 3),
        "mb_s": round(bits / 8e6 / took, 2),
        "link": round((then["bytes"] - passed["bytes"]) * 8 / took / (MBIT * 1e6), 3),
        "lost": round((then["lost"] - passed["lost"]) / max(1, then["packets"] - passed["packets"]), 5),
        "overflowed": round((then["overflowed"] - passed["overflowed"]) / max(1, then["packets"]), 5),
    }


def _passed(made: Site) -> Mapping[str, int]:
    """What has passed the link in the direction of the records."""
    return made.far.counts()[0 if made.place == "pull" else 1]


def main(arguments: Sequence[str]) -> int:
    """Measure what is missing; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--line", action="append", choices=list(LINES))
    parser.add_argument("--place", action="append", choices=PLACES)
    parser.add_argument("--brokers", action="append", choices=list(BROKERS))
    parser.add_argument("--copier", action="append", choices=list(COPIERS))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--output", type=Path, default=FILE)
    asked = parser.parse_args(arguments)
    until = time.monotonic() + asked.minutes * 60
    results = begin(asked.output, invocation(0, arguments))
    cases = [
        (number, line, place, brokers)
        for number in range(1, asked.rounds + 1)
        for line in asked.line or ("clean", "lossy")
        for place in asked.place or PLACES
        for brokers in asked.brokers or BROKERS
    ]
    for number, line, place, brokers in cases:
        case = {"round": number, "line": line, "place": place, "brokers": brokers, "seconds": asked.seconds}
        missing = [
            copier for copier in asked.copier or COPIERS if not is_done(case | {"copier": copier}, results["runs"])
        ]
        if missing and time.monotonic() < until:
            with site(place, line, brokers) as made:
                for copier in missing:
                    if time.monotonic() < until:
                        _add(results, made, case | {"copier": copier})
                        asked.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if asked.output == FILE:
        PAGE.write_text(page(results, tuned()), encoding="utf-8")
    return 0


def tuned() -> list[str]:
    """Return what the tuned copiers have, a line for each."""
    keys = {**TUNED["consumer"], **TUNED["producer"], **CONNECTIONS}
    ours = ", ".join(f"`{key} = {value}`" for key, value in keys.items())
    theirs = ", ".join(f"`{key} = {value}`" for key, value in sorted(_wide("SOURCE").items()))
    return [f"- mirror tuned: `--master local[{TASKS['mirror-tuned']}]`, {ours}.", f"- MirrorMaker 2 tuned: {theirs}."]


def _add(results: dict[str, Any], made: Site, run: dict[str, Any]) -> None:
    try:
        found: dict[str, Any] = dict(measure(made, run["copier"], run["seconds"], len(results["runs"])))
    except Exception as error:  # noqa: BLE001 - the other copiers' turns come all the same
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    results["runs"].append(run | found)
    sys.stdout.write(f"{json.dumps(results['runs'][-1])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
