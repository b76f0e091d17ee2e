"""The frame of the ``mirror`` command: what its commands are, and what becomes of their errors.

Exit status: 0 done, 1 could not run, 2 wrong usage, 130 interrupted; a command may add its own.
"""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from mirror.cli.console import complain

_DISTRIBUTION: Final = "kafka-spark-mirror"


class _Lazy(NamedTuple):
    """A command that is imported when it is used: ``mirror --help`` must not wait for Spark."""

    module: str
    attribute: str
    help: str


_COMMANDS: Final = {
    "run": _Lazy("mirror.cli.run", "run", "Copy what is new, once, as a Spark job."),
    "stream": _Lazy("mirror.cli.stream", "stream", "Follow topics, as a Spark stream, until told to end."),
    "stop": _Lazy("mirror.cli.stop", "stop", "End a flow's stream in order, wherever it runs."),
    "status": _Lazy("mirror.cli.status", "status", "Show progress and lag per partition, once or live."),
    "report": _Lazy("mirror.cli.report", "report", "Make the report of the last run anew: one HTML file."),
    "plan": _Lazy("mirror.cli.plan", "plan", "Say what a run would copy and change; changes nothing."),
    "check-config": _Lazy("mirror.cli.check_config", "check_config", "Check a configuration and show what it means."),
    "demo": _Lazy("mirror.cli.demo", "demo", "Copy a made-up data set between two sandbox clusters."),
    "sandbox": _Lazy("mirror.cli.sandbox", "app", "Start and stop real Kafka clusters on this machine."),
}


class LazyGroup(TyperGroup):
    """The commands' names and short helps, with each command's own module behind it."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, lazy in _COMMANDS.items():
            self.add_command(TyperCommand(name, help=lazy.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of its name before it is looked up."""
        if args and args[0] in _COMMANDS:
            self.add_command(_load(args[0]), args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and turn its error into lines on stderr and an exit status."""
        debug = ctx.params["debug"] or "--debug" in ctx.args  # before or after the command's name
        if debug:
            ctx.default_map = {key: {"debug": True} for key in _COMMANDS}  # for commands that pass it on
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise  # Typer's own ways to end
        except Exception as error:  # noqa: BLE001 - no traceback may reach a person who did not ask for it
            complain(error, debug=debug)
            raise typer.Exit(1) from None


def _load(name: str) -> Any:
    lazy = _COMMANDS[name]
    found = getattr(importlib.import_module(lazy.module), lazy.attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    single = typer.Typer(add_completion=False)
    single.command(name)(found)
    return typer.main.get_command(single)


app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        try:
            print(f"mirror {metadata.version(_DISTRIBUTION)}")
        except metadata.PackageNotFoundError:
            print("mirror, version unknown: not installed as a package")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", envvar="MIRROR_DEBUG", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Copy topics from one Kafka cluster to another, on Spark."""


def main() -> None:
    """Run the ``mirror`` command with the process's arguments; ends the process."""
    app(prog_name="mirror")
