"""Delayed InitProducerId requests of a copy, which fence its own newest producer: the copy must not end."""

from __future__ import annotations

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.relay.fake_pair import FLOW, FakePair


class StandingCalendar(SystemClock):
    """A fence counts as a delayed request's within the request timeout: a busy machine must not exceed it."""

    _now_ms = SystemClock().unix_ms()

    def unix_ms(self) -> int:
        return self._now_ms


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakePair:
    monkeypatch.setattr("mirror.relay.task.copy_ranges.SystemClock", StandingCalendar)
    pair = FakePair(monkeypatch)
    if request.param == 2:
        pair.target.upgrade("transaction.version", 2)
    for n in range(20):
        pair.write(b"%d" % n)
    return pair


def _unanswered_inits(pair: FakePair, count: int) -> list[ServerCall]:
    """Leave the first ``count`` requests unanswered; the coordinator may still handle them later."""
    calls: list[ServerCall] = []

    def rule(call: ServerCall) -> Action | None:
        if call.api is not Api.INIT_PRODUCER_ID or not call.body.transactional_id:
            return None
        calls.append(call)
        return Action(hold="before") if len(calls) <= count else None

    pair.target.control.add(rule)
    return calls


def _handle_delayed(pair: FakePair, times: int, api: Api) -> None:
    """Handle an unanswered request before each of the first ``times`` requests of ``api`` in a transaction."""
    left = times

    def rule(call: ServerCall) -> Action | None:
        nonlocal left
        if call.api is api and call.body.transactional_id and left:
            left -= 1
            while pair.target.transactions.init(f"mirror.{FLOW}.paris.t.0", 60_000, -1, -1).code:
                pair.target.run_due(pair.target.clock.now())
                pair.target.clock.advance(1)
        return None

    pair.target.control.add(rule)


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.END_TXN])
@pytest.mark.parametrize("by", ["transactions", "auto"])
def test_copy_fenced_by_its_own_delayed_requests_is_complete(pair: FakePair, api: Api, by: str) -> None:
    """By auto, old records change the way of an attempt that has just fenced. How many: test_target_failures."""
    unanswered = 2
    calls = _unanswered_inits(pair, unanswered)
    _handle_delayed(pair, unanswered, api)
    result = pair.copy(exactly_once_by=by)
    assert len(calls) > unanswered
    assert result.outcome is Outcome.COMPLETE, result.error
    assert pair.values() == [b"%d" % n for n in range(20)]


def test_copy_fenced_more_often_than_it_has_delayed_requests_is_fenced(pair: FakePair) -> None:
    _unanswered_inits(pair, 2)
    _handle_delayed(pair, 3, Api.PRODUCE)
    assert pair.copy().outcome is Outcome.FENCED
