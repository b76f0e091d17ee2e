"""Time and memory of a rehearsal of many partitions, between brokers in memory.

    PYTHONPATH=. python tests/benchmarks/bench_rehearsal.py [--partitions 10000]

A topic is copied, and then each hundredth partition gets records that are not. There is a group for each 100
partitions, whose positions are committed on both sides. CPU is that of this process without the brokers'. Memory is
the peak of what Python has allocated meanwhile, in a rehearsal of its own, because counting it takes time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from mirror.client import TopicPartition
from mirror.config.load import load
from mirror.rehearsal.values import Rehearsal
from mirror.spark.clusters import open_sides
from mirror.spark.rehearsing.rehearse import Request, rehearse
from tests.fakes.broker_time import broker_time
from tests.fakes.cluster import GroupOffset
from tests.relay.fake_pair import FLOW, FakePair

RECORDS: Final = 3
PER_GROUP: Final = 100
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rehearsal took."""

    rehearsal: Rehearsal
    seconds: float
    cpu_s: float
    """Without the brokers'."""
    bytes: int
    """At most; 0 if it was not counted."""


def filled(monkeypatch: pytest.MonkeyPatch, partitions: int) -> FakePair:
    """A copied topic with groups on both sides, and some records that are not copied."""
    pair = FakePair(monkeypatch, partitions=partitions)
    pair.target.add_topic(f"mirror-groups.{FLOW}.internal")
    for partition in range(partitions):
        pair.write(*(b"%d" % number for number in range(RECORDS)), partition=partition)
    for first in range(0, partitions, _AT_ONCE):
        pair.copy_all([pair.range_of(partition) for partition in range(first, min(first + _AT_ONCE, partitions))])
    for partition in range(partitions):
        group = f"group-{partition // PER_GROUP}"
        pair.source.groups[group][TopicPartition("t", partition)] = GroupOffset(2, -1, "")
        pair.target.groups[group][TopicPartition("paris.t", partition)] = GroupOffset(1, -1, "")
    for partition in range(0, partitions, PER_GROUP):
        pair.write(b"late", partition=partition)
    return pair


def measure(pair: FakePair, folder: Path, *, memory: bool = False) -> Measured:
    """Rehearse once. ``memory``: count what is allocated."""
    file = folder / "mirror.toml"
    file.write_text(
        f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
        f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
        f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\nconfigs = "off"\n[flows.{FLOW}.groups]\n'
    )
    config = load(file)
    (flow,) = config.select()
    if memory:
        tracemalloc.start()
    try:
        with broker_time() as brokers, open_sides(config, flow) as sides:
            began_s, cpu_s = time.perf_counter(), time.process_time()
            found = rehearse(Request(config=config, flow=flow), sides)
            seconds, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        return Measured(found, seconds, used_s - brokers.cpu_seconds, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    partitions = parser.parse_args().partitions
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory() as folder:
        pair = filled(monkeypatch, partitions)
        runs = [measure(pair, Path(folder)) for _ in range(3)]
        peak = measure(pair, Path(folder), memory=True).bytes
    found = runs[0].rehearsal
    sys.stdout.write(
        f"{partitions:,} partitions, {len(found.groups):,} groups, {found.records:,} records not arrived: "
        f"{'; '.join(f'{one.seconds:.1f} s, {one.cpu_s:.1f} s of CPU' for one in runs)}; {peak / 1e6:.0f} MB\n"
    )


if __name__ == "__main__":
    main()
