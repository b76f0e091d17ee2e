"""The results of a campaign as a table and as a JSON document. Pure, but for the versions and the writing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pyspark
from rich.table import Table

from mirror.sandbox.fetch import KAFKA_VERSION
from tests.campaign.chaos.round import RoundResult
from tests.campaign.chaos.schedule import FaultKind

_CHECKOUT: Final = Path(__file__).parents[3]


@dataclass(slots=True)
class KindCounts:
    """How often a kind of fault was tried, how often it had an effect, and the sums of what the effects count."""

    tried: int = 0
    hit: int = 0
    effects: Counter[str] = field(default_factory=Counter)


def counts_by_kind(rounds: Sequence[RoundResult]) -> dict[str, KindCounts]:
    """Return the counts of all kinds that were scheduled; a fault that a round did not reach counts as tried."""
    found = dict[str, KindCounts]()
    for result in rounds:
        for fault in result.schedule.faults:
            found.setdefault(fault.kind, KindCounts()).tried += 1
        for fault, effect in result.effects:
            counts = found[fault.kind]
            counts.hit += bool(effect.count)
            counts.effects[effect.unit] += effect.count
    return dict(sorted(found.items()))


def _figures(rounds: Sequence[RoundResult]) -> dict[str, Any]:
    return {
        "rounds": len(rounds),
        "records": sum(result.records for result in rounds),
        "longest catch-up, s": max((result.catch_up_s for result in rounds), default=0.0),
        "rounds with findings": sum(bool(result.findings) for result in rounds),
    }


def table(rounds: Sequence[RoundResult]) -> Table:
    """Return what a person wants to know of the campaign."""
    made = Table("fault", "tried", "hit", "effect")
    for kind, counts in counts_by_kind(rounds).items():
        effects = ", ".join(f"{count:,} {unit}" for unit, count in counts.effects.items())
        made.add_row(kind, str(counts.tried), str(counts.hit), effects)
    made.add_section()
    for name, value in _figures(rounds).items():
        made.add_row(name, f"{value:,}")
    return made


def document(
    rounds: Sequence[RoundResult], seconds: int, unavailable: Mapping[FaultKind, str], arguments: Sequence[str]
) -> dict[str, Any]:
    """Return the whole campaign for the results' file; ``arguments`` are those that it was started with."""
    return {
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "arguments": list(arguments),
        "seconds": seconds,
        "cores": os.cpu_count(),
        "versions": _versions(),
        **_figures(rounds),
        "faults": {
            kind: {"tried": counts.tried, "hit": counts.hit, "effects": dict(counts.effects)}
            for kind, counts in counts_by_kind(rounds).items()
        },
        "left out": {str(kind): reason for kind, reason in unavailable.items()},
        "findings": [f"seed {result.schedule.seed}: {finding}" for result in rounds for finding in result.findings],
        "each round": [_of_round(result) for result in rounds],
    }


def write(path: Path, results: Mapping[str, Any]) -> None:
    """Write the results' file."""
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _of_round(result: RoundResult) -> dict[str, Any]:
    return {
        "seed": result.schedule.seed,
        "attempt": result.schedule.attempt,
        "faults": [str(fault) for fault in result.schedule.faults],
        "effects": {fault.kind: str(effect) for fault, effect in result.effects},
        "records": result.records,
        "catch-up, s": result.catch_up_s,
        "findings": result.findings,
        "before": {role: asdict(count) for role, count in sorted(result.before.items())},
        "after": {role: asdict(count) for role, count in sorted(result.after.items())},
    }


def _commit() -> str:
    """Return the checkout's commit; an empty text where it is no repository."""
    git = shutil.which("git")
    if git is None:
        return ""
    done = subprocess.run([git, "rev-parse", "HEAD"], cwd=_CHECKOUT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    return {
        "kafka": KAFKA_VERSION,
        "spark": pyspark.__version__,
        "python": platform.python_version(),
        "confluent-kafka": version("confluent-kafka"),
        "system": platform.platform(),
    }
