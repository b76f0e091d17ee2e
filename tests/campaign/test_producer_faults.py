"""One harm under load, on real brokers. ``campaign.py`` is the long campaign: all of them, and transactions."""

from __future__ import annotations

import pytest

from tests.campaign.run import run
from tests.campaign.stage import HARMS, Stage

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

SECONDS, REST_S, PER_SECOND = 15.0, 3.0, 6.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("on_stage", [2], indirect=True)
def test_acknowledged_once_in_order_and_expiries_on_time(on_stage: Stage) -> None:
    """What its neighbours notice is measured by the long campaign: it takes as long a run without harm."""
    harmed = run(on_stage, HARMS["stop the leader"], seconds=SECONDS, rest_s=REST_S, per_second=PER_SECOND)
    assert harmed.wrong == []
    assert harmed.figures["expired"] > 0, "the harm was felt"
