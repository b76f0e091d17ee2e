"""Where a task finds its flow: names and paths, never the content of a configuration.

Spark pickles them with each task, into files and onto other hosts. So every process (driver, tasks) loads the
configuration where it runs, from the file, its own environment and the secrets folder. On a Spark cluster the file is
shipped with ``spark-submit --files`` and found by its name; the secrets are in a mounted folder or in the executors'
environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig


# Invariant: No secret is in what Spark pickles, in an event log or in a log: a task is given paths and names only, and
#   loads the configuration itself.
# Test: tests/security/test_no_secret_is_shown.py::test_no_secret_is_shown
# Test: tests/spark/tasks/test_task_environment.py::test_a_job_brings_the_environment_to_its_workers
@dataclass(frozen=True, slots=True)
class FlowOptions:
    """One flow in one run."""

    config: Path
    flow: str
    ledger: Path
    """The folder of the run, which has its id as name."""
    secrets_dir: Path | None = None
    parallelism: int = 0
    """The largest number of tasks; 0: as many as Spark runs at once."""

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.ledger.name

    def load(self) -> tuple[MirrorConfig, FlowConfig]:
        """Load the configuration and the flow from the file. Raises ConfigError."""
        from mirror.config.load import load

        config = load(self._path(), secrets_dir=self.secrets_dir)
        return config, config.select(self.flow)[0]

    def _path(self) -> Path:
        if not self.config.exists() and (shipped := Path(SparkFiles.get(self.config.name))).exists():
            return shipped
        return self.config
