"""The fault campaign: a stream copies from three brokers to three under load, while faults are injected.

    python tests/campaign/chaos/campaign.py [--seconds 900] [--rounds N] [--seed N] [--kind NAME] [--by WAY]
        [--results FILE]

Each round's faults follow from its seed, which is printed; ``--rounds 1 --seed N`` repeats them (their kinds, places
and times, but not the machine's timing). Without ``--rounds`` there are rounds until the time is over (``--seconds``,
or ``MIRROR_FAULTS_SECONDS``), and at least so many that every kind of fault has occurred.

Every fault measures how often it has hit. Faults without effect are repeated in another round, up to twice. The logs of
a round with findings are kept in ``build/faults``. A table and ``results-faults.json``, beside this file, list for each
kind how often it was tried and how often it has hit. The exit status is 1 where there are findings.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.campaign.chaos import mount_namespace
from tests.campaign.chaos.clusters import Clusters, open_clusters
from tests.campaign.chaos.results import document, table, write
from tests.campaign.chaos.round import Round, RoundResult
from tests.campaign.chaos.schedule import ROUNDS_PER_PACK, FaultKind, Schedule, schedule
from tests.campaign.chaos.wall_clock import library
from tests.e2e.standalone import Standalone, standalone

SECONDS: Final = float(os.environ.get("MIRROR_FAULTS_SECONDS", "900"))
RESULTS: Final = Path(__file__).with_name("results-faults.json")
KEPT: Final = Path(__file__).parents[3] / "build" / "faults"
WAYS: Final = ("auto", "sequences", "transactions")
REPEATS: Final = 2
"""How often faults without effect are repeated."""
_LOGS: Final = (
    "round-*/*.t*",
    "round-*/report/*.log",
    "round-*/report/*.json",
    "round-*/report/ledger/*/*/*.json*",
    "spark/*.log",
    "spark/work-*/*/*/std*",
    "clusters/*/*/server.log",
)
"""What is kept of a round with findings; the files of earlier rounds are deleted by then."""


class Campaign:
    """Plays rounds and collects their results. ``unavailable`` are the kinds that are impossible here, with reasons."""

    def __init__(
        self, folder: Path, unavailable: Mapping[FaultKind, str], results: Path, ways: Sequence[str] = ("auto",)
    ) -> None:
        """The rounds take turns in ``ways``."""
        self.rounds: Final = list[RoundResult]()
        self._folder: Final = folder
        self._unavailable: Final = unavailable
        self._results: Final = results
        self._ways: Final = ways
        self._began = time.monotonic()
        self._console: Final = Console(soft_wrap=True, highlight=False)
        for kind, reason in unavailable.items():
            self._console.print(f"[bold red]LEFT OUT: {kind}:[/] {reason}")

    def play(
        self,
        clusters: Clusters,
        executors: Standalone,
        seed: int,
        kinds: Sequence[FaultKind] | None,
        attempt: int = 0,
    ) -> None:
        """Play the round of ``seed``, and repeat its faults that had no effect, unless it has findings."""
        for repeat in range(REPEATS + 1):
            result = self._play(clusters, executors, schedule(seed, kinds, self._unavailable, attempt + repeat))
            kinds = result.without_effect
            if not kinds or result.findings:
                return
            self._console.print(f"  without effect: {', '.join(kinds)}")

    def _play(self, clusters: Clusters, executors: Standalone, planned: Schedule) -> RoundResult:
        by = self._ways[len(self.rounds) % len(self._ways)]
        title = f"seed {planned.seed}{f' attempt {planned.attempt}' if planned.attempt else ''} by {by}"
        self._console.print(f"[bold]{title}[/]{' (TLS)' if planned.tls else ''}: {'; '.join(map(str, planned.faults))}")
        began = time.monotonic()
        folder = self._folder / f"round-{len(self.rounds) + 1}"
        result = Round(clusters, executors, planned, folder, library(), by).play()
        self.rounds.append(result)
        for fault, effect in result.effects:
            self._console.print(f"  {fault.kind}: {effect}")
        seconds = time.monotonic() - began
        self._console.print(f"  {result.records:,} records, caught up in {result.catch_up_s} s; {seconds:.0f} s")
        if result.findings:
            self._keep(result)
        shutil.rmtree(folder, ignore_errors=True)
        write(self._results, self.document())
        return result

    def _keep(self, result: RoundResult) -> None:
        """Print the findings, and keep the logs that may explain them."""
        planned = result.schedule
        kept = KEPT / f"seed-{planned.seed}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        self._console.print(f"  [bold red]FINDINGS[/] of seed {planned.seed}, attempt {planned.attempt}:")
        for line in (*result.events, *(f"FINDING: {finding}" for finding in result.findings), f"logs: {kept}"):
            self._console.print(f"    {line}", markup=False)
        kept.mkdir(parents=True, exist_ok=True)
        counts = [f"before: {result.before}", f"after: {result.after}"]
        lines = [*map(str, planned.faults), *result.events, *result.findings, *counts]
        (kept / "round.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for path in (path for pattern in _LOGS for path in self._folder.glob(pattern)):
            if path.is_file():
                copy = kept / path.relative_to(self._folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)

    def document(self) -> dict[str, object]:
        return document(self.rounds, round(time.monotonic() - self._began), self._unavailable, sys.argv[1:])

    def conclude(self) -> int:
        """Print the table, and return the exit status."""
        self._console.print(table(self.rounds))
        for kind, reason in self._unavailable.items():
            self._console.print(f"[bold red]LEFT OUT: {kind}:[/] {reason}")
        return 1 if any(result.findings for result in self.rounds) or not self.rounds else 0


def _unavailable(no_mounts: str) -> dict[FaultKind, str]:
    found = dict[FaultKind, str]()
    if no_mounts:
        found |= dict.fromkeys((FaultKind.SOURCE_DISK_FULL, FaultKind.TARGET_DISK_FULL), no_mounts)
    if library() is None:
        reason = "there is no libfaketime: `make faketime` unpacks Debian's, elsewhere install it"
        found |= dict.fromkeys((FaultKind.CLOCK_STEPPED, FaultKind.BROKER_CLOCK), reason)
    return found


def _seeds(first: int | None, rounds: int | None) -> Iterator[int]:
    """Yield seeds from ``first`` on, or from the beginning of a random pack."""
    first = random.SystemRandom().randrange(10**6) * ROUNDS_PER_PACK if first is None else first
    number = 0
    while rounds is None or number < rounds:
        yield first + number
        number += 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Inject faults into a stream and verify its copy.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="begin no round after this time")
    parser.add_argument("--rounds", type=int, help="the number of rounds, however long they take")
    parser.add_argument("--seed", type=int, help="of the first round; those of the others follow it")
    parser.add_argument("--attempt", type=int, default=0, help="to repeat a round that was a repetition itself")
    kinds = list(FaultKind)
    parser.add_argument("--kind", type=FaultKind, choices=kinds, action="append", help="these faults in each round")
    parser.add_argument(
        "--by", choices=WAYS, action="append", help="may come again; the rounds take turns (default: auto)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser


def main() -> int:
    """Run the campaign and return its exit status."""
    args = _parser().parse_args()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that everything is stopped in order.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    no_mounts = mount_namespace.enter()
    until = time.monotonic() + args.seconds
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mirror-faults-")))
        if not no_mounts:
            # The files that libfaketime leaves there disappear with the namespace.
            mount_namespace.mount(mount_namespace.SHARED_MEMORY, 64)
        campaign = Campaign(folder, _unavailable(no_mounts), args.results, args.by or (WAYS[0],))
        executors = _executors(stack, folder)
        clusters = stack.enter_context(open_clusters(folder / "clusters", mounts=not no_mounts))
        for number, seed in enumerate(_seeds(args.seed, args.rounds)):
            if args.rounds is None and number >= ROUNDS_PER_PACK and time.monotonic() > until:
                break
            campaign.play(clusters, executors, seed, args.kind, args.attempt)
    return campaign.conclude()


def _executors(stack: ExitStack, folder: Path) -> Standalone:
    (folder / "spark").mkdir()
    (folder / "clusters").mkdir()
    return stack.enter_context(standalone(folder / "spark", cores=2))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything that was started has been stopped\n")
        sys.exit(130)
