"""What LATENCY.md says of what was measured."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mirror.sandbox.cluster import Cluster
from tests.benchmarks import bench_latency, sample_results
from tests.benchmarks.bench_latency import PLAIN_LOG, Fed, Feeding, Reading, create
from tests.benchmarks.latency_table.page import page
from tests.benchmarks.side_by_side.figures import Results
from tests.polling import eventually


def page_of(*runs: dict[str, Any]) -> str:
    return page(Results.of(sample_results.results("") | {"loads": runs}))


def run(copier: str, number: int, p50: float, **others: Any) -> dict[str, Any]:
    figures = {"p50": p50, "p99": 4 * p50, "max": 9 * p50, "missing": 0, "copier_cpu_s": 5.0}
    case = {"partitions": 300, "rate": 150, "seconds": 20, "epoch_ms": 180_000}
    brokers = {"target_cpu_s": 8.0, "source_cpu_s": 2.0}
    return {"copier": copier, "round": number, **case, **figures, **brokers, **others}


def test_figures_are_medians_and_their_ratios() -> None:
    ours = [run("mirror-sequences", number, p50) for number, p50 in ((1, 7.0), (2, 5.0), (3, 6.0))]
    theirs = [run("mirrormaker-default", number, p50) for number, p50 in ((1, 9.0), (2, 8.0), (3, 50.0))]
    at_least_once = [run("mirror-at-least-once", number, 6.0, target_cpu_s=7.0) for number in (1, 2, 3)]
    text = page_of(*ours, *theirs, *at_least_once)
    title = "300 partitions, 150 records a second, 20 s"
    assert f"| {title} | p50, to MirrorMaker 2's defaults | at most 1 | 0.67 | 0.12 to 0.78 | 3 | met |" in text
    assert (
        f"| {title} | CPU of both brokers, to at least once | at most 1.05 | 1.11 | 1.11 to 1.11 | 3 | missed |" in text
    )
    assert "| MirrorMaker 2, defaults | 3 | 9.0 [8.0 to 50.0] | 36.0 [32.0 to 200] |" in text
    assert "no period of ours ends meanwhile" in text


def test_runs_that_failed_or_lack_records_are_named() -> None:
    failed = {key: value for key, value in run("mirrormaker", 1, 1.0).items() if key not in {"p50", "p99"}}
    runs = [failed | {"failed": "AssertionError: no"}, run("mirror-sequences", 2, 5.0, missing=-3)]
    text = page_of(*runs)
    assert "round 1, MirrorMaker 2, exactly-once support: failed, counts in no figure: AssertionError: no" in text
    assert "round 2, mirror, exactly once by sequences: arrived twice: 3" in text


def test_a_stream_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / PLAIN_LOG).write_text("started\nIllegalArgumentException: no such trigger\n", encoding="utf-8")
    unused = cast("Any", None)
    site = Fed(unused, unused, tmp_path, unused, cast("Any", SimpleNamespace(found=[])))
    with (
        subprocess.Popen([sys.executable, "-c", ""]) as child,
        pytest.raises(AssertionError, match="plain-spark has ended before it had begun: IllegalArgumentException"),
    ):
        site.await_first("plain-spark", child.pid)


def test_latency_counts_from_the_producer_also_for_copies_with_timestamps_of_their_own(
    source_cluster: Cluster, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, topic, copy = source_cluster.bootstrap_servers, unique("orders"), unique("a.orders")
    monkeypatch.setattr(bench_latency, "TOPIC", topic)
    monkeypatch.setattr(bench_latency, "COPY", copy)
    for name in (topic, copy):
        create(address, name, partitions=1)
    feeding = Feeding(address, rate=20, partitions=1)
    reading = Reading(address, 1, feeding.sent_at)
    for thread in (reading, feeding):
        thread.start()
    try:
        source = Consumer({"bootstrap.servers": address, "group.id": unique("copier"), "log_level": 0})
        target = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
        source.assign([TopicPartition(topic, 0, 0)])
        for record in source.consume(10, timeout=30):
            time.sleep(0.2)
            target.produce(copy, record.value())  # its timestamp is the time of this line
            target.flush(30)
        source.close()
        eventually(lambda: len(reading.found) >= 10, what="ten copies")
    finally:
        for thread in (feeding, reading):
            thread.over.set()
            thread.join()
    latencies = [ms for _, _, ms in reading.found]
    assert len(latencies) == 10
    assert min(latencies) >= 200
