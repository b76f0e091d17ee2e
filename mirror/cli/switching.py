"""What the commands ``cutover``, ``failover`` and ``failback`` share: a state by its name, one run, and who arrives."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from mirror.cli.console import print_error, print_notice
from mirror.errors import MirrorError
from mirror.exit_status import FAILED
from mirror.runtime.clock import SystemClock
from mirror.spark.holding import user
from mirror.switch.command import CommandOutcome, SwitchCommand, status_of_error, watch_clients
from mirror.switch.operator import Operator
from mirror.switch.record import State

if TYPE_CHECKING:
    from mirror.switch.acting import ClusterSite
    from mirror.switch.arrivals import Arrived
    from mirror.switch.machine import Machine, Terms
    from mirror.switch.record import SwitchRecord


def state_of(text: str | None, states: Sequence[State]) -> State:
    """Return the state of ``--until``, DONE without it. Raises BadParameter if it is none of ``states``."""
    if text is None:
        return State.DONE
    for state in states:
        if state.value.lower() == text.lower():
            return state
    raise typer.BadParameter(f"must be one of {', '.join(states)}")


def run(
    site: ClusterSite, flows: tuple[str, ...], terms: Terms, ids: tuple[str, str], machine: Machine, *, debug: bool
) -> CommandOutcome:
    """Go on with a switch of ``flows`` between the clusters of these ``ids``, empty for one that is away."""
    operator = Operator(site, terms, f"{user()}, process {os.getpid()}", SystemClock().unix_ms, machine)
    try:
        site.prepare()
        operator.claim(flows, ids)
        outcome = SwitchCommand(operator, terms, print_notice, site.why_bypassed).run()
        operator.leave()
    except MirrorError as error:
        print_error(error, debug=debug)
        return CommandOutcome(record=operator.record, status=status_of_error(operator.record, FAILED))
    except KeyboardInterrupt:
        line = "interrupted: the same command goes on, --rollback goes back if it is not open"
        return CommandOutcome(record=operator.record, status=status_of_error(operator.record, 130), lines=(line,))
    return outcome


def arrivals(
    read: Callable[[SwitchRecord], tuple[Mapping[str, tuple[int, ...]], Collection[str]]],
    record: SwitchRecord,
    seconds: int,
    name: str,
) -> Arrived | None:
    """Return which clients have arrived on the target; None if the switch is not done, or the wait was interrupted."""
    if record.state is not State.DONE:
        return None
    try:
        return watch_clients(
            lambda: read(record),
            record,
            seconds,
            lambda line: print_notice(f"switch {name}: {line}"),
            now_ms=SystemClock().unix_ms,
        )
    except KeyboardInterrupt:
        return None  # the switch is done
