"""Copies and compares hundreds of random topics; a failure names the seed that reproduces it.

``equality.py [--rounds 50] [--examples 10] [--seed N]``; ``--seed`` of a round that failed, with ``--rounds 1``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter

import hypothesis
from hypothesis import HealthCheck, given, settings
from rich.console import Console

from mirror.sandbox.cluster import Cluster
from tests.copying.generated import Plan, Writers, plans, play
from tests.copying.pair import TwoClusters
from tests.copying.site import SOURCE_PROPERTIES, name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--examples", type=int, default=10, help="topics in a round (10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of the first round")
    given_ = parser.parse_args()
    console, began = Console(highlight=False, soft_wrap=True), time.monotonic()
    seen = Counter[str]()
    with Cluster(properties=SOURCE_PROPERTIES) as source, Cluster() as target:
        pair = TwoClusters(source, target, name)
        with Writers(pair.source.address) as writers:
            for number in range(given_.rounds):
                seed = given_.seed + number
                console.print(f"round {number + 1} of {given_.rounds}, seed {seed}")
                _round(pair, writers, seed, given_.examples, seen)
    console.print(f"all equal after {time.monotonic() - began:.0f} s; {dict(seen)}")
    return 0


def _round(pair: TwoClusters, writers: Writers, seed: int, examples: int, seen: Counter[str]) -> None:
    """Raise the first failure with the smallest plan that reproduces it."""

    @hypothesis.seed(seed)
    @settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(plan=plans)
    def equal(plan: Plan) -> None:
        results = play(pair, writers, plan)
        seen["topics"] += 1
        for result in results:
            seen["records"] += result.records
            seen.update({f"deep, {why}": count for why, count in result.deep.items()})
            seen.update({f"skipped, {why}": count for why, count in result.skipped.items()})

    equal()


if __name__ == "__main__":
    sys.exit(main())
