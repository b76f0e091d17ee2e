"""The health of partitions, from one period to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.ledger.attempt_results import AttemptResult
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.partition_health import PartitionHealth, unhealthy_after, with_health
from mirror.telemetry.traces.ids import partition_id, period_id
from tests.spark.planning.test_packing import backlog
from tests.telemetry.results import AT_MS, expired, result

ONE = TopicPartition("orders", 1)


def trace(period: int, attempt: int = 0) -> str:
    return str(partition_id(period_id("f", "run", period), "orders", 1, attempt))


def attempt(outcome: Outcome = Outcome.COMPLETE, number: int = 0, **more: Any) -> AttemptResult:
    return AttemptResult(0, number, result(1, outcome, **more))


def test_a_complete_partition_is_healthy() -> None:
    assert unhealthy_after([attempt(), attempt(Outcome.UNFINISHED), attempt(Outcome.FENCED)], "run", 3) == {}


def test_health_keeps_the_first_incomplete_epoch() -> None:
    first = unhealthy_after([AttemptResult(0, 0, expired(1))], "run", 3)
    assert first == {ONE: PartitionHealth(None, AT_MS + 100, trace(3), trace(3))}
    again = expired(1, sick_since_ms=AT_MS + 100, sick_trace=trace(3), last_trace=trace(3))
    second = unhealthy_after([AttemptResult(0, 0, again)], "run", 4)
    assert second == {ONE: PartitionHealth(None, AT_MS + 100, trace(3), trace(4))}


def test_a_stuck_partition_keeps_its_age() -> None:
    stuck = attempt(Outcome.UNFINISHED, stuck_since_ms=77, timeline=None)
    assert unhealthy_after([stuck], "run", 3) == {ONE: PartitionHealth(77, 77, trace(3), trace(3))}


def test_a_later_attempt_decides() -> None:
    failed, well = attempt(Outcome.FAILED), attempt(Outcome.COMPLETE, 1)
    assert unhealthy_after([well, failed], "run", 3) == {}
    assert unhealthy_after([attempt(), attempt(Outcome.FAILED, 1)], "run", 3)[ONE].last_trace == trace(3, 1)


def test_a_range_gets_its_health_record_and_loses_it_after_recovery() -> None:
    one = backlog(1, 5)
    tp = TopicPartition(one.topic, one.partition)
    sick = with_health(one, {tp: PartitionHealth(77, 70, "first", "last")})
    assert (sick.stuck_since_ms, sick.sick_since_ms, sick.sick_trace, sick.last_trace) == (77, 70, "first", "last")
    assert with_health(sick, {}) == one
    assert with_health(one, {}) is one


def test_a_timeline_survives_the_ledger(tmp_path: Path) -> None:
    timeline = CopyTimeline(
        began_ms=1, ended_ms=2, curve=[[1, 2, 3, 4]], phases={"idle": 1}, traces=["t"], spans=[{"name": "s"}]
    )
    ledger = Ledger.open(tmp_path, "f", "1")
    ledger.write_attempts([attempt(timeline=timeline), attempt(timeline=None)])
    assert [each.result.timeline for each in ledger.attempts()] == [timeline, None]
