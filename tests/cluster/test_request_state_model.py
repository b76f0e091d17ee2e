"""``RequestState`` and ``KeyStates`` against oracles that keep the whole history."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mirror.backoff import Backoff
from mirror.cluster.request_state import KeyStates, RequestState
from mirror.timing import FOREVER_MS
from tests.examples import examples

INITIAL, MOST = 100, 1000


def bounds(in_a_row: int) -> tuple[int, float]:
    """The shortest and the longest wait after so many failures (KIP-580)."""
    limited = min(MOST, INITIAL * 2 ** (in_a_row - 1))
    return int(limited * 0.8), min(MOST, limited * 1.2)


class RequestStates(RuleBasedStateMachine):
    """The oracle remembers when the last failure was and how many came in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.state = RequestState(Backoff(INITIAL, MOST, random.Random(1)))
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
        soonest, latest = bounds(self.in_a_row)
        waited = self.now - self.failed_at
        if waited < soonest:
            assert not self.state.can_send(self.now)
        if waited >= latest:
            assert self.state.can_send(self.now)
        assert self.state.can_send(self.now) == (self.state.wait_ms(self.now) == 0)


RequestStates.TestCase.settings = settings(max_examples=examples(25, 60), stateful_step_count=25, deadline=None)
test_request_state_keeps_backoff = RequestStates.TestCase

KEYS = ("a", "b", "c", "d")


class ManyKeys(RuleBasedStateMachine):
    """For each key the oracle remembers its failures in a row and when the last one was."""

    def __init__(self) -> None:
        super().__init__()
        self.states: KeyStates[str] = KeyStates(Backoff(INITIAL, MOST, random.Random(1)))
        self.now = 0
        self.in_a_row = dict.fromkeys(KEYS, 0)
        self.failed_at: dict[str, int] = {}

    def _askable(self, keys: set[str]) -> set[str]:
        return keys - self.failed_at.keys()

    @rule(ms=st.integers(0, 1500))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        waits = self.states.wait_ms(self.now) == 0
        rested = self.states.rested(self.now)
        assert waits == bool(rested)
        assert len(set(rested)) == len(rested)
        for key in rested:
            assert self.now - self.failed_at.pop(key) >= bounds(self.in_a_row[key])[0], key
        for key, at in self.failed_at.items():
            assert self.now - at < bounds(self.in_a_row[key])[1], key

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def an_answer_fails(self, keys: set[str]) -> None:
        keys = self._askable(keys)
        self.states.failed(keys, self.now)
        for key in keys:
            self.in_a_row[key] += 1
            self.failed_at[key] = self.now

    @rule(keys=st.sets(st.sampled_from(KEYS)))
    def an_answer_succeeds(self, keys: set[str]) -> None:
        keys = self._askable(keys)
        self.states.succeeded(keys)
        self.in_a_row |= dict.fromkeys(keys, 0)

    @invariant()
    def rest_are_those_that_failed(self) -> None:
        assert set(self.states.resting) == self.failed_at.keys()
        if not self.failed_at:
            assert self.states.wait_ms(self.now) == FOREVER_MS


ManyKeys.TestCase.settings = settings(max_examples=examples(25, 60), stateful_step_count=25, deadline=None)
test_keys_keep_backoffs_of_their_own = ManyKeys.TestCase
