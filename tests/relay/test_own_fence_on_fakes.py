"""InitProducerId requests that a coordinator handles late fence this copy's own newest producer: that is no end."""

from __future__ import annotations

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakePair:
    made = FakePair(monkeypatch)
    if request.param == 2:
        made.target.upgrade("transaction.version", 2)
    for n in range(20):
        made.write(b"%d" % n)
    return made


def _unanswered_inits(pair: FakePair, count: int) -> list[ServerCall]:
    """The coordinator does not answer the first ``count``; they are still there when it comes back."""
    seen: list[ServerCall] = []

    def rule(call: ServerCall) -> Action | None:
        if call.api is not Api.INIT_PRODUCER_ID or not call.body.transactional_id:
            return None
        seen.append(call)
        return Action(hold="before") if len(seen) <= count else None

    pair.target.control.add(rule)
    return seen


def _late(pair: FakePair, times: int, api: Api) -> None:
    """Before each of the first requests of ``api``, one of the unanswered ones is handled."""
    left = times

    def rule(call: ServerCall) -> Action | None:
        nonlocal left
        if call.api is api and left:
            left -= 1
            while pair.target.transactions.init(f"mirror.{FLOW}.paris.t.0", 60_000, -1, -1).code:
                pair.target.run_due(pair.target.clock.now())
                pair.target.clock.advance(1)
        return None

    pair.target.control.add(rule)


@pytest.mark.parametrize("api", [Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.END_TXN])
@pytest.mark.parametrize("unanswered", [1, 2, 3])
def test_late_requests_of_its_own_are_no_other_attempt(pair: FakePair, unanswered: int, api: Api) -> None:
    seen = _unanswered_inits(pair, unanswered)
    _late(pair, unanswered, api)
    result = pair.copy()
    assert len(seen) > unanswered
    assert result.outcome is Outcome.COMPLETE, result.error
    assert pair.values() == [b"%d" % n for n in range(20)]


def test_one_more_fence_than_there_are_late_requests_is_another_attempt(pair: FakePair) -> None:
    _unanswered_inits(pair, 2)
    _late(pair, 3, Api.PRODUCE)
    assert pair.copy().outcome is Outcome.FENCED
