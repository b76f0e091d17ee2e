"""How fast earlier runs were, by the ledger; no damage in it can stop a forecast."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mirror.relay.model.ranges import RangeResult
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from mirror.spark.planning.history import bytes_per_second
from tests.spark.ledger.test_results import result
from tests.spark.planning.test_packing import backlog

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


def test_the_rate_is_that_of_the_longest_copies(tmp_path: Path) -> None:
    run(tmp_path, FIRST, results=[result(0, bytes=1000, seconds=2.0), result(1, bytes=3000, seconds=4.0)])
    run(tmp_path, LATER, results=[result(0, bytes=0, seconds=9.0), result(1, bytes=2000, seconds=1.0)])
    assert bytes_per_second(tmp_path / "ledger" / "f") == (1000 + 3000 + 2000) / (4 + 1)


def test_a_flow_that_copied_nothing_has_no_rate(tmp_path: Path) -> None:
    assert bytes_per_second(tmp_path / "nothing") is None
    run(tmp_path, FIRST, results=[result(0, bytes=0, seconds=9.0)])
    assert bytes_per_second(tmp_path / "ledger" / "f") is None


@pytest.mark.parametrize(
    "text", ["", "{", "null", "5", '{"flow": "f"}', '{"result": null}', '{"result": {}}', "\udcff"]
)
def test_a_damaged_ledger_is_skipped(tmp_path: Path, text: str) -> None:
    good = run(tmp_path, FIRST, 0, results=[result(0, bytes=1000, seconds=2.0)])
    bad = run(tmp_path, LATER, 0)
    for name in ("plan-00000000.json", "results-00000000.jsonl.gz"):
        (bad.path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    (good.path.parent / "notes.txt").touch()
    assert bytes_per_second(good.path.parent) == 500
