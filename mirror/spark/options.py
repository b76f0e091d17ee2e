"""What travels in a Spark plan: names and paths, never a configuration's content.

A data source's options show in ``explain``, in Spark's interface and in its event log, and pickled state lies in
task files. So neither holds a secret of a cluster: every process (planner, tasks, driver) loads the configuration where
it runs, from the file, its own environment and the secrets folder. On a cluster the file comes by ``spark-submit
--files`` and is found by its name, the secrets by a mounted folder or the executors' environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkFiles

from mirror.spark.config_in_force import config_in_force

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

SOURCE_FORMAT = "mirror-ranges"
SINK_FORMAT = "mirror"
DEFAULT_PARALLELISM = 2
"""Tasks of an epoch, for those who do not say: a stream's take a slot each for as long as it lasts."""


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """The options of both data sources: configuration file, flow name, ledger folder, secrets folder or None.

    The source has two more: ``parallelism`` is the largest number of tasks, ``run`` the name of the run that may give
    its tasks orders ("": nobody does in a scheduled run; a stream makes up its own).
    """

    config: Path
    flow: str
    ledger: Path
    secrets_dir: Path | None = None
    parallelism: int = DEFAULT_PARALLELISM
    run: str = ""

    def to_spark(self) -> dict[str, str]:
        """As Spark options."""
        options = {
            "config": str(self.config),
            "flow": self.flow,
            "ledger": str(self.ledger),
            "parallelism": str(self.parallelism),
            "run": self.run,
        }
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
            int(options.get("parallelism", DEFAULT_PARALLELISM)),
            options.get("run", ""),
        )

    def read(self) -> bytes:
        """The configuration file as it is now. Raises OSError."""
        return self._path().read_bytes()

    def load_in_force(self) -> tuple[MirrorConfig, FlowConfig]:
        """As :meth:`load`, of what a stream's source on this host has found to be good, where there is one."""
        return self.load(config_in_force(self.ledger))

    def load(self, text: bytes | None = None) -> tuple[MirrorConfig, FlowConfig]:
        """The configuration and the flow, as this process sees them; ``text`` is the file's, where it is not read.

        Raises ConfigError.
        """
        from mirror.config.load import load

        config = load(self._path(), secrets_dir=self.secrets_dir, text=text)
        return config, config.select(self.flow)[0]

    def _path(self) -> Path:
        if not self.config.exists() and (shipped := Path(SparkFiles.get(self.config.name))).exists():
            return shipped
        return self.config
