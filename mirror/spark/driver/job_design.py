"""Which design a stream runs by, while there are two: one job per flow, or one Spark epoch after the other."""

from __future__ import annotations

import os
from typing import Final

_VARIABLE: Final = "MIRROR_JOB_DESIGN"
"""Its beginning keeps it from being taken for a key of the configuration (:mod:`mirror.config.naming`)."""


def runs_one_job() -> bool:
    """Return whether streams run as one job per flow. Read it once, in the driver's main function."""
    return os.environ.get(_VARIABLE) == "one"
