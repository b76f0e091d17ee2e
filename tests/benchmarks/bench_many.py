"""What very many partitions cost a run besides their copies: plans, ledger, summary, report and status. No broker.

    PYTHONPATH=. python tests/benchmarks/bench_many.py [--partitions 100000]

Two clusters in memory, with 10 partitions a topic and three brokers each; planner, packing, ledger, summary, report and
status are the real ones, and speak with them through the real client and codecs. The plan of the first run is made, the
results of all partitions are recorded, and the progress is committed with what a copy keeps in it (claim, way, the
state of the target). The second plan reads that progress: nothing is new but in one partition of a hundred.

Prints the seconds by the clock and of CPU of each step, without those that the brokers in memory take, and by how much
the process has grown. The figures replace those of the same number in results-many.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.spark.driver.report.report_file import render_report
from mirror.spark.driver.report.report_source import ReportSource
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.ledger.results import FlowReport, Summary, join_results
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_topics
from mirror.spark.status.status_reader import StatusReader
from tests.fakes.admin import FakeAdmin
from tests.fakes.broker_time import BrokerTime, broker_time
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

RESULTS: Final = Path(__file__).with_name("results-many.json")
PER_TOPIC: Final = 10
NEW_EACH: Final = 100
NOW_MS: Final = 1_800_000_000_000
ONE: Final = flow(topics=["orders-.*"], max_partitions_in_parallel=10_000_000, max_bytes_per_run=2**50)


class Steps:
    """Measures one step after the other."""

    def __init__(self, brokers: BrokerTime) -> None:
        self.found: Final = dict[str, dict[str, float]]()
        self._brokers: Final = brokers

    def run(self, name: str, work: Callable[[], object]) -> None:
        gc.collect()
        process = psutil.Process()
        memory = process.memory_info().rss
        self._brokers.restart()
        began, began_cpu = time.monotonic(), time.process_time()
        work()
        self.found[name] = {
            "seconds": round(time.monotonic() - began - self._brokers.seconds, 2),
            "cpu_seconds": round(time.process_time() - began_cpu - self._brokers.cpu_seconds, 2),
            "grown_mb": round((process.memory_info().rss - memory) / 1e6, 1),
        }
        print(f"{name:40} {self.found[name]}", flush=True)  # noqa: T201


def result_of(range_: Any) -> RangeResult:
    result = RangeResult.initial(range_, range_.start)
    return replace(result, end=range_.end, outcome=Outcome.COMPLETE, records=range_.end - range_.start, seconds=1.0)


def commit(plan: Plan, target: FakeCluster) -> None:
    """Commit the progress of all ranges, as copies do."""
    for range_ in plan.ranges:
        tp = TopicPartition(range_.target_topic, range_.partition)
        progress = Progress(
            offset=range_.end,
            leader_epoch=0,
            source_cluster_id=range_.source_cluster_id,
            topic_id=range_.topic_id,
            time_ms=NOW_MS,
            way=Way.SEQUENCES,
        )
        stored = to_offset(progress)
        target.groups[group_of(ONE.name, tp)][tp] = GroupOffset(stored.offset, -1, stored.metadata or "")


def measure(partitions: int, folder: Path, brokers: BrokerTime) -> dict[str, dict[str, float]]:
    a, b = FakeCluster(brokers=3, cluster_id="a"), FakeCluster(brokers=3, cluster_id="b")
    logs = [
        log
        for number in range(partitions // PER_TOPIC)
        for log in a.add_topic(f"orders-{number}", partitions=PER_TOPIC).partitions
    ]
    for log in logs:
        log.end_offset, log.data = 100, bytearray(1000)
    source, target = FakeAdmin(a), FakeAdmin(b)
    plans = list[Plan]()
    ledger = Ledger.open(folder, ONE.name, "run-1")
    report = FlowReport(ONE.name, datetime.now(UTC), run="run-1")
    steps = Steps(brokers)

    def plan() -> None:
        plans.append(make_plan(PlanRequest(flow=ONE, now_ms=NOW_MS, parallelism=8), sides_of(source, target)))

    def summarize() -> None:
        report.partitions, report.ended = join_results(plans[0], ledger.attempts()), datetime.now(UTC)
        Summary(folder, print).write([report])

    steps.run("prepare the target topics", lambda: prepare_topics(ONE, sides_of(source, target)))
    steps.run("plan the first run", plan)
    steps.run("write the plan", lambda: ledger.write_plan(plans[0]))
    steps.run(
        "write the results",
        lambda: ledger.write_attempts(AttemptResult(0, 0, result_of(each)) for each in plans[0].ranges),
    )
    steps.run("join and summarize the results", summarize)
    steps.run("write the report", lambda: (folder / "report.html").write_bytes(render_report(ReportSource(folder))))
    commit(plans[0], b)
    for log in logs[::NEW_EACH]:
        log.end_offset += 1
    steps.run("plan the second run", plan)
    assert len(plans[0].ranges) == partitions
    assert len([one for one in plans[1].ranges if one.end > one.start]) == len(logs[::NEW_EACH])
    status = StatusReader(config_of(ONE), ONE, unix_ms=lambda: NOW_MS)
    steps.run("read the status", lambda: status.read(sides_of(source, target)))
    sizes = {path.name: path.stat().st_size for path in [*ledger.path.iterdir(), *folder.glob("*.*")]}
    return steps.found | {f"size of {name}": {"mb": round(size / 1e6, 2)} for name, size in sorted(sizes.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-") as folder, broker_time(("receive", "step")) as brokers:
        found = measure(options.partitions, Path(folder), brokers)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(kept | {str(options.partitions): found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
