"""The table of `mirror status` about the flows of streams: which run, and which do not and why."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import pytest
from rich.console import Console

from mirror.cli.views import status_view
from mirror.relay.progress.control_record import RunControl
from mirror.relay.progress.status_values import RunState
from mirror.spark.ledger.status_table import StatusTable
from mirror.spark.status.flow_status import FlowStatus
from mirror.spark.status.status_reader import _state_of
from mirror.telemetry.lag.lags import totals

if TYPE_CHECKING:
    from mirror.spark.status.flow_view import FlowView

NOW: Final = 10_000_000
CONTROL: Final = RunControl(run="r1", host="h", since_ms=0, seen_ms=NOW)
STATE: Final = RunState(
    run="r1",
    state="backing off",
    since_ms=NOW - 300_000,
    until_ms=NOW + 40_000,
    reason="cluster a does not answer",
)
FLOW: Final = FlowStatus(
    flow="f", source="a", target="b", time_ms=NOW, run=CONTROL, state=STATE, totals=totals([]), partitions=[]
)


def shown(*flows: FlowStatus, live: bool = False) -> list[str]:
    console = Console(file=StringIO(), width=160)
    console.print(status_view.live(flows, {}, {}, 40, 160) if live else status_view.once(flows, 40))
    assert isinstance(console.file, StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("live", [False, True])
def test_there_is_one_line_for_each_flow_of_a_stream(live: bool) -> None:
    running = replace(FLOW, flow="g", state=replace(STATE, state="running", reason="", until_ms=None))
    lines = shown(FLOW, running, replace(FLOW, flow="h", state=None), live=live)
    assert lines[:3] == [
        "flow state since until reason",
        "f backing off 5 min ago 40 s cluster a does not answer",
        "g running 5 min ago -",
    ]
    assert not lines[3].startswith("h ")


def test_a_driver_that_has_died_is_named_instead_of_what_it_said_last() -> None:
    dead = replace(FLOW, run=replace(CONTROL, seen_ms=NOW - 61_000))
    assert "f gone 61 s ago - its driver has died or cannot reach the target" in shown(dead)


def test_a_flow_that_is_held_has_no_run() -> None:
    held = replace(
        FLOW, run=None, state=replace(STATE, state="held", reason="mirror stop has stopped it", until_ms=None)
    )
    assert "f held 5 min ago - mirror stop has stopped it" in shown(held)


@pytest.mark.parametrize(("seen_ms", "found"), [(NOW - 10_000, "held"), (NOW - 61_000, "gone")])
def test_a_flow_is_held_only_as_long_as_its_stream_lives(seen_ms: int, found: str) -> None:
    """The record of a held flow is renewed by the stream that holds it."""
    held = replace(STATE, state="held", until_ms=None)
    control = replace(CONTROL, seen_ms=seen_ms, stop=True, ended=True)
    observation = cast("FlowView", SimpleNamespace(run=None, control=control, time_ms=NOW))
    state = _state_of(StatusTable(run=held), observation)
    assert state is not None
    assert any(line.startswith(f"f {found} ") for line in shown(replace(FLOW, run=None, state=state)))


@pytest.mark.parametrize(
    "flow",
    [
        replace(FLOW, run=None),
        replace(FLOW, run=replace(CONTROL, run="r2")),
        replace(FLOW, state=replace(STATE, state="ended")),
        replace(FLOW, state=None),
    ],
)
def test_what_an_earlier_run_said_is_not_shown(flow: FlowStatus) -> None:
    assert not any("since" in line for line in shown(flow))
