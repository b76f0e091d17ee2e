"""What travels in a Spark plan: names and paths, never a configuration's content.

A data source's options show in ``explain``, in Spark's interface and in its event log, and pickled state lies in
task files. So neither holds a secret: every process (planner, tasks, driver) loads the configuration where it runs,
from the file, its own environment and the secrets folder. On a cluster the file comes by ``spark-submit --files`` and
is found by its name, the secrets by a mounted folder or the executors' environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles

from mirror.config.load import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

SOURCE_FORMAT = "mirror-ranges"
SINK_FORMAT = "mirror"


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """The options of both data sources: configuration file, flow name, secrets folder or None, ledger folder."""

    config: Path
    flow: str
    ledger: Path
    secrets_dir: Path | None = None

    def to_spark(self) -> dict[str, str]:
        """As Spark options."""
        options = {"config": str(self.config), "flow": self.flow, "ledger": str(self.ledger)}
        return options if self.secrets_dir is None else {**options, "secrets-dir": str(self.secrets_dir)}

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> FlowOptions:
        """From Spark options, whose keys ignore case. Raises KeyError where one is missing."""
        secrets_dir = options.get("secrets-dir")
        return cls(
            Path(options["config"]),
            options["flow"],
            Path(options["ledger"]),
            Path(secrets_dir) if secrets_dir else None,
        )

    def load(self) -> tuple[MirrorConfig, FlowConfig]:
        """The configuration and the flow, as this process sees them. Raises ConfigError."""
        path = self.config
        if not path.exists() and (shipped := Path(SparkFiles.get(path.name))).exists():
            path = shipped
        config = load(path, secrets_dir=self.secrets_dir)
        return config, config.select(self.flow)[0]
