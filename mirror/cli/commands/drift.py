"""``mirror drift`` and ``mirror apply``: show what differs on the two sides of a flow, and bring it in step once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from mirror.cli.console import print_notice
from mirror.cli.each_flow import Answers, ask_each
from mirror.cli.options import AsJson, Config, Debug, Flow, MaxDeletions, SecretsDir, Timeout, one_flow
from mirror.config.load import load
from mirror.spark.driver.output.terminal import Terminal
from mirror.spark.preflight import drift as in_step
from mirror.spark.preflight.plan_file import read_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides
    from mirror.spark.preflight.drift import FlowDrift

_OF_PLAN: Final = "--flow or --max-deletions"


def drift(
    config: Config,
    flow: Flow = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show how topics, partitions, configurations and ACLs of both sides differ. Changes nothing.

    Exit status: 0 both sides are in step, 3 they differ, 1 they could not be compared, 2 wrong usage.
    """
    _each(config, flow, secrets_dir, _read, timeout=timeout, as_json=as_json, debug=debug)


def apply(
    config: Config,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="A file of `mirror plan --out`: make what it has, and nothing else. With --adopt: target topics that"
            " are the flow's from now on.",
            metavar="FILE|TOPIC",
        ),
    ] = None,
    flow: Flow = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Also replace configurations that others have set on the target, and restore ACLs they have"
            " deleted; with topics, only make these the flow's.",
        ),
    ] = False,
    max_deletions: MaxDeletions = None,
    secrets_dir: SecretsDir = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Create missing topics and partitions, and bring configurations and ACLs in step, once and without Spark.

    Copies nothing. What others have set on the target, or deleted there, stays as it is, unless --adopt is given; so do
    topics there that the flow has not created, and into which it has copied nothing. With on-topic-deleted = "delete",
    topics are deleted whose source topics were, after 10 s; it waits as long before it shortens what a topic keeps.

    A file of `mirror plan --out` is refused, before anything is changed, if the configuration has changed since, or
    what one of its changes rests on. What changes later is left as it is. A file without changes also fences earlier
    runs that keep the flow's inventory, and removes its records about topics that are deleted already.

    Exit status: 0 both sides are in step now, 3 something differs still, 1 could not change anything, 2 wrong usage,
    4 the flow is held.
    """
    named = frozenset(arguments or ())
    if named and not adopt:
        if flow is not None or max_deletions is not None:
            raise typer.BadParameter("belongs to the plan: give it to mirror plan --out", param_hint=_OF_PLAN)
        file = Path(*named) if len(named) == 1 else None
        if file is None or not file.exists():
            raise typer.BadParameter(
                f"{', '.join(sorted(named))} is no file of mirror plan --out; topics are named to adopt them: add"
                " --adopt, or leave them out",
                param_hint="FILE or TOPIC",
            )
        _apply_plan(file, config, secrets_dir, timeout=timeout, as_json=as_json, debug=debug)
    adopted = named
    _each(
        config,
        flow,
        secrets_dir,
        lambda loaded, one, sides: in_step.apply(
            loaded, one, sides, adopt=adopt and not adopted, adopted=adopted, max_deletions=max_deletions
        ),
        one_only=bool(adopted),
        timeout=timeout,
        as_json=as_json,
        debug=debug,
    )


def _apply_plan(
    file: Path, config: Path, secrets_dir: Path | None, *, timeout: float | None, as_json: bool, debug: bool
) -> NoReturn:
    """Make what a file of ``mirror plan --out`` has, once all of it was checked. Raises typer.Exit, FlowError."""
    plan = read_plan(file)
    loaded = load(config, secrets_dir=secrets_dir)
    plan.check_configuration(loaded)
    loaded = loaded.with_timeout(timeout)
    flows = [flow for name in plan.flows for flow in loaded.select(name)]
    checked = ask_each(loaded, flows, lambda one, sides: in_step.check_plan(loaded, one, sides, plan), debug=debug)
    if checked.errors:
        print_notice("nothing was changed")
        checked.exit(lambda _: False)
    answers = ask_each(
        loaded,
        flows,
        lambda one, sides: in_step.apply(
            loaded, one, sides, adopt=plan.adopt, max_deletions=plan.max_deletions, plan=checked.found[one.name]
        ),
        debug=debug,
    )
    _answer(answers, as_json=as_json)


def _read(config: MirrorConfig, flow: FlowConfig, sides: Sides) -> FlowDrift:
    return in_step.compare(config, flow, sides).drift


def _each(
    config: Path,
    flow: str | None,
    secrets_dir: Path | None,
    compare: Callable[[MirrorConfig, FlowConfig, Sides], FlowDrift],
    *,
    one_only: bool = False,
    timeout: float | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Compare each flow, and print what differs. Raises typer.Exit with the exit status.

    ``one_only``: raise BadParameter if ``flow`` is None and there are several.
    """
    loaded = load(config, secrets_dir=secrets_dir).with_timeout(timeout)
    flows = [one_flow(loaded, flow)] if one_only else loaded.select(flow)
    _answer(ask_each(loaded, flows, lambda one, sides: compare(loaded, one, sides), debug=debug), as_json=as_json)


def _answer(answers: Answers[FlowDrift], *, as_json: bool) -> NoReturn:
    """Print what differs. Raises typer.Exit with the exit status."""
    if as_json:
        answers.print_json(lambda one: one.to_json())
    else:
        _print(answers.found.values())
    answers.print_warnings(lambda one: one.warnings)
    answers.exit(lambda one: not one.is_in_step)


def _print(found: Iterable[FlowDrift]) -> None:
    console = Terminal()
    for one in found:
        state = "in step" if one.is_in_step else "not in step"
        for line in (f"flow {one.flow}: {one.source} to {one.target}: {state}", *one.lines()):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
