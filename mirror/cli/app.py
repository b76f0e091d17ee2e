"""The ``mirror`` command: the list of its subcommands, and the report of their errors.

Exit status: 0 success, 1 could not run, 2 wrong usage, 4 a flow is held, 130 interrupted; a subcommand may have others.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple

import typer
from typer._click.exceptions import NoSuchOption  # Typer has no public name for it
from typer.core import TyperCommand, TyperGroup

from mirror.cli.bounded import bounded
from mirror.cli.console import print_error
from mirror.cli.options import COMPLETES
from mirror.errors import FlowHeld
from mirror.exit_status import FAILED, HELD
from mirror.extras import REPORT, SPARK, require
from mirror.spark.driver.job_options import LOG_FORMAT
from mirror.spark.driver.launch.unfailing_output import replace_standard_streams
from mirror.telemetry.logs import FORMAT
from mirror.version import VERSION


class _Lazy(NamedTuple):
    """A subcommand that is imported when it is used, so that ``mirror --help`` does not import Spark.

    ``module`` is its module in ``mirror.cli.commands``, ``extra`` the part of the package that it cannot do without.
    """

    module: str
    attribute: str
    help: str
    extra: str = ""


_COMMANDS: Final = {
    "init": _Lazy("init", "init", "Write a first configuration, and say how to go on."),
    "run": _Lazy("run", "run", "Copy what is new, once, as a Spark job.", SPARK),
    "stream": _Lazy("run", "stream", "Follow topics, as a Spark stream, until it is stopped.", SPARK),
    "stop": _Lazy("stop", "stop", "Stop a flow's stream in order, on whichever host it runs."),
    "hold": _Lazy("hold", "hold", "Have nothing of a flow write any more, until it is released."),
    "release": _Lazy("hold", "release", "Let a flow copy again that was held."),
    "status": _Lazy("status", "status", "Show progress and lag per partition, once or live."),
    "exporter": _Lazy("exporter", "exporter", "Serve what is known of all flows, for Prometheus and probes."),
    "report": _Lazy("report", "report", "Write the report of the last run again: one HTML file.", REPORT),
    "plan": _Lazy("plan", "plan", "Show what a run would copy and change; changes nothing."),
    "drift": _Lazy("drift", "drift", "Show what differs on both sides; the exit status says whether."),
    "apply": _Lazy("drift", "apply", "Bring topics, configurations and ACLs in step, once; copies nothing."),
    "verify": _Lazy("verify", "verify", "Compare source and target, record by record, as a Spark job.", SPARK),
    "offsets": _Lazy("offsets", "offsets", "Translate offsets between source and target, exactly."),
    "positions": _Lazy("positions", "app", "Translate positions in checkpoints, lists and snapshots, for engines."),
    "groups": _Lazy("groups", "groups", "Show consumer groups on both sides, and what is not in step."),
    "aside": _Lazy("aside", "aside", "List what the target did not take, and copy it again."),
    "rehearse": _Lazy("rehearse", "rehearse", "Show what a switch to the target would cost now; carries nothing out."),
    "cutover": _Lazy("cutover", "cutover", "Move clients to the target: fence, copy the rest, prove, switch.", SPARK),
    "failover": _Lazy("failover", "failover", "Move clients to the target while the source is away."),
    "failback": _Lazy("failback", "failback", "Take back a cluster that clients have left by a failover."),
    "forget": _Lazy("forget", "forget", "Remove what a flow keeps on its clusters; never data."),
    "doctor": _Lazy("doctor", "doctor", "Find what keeps flows from working, on this host and on clusters."),
    "check-config": _Lazy("check_config", "check_config", "Check a configuration and show its effective values."),
    "config-schema": _Lazy("config_schema", "config_schema", "Print the JSON Schema of configurations, for editors."),
    "completion": _Lazy("completion", "completion", "Print what makes a shell complete this command."),
    "import": _Lazy("import_file", "import_file", "Turn a MirrorMaker 2 configuration into one of ours."),
    "lint": _Lazy("lint", "lint", "Show what is wrong or surprising in a MirrorMaker 2 configuration."),
    "takeover": _Lazy("takeover", "takeover", "Begin where MirrorMaker 2 has stopped, in the same topics."),
    "demo": _Lazy("demo", "demo", "Copy generated data between two sandbox clusters.", SPARK),
    "sandbox": _Lazy("sandbox", "app", "Start and stop real Kafka clusters on this machine."),
}

_SPARK_JOBS: Final = frozenset({"run", "stream", "verify"})
"""Their time depends on the data, and they handle signals, which only the main thread can."""


class LazyGroup(TyperGroup):
    """A group that lists all subcommands, and imports a subcommand's module when it is used."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, lazy in _COMMANDS.items():
            self.add_command(TyperCommand(name, help=lazy.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder by the real subcommand before it is looked up."""
        if args and args[0] in _COMMANDS:
            self.add_command(_load(args[0]), args[0])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--log-format`` from before or after the subcommand's name: each subcommand has it."""
        return super().parse_args(ctx, [*_log_format(args), *args])

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, and report its error as lines on stderr and an exit status."""
        debug = ctx.params["debug"] or "--debug" in ctx.args  # before or after the subcommand's name
        if debug:
            ctx.default_map = {key: {"debug": True} for key in _COMMANDS}  # for subcommands that have the option
        try:
            return super().invoke(ctx)
        except NoSuchOption as error:
            raise _with_hint(error) from None
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise  # Typer handles these
        except Exception as error:  # noqa: BLE001 - no traceback reaches a user who did not request it
            print_error(error, debug=debug)
            raise typer.Exit(HELD if isinstance(error, FlowHeld) else FAILED) from None


def _log_format(args: list[str]) -> list[str]:
    """Remove ``--log-format`` and its value from behind the subcommand in ``args``, and return them."""
    name = LOG_FORMAT.name
    end = args.index("--") if "--" in args else len(args)
    for number, one in enumerate(args[:end]):
        if one == name or one.startswith(f"{name}="):
            found = args[number : number + (2 if one == name else 1)]
            del args[number : number + len(found)]
            return found
    return []


def _with_hint(error: NoSuchOption) -> NoSuchOption:
    """Return an error of a command with arguments that says how one is given, also if it begins with a dash."""
    if error.ctx is None:
        return error
    arguments = [one.name for one in error.ctx.command.params if one.param_type_name == "argument"]
    path, name = error.ctx.command_path, error.option_name.removeprefix("--")
    if name in arguments:
        error.message += f"; give its value as the argument: {path} {name.upper()}"
    elif arguments:
        usage = f"{path} [OPTIONS] -- ARGUMENTS"
        error.message += f"; if it is an argument that begins with a dash, put -- before the arguments: {usage}"
    return error


def _load(name: str) -> Any:
    lazy = _COMMANDS[name]
    found = getattr(importlib.import_module(f"mirror.cli.commands.{lazy.module}"), lazy.attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    single = typer.Typer(add_completion=False)
    command = found if name in _SPARK_JOBS else bounded(found)
    single.command(name)(_requiring(lazy.extra, name, command) if lazy.extra else command)
    return typer.main.get_command(single)


def _requiring(extra: str, name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Return ``command``, which fails before anything else if ``extra`` is not installed; its help needs nothing."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        require(f"mirror {name}", extra)
        command(**arguments)

    return run


app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _version(requested: bool) -> None:
    if requested:
        print(f"mirror {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[  # noqa: ARG001 - the group reads it
        bool, typer.Option("--debug", envvar="MIRROR_DEBUG", help="Show tracebacks of errors.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback reads it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    log_format: Annotated[
        Literal["text", "json"] | None, typer.Option(LOG_FORMAT.name, envvar=FORMAT, help=LOG_FORMAT.help)
    ] = None,
) -> None:
    """Copy topics from one Kafka cluster to another, on Spark."""
    if log_format is not None:
        os.environ[FORMAT] = log_format  # processes that the command starts have it, too


def main() -> None:
    """Run the ``mirror`` command with the process's arguments, and exit."""
    replace_standard_streams()
    if COMPLETES in os.environ:
        from typer._completion_classes import completion_init  # Typer has no public name for it

        completion_init()
    try:
        app(prog_name="mirror")
    finally:
        _flush_stdout()


def _flush_stdout() -> None:
    """Write what is left for stdout: Python would report a failure at its own exit as a stack trace."""
    try:
        sys.stdout.flush()
    except OSError as error:
        print_error(error, debug=False)
        raise SystemExit(1) from None
