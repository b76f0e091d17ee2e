"""The options that several commands have, with the same name, type and help everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mirror.spark.driver import job_options

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig

COMPLETES: Final = "_MIRROR_COMPLETE"
"""The environment variable by which the script of ``mirror completion`` asks what may follow."""

Config = Annotated[
    Path,
    typer.Option(
        job_options.CONFIG.name, envvar=job_options.CONFIG_VARIABLE, readable=False, help=job_options.CONFIG.help
    ),
]


def _flow_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the flows in the configuration whose names begin so, for a shell; none if it cannot be read."""
    try:
        flows = tomllib.loads(Path(ctx.params["config"]).read_text(encoding="utf-8"))["flows"]
    except (KeyError, TypeError, OSError, ValueError):
        return []
    return [name for name in flows if name.startswith(incomplete)] if isinstance(flows, dict) else []


Flow = Annotated[
    str | None, typer.Option(job_options.FLOW.name, help=job_options.FLOW.help, autocompletion=_flow_names)
]
ReportDir = Annotated[
    Path, typer.Option(job_options.REPORT_DIR.name, help=job_options.REPORT_DIR.help, file_okay=False)
]
SecretsDir = Annotated[
    Path | None, typer.Option(job_options.SECRETS_DIR.name, help=job_options.SECRETS_DIR.help, file_okay=False)
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.1,
        help="Seconds that the command (with --watch: a reading) may take; a cluster that has not answered after half"
        " of them counts as away.  [default: no bound; default.api.timeout.ms, 60 s, for each call]",
    ),
]
MaxDeletions = Annotated[
    int | None,
    typer.Option("--max-deletions", min=1, help="Delete up to so many topics, or shorten what they keep."),
]
AsJson = Annotated[bool, typer.Option(job_options.JSON.name, help=job_options.JSON.help)]
Debug = Annotated[bool, typer.Option(job_options.DEBUG.name, envvar="MIRROR_DEBUG", help=job_options.DEBUG.help)]


def one_flow(config: MirrorConfig, name: str | None) -> FlowConfig:
    """Return the flow of that name, or the only one. Raises BadParameter if there are several, ConfigError."""
    flows = config.select(name)
    if len(flows) > 1:
        names = ", ".join(one.name for one in flows)
        raise typer.BadParameter(f"is missing, and there are several flows: {names}", param_hint=job_options.FLOW.name)
    return flows[0]
