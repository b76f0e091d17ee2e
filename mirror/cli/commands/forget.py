"""``mirror forget``: remove what a flow keeps on its target, when it is not to run any more, or to begin again."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mirror.cli.console import print_notice, print_warning
from mirror.cli.options import AsJson, Config, SecretsDir, Timeout
from mirror.config.load import load
from mirror.exit_status import DONE, FAILED
from mirror.spark import forgetting
from mirror.spark.clusters import check_answers
from mirror.spark.driver.output.terminal import Terminal


def forget(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The flow to forget.")],
    config: Config,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also while a run of the flow is alive.")] = False,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Remove what a flow keeps on its target: groups, topics of its own, and its record in the registry. Never data.

    The flow has to be in the configuration. The command may be interrupted and repeated.

    Exit status: 0 nothing of it is left, 1 something could not be removed, or the flow runs, 2 wrong usage, 4 it is
    held.
    """
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    (found,) = loaded.select(flow)
    check_answers(loaded, (found.target,), print_notice)
    forgotten = forgetting.forget(loaded, found, dry_run=dry_run, force=force)
    if as_json:
        print(json.dumps(forgotten.to_json(), indent=2))
    else:
        console = Terminal()
        state = "would be forgotten" if dry_run else "forgotten" if not forgotten.failed else "not forgotten as a whole"
        for line in (f"flow {found.name}: {state}", *forgotten.lines()):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in forgotten.warnings:
        print_warning(f"flow {found.name}: {line}")
    raise typer.Exit(FAILED if forgotten.failed else DONE)
