"""One cluster of three brokers for each module and level of transactions, with a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaign.stage import Stage, stage


@pytest.fixture(scope="module")
def on_stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Its parameter is the level of ``transaction.version``."""
    with stage({"transaction.version": request.param}) as started:
        yield started
