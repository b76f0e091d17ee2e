"""Unclean elections of a copy: each round loses acknowledged records, which must be there again afterwards.

    python tests/campaign/elections/campaign.py [--rounds 20] [--seed 1] [--by auto|sequences|transactions|mixed]
                                                 [--output FILE]

The cluster, the topics and the flow stay over all rounds. Each round draws by which way records are copied (``--by``
fixes it), how often anchors are made, and how many records are lost; then another client reads the copy: nothing may be
lost, doubled or out of order. The results are printed as one JSON object for each round, and written to ``--output``.
The exit status is 1 if a round has findings.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from mirror.relay.model.ranges import Outcome
from mirror.relay.progress import anchors
from mirror.sandbox.cluster import Cluster
from tests.campaign.elections.site import PARTITIONS, PROPERTIES, Copies, ElectionSite, difference, drawn_policy

BY: Final = ("transactions", "sequences", "auto")
_PASSES: Final = 20


def play(site: ElectionSite, number: int, rng: random.Random, by: str) -> dict[str, Any]:
    """Play one round, and return its results."""
    began, by = time.monotonic(), rng.choice(BY) if by == "mixed" else by
    anchors.INTERVAL_MS = rng.choice([1_000, 5_000, 60_000])  # type: ignore[misc]
    findings: list[str] = []
    with site.writing():
        copies = Copies(site, lambda: drawn_policy(rng, by))
        try:
            lost = site.elect_uncleanly(alone=rng.randint(5, 200))
        except AssertionError as error:  # a wait was too long; the results of the copies say why
            lost = []
            findings.append(str(error))
        finally:
            copies.stopping.set()
            copies.join(120)
    results, last = copies.results, site.copy(drawn_policy(rng, by))
    for _ in range(_PASSES):
        results.extend(last)
        if all(result.outcome is Outcome.COMPLETE for result in last):
            break
        last = site.copy(drawn_policy(rng, by))
    findings += [f"{one.partition}: {one.error}" for one in results if one.outcome is Outcome.FAILED]
    findings += [f"{one.partition}: not complete: {one.error}" for one in last if one.outcome is not Outcome.COMPLETE]
    for partition, (wanted, found) in enumerate(zip(site.written, site.read_copy(), strict=True)):
        if text := difference(wanted, found):
            findings.append(f"{partition}: {text}")
    if not any(lost):
        findings.append("no acknowledged record was lost: the round shows nothing")
    return {
        "round": number,
        "by": by,
        "anchor_ms": anchors.INTERVAL_MS,
        "lost_offsets": lost,
        "mended": [{"partition": one.partition, **loss} for one in results for loss in one.target_losses],
        "records": [len(values) for values in site.written],
        "seconds": round(time.monotonic() - began, 1),
        "findings": findings,
    }


def main() -> int:
    """Play the rounds; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by", choices=[*BY, "mixed"], default="mixed")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rng, rounds, console = random.Random(arguments.seed), list[dict[str, Any]](), Console(soft_wrap=True)
    with Cluster(3, properties=PROPERTIES) as cluster:
        site = ElectionSite(cluster)
        site.create()
        for number in range(1, arguments.rounds + 1):
            rounds.append(play(site, number, rng, arguments.by))
            console.print_json(json.dumps(rounds[-1]), indent=None)
            if arguments.output is not None:
                arguments.output.write_text(json.dumps({"seed": arguments.seed, "rounds": rounds}, indent=1) + "\n")
            if rounds[-1]["findings"]:
                break
    found = sum(bool(played["findings"]) for played in rounds)
    lost = sum(sum(played["lost_offsets"]) for played in rounds)
    console.print(
        f"{len(rounds)} rounds, {PARTITIONS} partitions, {lost} acknowledged offsets lost: {found} with findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
