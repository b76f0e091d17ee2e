"""Measure what losses of parts of a replication cost, by turns of the copiers, and write LOSS.md.

    PYTHONPATH=. python -m tests.benchmarks.loss [--rounds 1] [--rate 500] [--session processes ...]
        [--copier mirror ...] [--minutes 60]

A session is two clusters, a copier that is supervised, a producer, a group on the source and a reader of the target;
losses come one after the other, each once clients have been served for 10 s. Needs root on Linux (a network
namespace, TUN devices), Go and Java. Each session is added to ``results.json``, with the commit. What is there and
has not failed is not measured again, so that a call can be repeated; runs of another commit are refused. After
``--minutes`` no session begins.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.loss.page import PAGE, page
from tests.benchmarks.loss.scenarios import SCENARIOS, SESSIONS, play
from tests.benchmarks.loss.site import COPIERS, site
from tests.benchmarks.side_by_side.results import begin, invocation, is_done

FILE: Final = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str]) -> int:
    """Measure what is missing; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--session", action="append", choices=list(SESSIONS))
    parser.add_argument("--copier", action="append", choices=list(COPIERS))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--output", type=Path, default=FILE)
    asked = parser.parse_args(arguments)
    until = time.monotonic() + asked.minutes * 60
    results = begin(asked.output, invocation(0, arguments))
    for number in range(1, asked.rounds + 1):
        for session in asked.session or SESSIONS:
            for copier in asked.copier or COPIERS:
                run = {"round": number, "session": session, "copier": copier, "rate": asked.rate}
                if time.monotonic() < until and not is_done(run, results["runs"]):
                    results["runs"].append(run | _measure(run))
                    asked.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if asked.output == FILE:
        PAGE.write_text(page(results), encoding="utf-8")
    return 0


def _measure(run: dict[str, Any]) -> dict[str, Any]:
    """Play one session; a copier that does not recover is started again for the rest of it, as an operator does."""
    session = SESSIONS[run["session"]]
    found: dict[str, Any] = {}
    try:
        with site(run["copier"], session.brokers, run["rate"]) as made:
            for name in session.scenarios:
                figures = play(made, name)
                _show({**run, name: figures})
                if figures is None:
                    continue
                found[name] = figures
                if figures["served_s"] is None:
                    made.restart()
    except Exception as error:  # noqa: BLE001 - the other copiers' turns come all the same
        traceback.print_exc()
        return {"found": found, "failed": f"{type(error).__name__}: {error}"[:300]}
    return {"found": found}


def _show(figures: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(figures)}\n")
    sys.stdout.flush()


assert {name for session in SESSIONS.values() for name in session.scenarios} == SCENARIOS.keys()

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
