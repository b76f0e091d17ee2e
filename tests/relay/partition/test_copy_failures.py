"""What fails unexpectedly at the end of an attempt or of a copy costs that alone: nothing is raised to the task."""

from __future__ import annotations

from typing import Never

import pytest

from mirror.errors import DeliveryTimeout, KafkaTimeout
from mirror.relay.model.ranges import OPEN_END, Outcome
from mirror.relay.partition.limits import FAILURE_BACKOFF_MS
from mirror.relay.partition.machine.copying import Copying
from mirror.relay.partition.machine.ending import Ending
from mirror.relay.partition.states import CopyEvent, CopyState
from tests.relay.copy_harness import CopyHarness, made


class _Faulty:
    """A call that fails, and counts how often it was made."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self._error = error or ValueError("a fault of the copy")

    def __call__(self, *_: object, **__: object) -> Never:
        self.calls += 1
        raise self._error


def _copying(end: int = OPEN_END, *, may_retry: bool = True) -> CopyHarness:
    run = CopyHarness(end).opened(0)
    run.context.retries_allowed = may_retry
    run.fetch(made(0, 2))
    return run


def _expires(run: CopyHarness) -> None:
    run.fail(0, DeliveryTimeout("late"))


def _copies_on(run: CopyHarness) -> None:
    run.back_off()
    run.opened(0)
    run.fetch(made(0, 2))
    assert run.sent == [[b"0", b"1"]]


@pytest.mark.parametrize("error", [ValueError("a fault"), KafkaTimeout("not closed")])
def test_followed_copy_whose_writer_cannot_be_closed_is_retried(error: Exception) -> None:
    run = _copying()
    run.writer.close = close = _Faulty(error)  # type: ignore[method-assign]
    _expires(run)
    assert (run.copy.state, close.calls) == (CopyState.BACKING_OFF, 1)
    assert str(error) in str(run.copy.result_at(run.clock.now()).error)
    run.assert_nothing_held()
    _copies_on(run)


def test_what_an_attempt_holds_is_freed_although_its_end_fails_before_that(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _copying()
    with monkeypatch.context() as patch:
        patch.setattr("mirror.relay.partition.attempts.attempt.CopyAttempt.final_commit", _Faulty())
        _expires(run)
    assert run.copy.state is CopyState.BACKING_OFF
    assert run.writer.closed is not None
    assert run.context.read_position is None
    run.assert_nothing_held()
    _copies_on(run)


def test_copy_of_a_run_whose_writer_cannot_be_closed_fails() -> None:
    run = _copying(10)
    run.writer.close = _Faulty()  # type: ignore[method-assign]
    _expires(run)
    assert run.result.outcome is Outcome.FAILED
    assert "a fault of the copy" in str(run.result.error)
    run.assert_nothing_held()


@pytest.mark.parametrize("closes", [True, False])
def test_second_failure_of_an_end_is_followed_by_a_pause(closes: bool, caplog: pytest.LogCaptureFixture) -> None:
    run = _copying()
    decides = run.context.may_retry
    run.copy._retry._may_retry = faulty = _Faulty()  # type: ignore[misc]
    if not closes:
        run.writer.close = _Faulty()  # type: ignore[method-assign]
    _expires(run)
    if closes:
        run.closed()
    assert (run.copy.state, faulty.calls) == (CopyState.BACKING_OFF, 1 + closes)
    run.copy.step(run.clock.now())
    assert faulty.calls == 1 + closes, "nothing is decided during the pause"
    assert run.copy.due_ms(run.clock.now()) == run.clock.now() + FAILURE_BACKOFF_MS
    assert "the other partitions continue" in caplog.text
    run.copy._retry._may_retry = decides  # type: ignore[misc]
    _copies_on(run)


def test_error_while_a_copy_backs_off_is_followed_by_pauses_and_it_may_be_stopped() -> None:
    run = _copying()
    _expires(run)
    run.closed()
    run.copy._retry._may_retry = faulty = _Faulty()  # type: ignore[misc]
    run.back_off()
    assert (run.copy.state, faulty.calls) == (CopyState.BACKING_OFF, 1)
    run.advance(2 * FAILURE_BACKOFF_MS)
    assert (run.copy.state, faulty.calls) == (CopyState.BACKING_OFF, 3)
    run.copy.wind_up(run.clock.now(), immediately=False)
    assert run.result.outcome is Outcome.EXPIRED


@pytest.mark.parametrize("error", [ValueError("a fault"), KafkaTimeout("no answer")])
@pytest.mark.parametrize("fails", ["keep_segments", "range_finished"])
def test_error_once_everything_is_copied_ends_the_copy_and_is_logged(
    fails: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    run = _copying(2)
    run.ack()
    run.commit()
    context = run.context
    setattr(context if fails == "keep_segments" else context.observer, fails, _Faulty(error))
    assert run.ended_with(Outcome.COMPLETE).end == 2
    assert "t-0: unexpected error while done" in caplog.text
    assert str(error) in caplog.text


def test_error_of_a_copy_that_is_stopped_is_not_raised() -> None:
    run = _copying()
    run.writer.close = _Faulty()  # type: ignore[method-assign]
    run.copy.wind_up(run.clock.now(), immediately=True)
    assert run.result.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("state", "owner", "name"),
    [
        (CopyState.COPYING, Copying, "advance"),
        (CopyState.ABORTING, Ending, "take_end"),
        (CopyState.BACKING_OFF, Ending, "take_backoff"),
    ],
)
def test_event_that_cannot_happen_is_logged_and_ends_the_attempt(
    state: CopyState, owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a fault of this copy: it may not end the others of its task."""
    run, observe = _copying(), getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda self, now: observe(self, now) and CopyEvent.PROGRESS_READ)
        _expires(run)
        run.closed()
        if state is CopyState.BACKING_OFF:
            run.back_off()
    assert run.copy.state is CopyState.BACKING_OFF
    assert f"a copy cannot take this while it is {state.value}: {CopyEvent.PROGRESS_READ.value}" in caplog.text
    _copies_on(run)
