"""``mirror run``: submit the replication job to Spark and wait for it."""

from __future__ import annotations

from mirror.cli.options import (
    MASTER,
    REPORT_DIR,
    AsJson,
    Config,
    Debug,
    Everything,
    Flow,
    Master,
    ReportDir,
    SecretsDir,
)
from mirror.cli.submit import submit


def run(
    config: Config,
    flow: Flow = None,
    report_dir: ReportDir = REPORT_DIR,
    secrets_dir: SecretsDir = None,
    master: Master = MASTER,
    everything: Everything = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Copy each flow's topics to where they end now, one flow after the other, and say what came of it.

    With --json it prints at the end what summary.json says; nothing, where it got to no flow.

    Exit status: 0 every partition complete, 1 could not run, 2 wrong usage, 3 some partitions did not complete,
    130 or 143 cut short.
    """
    more = ["--all"] if everything else []
    submit(config, flow, report_dir, secrets_dir, master, more, as_json=as_json, debug=debug)
