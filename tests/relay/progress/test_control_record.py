"""Control records: how they are stored, and what a task does about them."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace

import pytest

from mirror.client import OffsetAndMetadata
from mirror.relay.futures import done
from mirror.relay.progress.control_record import (
    DEAD_AFTER_MS,
    HEARTBEAT_INTERVAL_MS,
    POLL_INTERVAL_MS,
    Attempts,
    Command,
    ControlWatch,
    RunControl,
    StopReason,
    control_partition,
    from_offset,
)
from mirror.timing import FOREVER_MS

CONTROL = RunControl(run="run-1", host="h", since_ms=5, job=3)


@pytest.mark.parametrize(
    "control",
    [
        CONTROL,
        CONTROL.stopped(),
        CONTROL.stopped(ended=True),
        replace(CONTROL, seen_ms=9),
        replace(CONTROL, generation=4, version=2),
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


def test_ended_run_is_not_active() -> None:
    assert CONTROL.other_run_active("run-0")
    assert not CONTROL.other_run_active("run-1")
    assert not CONTROL.stopped(ended=True).other_run_active("run-0")


def test_its_fields_are_stored_but_for_the_job_which_is_the_offset() -> None:
    stored = {"v": 1, "run": "run-1", "host": "h", "since_ms": 5}
    assert json.loads(CONTROL.to_offset().metadata) == stored
    assert json.loads(replace(CONTROL, seen_ms=9, generation=8).to_offset().metadata) == {
        **stored,
        "seen_ms": 9,
        "generation": 8,
    }
    assert from_offset(OffsetAndMetadata(3, None, json.dumps(stored))) == CONTROL


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


class Watched:
    """A watch whose reads the test answers, every second."""

    def __init__(self, generation: int = 4) -> None:
        self.now = 0
        self._requests: list[Future[RunControl | None]] = []
        self.watch = ControlWatch(self._read, "run-1", 3, self.now, generation=generation)

    def _read(self) -> Future[RunControl | None]:
        self._requests.append(Future())
        return self._requests[-1]

    def answer(self, response: RunControl | Exception | None, after_ms: int = POLL_INTERVAL_MS) -> Command | None:
        """Answer the next read, which is sent ``after_ms`` after the last one."""
        assert self.watch.poll(self.now) is None
        if isinstance(response, Exception):
            self._requests[-1].set_exception(response)
        else:
            self._requests[-1].set_result(response)
        command = self.watch.poll(self.now)
        self.now += after_ms
        return command


OWN = replace(CONTROL, generation=4, seen_ms=1)


def test_watch_has_one_request_in_flight_and_ignores_failures() -> None:
    watched = Watched()
    assert watched.watch.due_ms() == 0
    assert watched.answer(TimeoutError()) is None
    assert watched.watch.due_ms() == POLL_INTERVAL_MS
    assert watched.watch.poll(POLL_INTERVAL_MS) is None
    assert watched.watch.due_ms() == FOREVER_MS


def test_watch_returns_the_version_and_when_it_was_asked_for() -> None:
    watched = Watched()
    assert watched.answer(replace(OWN, version=2)) == Command(version=2)
    assert watched.answer(replace(OWN, version=3)) == Command(version=3)
    assert watched.answer(TimeoutError()) is None
    assert watched.watch.confirmed_ms == POLL_INTERVAL_MS


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (OWN.stopped(), StopReason.ASKED),
        (OWN.stopped(ended=True), StopReason.ASKED),
        (replace(OWN, job=4), StopReason.JOB_ENDED),
        (replace(OWN, run="run-0", generation=5), StopReason.OTHER_RUN),
        (replace(OWN, run="run-0", generation=5).stopped(ended=True), StopReason.OTHER_RUN),
        (replace(OWN, run="run-2"), StopReason.OTHER_RUN),
    ],
)
def test_watch_stops_the_task(record: RunControl, reason: StopReason) -> None:
    watched = Watched()
    command = watched.answer(record)
    assert command is not None
    assert command.stop == reason
    assert watched.watch.confirmed_ms == 0
    assert (command.reason() == f"{reason}: {record.run}, on h") == (reason is StopReason.OTHER_RUN)


@pytest.mark.parametrize("record", [None, replace(OWN, run="run-9", generation=3), replace(OWN, run="run-0")])
def test_a_record_that_is_missing_or_of_a_run_that_was_replaced_is_no_command(record: RunControl | None) -> None:
    watched = Watched()
    assert watched.answer(record) is None
    assert watched.watch.confirmed_ms == 0


def answers_until_lost(
    watched: Watched, *responses: RunControl | Exception | None, after_ms: int = 1_000
) -> int | None:
    """Repeat ``responses`` for at most 1,000 reads. Return the time of the one that ends the task, if there is one."""
    for number in range(1_000):
        asked_ms = watched.now
        command = watched.answer(responses[number % len(responses)], after_ms)
        if command is not None and command.stop is StopReason.DRIVER_LOST:
            return asked_ms
    return None


@pytest.mark.parametrize("record", [OWN, None, replace(OWN, run="run-0")])
def test_a_task_ends_once_its_driver_has_been_silent_for_a_minute(record: RunControl | None) -> None:
    assert answers_until_lost(Watched(), record) == DEAD_AFTER_MS


def test_only_changes_of_the_heartbeat_count_not_its_time() -> None:
    watched = Watched()
    for seen_ms in range(10**9, 0, -(10**7)):  # the clock of the driver's host is set back again and again
        command = watched.answer(replace(OWN, seen_ms=seen_ms), HEARTBEAT_INTERVAL_MS)
        assert command == Command()
    begun_ms = watched.now - HEARTBEAT_INTERVAL_MS
    assert answers_until_lost(watched, replace(OWN, seen_ms=10**7)) == begun_ms + DEAD_AFTER_MS


def test_a_task_does_not_end_while_the_record_cannot_be_read() -> None:
    assert answers_until_lost(Watched(), TimeoutError()) is None


def test_after_an_outage_the_driver_has_time_to_write() -> None:
    """It could not write either: the heartbeat that is read first is as old as the outage."""
    watched = Watched()
    assert watched.answer(OWN, after_ms=10 * DEAD_AFTER_MS) == Command()
    after_outage_ms = watched.now
    assert answers_until_lost(watched, OWN) == after_outage_ms + DEAD_AFTER_MS - HEARTBEAT_INTERVAL_MS


def test_reads_that_fail_now_and_then_do_not_keep_a_task_alive() -> None:
    assert answers_until_lost(Watched(), OWN, TimeoutError()) == DEAD_AFTER_MS


@pytest.mark.parametrize(
    ("attempts", "stop"),
    [((), None), (((2, 1),), None), (((2, 2),), StopReason.REPLACED), (((1, 5), (3, 5)), None)],
)
def test_an_attempt_ends_if_a_later_one_of_its_task_has_begun(attempts: Attempts, stop: StopReason | None) -> None:
    """Spark may have lost an executor that lives: two attempts of a task would fence each other for ever."""
    stored = from_offset(replace(OWN, attempts=attempts).to_offset())
    assert stored is not None
    assert stored.attempts == attempts
    watch = ControlWatch(lambda: done(stored), OWN.run, OWN.job, 0, task=2, attempt=1)
    command = watch.poll(0)
    assert command is not None, "a read that waits is done when it returns"
    assert command.stop is stop


@pytest.mark.parametrize("stored", ["x", 5, [5], [[1]], [[1, 2, 3]], [["a", 1]], [[1, -2]], {"a": 1}])
def test_attempts_that_cannot_be_read_are_none(stored: object) -> None:
    offset = OWN.to_offset()
    metadata = {**json.loads(offset.metadata or ""), "attempts": stored}
    found = from_offset(offset._replace(metadata=json.dumps(metadata)))
    assert found is not None
    assert found.attempts == ()
