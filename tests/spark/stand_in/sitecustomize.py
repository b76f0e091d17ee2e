"""Python imports this at its start where its folder is on PYTHONPATH: every process of a Spark job gets the fakes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.spark.stand_in.files import install

install()
