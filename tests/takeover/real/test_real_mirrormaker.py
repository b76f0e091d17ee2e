"""Taking over from real MirrorMaker 2, stopped in order and killed, while records keep coming; and handing back.

``make takeovers`` kills and stops it many times.
"""

from __future__ import annotations

import pytest

from tests.takeover.real.rounds import WAYS, Kill, Rounds, Way
from tests.takeover.real.site import MirrorMakerSite


@pytest.mark.parametrize("site", [Way(exactly_once=True)], ids=str, indirect=True)
def test_killed_mirrormaker_is_fenced_and_taken_over(site: MirrorMakerSite) -> None:
    """The only one of these in ``make test``."""
    Rounds(site).take_over(kills=[Kill(0.5)])


@pytest.mark.cluster
@pytest.mark.parametrize("site", WAYS, ids=str, indirect=True)
def test_killed_mirrormaker_is_taken_over_and_continues_after_it_is_handed_back(site: MirrorMakerSite) -> None:
    rounds = Rounds(site)
    rounds.take_over(kills=[Kill(0.5)])
    rounds.hand_back()
    rounds.go_on()


@pytest.mark.cluster
@pytest.mark.parametrize("site", WAYS, ids=str, indirect=True)
def test_mirrormaker_that_stopped_in_order_is_taken_over(site: MirrorMakerSite) -> None:
    assert Rounds(site).take_over(kills=[]).doubled == 0
