"""How the tests' JVMs run: each lives for seconds, so that what counts is its start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mirror.sandbox.cluster import HEAP

_ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"
BROKER: Final = (*HEAP, _ONE_COMPILER)
"""``heap`` of a Cluster: 2.7 instead of 4.6 s of CPU for a start. Not for benchmarks and the long campaign."""
PLAIN: Final = (_ONE_COMPILER, "-XX:+UseSerialGC")
ARCHIVE: Final = Path(__file__).parents[1] / "build" / "spark.jsa"
"""Made by ``make test`` (spark_archive.py)."""
_ARCHIVED: Final = (
    f"-XX:SharedArchiveFile={ARCHIVE}",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
    "-Xlog:class+path=off",
)
SPARK: Final = (*PLAIN, *(_ARCHIVED if ARCHIVE.exists() else ()))
"""``SPARK_SUBMIT_OPTS``: a run takes 15 s of CPU without the first two, 7 with them, and 4 less with an archive."""
