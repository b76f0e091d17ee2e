"""What it costs to verify while copying: CPU and throughput of a copy with verify off, of a sample, and of all.

    PYTHONPATH=. python tests/benchmarks/bench_read_back.py [--rounds 5] [--megabytes 300] [--way transactions]

The same topic (1 KB records, lz4, 130 KB batches, 4 partitions) is copied in turns by three processes, each in another
order from round to round. Measured is the copy until its results are complete, with what is read back at its end. CPU
is that of the process, without the brokers'. Prints the medians, and those of the rounds' ratios to ``off``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from tests.benchmarks.bench_telemetry import PARTITIONS, TOPIC, ask, fill, forget, prepare, say
from tests.benchmarks.whole_ranges import whole_ranges

MODES: Final = ("off", "sample", "all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--way", default="transactions", help="transactions or sequences; empty: at least once")
    parser.add_argument("--child", nargs=4, metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        source, target, mode, way = given.child
        for line in sys.stdin:
            say(json.dumps(copy(line.strip(), source, target, mode, way)))
    else:
        measure(given.rounds, given.megabytes, given.way)


def copy(flow: str, source: str, target: str, mode: str, way: str) -> dict[str, float]:
    ranges = whole_ranges(flow, source, TOPIC, PARTITIONS)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    results = copy_ranges(
        ranges,
        source_options={"bootstrap.servers": source},
        target_options={"bootstrap.servers": target},
        policy=CopyPolicy(exactly_once=bool(way), exactly_once_by=way or "auto", verify=mode),
    )
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    assert all(one.outcome is Outcome.COMPLETE for one in results), results
    found = [one.read_back or {"batches": 0, "differences": {}, "unverified": {}} for one in results]
    assert not any(one["differences"] for one in found), found
    size = sum(one.bytes for one in results)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu_s_per_gb": cpu / size * 1e9,
        "megabytes_per_second": size / seconds / 1e6,
        "batches": sum(one.batches for one in results),
        "verified": sum(one["batches"] for one in found),
        "not_verified": sum(sum(one["unverified"].values()) for one in found),
    }


@contextlib.contextmanager
def copying(source: str, target: str, mode: str, way: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, "--child", source, target, mode, way]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure(rounds: int, megabytes: int, way: str) -> None:
    with contextlib.ExitStack() as stack:
        source, target = (stack.enter_context(Cluster()).bootstrap_servers for _ in range(2))
        fill(source, megabytes)
        children = {mode: stack.enter_context(copying(source, target, mode, way)) for mode in MODES}
        found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
        for number in range(-1, rounds):  # the first warms up
            for mode in MODES[number % 3 :] + MODES[: number % 3]:
                flow = f"{mode}{number + 1}"
                prepare(target, flow)
                copied = ask(children[mode], flow)
                if number >= 0:
                    found[mode].append(copied)
                forget(target, flow)
                say(f"{number} {mode} { {key: round(value, 2) for key, value in copied.items()} }")
    report(found)


def report(found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    for mode in MODES:
        medians = {key: round(statistics.median(one[key] for one in found[mode]), 2) for key in found[mode][0]}
        pairs = list(zip(found[mode], found["off"], strict=True))
        ratios = {
            key: round(statistics.median(one[key] / off[key] for one, off in pairs), 3)
            for key in ("cpu_s_per_gb", "megabytes_per_second")
        }
        say(f"{mode}: {medians}; to off: {ratios}")


if __name__ == "__main__":
    main()
