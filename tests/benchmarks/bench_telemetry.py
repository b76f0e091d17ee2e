"""What telemetry costs: CPU per batch and throughput of a copy, without it, with it, and with a backend that hangs.

    PYTHONPATH=. python tests/benchmarks/bench_telemetry.py [--rounds 10] [--megabytes 150]

The same topic (1 KB of JSON-like records, lz4, large batches, 4 partitions) is copied by three processes in turns, each
in another order from round to round: ``off`` (OTEL_SDK_DISABLED), ``on`` (spans and measurements by OTLP over HTTP to
a receiver in a process of its own, measurements every 5 s) and ``hung`` (to one that takes requests and never answers).
Measured is the copy alone, with the end of its task. Prints medians, and the median of the rounds' ratios to ``off``
with a 95% interval (bootstrap). Results go to results-telemetry.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.flow_topic import offset_topic_of, topic_of
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.runtime.clock import SystemClock
from mirror.sandbox.cluster import Cluster
from mirror.telemetry.settings import TelemetrySettings
from mirror.telemetry.task_telemetry import TaskTelemetry
from mirror.telemetry.traces.ids import period_id
from tests.benchmarks.whole_ranges import whole_ranges
from tests.telemetry import receiver

PARTITIONS: Final = 4
TOPIC: Final = "t"
NAMES: Final = ("off", "on", "hung")
RESULTS: Final = Path(__file__).with_name("results-telemetry.json")
_DRAWN: Final = 10_000


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--child", nargs=2, metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--receiver", choices=("answers", "hangs"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(*given.child)
    elif given.receiver:
        serve(hangs=given.receiver == "hangs")
    else:
        measure(given.rounds, given.megabytes)


def serve(*, hangs: bool) -> None:
    """A receiver, until stdin ends."""
    with receiver.http(hangs=hangs) as (address, _):
        say(address)
        sys.stdin.read()


def child(source: str, target: str) -> None:
    """Copies once for each line on stdin, the name of a flow; tells what that took."""
    settings = TelemetrySettings.of(os.environ)
    for line in sys.stdin:
        say(json.dumps(copy(line.strip(), source, target, settings)))


def copy(flow: str, source: str, target: str, settings: TelemetrySettings) -> dict[str, float]:
    ranges = whole_ranges(flow, source, TOPIC, PARTITIONS)
    clock = SystemClock()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    watcher = None
    if not settings.disabled:
        period = period_id(flow, "bench", 0)
        watcher = TaskTelemetry(settings, period=period, flow=flow, task=0, attempt=0, clock=clock)
    results = copy_ranges(
        ranges,
        source_options={"bootstrap.servers": source},
        target_options={"bootstrap.servers": target},
        policy=CopyPolicy(),
        watcher=watcher,
    )
    copied = time.monotonic()
    if watcher is not None:
        watcher.finish()
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert all(one.outcome is Outcome.COMPLETE for one in results), results
    batches = sum(one.batches for one in results)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu_us_per_batch": cpu / batches * 1e6,
        "megabytes_per_second": sum(one.bytes for one in results) / (copied - began) / 1e6,
        "end_seconds": time.monotonic() - copied,
        "batches": batches,
    }


# --- the rounds


@contextlib.contextmanager
def running(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ask(process: subprocess.Popen[str], line: str) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    result: dict[str, float] = json.loads(process.stdout.readline())
    return result


def measure(rounds: int, megabytes: int) -> None:
    with contextlib.ExitStack() as stack:
        source, target = (stack.enter_context(Cluster()).bootstrap_servers for _ in range(2))
        fill(source, megabytes)
        environments = {"off": {"OTEL_SDK_DISABLED": "true"}}
        for name, kind in (("on", "answers"), ("hung", "hangs")):
            backend = stack.enter_context(running("--receiver", kind))
            assert backend.stdout is not None
            address = backend.stdout.readline().strip()
            environments[name] = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_METRIC_EXPORT_INTERVAL": "5000"}
        children = {
            name: stack.enter_context(running("--child", source, target, environment=environments[name]))
            for name in NAMES
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in NAMES}
        for number in range(-1, rounds):  # the first warms up
            for name in NAMES[number % 3 :] + NAMES[: number % 3]:
                flow = f"{name}{number + 1}"
                prepare(target, flow)
                result = ask(children[name], flow)
                if number >= 0:
                    found[name].append(result)
                forget(target, flow)
                say(f"{number} {name} { {key: round(value, 2) for key, value in result.items()} }")
    show(found, rounds, megabytes)


def fill(source: str, megabytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": source})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    options = {"bootstrap.servers": source, "compression.type": "lz4", "linger.ms": 200, "batch.size": 130_000}
    producer = Producer({**options, "queue.buffering.max.messages": 1_000_000})
    rng = random.Random(1)
    for number in range(megabytes * 1_000_000 // 620):
        value = rng.randbytes(500) + b"x" * 500  # compressed, about 620 bytes on the wire
        while True:
            try:
                producer.produce(TOPIC, value=value, partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def prepare(target: str, flow: str) -> None:
    admin = AdminClient({"bootstrap.servers": target})
    compacted = {"cleanup.policy": "compact"}
    # Without them, a copy waits for its index for 5 s in the end.
    own = [NewTopic(name, 1, 1, config=compacted) for name in (topic_of(flow), offset_topic_of(flow))]
    asked = [NewTopic(f"{flow}.{TOPIC}", PARTITIONS, 1), *own]
    for future in admin.create_topics(asked).values():
        future.result(30)


def forget(target: str, flow: str) -> None:
    """The disk is small."""
    admin = AdminClient({"bootstrap.servers": target})
    admin.delete_topics([f"{flow}.{TOPIC}"])[f"{flow}.{TOPIC}"].result(30)


def show(found: Mapping[str, Sequence[Mapping[str, float]]], rounds: int, megabytes: int) -> None:
    rng = random.Random(1)
    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "date": time.strftime("%Y-%m-%d"),
        "rounds": rounds,
        "megabytes": megabytes,
        "medians": {},
        "to_off": {},
    }
    for name in NAMES:
        results["medians"][name] = {
            key: round(statistics.median(one[key] for one in found[name]), 3) for key in found[name][0]
        }
        for key in ("cpu_us_per_batch", "megabytes_per_second"):
            ratios = [one[key] / off[key] for one, off in zip(found[name], found["off"], strict=True)]
            drawn = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(_DRAWN))
            interval = [round(drawn[int(_DRAWN * q)], 4) for q in (0.025, 0.975)]
            about = {"median": round(statistics.median(ratios), 4), "interval_95": interval}
            results["to_off"].setdefault(name, {})[key] = about
    results["raw"] = found
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    say(json.dumps({key: value for key, value in results.items() if key != "raw"}, indent=1))


if __name__ == "__main__":
    main()
