"""CompletableEventReaper (seed 001), by itself."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.reaper import CompletableEventReaper
from mirror.errors import ClientClosed, KafkaError, KafkaTimeout
from mirror.timing import FOREVER_MS


def _event(deadline_ms: int = 100) -> CompletableEvent[int]:
    return CompletableEvent("asking", deadline_ms, 50)


def test_expired_event_times_out_once() -> None:
    reaper, event = CompletableEventReaper(), _event()
    result: list[object] = []
    event.future.add_done_callback(result.append)
    reaper.add(event)
    reaper.reap_expired_and_completed(99)
    assert not event.future.done()
    reaper.reap_expired_and_completed(100)
    reaper.reap_expired_and_completed(101)
    assert len(result) == 1
    assert len(reaper) == 0
    error = event.future.exception()
    assert isinstance(error, KafkaTimeout)
    assert isinstance(error, TimeoutError)
    assert str(error) == "asking did not succeed within 50 ms"


def test_a_timeout_carries_the_last_failure() -> None:
    reaper, event = CompletableEventReaper(), _event()
    event.last_error = KafkaError("the broker was busy")
    reaper.add(event)
    reaper.reap_expired_and_completed(100)
    error = event.future.exception()
    assert error is not None
    assert str(error).endswith("within 50 ms: the broker was busy")
    assert error.__cause__ is event.last_error


def test_a_completed_event_is_forgotten_and_keeps_its_answer() -> None:
    reaper, event = CompletableEventReaper(), _event()
    reaper.add(event)
    event.complete(7)
    reaper.reap_expired_and_completed(500)
    assert event.future.result(0) == 7
    assert len(reaper) == 0
    assert reaper.wait_ms(0) == FOREVER_MS


def test_a_chain_that_keeps_succeeding_is_not_cut() -> None:
    reaper, event = CompletableEventReaper(), _event()
    reaper.add(event)
    event.stepped = True
    reaper.reap_expired_and_completed(5_000)
    assert not event.future.done()
    event.stepped = False
    reaper.reap_expired_and_completed(5_000)
    assert isinstance(event.future.exception(0), KafkaTimeout)


def test_close_completes_queued_and_tracked_events() -> None:
    reaper, tracked, queued, done = CompletableEventReaper(), _event(), _event(), _event()
    reaper.add(tracked)
    reaper.add(done)
    done.complete(1)
    reaper.reap_incomplete([queued, Event()], ClientClosed("closed"))
    assert isinstance(tracked.future.exception(0), ClientClosed)
    assert isinstance(queued.future.exception(0), ClientClosed)
    assert done.future.result(0) == 1
    assert len(reaper) == 0


def test_it_waits_for_the_next_deadline() -> None:
    reaper = CompletableEventReaper()
    for deadline_ms in (500, 300, FOREVER_MS):
        reaper.add(_event(deadline_ms))
    assert reaper.wait_ms(100) == 200
    assert reaper.wait_ms(400) == 0


def test_one_that_advances_past_its_deadline_is_looked_at_again_each_turn() -> None:
    reaper, event = CompletableEventReaper(), _event()
    event.stepped = True
    reaper.add(event)
    for now in (100, 101, 5_000):
        reaper.reap_expired_and_completed(now)
        assert reaper.wait_ms(now) == 0
    event.stepped = False
    reaper.reap_expired_and_completed(5_001)
    assert isinstance(event.future.exception(0), KafkaTimeout)
    assert reaper.wait_ms(5_001) == FOREVER_MS


def test_answers_are_not_kept_until_their_deadlines() -> None:
    reaper, waiting = CompletableEventReaper(), _event(50_000)
    reaper.add(waiting)
    for number in range(10_000):
        event = _event(60_000)
        reaper.add(event)
        event.complete(number)
        reaper.reap_expired_and_completed(number)
    assert len(reaper) < 200
    reaper.reap_incomplete([], ClientClosed("closed"))
    assert isinstance(waiting.future.exception(0), ClientClosed)


@pytest.mark.parametrize("outcome", ["complete", "fail", "expire"])
def test_an_answered_event_is_not_answered_again(outcome: str) -> None:
    event = _event()
    event.complete(1)
    {"complete": lambda: event.complete(2), "fail": lambda: event.fail(KafkaError("x")), "expire": event.expire}[
        outcome
    ]()
    assert event.future.result(0) == 1


class ReaperModel(RuleBasedStateMachine):
    """Compared with a dict of the outcome that each event must have."""

    events: Bundle[CompletableEvent[int]] = Bundle("events")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.reaper = CompletableEventReaper()
        self.expected: dict[CompletableEvent[int], str] = {}

    @rule(target=events, timeout=st.integers(0, 20))
    def add(self, timeout: int) -> CompletableEvent[int]:
        event: CompletableEvent[int] = CompletableEvent("x", self.now + timeout, timeout)
        self.reaper.add(event)
        self.expected[event] = "pending"
        return event

    @rule(event=events, value=st.integers())
    def complete(self, event: CompletableEvent[int], value: int) -> None:
        event.complete(value)
        if self.expected[event] == "pending":
            self.expected[event] = f"value {value}"

    @rule(event=events, stepped=st.booleans())
    def step(self, event: CompletableEvent[int], stepped: bool) -> None:
        event.stepped = stepped

    @rule(ms=st.integers(0, 10))
    def reap(self, ms: int) -> None:
        self.now += ms
        self.reaper.reap_expired_and_completed(self.now)
        for event, state in self.expected.items():
            if state == "pending" and event.deadline_ms <= self.now and not event.stepped:
                self.expected[event] = "timeout"

    @rule()
    def close(self) -> None:
        self.reaper.reap_incomplete([], ClientClosed("closed"))
        for event, state in self.expected.items():
            self.expected[event] = "closed" if state == "pending" else state

    @invariant()
    def each_caller_has_its_outcome(self) -> None:
        for event, state in self.expected.items():
            assert _state_of(event) == state

    @invariant()
    def it_wakes_for_the_earliest(self) -> None:
        pending = [e.deadline_ms for e, state in self.expected.items() if state == "pending"]
        if pending:
            assert self.reaper.wait_ms(self.now) <= max(0, min(pending) - self.now)


def _state_of(event: CompletableEvent[int]) -> str:
    if not event.future.done():
        return "pending"
    error = event.future.exception(0)
    if error is None:
        return f"value {event.future.result(0)}"
    return "timeout" if isinstance(error, KafkaTimeout) else "closed"


TestReaperModel = ReaperModel.TestCase
