"""``mirror run`` and ``mirror stream``: submit a replication job to Spark and wait for it."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import Annotated, Final, Never

import typer

from mirror.cli.commands.check_config import why_not_loaded
from mirror.cli.options import AsJson, Config, Debug, Flow, ReportDir, SecretsDir
from mirror.config.load import load
from mirror.errors import MirrorError
from mirror.sandbox import die_with_owner
from mirror.sandbox.folders import cache_folder
from mirror.sandbox.java import find_java
from mirror.spark.driver.job_options import (
    ALL,
    AVAILABLE_NOW,
    DEFAULT_REPORT_DIR,
    INSTEAD_OF_AVAILABLE_NOW,
    WAIT,
    JobOptions,
)
from mirror.spark.driver.launch.class_archive import OLDEST_JAVA_WITH_ARCHIVES, ClassArchive
from mirror.spark.driver.launch.master_check import check_master
from mirror.spark.driver.launch.spark_versions import OLDEST_JAVA, check_java, installed_spark
from mirror.spark.driver.launch.submission import DEFAULT_MASTER, Submission, is_local
from mirror.spark.driver.output.progress_lines import stamped
from mirror.spark.driver.verify_options import VerifyOptions

STREAM: Final = "stream.py"

Master = Annotated[str, typer.Option("--master", help="Where Spark runs the tasks.")]
AllPartitions = Annotated[bool, typer.Option(ALL.name, help=ALL.help)]


def _refuse_available_now(is_given: bool) -> None:
    if is_given:
        raise typer.BadParameter(INSTEAD_OF_AVAILABLE_NOW)


AvailableNow = Annotated[bool, typer.Option(AVAILABLE_NOW, hidden=True, callback=_refuse_available_now)]

Wait = Annotated[
    float | None, typer.Option(WAIT.name, metavar="SECONDS", min=0, help=f"{WAIT.help}  [default: no bound]")
]


def run(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = DEFAULT_REPORT_DIR,
    secrets_dir: SecretsDir = None,
    master: Master = DEFAULT_MASTER,
    all_partitions: AllPartitions = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Copy each flow's topics up to where they end now, one flow after the other, and print the results.

    With --json the command prints the content of summary.json at the end, or nothing if no flow was started.

    Exit status: 0 every partition complete, 1 could not run, 2 wrong usage, 3 some partitions did not complete,
    4 a flow is held, or MirrorMaker 2 copies again what it has taken over, 130 or 143 interrupted.
    """
    options = JobOptions(
        config=config,
        flow=flow,
        report_dir=report_dir,
        secrets_dir=secrets_dir,
        all_partitions=all_partitions,
        as_json=as_json,
        debug=debug,
    )
    submit(options, master, script="replicate.py")


def stream(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = DEFAULT_REPORT_DIR,
    secrets_dir: SecretsDir = None,
    master: Master = DEFAULT_MASTER,
    available_now: AvailableNow = False,  # noqa: ARG001 - it is refused
    wait: Wait = None,
    all_partitions: AllPartitions = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Follow each flow's topics, new ones included, until Ctrl-C, SIGTERM or `mirror stop`; all flows concurrently.

    With --json the command prints one line per period of a flow (period-ms), and the content of summary.json as the
    last line.

    Exit status: 0 ended in order, 1 could not run, 2 wrong usage, 3 ended with partitions that did not complete or
    because another run took over, 4 a flow is held, or MirrorMaker 2 copies again what it has taken over, 130 or 143
    interrupted: it did not end within shutdown-timeout-ms.
    """
    options = JobOptions(
        config=config,
        flow=flow,
        report_dir=report_dir,
        secrets_dir=secrets_dir,
        wait=wait,
        all_partitions=all_partitions,
        as_json=as_json,
        debug=debug,
    )
    submit(options, master, script=STREAM)


def submit(options: JobOptions | VerifyOptions, master: str, *, script: str) -> Never:
    """Submit the job ``script``, and exit with its status. Raises MirrorError if it cannot be started."""
    # A wrong configuration or a missing Java is reported now, not after Spark has started.
    importable = why_not_loaded if is_local(master) else None  # executors elsewhere may have other packages
    flows = load(options.config, secrets_dir=options.secrets_dir, why_not_loaded=importable).select(options.flow)
    check_master(master)
    java = find_java(oldest=OLDEST_JAVA)
    check_java(installed_spark(), java.version, java.path)
    archive = ClassArchive.of(java.path, cache_folder) if java.version >= OLDEST_JAVA_WITH_ARCHIVES else None
    # If this process is killed with SIGKILL, only the guard ends Spark.
    guard = [sys.executable, "-I", "-S", die_with_owner.__file__, str(os.getpid())]

    def grace_s() -> float:
        """As the file says when the stream is asked to end, or as it did before, if it is wrong then."""
        try:
            now = load(options.config, secrets_dir=options.secrets_dir).select(options.flow)
        except MirrorError:
            now = flows
        return max(flow.shutdown_timeout_ms for flow in (*flows, *now)) / 1000

    submission = Submission(
        options.to_arguments(),
        master,
        options.report_dir,
        guard=guard,
        stream_grace_s=grace_s if script == STREAM else None,
        on_progress=_print_progress,
        script=script,
        archive=archive,
    )
    raise typer.Exit(submission.run())


def _print_progress(text: str) -> None:
    print(stamped(text, datetime.now().astimezone(), terminal=sys.stderr.isatty()), file=sys.stderr, flush=True)
