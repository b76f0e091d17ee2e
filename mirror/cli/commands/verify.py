"""``mirror verify``: compare source and target of flows, as a Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirror.cli.commands.run import Master, submit
from mirror.cli.console import print_notice
from mirror.cli.options import AsJson, Config, Debug, Flow, SecretsDir
from mirror.config.load import load
from mirror.spark.clusters import contact
from mirror.spark.driver import verify_options
from mirror.spark.driver.launch.submission import DEFAULT_MASTER
from mirror.spark.driver.verify_options import DEFAULT_VERIFY_DIR, VerifyOptions, check_options

_Dir = Annotated[
    Path, typer.Option(verify_options.VERIFY_DIR.name, help=verify_options.VERIFY_DIR.help, file_okay=False)
]
_From = Annotated[str | None, typer.Option(verify_options.FROM.name, help=verify_options.FROM.help)]
_Proof = Annotated[Path | None, typer.Option(verify_options.PROOF.name, help=verify_options.PROOF.help, dir_okay=False)]
_Check = Annotated[Path | None, typer.Option(verify_options.CHECK.name, help=verify_options.CHECK.help, dir_okay=False)]
_AllowForeign = Annotated[bool, typer.Option(verify_options.ALLOW_FOREIGN.name, help=verify_options.ALLOW_FOREIGN.help)]
_Hex = Annotated[bool, typer.Option(verify_options.HEX.name, help=verify_options.HEX.help)]
_Strict = Annotated[bool, typer.Option(verify_options.STRICT.name, help=verify_options.STRICT.help)]
_All = Annotated[bool, typer.Option(verify_options.ALL.name, help=verify_options.ALL.help)]

_Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.1, help="Seconds within which the command fails if the clusters do not answer."),
]


def verify(
    config: Config,
    flow: Flow = None,
    report_dir: _Dir = DEFAULT_VERIFY_DIR,
    secrets_dir: SecretsDir = None,
    master: Master = DEFAULT_MASTER,
    from_: _From = None,
    proof: _Proof = None,
    check: _Check = None,
    allow_foreign: _AllowForeign = False,
    excerpts: _Hex = False,
    strict: _Strict = False,
    all_partitions: _All = False,
    timeout: _Timeout = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare what each flow has copied, record by record, up to what is committed.

    Changes nothing but for a record of the result in the flow's status topic on the target, if it may write there.

    It says up to which offsets both sides are equal, what differs (missing, doubled, order, content, foreign) with its
    offsets, what could not be compared and why, and whether the target is complete: whether it has every record that
    the source has now.

    Exit status: 0 all that is copied is equal, 1 something could not be examined, 2 wrong usage, 3 differences (with
    --strict also if the target is not complete), 130 or 143 interrupted.
    """
    options = VerifyOptions(
        config=config,
        flow=flow,
        report_dir=report_dir,
        secrets_dir=secrets_dir,
        from_=from_,
        proof=proof,
        check=check,
        allow_foreign=allow_foreign,
        excerpts=excerpts,
        strict=strict,
        all_partitions=all_partitions,
        as_json=as_json,
        debug=debug,
    )
    if options.wrong_usage:
        raise typer.BadParameter(options.wrong_usage)
    # What can be said without Spark is said now.
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    flows = check_options(options, loaded).flows
    away = contact(loaded, (name for one in flows for name in (one.source, one.target)), print_notice)
    if away and all({one.source, one.target} & away.keys() for one in flows):
        raise next(iter(away.values()))
    submit(options, master, script="verify.py")
