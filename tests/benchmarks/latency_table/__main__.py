"""Measure each way to copy by ``bench_latency.py``, by turns in rounds, and write LATENCY.md.

    PYTHONPATH=. python -m tests.benchmarks.latency_table [--rounds 3] [--seconds 20] [--epoch-ms 180000]
        [--load 4x100 ...] [--minutes 60] [NAME ...]

Each run is added to ``results.json``, with the commit. What is there is not measured again, so that a call can be
repeated until all rounds are complete; runs of another commit are refused. After ``--minutes`` no run begins.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import bench_latency
from tests.benchmarks.latency_table.page import LOADS, NAMES, PAGE, page
from tests.benchmarks.side_by_side.results import invocation

FILE: Final = Path(__file__).with_name("results.json")


class OtherCommitError(Exception):
    """The runs in the file are of another commit."""


def begin(path: Path, invocation: dict[str, Any]) -> dict[str, Any]:
    """Return the results in ``path``, or new ones of this ``invocation``.

    Raises OtherCommitError if they are of another commit, or of a tree with changes.
    """
    if not path.exists():
        return {"measured": invocation, "runs": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found["measured"]["commit"] != invocation["commit"] or not invocation["clean"]:
        msg = f"{path.name} is of commit {found['measured']['commit'][:12]}: check that out, or delete the file"
        raise OtherCommitError(msg)
    return found


def is_done(run: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether ``run`` is among ``runs``, and has not failed."""
    return any(run.items() <= done.items() and "failed" not in done for done in runs)


def main(arguments: Sequence[str]) -> int:
    """Measure what is missing; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--epoch-ms", type=int, default=180_000)
    parser.add_argument("--load", action="append", choices=[f"{parts}x{rate}" for parts, rate in LOADS])
    parser.add_argument("--minutes", type=float, default=float("inf"))
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - NAMES.keys():
        parser.error(f"no such copier: {', '.join(sorted(unknown))}")
    until = time.monotonic() + asked.minutes * 60
    results = begin(FILE, invocation(0, arguments))
    loads = [load for load in LOADS if asked.load is None or f"{load[0]}x{load[1]}" in asked.load]
    for number in range(1, asked.rounds + 1):
        for partitions, rate in loads:
            for name in asked.names or NAMES:
                run = {"round": number, "partitions": partitions, "rate": rate, "copier": name}
                run |= {"seconds": asked.seconds, "epoch_ms": asked.epoch_ms}
                if time.monotonic() < until and not is_done(run, results["runs"]):
                    results["runs"].append(run | _measure(run))
                    FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
                    sys.stdout.write(f"{json.dumps(results['runs'][-1])}\n")
                    sys.stdout.flush()
    PAGE.write_text(page(results), encoding="utf-8")
    return 0


def _measure(run: dict[str, Any]) -> dict[str, Any]:
    try:
        found = bench_latency.measure(run["copier"], run["rate"], run["seconds"], run["epoch_ms"], run["partitions"])
    except Exception as error:  # noqa: BLE001 - the other copiers' turns come all the same
        return {"failed": f"{type(error).__name__}: {error}"[:300]}
    return {key: round(value, 1) for key, value in found.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
