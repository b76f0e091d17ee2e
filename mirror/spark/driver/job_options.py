"""The options of the jobs, defined once for their scripts (argparse) and for the ``mirror`` command (Typer).

::

    mirror run --flow f ──to_arguments──► replicate.py --flow f ──parse──► JobOptions
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mirror.telemetry.logs import FORMAT, FORMATS, is_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AVAILABLE_NOW: Final = "--available-now"
INSTEAD_OF_AVAILABLE_NOW: Final = "a stream has no end; `mirror run` copies what there is and ends"
DEFAULT_REPORT_DIR: Final = Path("mirror-report")
MAX_PARTITIONS_SHOWN: Final = 40
"""Partitions of a flow in a table, unless all are to be shown."""


class Option(NamedTuple):
    """A command line option; its value is a path, a text or a flag, as the field of :class:`JobOptions` says."""

    name: str
    help: str


CONFIG_VARIABLE: Final = "MIRROR_CONFIG"
"""The environment variable whose value is the default of ``--config``."""

CONFIG: Final = Option("--config", "The TOML file with clusters and flows.")
FLOW: Final = Option("--flow", "Only this flow (default: all).")
REPORT_DIR: Final = Option("--report-dir", "Folder of the runs: summary.json, report.html, ledger and Spark's log.")
SECRETS_DIR: Final = Option("--secrets-dir", "Folder with one file per secret (else MIRROR_SECRETS_DIR).")
WAIT: Final = Option(
    "--wait", "Seconds that a flow waits at the start for a cluster, at least default.api.timeout.ms; 0: no longer."
)
ALL: Final = Option("--all", f"Show all partitions at the end, not only the {MAX_PARTITIONS_SHOWN} worst.")
JSON: Final = Option("--json", "Print JSON, and nothing else, on stdout.")
DEBUG: Final = Option("--debug", "Show tracebacks of errors.")
LOG_FORMAT: Final = Option("--log-format", "What stderr gets, also from tasks: text, or a JSON object in each line.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of one job."""

    config: Path
    flow: str | None = None
    report_dir: Path = DEFAULT_REPORT_DIR
    secrets_dir: Path | None = None
    wait: float | None = None
    """Of a stream only, in seconds; None: for as long as it takes."""
    all_partitions: bool = False
    as_json: bool = False
    debug: bool = False

    @classmethod
    def parse(cls, arguments: Sequence[str], *, script: str, description: str, stream: bool) -> JobOptions:
        """Parse the ``arguments`` of ``script``. Prints the usage and exits with status 2 if they are wrong."""
        parser = argparse.ArgumentParser(prog=script, description=description)
        parser.add_argument(FLOW.name, help=FLOW.help)
        parser.add_argument(REPORT_DIR.name, type=Path, default=DEFAULT_REPORT_DIR, help=REPORT_DIR.help)
        parser.add_argument(SECRETS_DIR.name, type=Path, help=SECRETS_DIR.help)
        if stream:
            parser.add_argument(WAIT.name, type=float, metavar="SECONDS", help=WAIT.help)
        parser.add_argument(ALL.name, dest="all_partitions", action="store_true", help=ALL.help)
        parser.add_argument(JSON.name, dest="as_json", action="store_true", help=JSON.help)
        parser.add_argument(DEBUG.name, action="store_true", help=DEBUG.help)
        if stream and AVAILABLE_NOW in arguments:
            parser.error(f"{AVAILABLE_NOW}: {INSTEAD_OF_AVAILABLE_NOW}")
        return cls(**parse_with_config(parser, arguments))

    def to_arguments(self) -> list[str]:
        """Return the arguments that :meth:`parse` turns into these options."""
        values = {
            CONFIG: self.config,
            FLOW: self.flow,
            REPORT_DIR: self.report_dir,
            SECRETS_DIR: self.secrets_dir,
            WAIT: self.wait,
        }
        flags = {ALL: self.all_partitions, JSON: self.as_json, DEBUG: self.debug}
        return as_arguments(values, flags)


def parse_with_config(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the options of ``parser``, and ``--config``, by name. Exits with status 2 if they are wrong."""
    default = os.environ.get(CONFIG_VARIABLE) or None
    parser.add_argument(CONFIG.name, type=Path, default=default, help=f"{CONFIG.help} (else {CONFIG_VARIABLE})")
    parser.add_argument(LOG_FORMAT.name, choices=FORMATS, help=f"{LOG_FORMAT.help} (else {FORMAT})")
    options = vars(parser.parse_args(arguments))
    if log_format := options.pop("log_format"):
        os.environ[FORMAT] = log_format  # tasks get it from here
    if options["config"] is None:
        parser.error(
            f"{CONFIG.name} is missing, and so is the environment variable {CONFIG_VARIABLE}; give one of them"
        )
    return options


def as_arguments(values: Mapping[Option, object], flags: Mapping[Option, bool]) -> list[str]:
    """Return the arguments of a command line: options with a value unless it is None, and flags that are set."""
    arguments = [text for option, value in values.items() if value is not None for text in (option.name, str(value))]
    log_format = [LOG_FORMAT.name, "json"] if is_json() else []  # the driver's host may have another environment
    return [*arguments, *(option.name for option, is_set in flags.items() if is_set), *log_format]
