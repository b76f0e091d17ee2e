"""How the tests' JVMs run: each lives for seconds, so that what counts is its start."""

from __future__ import annotations

from typing import Final

from mirror.sandbox.cluster import HEAP

_ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"
BROKER: Final = (*HEAP, _ONE_COMPILER)
"""``heap`` of a Cluster: 2.7 instead of 4.6 s of CPU for a start. Not for benchmarks and the long campaign."""
SPARK: Final = (_ONE_COMPILER, "-XX:+UseSerialGC")
"""``SPARK_SUBMIT_OPTS``: 7 instead of 15 s of CPU for a run."""
