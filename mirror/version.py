"""The version of this project, in the one place that everything else reads.

pyproject.toml takes it from here, and not the other way round: on an executor this package may come from an archive
without the metadata of an installed distribution, and to look for those would cost each worker process time.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0"
