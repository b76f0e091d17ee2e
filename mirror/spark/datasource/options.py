"""What travels in a Spark plan: names and paths, never a configuration's content.

A data source's options show in ``explain``, in Spark's interface and in its event log, and pickled state lies in
task files. So neither holds a secret of a cluster: every process (planner, tasks, driver) loads the configuration where
it runs, from the file, its own environment and the secrets folder. On a cluster the file comes by ``spark-submit
--files`` and is found by its name, the secrets by a mounted folder or the executors' environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkFiles

from mirror.errors import ConfigError, Problem
from mirror.spark.ledger.live_config_store import read_live_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

SOURCE_FORMAT = "mirror-ranges"
SINK_FORMAT = "mirror"
DEFAULT_PARALLELISM = 2
"""Tasks of an epoch, for those who do not say: a stream's take a slot each for as long as it lasts."""


_WHERE: Final = f"options of {SOURCE_FORMAT} and {SINK_FORMAT}"
_REQUIRED: Final = {
    "config": "the path of the TOML file with clusters and flows",
    "flow": "the name of a flow in it",
    "ledger": "a folder for plans and results, such as mirror-report/ledger/FLOW/notebook",
}
_OPTIONAL: Final = ("secrets-dir", "parallelism", "run")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of a streaming query, which Spark passes on."""


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
        """From Spark options, whose keys ignore case. Raises ConfigError that names all that are missing or unknown."""
        given = {key.lower(): value for key, value in options.items()}
        if problems := list(_problems(given)):
            raise ConfigError(problems)
        secrets_dir = given.get("secrets-dir")
        return cls(
            Path(given["config"]),
            given["flow"],
            Path(given["ledger"]),
            Path(secrets_dir) if secrets_dir else None,
            int(given.get("parallelism", DEFAULT_PARALLELISM)),
            given.get("run", ""),
        )

    def read(self) -> bytes:
        """The configuration file as it is now. Raises OSError."""
        return self._path().read_bytes()

    def load_in_force(self) -> tuple[MirrorConfig, FlowConfig]:
        """As :meth:`load`, of what a stream's source on this host has found to be good, where there is one."""
        return self.load(read_live_config(self.ledger))

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


def _problems(given: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with options whose keys are in lower case."""
    for key, what in _REQUIRED.items():
        if not given.get(key):
            yield Problem(_WHERE, key, "(not set)", f"required: {what}")
    known = [*_REQUIRED, *_OPTIONAL]
    for key in sorted(given.keys() - {*known, *_OF_SPARK}):
        # Here and not above: each epoch's commit is a new process, which imports this module.
        from mirror.config.naming import suggestion

        yield Problem(_WHERE, key, "***", f"no such option{suggestion(key, known)}; there are: {', '.join(known)}")
    parallelism = given.get("parallelism", "1")
    if not (parallelism.isdecimal() and int(parallelism)):
        yield Problem(_WHERE, "parallelism", f'"{parallelism}"', "must be a whole number from 1")
