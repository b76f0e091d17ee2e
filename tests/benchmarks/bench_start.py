"""How long a `mirror run` takes to its first record and to its end, and one that finds nothing new.

    PYTHONPATH=. python tests/benchmarks/bench_start.py [--rounds 5] [--other CHECKOUT]

A new topic of 4 partitions with 1,000 records is copied between two clusters of one broker each; the next run of the
same flow finds nothing to copy. The time counts from the start of the command to the moment at which the target has a
record, and to its exit; the CPU time is that of all processes that it started. The third run of each checkout is the
first one measured: the second one writes the archive of Spark's classes. With ``--other``, runs of that checkout, which
has an environment of its own in ``.venv``, take turns with ours.

Prints medians with the single values, and writes them into results-start.json, without ``--other``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.sandbox.cluster import Cluster

RESULTS: Final = Path(__file__).with_name("results-start.json")
CHECKOUT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 4
RECORDS: Final = 1_000
NOT_MEASURED: Final = 2
WITHIN_S: Final = 180.0
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Timing:
    """One run, in seconds."""

    first_record: float | None
    """None for one that finds nothing new."""
    whole: float
    cpu: float


class Flow:
    """The runs of one checkout."""

    def __init__(self, checkout: Path, folder: Path, source: str, target: str) -> None:
        folder.mkdir()
        self._command: Final = checkout / ".venv/bin/mirror"
        self._folder: Final = folder
        self._source, self._target = source, target
        self._topics = 0
        # An archive of classes, a report and a configuration of its own.
        self._environment: Final = {
            **os.environ,
            "PYTHONPATH": str(checkout),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def copy(self) -> Timing:
        """Copy a new topic."""
        self._topics += 1
        topic = f"{self._folder.name}-{self._topics}"
        admin = AdminClient({"bootstrap.servers": self._source})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
        producer = Producer({"bootstrap.servers": self._source})
        for number in range(RECORDS):
            producer.produce(topic, b"%0100d" % number, partition=number % PARTITIONS)
        producer.flush()
        (self._folder / "mirror.toml").write_text(
            f'[clusters.a]\n"bootstrap.servers" = "{self._source}"\n'
            f'[clusters.b]\n"bootstrap.servers" = "{self._target}"\n'
            f'[flows.{self._folder.name}]\nsource = "a"\ntarget = "b"\ntopics = ["{topic}"]\n'
        )
        return self._run(f"a.{topic}")

    def find_nothing(self) -> Timing:
        """Run once more."""
        return self._run(None)

    def _run(self, awaited: str | None) -> Timing:
        arguments = ["run", "--config", "mirror.toml", "--report-dir", "report"]
        before, began = _cpu_of_children(), time.monotonic()
        with (
            (self._folder / "output.txt").open("wb") as output,
            subprocess.Popen(
                [self._command, *arguments], cwd=self._folder, env=self._environment, stdout=output, stderr=output
            ) as run,
        ):
            try:
                first = None if awaited is None else self._first_record(awaited, run) - began
                run.wait(WITHIN_S)
            finally:
                run.kill()
        whole = time.monotonic() - began
        if run.returncode:
            sys.exit(f"mirror run ended with {run.returncode}: {(self._folder / 'output.txt').read_text()}")
        return Timing(first, whole, _cpu_of_children() - before)

    def _first_record(self, topic: str, run: subprocess.Popen[bytes]) -> float:
        consumer = Consumer({"bootstrap.servers": self._target, "group.id": "bench"})
        try:
            while run.poll() is None:
                for partition in range(PARTITIONS):
                    try:
                        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=1)
                    except KafkaException:
                        break  # the topic is not there yet
                    if end > 0:
                        return time.monotonic()
                time.sleep(_POLL_S)
        finally:
            consumer.close()
        sys.exit(f"nothing was copied: {(self._folder / 'output.txt').read_text()}")


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _summary(timings: list[Timing]) -> dict[str, object]:
    values = {name: [one[name] for one in map(asdict, timings) if one[name] is not None] for name in asdict(timings[0])}
    return {
        name: {"median": round(statistics.median(each), 1), "each": [round(one, 1) for one in each]}
        for name, each in values.items()
        if each
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--other", type=Path)
    options = parser.parse_args()
    checkouts = {"ours": CHECKOUT, **({"other": options.other.absolute()} if options.other else {})}
    found = defaultdict[str, list[Timing]](list)
    with Cluster() as source, Cluster() as target, tempfile.TemporaryDirectory(prefix="start-") as folder:
        ends = source.bootstrap_servers, target.bootstrap_servers
        flows = {name: Flow(checkout, Path(folder, name), *ends) for name, checkout in checkouts.items()}
        for flow in flows.values():
            for _ in range(NOT_MEASURED):
                flow.copy()
        for _ in range(options.rounds):
            for name, flow in flows.items():
                found[f"{name}: new records"].append(flow.copy())
                found[f"{name}: nothing new"].append(flow.find_nothing())
    results = {name: _summary(timings) for name, timings in found.items()}
    print(json.dumps(results, indent=1))  # noqa: T201
    if not options.other:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
