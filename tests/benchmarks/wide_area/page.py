"""WIDE_AREA.md of the results. Pure: a text from figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.latency_table.page import where
from tests.benchmarks.side_by_side.statistics import Spread

PAGE: Final = Path(__file__).parents[1] / "WIDE_AREA.md"
WANTED: Final = 0.8
LINES: Final = {
    "clean": "no losses, cubic",
    "lossy": "0.1% of the packets lost, BBR",
    "lossy-cubic": "0.1% of the packets lost, cubic",
}
PLACES: Final = {"pull": "the source is far (pull)", "push": "the target is far (push)"}
BROKERS: Final = {"default": "Kafka's buffers (100 KB)", "tuned": "the system's buffers"}
COPIERS: Final = {
    "mirror": "mirror, defaults",
    "mirror-tuned": "mirror, tuned",
    "mirrormaker": "MirrorMaker 2, defaults",
    "mirrormaker-tuned": "MirrorMaker 2, tuned",
}
_INTRODUCTION: Final = """\
Made by `python -m tests.benchmarks.wide_area`; nothing here is written by hand. How much of a link of 200
Mbit/s with a round trip of 100 ms a copy of a backlog uses: bytes of records that the target gets, divided by the
link's rate. Headers of IP, TCP and Kafka are not counted, so that no copy exceeds 0.96 for long; in the measured
seconds it may, by records that it had fetched before. A program joins two TUN devices (delay, rate, a queue of 100 ms,
losses), the kernel's TCP is on both sides, and only what copier and far cluster send each other passes it. The far
brokers have Kafka's own socket buffers, or leave them to the system (`socket.send.buffer.bytes = -1`,
`socket.receive.buffer.bytes = -1`). Figures are medians of all rounds, with the least and the most."""


def page(results: Mapping[str, Any], tuned: Sequence[str]) -> str:
    """Return the text of WIDE_AREA.md; ``tuned``: a line for each copier that is tuned, what is set."""
    runs: Sequence[Mapping[str, Any]] = results["runs"]
    lines = ["# A wide-area link", _INTRODUCTION, "", *where(results["measured"]), ""]
    lines += [wrapped for one in tuned for wrapped in textwrap.wrap(one, 119, subsequent_indent="  ")]
    lines += [
        "",
        "| link | far | far brokers | copier | rounds | part of the link | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += _rows(runs)
    if failed := [run for run in runs if "failed" in run]:
        lines += ["", "Failed, and in no figure:", *(f"- {_case(run)}: {run['failed']}" for run in failed)]
    return "\n".join(lines) + "\n"


def _case(run: Mapping[str, Any]) -> str:
    return f"{LINES[run['line']]}, {PLACES[run['place']]}, {BROKERS[run['brokers']]}, {COPIERS[run['copier']]}"


def _rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for line, line_text in LINES.items():
        for place, place_text in PLACES.items():
            for brokers, brokers_text in BROKERS.items():
                for copier, called in COPIERS.items():
                    case = {"line": line, "place": place, "brokers": brokers, "copier": copier}
                    used = [run["used"] for run in runs if case.items() <= run.items() and "used" in run]
                    if used:
                        spread = Spread.of(used)
                        part = spread.text("{:.2f}".format)
                        verdict = "reached" if spread.median >= WANTED else "below 0.8"
                        cells = (line_text, place_text, brokers_text, called, str(len(used)), part, verdict)
                        yield f"| {' | '.join(cells)} |"
