"""Real MirrorMaker 2 between the two shared clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirror.sandbox.cluster import Cluster
from tests.takeover.real.site import MirrorMakerSite


@pytest.fixture
def site(
    request: pytest.FixtureRequest,
    source_cluster: Cluster,
    target_cluster: Cluster,
    tmp_path: Path,
    unique: Callable[[str], str],
) -> MirrorMakerSite:
    """The parameter is a Way, or has the options of a site."""
    options = request.param if isinstance(request.param, dict) else request.param._asdict()
    return MirrorMakerSite(source_cluster, target_cluster, tmp_path, unique, **options)
