"""MirrorMaker 2 is killed 20 times at random moments, taken over and given back each time (``make takeovers``)."""

from __future__ import annotations

import random
import sys

import pytest

from tests.takeover.mirrormaker_site import FLUSH_MS, MirrorMakerSite
from tests.takeover.real_takeover import all_ways, handed_back, taken_over

KILLS = 20


@all_ways
@pytest.mark.timeout(3600)
def test_mirrormaker_that_is_killed_at_random_moments_is_taken_over(site: MirrorMakerSite) -> None:
    rng = random.Random(f"{site.exactly_once} {site.identity}")
    for number in range(1, KILLS + 1):
        doubled = taken_over(site, after_s=rng.uniform(0, 1.5 * FLUSH_MS / 1000))
        line = f"kill {number}: MirrorMaker 2 has doubled {doubled} records so far, and the takeover none"
        sys.stderr.write(f"{line}\n")
        if number < KILLS:
            site.takeover("--back")
    handed_back(site)
