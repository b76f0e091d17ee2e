"""Taking over from real MirrorMaker 2, stopped in order and killed, while records keep coming; and handing back.

``kill_campaign.py`` kills it many times.
"""

from __future__ import annotations

import pytest

from tests.takeover.mirrormaker_site import MirrorMakerSite
from tests.takeover.real_takeover import all_ways, handed_back, taken_over


@pytest.mark.cluster
@all_ways
def test_killed_mirrormaker_is_taken_over_and_continues_after_it_is_handed_back(site: MirrorMakerSite) -> None:
    taken_over(site, after_s=0.5)
    handed_back(site)


@pytest.mark.cluster
@all_ways
def test_mirrormaker_that_stopped_in_order_is_taken_over(site: MirrorMakerSite) -> None:
    assert taken_over(site, after_s=None) == 0
