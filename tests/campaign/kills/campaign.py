"""Exactly once under kills: rounds of attempts that are killed, stopped and duplicated, and verified afterwards.

    python tests/campaign/kills/campaign.py [--rounds 200] [--seconds 1500] [--seed N] [--attack NAME] [--level N]
                                             [--by auto|sequences|transactions|mixed]
                                             [--source-release VERSION] [--target-release VERSION]

Each round has its own topics, with a source that grows, and prints its seed: ``--rounds 1 --seed N`` repeats it (its
choices, but not the machine's timing). The level is that of ``transaction.version``, 1 or 2; without ``--level`` half
of the rounds have each. ``--by`` is the flow's ``exactly-once-by``; "mixed" draws it for each attempt, and without it
each round draws one. The clusters are of the main release, or of others (tests/releases); a target before 4.0 has no
levels. The exit status is 1 where a verification has failed.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from mirror.sandbox.cluster import Cluster
from tests.campaign.kills.attacks import ATTACKS
from tests.campaign.kills.round import BY, KillRound
from tests.e2e.broker_side import Side
from tests.releases.releases import MAIN_VERSION, TARGETS, TRANSACTION_LEVELS, VERSIONS, distribution

PROPERTIES: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # So that compaction occurs within a round.
    "log.cleaner.backoff.ms": "200",
}
_ATTACKS_PER_ROUND: Final = 2
_NOT_NEW: Final = 0.7
_MAIN: Final = (MAIN_VERSION, MAIN_VERSION)


@contextlib.contextmanager
def clusters(
    level: int, source_release: str = MAIN_VERSION, target_release: str = MAIN_VERSION
) -> Iterator[tuple[Side, Cluster]]:
    """Start a source, and a target with this level of ``transaction.version``; 0 is that of releases before 4.0."""
    features = {"transaction.version": level} if level else None
    with (
        Cluster(distribution=distribution(source_release), properties=PROPERTIES) as source,
        Cluster(distribution=distribution(target_release), properties=PROPERTIES, features=features) as target,
    ):
        yield Side(source.bootstrap_servers), target


def play(
    source: Side,
    target: Cluster,
    seed: int,
    attacks: Sequence[str] = tuple(ATTACKS),
    attacks_each: int = _ATTACKS_PER_ROUND,
    by: str | None = None,
) -> Counter[str]:
    """Play a round and return its counts. AssertionError, with the attack's name, where the verification fails.

    ``by`` is one of :data:`BY`; None draws one.
    """
    rng = random.Random(seed)
    drawn = rng.choice(BY)
    round_ = KillRound(source, Side(target.bootstrap_servers), rng, by or drawn)
    round_.counts[f"by {round_.by}"] += 1
    round_.open()
    try:
        if rng.random() < _NOT_NEW:  # Otherwise the first attack finds empty topics without progress.
            round_.grow()
            round_.finish()
        for _ in range(attacks_each):
            round_.grow()
            (name,) = rng.choices(attacks, [ATTACKS[one][1] for one in attacks])
            try:
                ATTACKS[name][0](round_, target)
                round_.verifier.check(round_.places, complete=False)
            except AssertionError as error:
                msg = f"seed {seed}, by {round_.by}, {name}: {error}"
                raise AssertionError(msg) from error
            round_.counts[name] += 1
        round_.grow()
        round_.finish()
    finally:
        round_.close()
    round_.counts["records"] += sum(len(place.truth) for place in round_.places)
    return round_.counts


class Campaign:
    """The rounds that were played, and their counts."""

    def __init__(
        self, seconds: float, attacks: Sequence[str], by: str | None, releases: tuple[str, str] = _MAIN
    ) -> None:
        self.rounds = 0
        self.wrong = list[str]()
        self.counts = Counter[str]()
        self._until = time.monotonic() + seconds
        self._attacks = attacks
        self._by = by
        self._releases = releases
        self._console = Console(soft_wrap=True)

    def run(self, level: int, seeds: Sequence[int], until: float = float("inf")) -> None:
        """Play rounds on their own brokers. No round begins after ``until``, or after the campaign's time."""
        until = min(until, self._until)
        with clusters(level, *self._releases) as (source, target):
            for seed in seeds:
                if time.monotonic() > until:
                    return
                self._play(level, source, target, seed)

    def _play(self, level: int, source: Side, target: Cluster, seed: int) -> None:
        begun = time.monotonic()
        try:
            counts = play(source, target, seed, self._attacks, by=self._by)
            said = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            self.counts += counts
        except Exception as error:  # noqa: BLE001 - the next round has its own topics
            self.wrong.append(f"seed {seed}: {error}")
            said = "[red]WRONG[/] " + traceback.format_exc().replace("[", "\\[")
        self.rounds += 1
        self._console.print(f"{self.rounds} seed {seed} level {level} {time.monotonic() - begun:.1f} s: {said}")

    def conclude(self) -> int:
        """Print the counts and return the exit status."""
        self._console.print(
            f"[bold]{self.rounds} rounds, {len(self.wrong)} wrong[/] {dict(sorted(self.counts.items()))}"
        )
        for line in self.wrong:
            self._console.print(line, markup=False)
        return 1 if self.wrong else 0


def main() -> int:
    """Run the campaign and return its exit status."""
    parser = argparse.ArgumentParser(description="Exactly once under kills.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1_500, help="begin no round after this time")
    parser.add_argument("--seed", type=int, help="of the first round; the others count on from it")
    parser.add_argument("--attack", choices=sorted(ATTACKS), action="append", help="only these")
    parser.add_argument("--level", type=int, choices=(1, 2), help="only this transaction.version")
    parser.add_argument("--by", choices=BY, help="how all rounds copy exactly once; by default each draws it")
    parser.add_argument("--source-release", choices=VERSIONS, default=MAIN_VERSION, help="of the source's brokers")
    parser.add_argument("--target-release", choices=TARGETS, default=MAIN_VERSION, help="of the target's brokers")
    args = parser.parse_args()
    levels = TRANSACTION_LEVELS.get(args.target_release, ())
    if not levels and args.level is not None:
        parser.error(f"--level: a target of release {args.target_release} has no levels")
    first = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    campaign = Campaign(
        args.seconds, args.attack or tuple(ATTACKS), args.by, (args.source_release, args.target_release)
    )
    seeds = range(first, first + args.rounds)
    if not levels or args.level is not None:
        campaign.run(args.level or 0, seeds)
    else:
        half = (args.rounds + 1) // 2
        campaign.run(2, seeds[:half], time.monotonic() + args.seconds / 2)
        campaign.run(1, seeds[half:])
    return campaign.conclude()


if __name__ == "__main__":
    sys.exit(main())
