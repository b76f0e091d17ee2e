"""The options of a verification, defined once for its script (argparse) and for ``mirror verify`` (Typer)."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.config.positions import Position, check_position
from mirror.errors import ConfigError, FlowError, Problem
from mirror.spark.driver.job_options import (
    CONFIG,
    DEBUG,
    FLOW,
    JSON,
    MAX_PARTITIONS_SHOWN,
    SECRETS_DIR,
    Option,
    as_arguments,
    parse_with_config,
)
from mirror.verify.proof import Proof, ProofError, parse_proof

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.config.models import FlowConfig, MirrorConfig

DEFAULT_VERIFY_DIR: Final = Path("mirror-report/verify")
"""A folder of its own: a run may use the other one at the same time."""

VERIFY_DIR: Final = Option("--report-dir", "Folder of the verification: verify.json and Spark's log.")
FROM: Final = Option("--from", "Begin at this time (ISO 8601) or source offset (default: where the copies began).")
PROOF: Final = Option("--proof", "Add what is proved to this file; if it exists, begin behind what it proves.")
CHECK: Final = Option("--check", "Check this proof, and compare all that it proves again; add nothing.")
ALLOW_FOREIGN: Final = Option("--allow-foreign", "Others write to the target, too: name their records, no difference.")
HEX: Final = Option("--hex", "Show the bytes that differ, in hex: they are what users have written.")
STRICT: Final = Option("--strict", "Exit with 3 unless the target has every record that the source has now.")
ALL: Final = Option("--all", f"Show all partitions, not only the {MAX_PARTITIONS_SHOWN} worst.")
_FLAGS: Final = {ALLOW_FOREIGN: "allow_foreign", HEX: "excerpts", STRICT: "strict", ALL: "all_partitions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of one verification."""

    config: Path
    flow: str | None = None
    report_dir: Path = DEFAULT_VERIFY_DIR
    secrets_dir: Path | None = None
    from_: str | None = None
    proof: Path | None = None
    check: Path | None = None
    allow_foreign: bool = False
    excerpts: bool = False
    strict: bool = False
    all_partitions: bool = False
    as_json: bool = False
    debug: bool = False

    @classmethod
    def parse(cls, arguments: Sequence[str], *, script: str, description: str) -> VerifyOptions:
        """Parse the ``arguments`` of ``script``. Prints the usage and exits with status 2 if they are wrong."""
        parser = argparse.ArgumentParser(prog=script, description=description)
        parser.add_argument(FLOW.name, help=FLOW.help)
        parser.add_argument(VERIFY_DIR.name, type=Path, default=DEFAULT_VERIFY_DIR, help=VERIFY_DIR.help)
        parser.add_argument(SECRETS_DIR.name, type=Path, help=SECRETS_DIR.help)
        parser.add_argument(FROM.name, dest="from_", help=FROM.help)
        parser.add_argument(PROOF.name, type=Path, help=PROOF.help)
        parser.add_argument(CHECK.name, type=Path, help=CHECK.help)
        for option, name in _FLAGS.items():
            parser.add_argument(option.name, dest=name, action="store_true", help=option.help)
        parser.add_argument(JSON.name, dest="as_json", action="store_true", help=JSON.help)
        parser.add_argument(DEBUG.name, action="store_true", help=DEBUG.help)
        options = cls(**parse_with_config(parser, arguments))
        if options.wrong_usage:
            parser.error(options.wrong_usage)
        return options

    @property
    def wrong_usage(self) -> str:
        """What is wrong with these options together; empty if nothing is."""
        if self.check is not None and self.proof is not None:
            return "--check adds nothing to a proof: remove --proof"
        if self.check is not None and self.from_ is not None:
            return "--check begins where the proof does: remove --from"
        if self.strict and self.is_partial:
            return "--strict is about everything that the source has: remove --from and --check"
        try:
            parse_position(self.from_)
        except ValueError as error:
            return f"{FROM.name} {self.from_}: {error}"
        return ""

    @property
    def is_partial(self) -> bool:
        """Whether some of what is copied is left out: what is in front of a position, or behind a proof."""
        return self.from_ is not None or self.check is not None

    def to_arguments(self) -> list[str]:
        """Return the arguments that :meth:`parse` turns into these options."""
        values = {
            CONFIG: self.config,
            FLOW: self.flow,
            VERIFY_DIR: self.report_dir,
            SECRETS_DIR: self.secrets_dir,
            FROM: self.from_,
            PROOF: self.proof,
            CHECK: self.check,
        }
        flags = {
            ALLOW_FOREIGN: self.allow_foreign,
            HEX: self.excerpts,
            STRICT: self.strict,
            ALL: self.all_partitions,
            JSON: self.as_json,
            DEBUG: self.debug,
        }
        return as_arguments(values, flags)


class Selection(NamedTuple):
    """The flows that are verified, and what was proved of the only one before; None without a proof."""

    flows: list[FlowConfig]
    proof: Proof | None


def check_options(options: VerifyOptions, config: MirrorConfig) -> Selection:
    """Return what is verified. Raises ConfigError, FlowError, ProofError."""
    named = options.flow
    proof = read_proof(options)
    if named is None and proof is not None and proof.links:
        named = proof.links[0].flow
    flows = config.select(named)
    if proof is not None and len(flows) > 1:
        raise ConfigError([Problem("", "--flow", "(not set)", "must name one flow: a proof is that of one")])
    return Selection(flows, proof)


def read_proof(options: VerifyOptions) -> Proof | None:
    """Return the proof in the file that is named; an empty one if it is to be begun. Raises ProofError, FlowError."""
    path = options.proof or options.check
    if path is None:
        return None
    if options.proof is not None and not path.exists():
        return Proof()
    try:
        return parse_proof(_read(path))
    except ProofError as error:
        raise ProofError(f"{path}: {error}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FlowError(f"the proof {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def parse_position(text: str | None) -> Position | None:
    """Return the position of ``--from``; None if it is not given. Raises ValueError."""
    if text is None:
        return None
    value: str | int = int(text) if text.isdecimal() else text
    check_position(value)
    return Position.parse(value)
