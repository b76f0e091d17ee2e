"""The short campaign: some harms under load, on real brokers. ``campaign.py`` is the long one, with all of them."""

from __future__ import annotations

import pytest

from tests.campaign.run import Run, run, too_slow
from tests.campaign.stage import HARMS, NONE, NONE_PROXIED, SESSION_MS, Stage
from tests.campaign.transactions import run_transactions

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SECONDS, REST_S, PER_SECOND = 15.0, 3.0, 6.0
_ATTEMPTS = 3
"""At the latencies only: other programs on this machine disturb one run and not the other."""


def _run(on_stage: Stage, name: str) -> Run:
    harm = {**HARMS, "none": NONE, "none, by the proxy": NONE_PROXIED}[name]
    return run(on_stage, harm, seconds=SECONDS, rest_s=REST_S, per_second=PER_SECOND)


@pytest.fixture(scope="module")
def calm(on_stage: Stage) -> dict[bool, Run]:
    """Runs without harm, by whether they came by the proxy."""
    return {False: _run(on_stage, "none"), True: _run(on_stage, "none, by the proxy")}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("on_stage", [2], indirect=True)
@pytest.mark.parametrize("name", ["stop the leader", "stop a follower"])
def test_acknowledged_once_in_order_expiries_on_time_and_neighbours_undisturbed(
    name: str, on_stage: Stage, calm: dict[bool, Run]
) -> None:
    proxied = HARMS[name].proxied
    slow = []
    for _ in range(_ATTEMPTS):
        harmed = _run(on_stage, name)
        assert harmed.wrong == []
        assert harmed.figures["expired"] > 0, "the harm was felt"
        slow = too_slow(harmed, calm[proxied])
        if not slow:
            break
        calm[proxied] = _run(on_stage, "none, by the proxy" if proxied else "none")
    assert slow == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("on_stage", "name"), [(1, "stop the leader"), (2, "kill -9 the leader")], indirect=["on_stage"]
)
def test_committed_transactions_once_in_order_and_aborted_ones_not_at_all(name: str, on_stage: Stage) -> None:
    found = run_transactions(on_stage, HARMS[name], seconds=SECONDS, rest_s=REST_S)
    assert found.wrong == []
    assert found.figures["committed_longest_ms"] > SESSION_MS / 2, "the harm was felt"
