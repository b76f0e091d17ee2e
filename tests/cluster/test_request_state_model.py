"""``TimedRequestState`` against an oracle that keeps the whole history."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mirror.backoff import Backoff
from mirror.cluster.request_state import TimedRequestState

INITIAL, MOST, DEADLINE = 100, 1000, 5000


class RequestStates(RuleBasedStateMachine):
    """The oracle remembers when the last failure was and how many came in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.state = TimedRequestState(Backoff(INITIAL, MOST, random.Random(1)), DEADLINE)
        self.now = 0
        self.in_a_row = 0
        self.failed_at: int | None = None
        self.under_way = False

    @rule(ms=st.integers(0, 3000))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule()
    def attempt(self) -> None:
        if self.state.can_send(self.now):
            self.state.sent()
            self.under_way = True

    @rule()
    def fails(self) -> None:
        if self.under_way:
            self.state.failed(self.now)
            self.under_way, self.in_a_row, self.failed_at = False, self.in_a_row + 1, self.now

    @rule()
    def succeeds(self) -> None:
        if self.under_way:
            self.state.succeeded()
            self.under_way, self.in_a_row, self.failed_at = False, 0, None

    @invariant()
    def waits_as_kip_580_says(self) -> None:
        if self.under_way:
            assert not self.state.can_send(self.now)
            return
        if self.failed_at is None:
            assert self.state.can_send(self.now)
            return
        doubled = INITIAL * 2 ** (self.in_a_row - 1)
        soonest, latest = min(MOST, doubled * 0.8), min(MOST, doubled * 1.2)
        waited = self.now - self.failed_at
        if waited < int(soonest):
            assert not self.state.can_send(self.now)
        if waited >= latest:
            assert self.state.can_send(self.now)
        assert self.state.can_send(self.now) == (self.state.wait_ms(self.now) == 0)

    @invariant()
    def requests_fit_the_deadline(self) -> None:
        timeout = self.state.timeout_ms(self.now, 30_000)
        assert timeout == max(0, DEADLINE - self.now)
        assert self.state.expired(self.now) == (self.now >= DEADLINE)


RequestStates.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_request_state_keeps_backoff_and_deadline = RequestStates.TestCase
