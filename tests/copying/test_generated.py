"""Copies of a few random topics; tests/campaign/equality/campaign.py runs many more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.copying.generated import Plan, Writers, plans, play
from tests.copying.pair import TwoClusters

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def writers(pair: TwoClusters) -> Iterator[Writers]:
    with Writers(pair.source.address) as writers:
        yield writers


@settings(max_examples=2, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(plan=plans)
def test_copy_of_a_random_topic_equals_its_source(pair: TwoClusters, writers: Writers, plan: Plan) -> None:
    play(pair, writers, plan)
