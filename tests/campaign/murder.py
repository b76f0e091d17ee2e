"""Exactly once under murder: rounds of attempts that are killed, held back and doubled, and what the target has then.

    python tests/campaign/murder.py [--rounds 200] [--seconds 1500] [--seed N] [--attack NAME] [--level 2 | --level 1]

Each round has topics of its own, with a source that goes on growing, and prints its seed; with ``--rounds 1 --seed N``
it is done again (its choices, not the machine's moments). Levels are those of ``transaction.version``; without
``--level`` one half of the rounds is of each. Exit status 1 where anything was not as it must be.
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
from tests.campaign.attacks import ATTACKS
from tests.campaign.scene import Scene
from tests.e2e.broker_side import Side

PROPERTIES: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Compaction within a round's time.
    "log.cleaner.backoff.ms": "200",
}
_ATTACKS_PER_ROUND: Final = 2
_NOT_NEW: Final = 0.7


@contextlib.contextmanager
def stage(level: int) -> Iterator[tuple[Side, Cluster]]:
    """A source, and a target at this level of transactions."""
    with (
        Cluster(properties=PROPERTIES) as source,
        Cluster(properties=PROPERTIES, features={"transaction.version": level}) as target,
    ):
        yield Side(source.bootstrap_servers), target


def play(
    source: Side,
    target: Cluster,
    seed: int,
    attacks: Sequence[str] = tuple(ATTACKS),
    attacks_each: int = _ATTACKS_PER_ROUND,
) -> Counter[str]:
    """One round; what happened in it. AssertionError, naming the attack, where the target is not as it must be."""
    rng = random.Random(seed)
    scene = Scene(source, Side(target.bootstrap_servers), rng)
    scene.open()
    try:
        if rng.random() < _NOT_NEW:  # else the first attack meets empty topics without any progress
            scene.grow()
            scene.finish()
        for _ in range(attacks_each):
            scene.grow()
            (name,) = rng.choices(attacks, [ATTACKS[one][1] for one in attacks])
            try:
                ATTACKS[name][0](scene, target)
                scene.judge.check(scene.places, complete=False)
            except AssertionError as error:
                msg = f"seed {seed}, {name}: {error}"
                raise AssertionError(msg) from error
            scene.told[name] += 1
        scene.grow()
        scene.finish()
    finally:
        scene.close()
    scene.told["records"] += sum(len(place.truth) for place in scene.places)
    return scene.told


class Campaign:
    """The rounds so far."""

    def __init__(self, seconds: float, attacks: Sequence[str]) -> None:
        self.rounds = 0
        self.wrong = list[str]()
        self.told = Counter[str]()
        self._until = time.monotonic() + seconds
        self._attacks = attacks
        self._console = Console(soft_wrap=True)

    def run(self, level: int, seeds: Sequence[int], until: float = float("inf")) -> None:
        """These rounds, on brokers of their own; none begins after ``until``, or when all the time is over."""
        until = min(until, self._until)
        with stage(level) as (source, target):
            for seed in seeds:
                if time.monotonic() > until:
                    return
                self._play(level, source, target, seed)

    def _play(self, level: int, source: Side, target: Cluster, seed: int) -> None:
        begun = time.monotonic()
        try:
            told = play(source, target, seed, self._attacks)
            said = ", ".join(f"{name} {count}" for name, count in sorted(told.items()))
            self.told += told
        except Exception as error:  # noqa: BLE001 - the next round has topics of its own
            self.wrong.append(f"seed {seed}: {error}")
            said = "[red]WRONG[/] " + traceback.format_exc().replace("[", "\\[")
        self.rounds += 1
        self._console.print(f"{self.rounds} seed {seed} level {level} {time.monotonic() - begun:.1f} s: {said}")

    def conclude(self) -> int:
        """Say what came of it; the exit status."""
        self._console.print(f"[bold]{self.rounds} rounds, {len(self.wrong)} wrong[/] {dict(sorted(self.told.items()))}")
        for line in self.wrong:
            self._console.print(line, markup=False)
        return 1 if self.wrong else 0


def main() -> int:
    """All of it."""
    parser = argparse.ArgumentParser(description="Exactly once under murder.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=1_500, help="begin no round after this time")
    parser.add_argument("--seed", type=int, help="of the first round; the others count on from it")
    parser.add_argument("--attack", choices=sorted(ATTACKS), action="append", help="only these")
    parser.add_argument("--level", type=int, choices=(1, 2), help="only this transaction.version")
    args = parser.parse_args()
    first = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    campaign = Campaign(args.seconds, args.attack or tuple(ATTACKS))
    seeds = range(first, first + args.rounds)
    if args.level is not None:
        campaign.run(args.level, seeds)
    else:
        half = (args.rounds + 1) // 2
        campaign.run(2, seeds[:half], time.monotonic() + args.seconds / 2)
        campaign.run(1, seeds[half:])
    return campaign.conclude()


if __name__ == "__main__":
    sys.exit(main())
