"""Control records: how they are stored, and what a task does about them."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace

import pytest

from mirror.client import OffsetAndMetadata
from mirror.relay.progress.control import POLL_INTERVAL_MS, ControlPoller, RunControl, control_partition, from_offset
from mirror.timing import FOREVER_MS

CONTROL = RunControl(run="run-1", host="h", since_ms=5, epoch=3)


@pytest.mark.parametrize(
    "control",
    [
        CONTROL,
        CONTROL.stopped(),
        CONTROL.stopped(ended=True),
        replace(CONTROL, seen_ms=9),
        replace(CONTROL.stopped(), seen_ms=9),
    ],
)
def test_control_record_survives_a_round_trip(control: RunControl) -> None:
    assert from_offset(control.to_offset()) == control


@pytest.mark.parametrize(
    "metadata", ["", "x", "[]", "1", "{}", '{"run": "a"}', '{"run": "a", "host": "h", "since": []}']
)
def test_offset_of_another_program_is_no_control_record(metadata: str) -> None:
    assert from_offset(OffsetAndMetadata(1, None, metadata)) is None
    assert from_offset(None) is None


def test_epoch_ends_on_stop_newer_plan_or_other_run() -> None:
    assert CONTROL.end_reason("run-1", 3) is None
    assert CONTROL.end_reason("run-1", 2) == "there is something new to plan"
    assert CONTROL.stopped().end_reason("run-1", 3) == "the run was asked to stop"
    assert CONTROL.end_reason("run-0", 3) == "another run of this flow took over: run-1, on h"


def test_ended_run_is_not_active() -> None:
    assert CONTROL.other_run_active("run-0")
    assert not CONTROL.other_run_active("run-1")
    assert not CONTROL.stopped(ended=True).other_run_active("run-0")


def test_heartbeat_has_a_key_of_its_own() -> None:
    """Older versions can read the new record, and theirs can be read."""
    old = {"v": 1, "run": "run-1", "host": "h", "since": 5}
    assert json.loads(CONTROL.to_offset().metadata) == old
    assert json.loads(replace(CONTROL, seen_ms=9).to_offset().metadata) == {**old, "seen": 9}
    assert from_offset(OffsetAndMetadata(3, None, json.dumps(old))) == CONTROL


def test_run_without_a_heartbeat_for_a_minute_is_dead() -> None:
    assert CONTROL.silent_ms(10**9) is None
    assert not CONTROL.is_dead(10**9), "an older version has no heartbeat"
    seen = replace(CONTROL, seen_ms=10**9)
    assert (seen.silent_ms(10**9 + 59_999), seen.is_dead(10**9 + 59_999)) == (59_999, False)
    assert seen.is_dead(10**9 + 60_000)
    assert seen.silent_ms(10**9 - 5) == 0, "the clock of its host is ahead"


def test_control_group_is_separate_for_each_flow() -> None:
    assert control_partition("a")[0] != control_partition("b")[0]
    assert control_partition("a")[0].startswith("mirror.a."), "the flow's own permissions cover it"


def test_poller_has_one_request_in_flight_and_ignores_failures() -> None:
    requests: list[Future[RunControl | None]] = []

    def read() -> Future[RunControl | None]:
        requests.append(Future())
        return requests[-1]

    poller = ControlPoller(read, "run-1", 3, 1_000)
    assert poller.due_ms() == 1_000
    assert poller.poll(1_000) is None
    assert poller.due_ms() == FOREVER_MS
    assert poller.poll(10_000) is None
    assert len(requests) == 1
    requests[0].set_exception(TimeoutError())
    assert poller.poll(10_000) is None
    assert poller.due_ms() == 1_000 + POLL_INTERVAL_MS, "overdue"
    poller.poll(10_001)
    requests[1].set_result(CONTROL.stopped())
    assert poller.poll(10_002) == "the run was asked to stop"


def test_poller_knows_since_when_nothing_confirms_the_epoch() -> None:
    """A response says what was true when it was asked for."""
    requests: list[Future[RunControl | None]] = []

    def read() -> Future[RunControl | None]:
        requests.append(Future())
        return requests[-1]

    poller = ControlPoller(read, "run-1", 3, 1_000)
    assert poller.confirmed_ms == 1_000, "the run has planned it"
    for asked_ms, answer in ((3_000, CONTROL), (5_000, None), (7_000, CONTROL.stopped())):
        poller.poll(asked_ms)
        requests[-1].set_result(answer)
        poller.poll(asked_ms + 500)
        assert poller.confirmed_ms == 3_000
