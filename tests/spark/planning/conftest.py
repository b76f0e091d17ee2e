from __future__ import annotations

import pytest

from tests.spark.planning.planner_harness import PlannerHarness


@pytest.fixture
def pair() -> PlannerHarness:
    return PlannerHarness()
