"""Ask for each flow of a command. One that fails is reported at once, and does not stop the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

import typer

from mirror.cli.console import print_error, print_notice, print_warning
from mirror.errors import FlowError, FlowHeld, MirrorError, named, of_flow
from mirror.exit_status import ATTENTION, DONE, FAILED, HELD
from mirror.spark.clusters import Clusters
from mirror.spark.preflight.flow_checks import Findings, check_flows

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Sides

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """The answers about flows, by name."""

    findings: Findings
    """Of the checks that come first."""
    found: dict[str, T] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    """Those of the errors that say that a flow is held."""
    away: set[str] = field(default_factory=set)
    """The clusters that do not answer."""

    def print_json(self, to_json: Callable[[T], object]) -> None:
        """Print the document of all flows."""
        print(json.dumps({"flows": [to_json(one) for one in self.found.values()], "errors": self.errors}, indent=2))

    def print_warnings(self, own: Callable[[T], Sequence[str]] = lambda _: ()) -> None:
        """Print the warnings of the checks, and a flow's ``own`` ones: each once, with the flows that it is about."""
        flows: dict[str, dict[str, None]] = {}
        for name, one in self.found.items():
            for line in (*self.findings.warnings.get(name, []), *own(one)):
                flows.setdefault(line, {})[name] = None
        for line, names in flows.items():
            print_warning(f"{named('flow', list(names))}: {line}")

    def exit(self, needs_attention: Callable[[T], bool]) -> NoReturn:
        """Raise typer.Exit with the status of the command."""
        found = ATTENTION if any(map(needs_attention, self.found.values())) else DONE
        failed = HELD if self.held == self.errors.keys() else FAILED
        raise typer.Exit(failed if self.errors else found)


def ask_each(
    config: MirrorConfig, flows: Sequence[FlowConfig], ask: Callable[[FlowConfig, Sides], T], *, debug: bool
) -> Answers[T]:
    """Check all ``flows``, and ask for each one that is not refused; the clusters are observed once for all of this.

    A command that changes something begins a new observation for each flow, which sees what earlier ones have made.
    Raises FlowsRefused if all are refused.
    """
    with Clusters(config) as clusters:
        answers: Answers[T] = Answers(check_flows(config, flows, clusters, print_notice))
        for flow in flows:
            try:
                if error := answers.findings.errors.get(flow.name):
                    raise error
                answers.found[flow.name] = ask(flow, clusters.of(flow))
            except MirrorError as error:
                answers.errors[flow.name] = str(error)
                if isinstance(error, FlowHeld):
                    answers.held.add(flow.name)
                print_error(_with_flow_name(flow, error), debug=debug)
            answers.away.update(clusters.of(flow).away)
    return answers


class _ErrorOfFlow(FlowError):
    """An error with the name of its flow in each line."""

    several_lines = True


def _with_flow_name(flow: FlowConfig, error: MirrorError) -> FlowError:
    lines = [of_flow(flow.name, line) for line in str(error).splitlines()]
    error_of_flow = _ErrorOfFlow("\n".join(lines))
    error_of_flow.__cause__ = error
    return error_of_flow
