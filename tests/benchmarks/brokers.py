"""The brokers that benchmarks run on: those of the newest release that is tested."""

from __future__ import annotations

from functools import partial
from typing import Final

from mirror.sandbox.cluster import Cluster
from tests.releases.releases import VERSIONS, distribution

VERSION: Final = VERSIONS[-1]
cluster: Final = partial(Cluster, distribution=distribution(VERSION))
"""A Cluster of that release, with a Cluster's arguments."""
