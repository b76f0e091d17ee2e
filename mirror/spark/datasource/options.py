"""The options that a Spark plan carries: names and paths, never the content of a configuration.

A data source's options are visible in ``explain``, in Spark's web page and in its event log, and pickled state is
written to task files. So neither the options nor that state contain a cluster's secrets: every process
(planner, tasks, driver) loads the configuration where it runs, from the file, its own environment and the secrets
folder. On a Spark cluster the file is shipped with ``spark-submit --files`` and found by its name; the secrets are in
a mounted folder or in the executors' environment.
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
"""The default number of tasks of an epoch. In a stream each task occupies a slot for as long as the stream runs."""


_WHERE: Final = f"options of {SOURCE_FORMAT} and {SINK_FORMAT}"
_REQUIRED: Final = {
    "config": "the path of the TOML file with clusters and flows",
    "flow": "the name of a flow in it",
    "ledger": "a folder for plans and results, such as mirror-report/ledger/FLOW/notebook",
}
_OPTIONAL: Final = ("secrets-dir", "parallelism", "run")
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of a streaming query, which Spark passes to the data source."""


@dataclass(frozen=True, slots=True)
class FlowOptions:
    """The options of both data sources; ``parallelism`` and ``run`` are only for the source."""

    config: Path
    flow: str
    ledger: Path
    secrets_dir: Path | None = None
    parallelism: int = DEFAULT_PARALLELISM
    """The largest number of tasks."""
    run: str = ""
    """The id of the run that sends control commands to its tasks. Without it, the tasks of a scheduled
    run receive no control commands, and a stream creates an id."""

    def to_spark(self) -> dict[str, str]:
        """Return these options as Spark options."""
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
        """Read Spark options, whose keys ignore case. Raises ConfigError with all missing and unknown options."""
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
        """Return the content of the configuration file. Raises OSError."""
        return self._path().read_bytes()

    def load_live(self) -> tuple[MirrorConfig, FlowConfig]:
        """Load the live configuration, which a stream's source on this host uses; without one, load the file."""
        return self.load(read_live_config(self.ledger))

    def load(self, text: bytes | None = None) -> tuple[MirrorConfig, FlowConfig]:
        """Load the configuration and the flow, from ``text`` if it is given, else from the file. Raises ConfigError."""
        from mirror.config.load import load

        config = load(self._path(), secrets_dir=self.secrets_dir, text=text)
        return config, config.select(self.flow)[0]

    def _path(self) -> Path:
        if not self.config.exists() and (shipped := Path(SparkFiles.get(self.config.name))).exists():
            return shipped
        return self.config


def _problems(given: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of the options, whose keys are in lower case."""
    for key, description in _REQUIRED.items():
        if not given.get(key):
            yield Problem(_WHERE, key, "(not set)", f"required: {description}")
    valid = [*_REQUIRED, *_OPTIONAL]
    for key in sorted(given.keys() - {*valid, *_SPARK_OPTIONS}):
        # Not at the top: each epoch's commit runs in a new process, which imports this module.
        from mirror.config.naming import suggestion

        yield Problem(
            _WHERE, key, "***", f"no such option{suggestion(key, valid)}; the options are: {', '.join(valid)}"
        )
    parallelism = given.get("parallelism", "1")
    if not (parallelism.isdecimal() and int(parallelism)):
        yield Problem(_WHERE, "parallelism", f'"{parallelism}"', "must be a whole number from 1")
