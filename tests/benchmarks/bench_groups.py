"""How long a consumer group's commit at the source takes to the target's commit, of many groups at once.

    PYTHONPATH=. python tests/benchmarks/bench_groups.py [--groups 1000] [--partitions 10] [--rate 200] [--seconds 60]
        [--interval-ms 10000] [--output FILE] [NAME ...]

NAME: ``mirror`` (`mirror stream` with `interval-ms`), ``mirror-1s`` (the same, with the shortest one, a second),
``mirror-copies`` (without groups), ``mirrormaker`` (MirrorMaker 2 with ``sync.group.offsets.enabled``, at its shortest
intervals, a second, and an offset sync of each record), ``mirrormaker-copies`` (without groups), ``nothing`` (only the
groups' own commits). They run one after the other, on clusters of one broker of their own; by default all of them.

One topic is fed with ``rate`` records of 100 bytes a second. Each group commits the ends of all its partitions once a
second, spread over the second, by requests that were encoded beforehand. Measured is, by the times that the two
coordinators have written, from each commit to the first one at the target that is as far or further. The first 20 s
after a group has arrived are left out. Prints percentiles in ms, how many commits were not there 2.5 intervals later,
the time between two commits of a position at the target in ms, and the CPU seconds a second of the copier (all its
processes; of ours also the driver alone) and of both brokers. The figures replace those of the same names in
results-groups.json, or the file of ``--output``.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from mirror.client import Admin, OffsetAndMetadata
from mirror.client import TopicPartition as Tp
from mirror.sandbox.cluster import Cluster
from tests.benchmarks.bench_latency import BROKERS, COPY, PARTITIONS, TOPIC, Load, create, our_stream
from tests.benchmarks.brokers import cluster
from tests.benchmarks.group_load import Commits, Committing, Feeding, commits_of
from tests.benchmarks.mirrormaker import mirrormaker, properties
from tests.benchmarks.side_by_side.mirrormaker_settings import java

WARM_S: Final = 20.0
START_WITHIN_S: Final = 120.0
EPOCH_MS: Final = 60_000
RESULTS: Final = Path(__file__).with_name("results-groups.json")
SIZE: Final = {"groups": 1_000, "partitions": 10, "rate": 200}
SECONDS: Final = 60.0
INTERVAL_MS: Final = 10_000
_SHORTEST_MS: Final = 1_000
_LAST_ROUNDS: Final = 5
_COORDINATOR_LOADS: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
_DRIVER: Final = "stream.py"
"""A word of the command line of the driver's Python process."""


def ours(interval_ms: int, load: Load) -> contextlib.AbstractContextManager[int]:
    """By sequences, so that the copy has the offsets of the source."""
    groups = f'\n[flows.f.groups]\ninclude = ["g-.*"]\ninterval-ms = {interval_ms}' if interval_ms else ""
    return our_stream(f'exactly-once-by = "sequences"{groups}', load)


@contextlib.contextmanager
def theirs(interval_ms: int, load: Load) -> Iterator[int]:
    settings = properties(load.source, load.target, TOPIC, exactly_once=False, tasks=PARTITIONS)
    if interval_ms:
        settings |= {
            "a->b.groups": "g-.*",
            "a->b.emit.checkpoints.enabled": "true",
            "a->b.emit.checkpoints.interval.seconds": str(interval_ms // 1000),
            "a->b.sync.group.offsets.enabled": "true",
            "a->b.sync.group.offsets.interval.seconds": str(interval_ms // 1000),
            "a->b.refresh.groups.interval.seconds": "5",
            "a->b.offset.lag.max": "0",
        }
    with mirrormaker(load.folder, settings, heap=java(PARTITIONS)) as process:
        yield process.pid


@contextlib.contextmanager
def nothing(_: Load) -> Iterator[int]:
    yield 0


@dataclass(frozen=True)
class Copier:
    """What is measured: it copies, and if it has an interval, brings the groups along."""

    start: Callable[[Load], contextlib.AbstractContextManager[int]]
    interval_ms: int = 0


def copiers(interval_ms: int) -> dict[str, Copier]:
    """By the names of the command line."""
    return {
        "mirror": Copier(partial(ours, interval_ms), interval_ms),
        "mirror-1s": Copier(partial(ours, _SHORTEST_MS), _SHORTEST_MS),
        "mirror-copies": Copier(partial(ours, 0)),
        "mirrormaker": Copier(partial(theirs, _SHORTEST_MS), _SHORTEST_MS),
        "mirrormaker-copies": Copier(partial(theirs, 0)),
        "nothing": Copier(nothing),
    }


class Meter:
    """The CPU seconds a second of some processes since it was made."""

    def __init__(self, source: Cluster, target: Cluster, copier: int) -> None:
        self._pids: Final = {
            "source_broker": [*source.pids.values()],
            "target_broker": [*target.pids.values()],
            "copier": [copier] if copier else [],
        }
        self._began: Final = time.monotonic()
        self._first: Final = self._read()

    def figures(self) -> dict[str, float]:
        seconds = time.monotonic() - self._began
        return {f"{name}_cpu": (used - self._first.get(name, 0)) / seconds for name, used in self._read().items()}

    def _read(self) -> dict[str, float]:
        used: dict[str, float] = defaultdict(float)
        for name, pids in self._pids.items():
            for pid in pids:
                root = psutil.Process(pid)
                for process in [root, *root.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        times, command = process.cpu_times(), process.cmdline()
                        used[name] += times.user + times.system
                        if name == "copier" and any(_DRIVER in word for word in command) and "python" in command[0]:
                            used["driver"] += times.user + times.system
        return used


def has_arrived(address: str, group: str) -> bool:
    """Whether a group has committed on the target, or without one, whether there are copied records."""
    options = {"bootstrap.servers": address, "group.id": group or "any", "log_level": 0}
    consumer = Consumer(options)
    try:
        if not group:
            return bool(consumer.get_watermark_offsets(TopicPartition(COPY, 0), timeout=10)[1])
        return bool(consumer.committed([TopicPartition(COPY, 0)], timeout=10)[0].offset > 0)
    except KafkaException as error:
        if error.args[0].code() not in _COORDINATOR_LOADS:
            raise
        return False
    finally:
        consumer.close()


def latencies(source: Commits, target: Commits, begin_ms: float, end_ms: float) -> tuple[list[int], int]:
    """Return how long each commit of that time took to the target, in ms, and how many have not come there."""
    found, missing = [], 0
    for position, commits in source.items():
        there = target.get(position, [])
        offsets = [offset for _, offset in there]
        assert offsets == sorted(offsets), position
        for time_ms, offset in commits:
            if begin_ms <= time_ms <= end_ms:
                at = bisect.bisect_left(offsets, offset)
                missing += at == len(there)
                found += [] if at == len(there) else [max(0, there[at][0] - time_ms)]
    return sorted(found), missing


def between_rounds(target: Commits) -> float:
    """Return the median of the times between two commits of a position, in ms."""
    return statistics.median(
        later - earlier
        for commits in target.values()
        for (earlier, _), (later, _) in itertools.pairwise(commits[-_LAST_ROUNDS:])
    )


def measure(copier: Copier, groups: int, partitions: int, rate: int, seconds: float) -> dict[str, float]:
    names = [f"g-{number}" for number in range(groups)]
    with (
        cluster(properties=BROKERS) as a,
        cluster(properties=BROKERS) as b,
        tempfile.TemporaryDirectory(prefix="groups-") as folder,
    ):
        create(a.bootstrap_servers, TOPIC, partitions)
        create(b.bootstrap_servers, COPY, partitions)
        feeding = Feeding(a.bootstrap_servers, TOPIC, rate, partitions)
        committing = Committing(a.bootstrap_servers, TOPIC, names, feeding)
        feeding.start()
        with Admin({"bootstrap.servers": a.bootstrap_servers}) as admin:  # it has the topic of the groups made
            admin.commit_group_offsets("any", {Tp(TOPIC, 0): OffsetAndMetadata(0)})
        committing.start()
        assert committing.ready.wait(START_WITHIN_S)
        load = Load(a.bootstrap_servers, b.bootstrap_servers, Path(folder), partitions, EPOCH_MS)
        with copier.start(load) as pid:
            until = time.monotonic() + START_WITHIN_S
            while pid and not has_arrived(b.bootstrap_servers, names[-1] if copier.interval_ms else ""):
                assert time.monotonic() < until, f"nothing was copied within {START_WITHIN_S} s"
                time.sleep(0.5)
            time.sleep(WARM_S)
            committing.late_s = 0.0
            meter, begin_ms = Meter(a, b, pid), time.time() * 1000
            time.sleep(seconds)
            used, end_ms = meter.figures(), time.time() * 1000
            time.sleep(2.5 * copier.interval_ms / 1000)
            assert committing.is_alive()
            assert feeding.is_alive()
        feeding.over.set()
        committing.over.set()
        committing.join()
        feeding.join()
        found: dict[str, float] = {"late_s": committing.late_s, **used}
        if copier.interval_ms:
            made = commits_of(a.bootstrap_servers, TOPIC, set(names))
            arrived = commits_of(b.bootstrap_servers, COPY, set(names))
            took, missing = latencies(made, arrived, begin_ms, end_ms)
            found["between_rounds"] = between_rounds(arrived)
            found |= {f"p{q}": took[min(len(took) - 1, len(took) * q // 100)] for q in (50, 90, 99)} if took else {}
            found |= {"max": took[-1] if took else -1, "commits": len(took) + missing, "missing": missing}
        return found


def main(arguments: Sequence[str]) -> int:
    known = copiers(0)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--groups", type=int, default=SIZE["groups"])
    parser.add_argument("--partitions", type=int, default=SIZE["partitions"])
    parser.add_argument("--rate", type=int, default=SIZE["rate"])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--interval-ms", type=int, default=INTERVAL_MS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - known.keys():
        parser.error(f"no such copier: {', '.join(sorted(unknown))}")
    results = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {}
    given = {name: getattr(asked, name) for name in ("groups", "partitions", "rate", "seconds")}
    for name in asked.names or known:
        copier = copiers(asked.interval_ms)[name]
        figures = measure(copier, asked.groups, asked.partitions, asked.rate, asked.seconds)
        shown = {key: round(value, 3) for key, value in figures.items()}
        results[name] = {**given, "interval_ms": copier.interval_ms, **shown}
        sys.stdout.write(f"{name} {json.dumps(shown)}\n")
        sys.stdout.flush()
        asked.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
