"""The condition of a flow, by what its runs have reported and by their heartbeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from mirror.relay.progress.control_record import RunControl
from mirror.relay.progress.status_values import RunState
from mirror.spark.status.condition import FlowCondition, condition_of
from mirror.spark.status.flow_status import FlowStatus
from mirror.telemetry.lag.lags import totals

NOW: Final = 10_000_000_000
HOUR: Final = 3_600_000
ALIVE: Final = RunControl(run="r1", host="h", since_ms=NOW - HOUR, seen_ms=NOW - 5_000)
DEAD: Final = replace(ALIVE, seen_ms=NOW - 61_000)
STREAM: Final = RunState(run="r1", state="running", since_ms=NOW - HOUR, follows=True)
BETWEEN: Final = RunState(run="r1", state="ended", since_ms=NOW - 600_000, reason="complete", complete_ms=NOW - 600_000)
FAILED: Final = replace(BETWEEN, reason="expired", complete_ms=NOW - 2 * HOUR)
EMPTY: Final = FlowStatus(flow="f", source="a", target="b", time_ms=NOW, run=None, totals=totals([]), partitions=[])


def status(**values: Any) -> FlowStatus:
    return replace(EMPTY, **values)


@pytest.mark.parametrize(
    ("found", "name", "reason"),
    [
        (status(run=ALIVE, state=STREAM), "running", ""),
        (status(run=DEAD, state=STREAM), "gone", "its driver has died"),
        (status(run=ALIVE, state=replace(STREAM, state="backing off", reason="x")), "backing off", "x"),
        (status(state=replace(STREAM, state="held", reason="stopped")), "held", "stopped"),
        (status(state=replace(STREAM, state="gone")), "gone", "start the stream again"),
        (status(state=STREAM), "ended", "without a report"),
        (status(state=replace(STREAM, state="ended")), "ended", ""),
        (status(state=BETWEEN), "ended", "complete"),
        (status(state=BETWEEN, refused="no topic"), "refused", "no topic"),
        (status(refused="no topic"), "refused", "no topic"),
        (status(), "none", ""),
        (status(unread="not authorized"), "unknown", "not authorized"),
        (status(unread="not authorized", refused="no topic"), "refused", "no topic"),
        (status(run=ALIVE), "running", ""),
        (status(run=DEAD), "gone", "its driver has died"),
        (status(run=replace(ALIVE, run="r2"), state=BETWEEN), "running", ""),
        (status(run=ALIVE, state=STREAM, away={"b": "no answer"}), "unknown", "no answer"),
        (status(run=ALIVE, state=STREAM, away={"a": "no answer"}), "running", ""),
    ],
)
def test_the_condition_is_that_of_the_run_that_has_the_flow(found: FlowStatus, name: str, reason: str) -> None:
    condition = condition_of(found)
    assert condition.name is FlowCondition(name)
    assert reason in condition.reason
    assert bool(reason) == bool(condition.reason)


@pytest.mark.parametrize(
    ("found", "ago_ms"),
    [
        (status(run=ALIVE, state=STREAM), 5_000),
        (status(run=DEAD, state=STREAM), 61_000),
        (status(run=ALIVE, state=replace(STREAM, state="backing off"), tasks_seen_ms=NOW - 9_000), 9_000),
        (status(run=ALIVE, state=replace(STREAM, state="preparing", since_ms=NOW)), None),
        (status(run=replace(ALIVE, run="r2"), state=STREAM, tasks_seen_ms=NOW - 2 * HOUR), 2 * HOUR),
        (status(state=replace(STREAM, state="held", since_ms=NOW - 9_000), tasks_seen_ms=NOW - 8_000), 8_000),
        (status(state=replace(FAILED, complete_ms=0)), None),
        (status(state=BETWEEN), 600_000),
        (status(state=FAILED), 2 * HOUR),
        (status(run=ALIVE, state=replace(FAILED, state="running", reason="")), 2 * HOUR),
        (status(run=ALIVE, state=STREAM, away={"b": "no answer"}), 5_000),
        (status(), None),
    ],
)
def test_a_flow_is_in_order_until_its_last_success(found: FlowStatus, ago_ms: int | None) -> None:
    """The start of a driver that has not copied yet is none, whatever was before."""
    success_ms = condition_of(found).success_ms
    assert (None if success_ms is None else NOW - success_ms) == ago_ms


@pytest.mark.parametrize(
    ("state", "complete"),
    [(BETWEEN, True), (FAILED, False), (replace(STREAM, state="ended"), True), (replace(STREAM, state="held"), False)],
)
def test_a_flow_between_runs_is_complete_if_the_last_one_was(state: RunState, complete: bool) -> None:
    assert condition_of(status(state=state)).is_complete is complete
