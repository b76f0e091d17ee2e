"""What `mirror run` and `mirror stream` share: the job, submitted to Spark and waited for."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Never

import typer

from mirror.cli.check_config import why_not_loaded
from mirror.config.load import load
from mirror.sandbox import die_with_owner
from mirror.sandbox.java import find_java
from mirror.spark.driver.master_check import check_master
from mirror.spark.driver.progress_lines import stamped
from mirror.spark.driver.submission import Submission, is_local

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def submit(
    config: Path,
    flow: str | None,
    report_dir: Path,
    secrets_dir: Path | None,
    master: str,
    more: Sequence[str] = (),
    *,
    as_json: bool,
    debug: bool,
    stream: bool = False,
) -> Never:
    """Submit the job with these options, and end with its status. Raises MirrorError where it cannot be started."""
    # What is wrong with the configuration or the machine is said at once, not after Spark's start.
    importable = why_not_loaded if is_local(master) else None  # executors elsewhere may have other packages
    flows = load(config, secrets_dir=secrets_dir, why_not_loaded=importable).select(flow)
    check_master(master)
    find_java()
    arguments = ["--config", str(config), "--report-dir", str(report_dir), *more]
    if flow is not None:
        arguments += ["--flow", flow]
    if secrets_dir is not None:
        arguments += ["--secrets-dir", str(secrets_dir)]
    if as_json:
        arguments.append("--json")
    if debug:
        arguments.append("--debug")
    # After a SIGKILL of this process nobody else would end Spark.
    guard = [sys.executable, "-I", "-S", die_with_owner.__file__, str(os.getpid())]
    grace_s = max(each.shutdown_timeout_ms for each in flows) / 1000 if stream else None
    submission = Submission(arguments, master, report_dir, guard=guard, stream_grace_s=grace_s, doing=_doing)
    raise typer.Exit(submission.run())


def _doing(text: str) -> None:
    print(stamped(text, datetime.now().astimezone(), terminal=sys.stderr.isatty()), file=sys.stderr, flush=True)
