"""Attempts of a flow's partitions, as the ledger keeps them."""

from __future__ import annotations

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.spark.ledger.attempt_results import AttemptResult

OLD = "records are older than 12 h"
YOUNG = "records are younger than 12 h"


def result(partition: int, error: str | None, *expiries: dict[str, object]) -> AttemptResult:
    outcome = Outcome.COMPLETE if error is None else Outcome.FAILED
    found = RangeResult(
        flow="f", topic="orders", target_topic="a.orders", partition=partition, start=0, end=0, outcome=outcome
    )
    found.error, found.expiries = error, list(expiries)
    return AttemptResult(0, 0, found)


def expiry(time_ms: int) -> dict[str, object]:
    return {"phase": "queue", "cause": "no leader", "age_ms": 1, "last_error": "not the leader", "time_ms": time_ms}


def in_way(partition: int, way: str, reason: str, number: int = 0) -> AttemptResult:
    attempt = result(partition, None)
    attempt.result.way, attempt.result.way_reason = way, reason
    return AttemptResult(0, number, attempt.result)
