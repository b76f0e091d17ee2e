"""The fault campaign: a stream between three brokers and three, under load, while everything breaks that can break.

    python tests/campaign/faults/campaign.py [--seconds 480] [--rounds N] [--seed N] [--kind NAME] [--results FILE]

Each round's harms follow from its seed, which is printed; ``--rounds 1 --seed N`` does them again (what, to whom, when;
not the machine's own moments). Without ``--rounds`` there are rounds until the time is over (``--seconds``, or
``MIRROR_FAULTS_SECONDS``), and at least so many that every kind of harm has come once. What befell a round that failed,
and all logs of it, are kept in ``build/faults``. At the end a table, and ``results-faults.json`` beside this file. Exit
status 1 where anything was not as it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pyspark
from rich.console import Console
from rich.table import Table

from mirror.sandbox.fetch import KAFKA_VERSION
from tests.campaign.faults import namespace
from tests.campaign.faults.deal import HANDS, Kind, deal
from tests.campaign.faults.round import Round, Told
from tests.campaign.faults.stage import Stage, stage
from tests.campaign.faults.wall_clock import library
from tests.e2e.standalone import Standalone, standalone

SECONDS: Final = float(os.environ.get("MIRROR_FAULTS_SECONDS", "480"))
RESULTS: Final = Path(__file__).with_name("results-faults.json")
KEPT: Final = Path(__file__).parents[3] / "build" / "faults"
_LOGS: Final = (
    "round-*/*.t*",
    "round-*/report/*.log",
    "round-*/report/*.json",
    "round-*/report/ledger/*/*/*.json*",
    "spark/*.log",
    "spark/work-*/*/*/std*",
    "stage/*/*/server.log",
)
"""What is kept of a round that failed; those before it have taken theirs away."""


class Campaign:
    """The rounds so far. ``left_out`` are the kinds of harm that cannot be done here, with the reason."""

    def __init__(self, folder: Path, left_out: dict[Kind, str], kinds: list[Kind] | None) -> None:
        self.rounds: Final = list[Told]()
        self._folder: Final = folder
        self._left_out: Final = left_out
        self._kinds: Final = kinds
        self._began = time.monotonic()
        self._console: Final = Console(soft_wrap=True, highlight=False)
        for kind, why in left_out.items():
            self._console.print(f"[bold red]LEFT OUT: {kind}:[/] {why}")

    def play(self, on_stage: Stage, executors: Standalone, seed: int) -> None:
        """A round, and what is to be said of it."""
        dealt = deal(seed, self._kinds, self._left_out)
        self._console.print(f"[bold]seed {seed}[/]{' (TLS)' if dealt.tls else ''}: {'; '.join(map(str, dealt.harms))}")
        began = time.monotonic()
        folder = self._folder / f"round-{len(self.rounds) + 1}"
        one = Round(on_stage, executors, dealt, folder, library())
        one.play()
        self.rounds.append(one.told)
        said = f"{one.told.records:,} records, caught up in {one.told.catch_up_s} s, {time.monotonic() - began:.0f} s"
        if one.told.wrong:
            self._keep(one.told)
        else:
            self._console.print(f"  {said}: as it must be")
        shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, told: Told) -> None:
        """Say what is wrong, and keep what may tell why."""
        kept = KEPT / f"seed-{told.deal.seed}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        self._console.print(f"  [bold red]WRONG[/] seed {told.deal.seed}; repeat: --rounds 1 --seed {told.deal.seed}")
        for line in (*told.events, *(f"WRONG: {wrong}" for wrong in told.wrong), f"logs: {kept}"):
            self._console.print(f"    {line}", markup=False)
        kept.mkdir(parents=True, exist_ok=True)
        lines = [*map(str, told.deal.harms), *told.events, *told.wrong, f"before: {told.quiet}", f"after: {told.after}"]
        (kept / "round.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for path in (each for pattern in _LOGS for each in self._folder.glob(pattern)):
            if path.is_file():
                copy = kept / path.relative_to(self._folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)

    def conclude(self, results: Path) -> int:
        """Table and figures; the exit status."""
        harms = Counter(str(harm.kind) for told in self.rounds for harm in told.deal.harms)
        failures = [f"seed {told.deal.seed}: {wrong}" for told in self.rounds for wrong in told.wrong]
        figures = {
            "rounds": len(self.rounds),
            "records": sum(told.records for told in self.rounds),
            "longest catch-up, s": max((told.catch_up_s for told in self.rounds), default=0.0),
            "rounds that failed": sum(bool(told.wrong) for told in self.rounds),
        }
        table = Table("", "", show_header=False)
        for name, value in {**figures, **dict(sorted(harms.items()))}.items():
            table.add_row(name, f"{value:,}")
        self._console.print(table)
        for kind, why in self._left_out.items():
            self._console.print(f"[bold red]LEFT OUT: {kind}:[/] {why}")
        document = {
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(time.monotonic() - self._began),
            "cores": os.cpu_count(),
            "versions": _versions(),
            **figures,
            "harms": dict(sorted(harms.items())),
            "left out": {str(kind): why for kind, why in self._left_out.items()},
            "failures": failures,
            "each round": [_figures(told) for told in self.rounds],
        }
        results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return 1 if failures or not self.rounds else 0


def _figures(told: Told) -> dict[str, Any]:
    return {
        "seed": told.deal.seed,
        "harms": [str(harm) for harm in told.deal.harms],
        "records": told.records,
        "catch-up, s": told.catch_up_s,
        "before": {role: asdict(count) for role, count in sorted(told.quiet.items())},
        "after": {role: asdict(count) for role, count in sorted(told.after.items())},
    }


def _versions() -> dict[str, str]:
    return {
        "kafka": KAFKA_VERSION,
        "spark": pyspark.__version__,
        "python": platform.python_version(),
        "confluent-kafka": confluent_kafka.version()[0],
        "system": platform.platform(),
    }


def _left_out(no_mounts: str) -> dict[Kind, str]:
    found = {}
    if no_mounts:
        found[Kind.FULL_DISK] = no_mounts
    if library() is None:
        found[Kind.CLOCK] = "there is no libfaketime: `make faketime` unpacks Debian's, elsewhere install it"
    return found


def _seeds(first: int | None, rounds: int | None) -> Iterator[int]:
    """The first of a pack, unless somebody names one."""
    first = random.SystemRandom().randrange(10**6) * HANDS if first is None else first
    number = 0
    while rounds is None or number < rounds:
        yield first + number
        number += 1


def main() -> int:
    """All of it."""
    parser = argparse.ArgumentParser(description="A stream under harm.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begin no round after this time")
    parser.add_argument("--rounds", type=int, help="so many, however long they take")
    parser.add_argument("--seed", type=int, help="of the first round; the others count on from it")
    parser.add_argument("--kind", type=Kind, choices=list(Kind), action="append", help="these harms in each round")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped in order then, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    no_mounts = namespace.enter()
    until = time.monotonic() + args.seconds
    with ExitStack() as open_ones:
        folder = Path(open_ones.enter_context(tempfile.TemporaryDirectory(prefix="mirror-faults-")))
        if not no_mounts:
            # What libfaketime leaves there ends with us.
            namespace.mount(namespace.SHARED_MEMORY, 64)
        campaign = Campaign(folder, _left_out(no_mounts), args.kind)
        executors = _workers(open_ones, folder)
        on_stage = open_ones.enter_context(stage(folder / "stage", mounts=not no_mounts))
        for number, seed in enumerate(_seeds(args.seed, args.rounds)):
            if args.rounds is None and number >= HANDS and time.monotonic() > until:
                break
            campaign.play(on_stage, executors, seed)
    return campaign.conclude(args.results)


def _workers(open_ones: ExitStack, folder: Path) -> Standalone:
    own = folder / "spark"
    own.mkdir()
    (folder / "stage").mkdir()
    return open_ones.enter_context(standalone(own, cores=2))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything that was started has been stopped\n")
        sys.exit(130)
