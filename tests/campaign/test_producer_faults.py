"""The short campaign: some harms under load, on real brokers. ``campaign.py`` is the long one, with all of them."""

from __future__ import annotations

import pytest

from tests.campaign.run import run
from tests.campaign.stage import HARMS, SESSION_MS, Stage
from tests.campaign.transactions import run_transactions

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SECONDS, REST_S, PER_SECOND = 15.0, 3.0, 6.0


@pytest.mark.timeout(200)
@pytest.mark.parametrize("on_stage", [2], indirect=True)
def test_acknowledged_once_in_order_and_expiries_on_time(on_stage: Stage) -> None:
    """What its neighbours notice is measured by the long campaign: it takes as long a run without harm."""
    harmed = run(on_stage, HARMS["stop the leader"], seconds=SECONDS, rest_s=REST_S, per_second=PER_SECOND)
    assert harmed.wrong == []
    assert harmed.figures["expired"] > 0, "the harm was felt"


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("on_stage", "name"), [(2, "kill -9 the leader")], indirect=["on_stage"])
def test_committed_transactions_once_in_order_and_aborted_ones_not_at_all(name: str, on_stage: Stage) -> None:
    found = run_transactions(on_stage, HARMS[name], seconds=SECONDS, rest_s=REST_S)
    assert found.wrong == []
    assert found.figures["committed_longest_ms"] > SESSION_MS / 2, "the harm was felt"
