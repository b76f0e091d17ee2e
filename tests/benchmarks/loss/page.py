"""LOSS.md of the results. Pure: a text from figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.benchmarks.latency_table.page import where
from tests.benchmarks.side_by_side.statistics import Spread

PAGE: Final = Path(__file__).parents[1] / "LOSS.md"
COPIERS: Final = {"mirror": "mirror", "mirrormaker": "MirrorMaker 2", "spark": "plain Spark"}
SCENARIOS: Final = {
    "worker": "a Python worker is killed",
    "executor": "an executor is killed; one of MirrorMaker 2's two nodes",
    "driver": "the driver is killed; MirrorMaker 2: both nodes",
    "source-broker": "one of three source brokers, which leads, is killed",
    "target-broker": "one of three target brokers, which leads, is killed",
    "source-down": "all three source brokers are killed, and started 10 s later",
    "target-down": "all three target brokers are killed, and started 10 s later",
    "source-cut": "no packet passes between copier and source for 30 s",
    "target-cut": "no packet passes between copier and target for 30 s",
    "source-lost": "all three source brokers are killed for good: failover",
    "cut-over": "all clients move while both clusters live: cut-over",
}
MOVES: Final = ("source-lost", "cut-over")
WITHIN_S: Final = 240.0
"""So long it is waited until clients are served again."""
STARTS_WITHIN_S: Final = 240.0
"""So long it is waited until they are served at first."""
_INTRODUCTION: Final = """\
Made by `python -m tests.benchmarks.loss`; nothing here is written by hand. {rate} records of 100 bytes a second go
into 4 partitions (idempotent, all replicas). Each process is killed with SIGKILL, and a supervisor starts at once
what has ended. Other clients measure, in the same way for all:

- *Only on the source*: records that the source had acknowledged and that no reader of the target had yet, at that
  moment, and the age of the oldest. If the source does not come back, these are lost.
- *Served after*: from the loss until, for good, 99% of the records of each second are on the target within a second
  of their acknowledgement. It contains the outage itself ("out"). After {within:.0f} s the copier is started again.
- *Missing*, *doubled*: what has never come, and what has come twice, once all is served.

MirrorMaker 2 has two nodes, exactly-once support, 2 GB of heap each, no linger, and `scheduled.rebalance.max.delay.ms
= 0` (by default a lost node's tasks wait for 5 minutes). Plain Spark is a query from its Kafka source to its Kafka
sink in micro-batches without a pause. It and `mirror stream` have a standalone cluster of two executors. Each session
has clusters of its own, and the copiers take turns; figures are medians, with the least and the most. One broker for
each cluster, where three are not named."""
_MOVES: Final = """\
Ours are the commands `mirror failover` and `mirror cutover` (`quiet-seconds = 5`). The others' steps are those of an
operator, taken by a program without a pause: stop the producers, wait until all has come, stop the consumers, wait
until the group's positions on the target are still for 5 s, stop the copier, start the clients there. For plain
Spark, which moves no positions, the operator sets the group to the ends at a cut-over; after a loss it begins at the
beginning. *Served after* is from the loss, or from the last record that the source has acknowledged, until the group
has read a new record of the target; *writes after* is until the target has acknowledged the first one. *Read again*
and *skipped* are records of the group, which commits each second."""

_STEPS: Final = """\
Seconds that each step of our commands has taken: until its state ([SWITCH.md](../../jobs/SWITCH.md)) was stored. A
failover's first one is from the loss on, and contains the start of the command."""

_FAILED: Final = """\
A session begins once clients are served: 99% of the records of a second within a second. A copier that does not reach
this in {within:.0f} s "serves no client". What has failed is tried again by a later call."""


def page(results: Mapping[str, Any]) -> str:
    """Return the text of LOSS.md."""
    runs: Sequence[Mapping[str, Any]] = results["runs"]
    rate = runs[0]["rate"] if runs else 0
    lines = ["# What is lost with a part, and for how long", _INTRODUCTION.format(rate=rate, within=WITHIN_S), ""]
    lines += [*where(results["measured"]), "", "## A part comes back", ""]
    lines += ["| | copier | rounds | only on the source: records, s | served after, s | out, s | missing | doubled |"]
    lines += ["|---|---|---|---|---|---|---|---|", *_parts(runs), "", "## Clients move", _MOVES, ""]
    lines += ["| | copier | rounds | only on the source: records, s | served after, s | writes after, s | missing |"]
    lines[-1] += " doubled | read again | skipped |"
    lines += ["|---|---|---|---|---|---|---|---|---|---|", *_moves(runs)]
    if steps := [*_steps(runs)]:
        lines += ["", _STEPS, "", *steps]
    if remarks := [*_remarks(runs)]:
        lines += ["", "## Sessions that did not end", _FAILED.format(within=STARTS_WITHIN_S), "", *remarks]
    return "\n".join(lines) + "\n"


def _parts(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for scenario, text in SCENARIOS.items():
        for copier, called in COPIERS.items():
            if scenario not in MOVES and (found := _of(runs, scenario, copier)):
                out = _spread(found, "down_s") if "down_s" in found[0] else ""
                cells = [_exposed(found), _spread(found, "served_s"), out, _total(found, "missing")]
                yield _row(text, called, found, [*cells, _total(found, "doubled")])


def _moves(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for scenario in MOVES:
        for copier, called in COPIERS.items():
            if found := _of(runs, scenario, copier):
                cells = [_exposed(found), _spread(found, "served_s"), _spread(found, "writes_s")]
                cells += [_total(found, key) for key in ("missing", "doubled", "read_again", "skipped")]
                yield _row(SCENARIOS[scenario], called, found, cells)


def _steps(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of each scenario a line with the steps that our command has taken, in their order."""
    for scenario in MOVES:
        if found := [one for one in _of(runs, scenario, "mirror") if "steps_s" in one]:
            steps = [one["steps_s"] for one in found]
            states = dict.fromkeys(state for of_run in steps for state in of_run)
            shown = [f"`{state}` {_spread([one for one in steps if state in one], state)}" for state in states]
            refused = sum(one["commands"] - 1 for one in found)
            repeated = f"; it was refused {refused} times at first, and repeated" if refused else ""
            yield from textwrap.wrap(f"- {SCENARIOS[scenario]}: {', '.join(shown)}{repeated}.", 119)


def _row(text: str, called: str, found: Sequence[Mapping[str, Any]], cells: Sequence[str]) -> str:
    return f"| {text} | {called} | {len(found)} | {' | '.join(cells)} |"


def _of(runs: Sequence[Mapping[str, Any]], scenario: str, copier: str) -> list[Mapping[str, Any]]:
    return [run["found"][scenario] for run in runs if run["copier"] == copier and scenario in run["found"]]


def _exposed(found: Sequence[Mapping[str, Any]]) -> str:
    return f"{median(one['exposed'] for one in found):,.0f}, {median(one['exposed_s'] for one in found):.2f}"


def _spread(found: Sequence[Mapping[str, Any]], key: str) -> str:
    """The median, and the least and the most of several; a figure that is None was not reached in time."""
    values = [one[key] for one in found if one[key] is not None]
    if len(values) < len(found):
        return f"not within {WITHIN_S:.0f} s in {len(found) - len(values)} of {len(found)}"
    return Spread.of(values).text("{:.1f}".format)


def _total(found: Sequence[Mapping[str, Any]], key: str) -> str:
    """The most of all rounds: no loss is averaged away."""
    return f"{max(one[key] for one in found):,}"


def _remarks(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for run in runs:
        if "failed" in run:
            reached = ", ".join(run["found"]) or "nothing"
            what = f"round {run['round']}, {COPIERS[run['copier']]}, session {run['session']}"
            yield f"- {what}: after {reached}: {run['failed']}"
