"""Takeovers from real MirrorMaker 2, which is killed or stopped at random moments, and back, in rounds.

    python tests/campaign/takeovers/campaign.py [--rounds 20] [--first 1] [--seconds S] [--seed N]
                                                [--end killed|stopped] [--way plain-default]...

A round has six ways: MirrorMaker 2 plain and exactly once, with its default and its identity naming, and with its
default naming also before a flow with exactly-once-by = "transactions". Each has two partitions of a plain topic, and
one of a compacted and of a transactional one. While producers go on, MirrorMaker 2 runs and is killed (-9; while its
connectors begin, when it has copied something, or when it has stored positions; in a third of the rounds twice, so that
it has copied records again) or stopped in order, and the flow takes over and copies. Then another client compares the
clusters record by record, and the flow is handed back: MirrorMaker 2 begins the next round behind it. A record that is
doubled is a finding, unless MirrorMaker 2 had copied both before the takeover, behind its last hand back. After the
last round it runs once more. The compacted topic is copied from its beginning (--unmatched-from-start) where the
takeover says that nothing of what MirrorMaker 2 had copied is left in the source; this is counted.

One line is printed for each round and way, with what MirrorMaker 2 had doubled before it was taken over. The moments
follow from the seed, the round's number and the way: ``--first 7 --rounds 1 --seed N`` repeats round 7 of a campaign
(its choices, but not the machine's timing). Without ``--seed`` one is drawn and printed. No round begins after
``--seconds``. The files of a way with findings are kept in ``build/takeovers``, and its next round has new topics. The
exit status is 1 where there are findings.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from rich.console import Console

from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.takeover.real.rounds import WAYS, Rounds, Way, drawn_kills
from tests.takeover.real.site import MirrorMakerSite

SESSION_MS: Final = 3_000
PROPERTIES: Final = {
    "group.min.session.timeout.ms": str(SESSION_MS),
    # How soon it is seen that a transaction has timed out.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # So that compaction occurs within a round.
    "log.cleaner.backoff.ms": "200",
    "log.retention.ms": "-1",
}
KEPT: Final = Path(__file__).parents[3] / "build" / "takeovers"
ENDS: Final = ("killed", "stopped")


class TakeoverCampaign:
    """The ways that are played between two clusters, and what was found."""

    def __init__(self, source: Cluster, target: Cluster, folder: Path, seed: int, end: str, console: Console) -> None:
        self.findings: Final = list[str]()
        self.rounds = 0
        self.doubled = 0
        self.from_start = 0
        self._clusters: Final = source, target
        self._folder: Final = folder
        self._seed: Final = seed
        self._end: Final = end
        self._console: Final = console
        self._played: Final = dict[Way, tuple[MirrorMakerSite, Rounds]]()

    def play(self, number: int, way: Way) -> None:
        """Play one way of a round."""
        rng = random.Random(f"{self._seed} {number} {way}")
        kills = drawn_kills(rng) if self._end == "killed" else []
        subject = " ".join((f"round {number} {way}: {self._end}", ", ".join(map(str, kills)))).rstrip()

        def steps() -> str:
            rounds = self._rounds(way)
            found = rounds.take_over(kills)
            rounds.hand_back()
            self.doubled += found.doubled
            self.from_start += bool(found.unmatched)
            said = f"{found.records} records; {found.doubled} doubled by MirrorMaker 2 before, none by the takeover"
            return said + (f"; its {found.unmatched} copies match nothing in the source" if found.unmatched else "")

        self._attempt(way, subject, steps)
        self.rounds += 1

    def go_on(self) -> None:
        """Have MirrorMaker 2 go on behind each flow that was handed back last."""
        for way in [*self._played]:
            rounds = self._rounds(way)

            def steps(rounds: Rounds = rounds) -> str:
                rounds.go_on()
                return "MirrorMaker 2 has continued without a double"

            self._attempt(way, f"after the last round {way}", steps)

    def _attempt(self, way: Way, subject: str, steps: Callable[[], str]) -> None:
        began = time.monotonic()
        try:
            result = steps()
        except Exception as error:  # noqa: BLE001 - the other ways and rounds have their own topics
            self.findings.append(f"{subject}: {error}")
            result = f"WRONG {traceback.format_exc()}"
            self._keep(way, subject)
        self._console.print(f"{subject}, {time.monotonic() - began:.0f} s: {result}", markup=False)

    def _rounds(self, way: Way) -> Rounds:
        if way not in self._played:
            folder = Path(tempfile.mkdtemp(prefix=f"{way}-", dir=self._folder))
            site = MirrorMakerSite(*self._clusters, folder, _unique, **way._asdict(), session_ms=SESSION_MS)
            self._played[way] = site, Rounds(site)
        return self._played[way][1]

    def _keep(self, way: Way, subject: str) -> None:
        if way in self._played:
            site, _ = self._played.pop(way)
            name = "-".join(subject.split(":", maxsplit=1)[0].split())
            shutil.copytree(site.folder, KEPT / f"{name}-{self._seed}", dirs_exist_ok=True)


def _unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:12]}"


@contextlib.contextmanager
def clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """Start a source and a target of one broker each, and stop both in any case."""
    with (
        Cluster(properties=PROPERTIES, heap=jvm.BROKER) as source,
        Cluster(properties=PROPERTIES, heap=jvm.BROKER) as target,
    ):
        yield source, target


def main() -> int:
    """Play the rounds; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="the number of the first round")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after this time")
    parser.add_argument("--seed", type=int, help="of all rounds")
    parser.add_argument("--end", choices=ENDS, default="killed", help="how MirrorMaker 2 ends in each round")
    parser.add_argument("--way", choices=[str(way) for way in WAYS], action="append", help="only these")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    console, began = Console(soft_wrap=True), time.monotonic()
    console.print(f"seed {seed}: repeat round N with --first N --rounds 1 --seed {seed} --end {arguments.end}")
    ways = [way for way in WAYS if arguments.way is None or str(way) in arguments.way]
    with tempfile.TemporaryDirectory(prefix="takeovers-") as folder, clusters() as (source, target):
        campaign = TakeoverCampaign(source, target, Path(folder), seed, arguments.end, console)
        for number in range(arguments.first, arguments.first + arguments.rounds):
            if time.monotonic() - began > arguments.seconds:
                break
            for way in ways:
                campaign.play(number, way)
        campaign.go_on()
    console.print(
        f"{campaign.rounds} takeovers, MirrorMaker 2 {arguments.end}, {campaign.doubled} records doubled by it before,"
        f" {campaign.from_start} partitions copied from the start: {len(campaign.findings)} findings"
    )
    for line in campaign.findings:
        console.print(line, markup=False)
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
