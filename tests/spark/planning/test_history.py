"""The history of a flow that a plan reads from the ledger; no damage in the ledger can stop a plan."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import RangeResult
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.history import bytes_per_second, last_planned_ms, read_history
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog
from tests.spark.planning.test_range_planner import flow

FIRST = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 31, 13, tzinfo=UTC)


def run(folder: Path, at: datetime, *partitions: int, results: list[RangeResult] | None = None) -> Ledger:
    ledger = Ledger.open(folder, "f", at.isoformat())
    ledger.write_plan(
        Plan(flow="f", tasks=[[backlog(each, 5) for each in partitions]], results_without_task=[result(9)])
    )
    ledger.write_attempts(Attempt(0, 0, each) for each in results or [])
    (plan,) = ledger.path.glob("plan-*.json")
    os.utime(plan, (at.timestamp(), at.timestamp()))
    return ledger


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def test_a_partition_was_last_planned_by_the_last_run_with_its_range(tmp_path: Path) -> None:
    run(tmp_path, LATER, 1)
    run(tmp_path, FIRST, 0, 1)
    turns = last_planned_ms(tmp_path / "ledger" / "f")
    assert turns == {TopicPartition("t", 0): ms(FIRST), TopicPartition("t", 1): ms(LATER)}


def test_old_plans_are_read_only_for_limits(tmp_path: Path) -> None:
    run(tmp_path, FIRST, 0)
    folder = tmp_path / "ledger" / "f"
    assert read_history(flow(), folder).last_planned_ms == {}
    assert read_history(flow(max_partitions_in_parallel=1), folder).last_planned_ms == last_planned_ms(folder) != {}
    assert read_history(flow(max_bytes_per_epoch=65_536), folder).last_planned_ms == last_planned_ms(folder)


def test_the_rate_is_that_of_the_longest_copies(tmp_path: Path) -> None:
    run(tmp_path, FIRST, results=[result(0, bytes=1000, seconds=2.0), result(1, bytes=3000, seconds=4.0)])
    run(tmp_path, LATER, results=[result(0, bytes=0, seconds=9.0), result(1, bytes=2000, seconds=1.0)])
    assert bytes_per_second(tmp_path / "ledger" / "f") == (1000 + 3000 + 2000) / (4 + 1)


def test_a_flow_that_copied_nothing_has_no_rate(tmp_path: Path) -> None:
    assert bytes_per_second(tmp_path / "nothing") is None
    assert last_planned_ms(tmp_path / "nothing") == {}
    run(tmp_path, FIRST, results=[result(0, bytes=0, seconds=9.0)])
    assert bytes_per_second(tmp_path / "ledger" / "f") is None


@pytest.mark.parametrize(
    "text", ["", "{", "null", "5", '{"flow": "f"}', '{"result": null}', '{"result": {}}', "\udcff"]
)
def test_a_damaged_ledger_is_skipped(tmp_path: Path, text: str) -> None:
    good = run(tmp_path, FIRST, 0, results=[result(0, bytes=1000, seconds=2.0)])
    bad = run(tmp_path, LATER, 0)
    for name in ("plan-00000000.json", "results-00000000.parquet"):
        (bad.path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    (good.path.parent / "notes.txt").touch()
    assert last_planned_ms(good.path.parent) == {TopicPartition("t", 0): ms(FIRST)}
    assert bytes_per_second(good.path.parent) == 500
