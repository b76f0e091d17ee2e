"""The results of cut-overs as JSON lines, and all lines of a file as one table. Pure, but for the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from tests.campaign.switches.cutover import CutoverResult
from tests.campaign.switches.verification import spread

_COLUMNS: Final = ("cut-over", "kills", "exit statuses", "s", "pause p50", "longest", "records", "findings")


def line(result: CutoverResult, **more: object) -> dict[str, Any]:
    """Return a result as a JSON object, with ``more`` about its campaign."""
    found = asdict(result)
    found["excess_s"] = spread([round(one - float(str(more["quiet_s"])), 3) for one in result.pauses_s.values()])
    return {**more, **found}


def append(path: Path, found: dict[str, Any]) -> None:
    """Add a line to the file, which is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file."""
    return [json.loads(one) for one in path.read_text(encoding="utf-8").splitlines()]


def table(found: Sequence[dict[str, Any]]) -> Table:
    """Return a table with a row for each cut-over."""
    made = Table(*_COLUMNS)
    for one in found:
        pauses = spread([*one["pauses_s"].values()])
        made.add_row(
            f"{one['seed']}/{one['number']}",
            ", ".join(one["hits"]) or "-",
            " ".join(map(str, one["statuses"])),
            f"{one['seconds']:.0f}",
            *(f"{pauses.get(key, float('nan')):.1f}" for key in ("p50", "longest")),
            str(one["records"]),
            str(len(one["findings"])),
        )
    return made


def summary(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines below the table: hits, pauses beyond quiet-seconds, and how long each step has taken."""
    hits = Counter(victim for one in found for victim in one["hits"])
    planned = Counter(kill["victim"] for one in found for kill in one["plan"]["kills"])
    lines = [
        f"killed: {', '.join(f'{name} {hits[name]} of {count}' for name, count in sorted(planned.items())) or '-'}"
    ]
    for what, some in (("all", found), ("without kills", [one for one in found if not one["hits"]])):
        excess = spread([pause - one["quiet_s"] for one in some for pause in one["pauses_s"].values()])
        if excess:
            shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in excess.items())
            lines.append(f"pause of producers beyond quiet-seconds, {what} ({len(some)}): {shown}")
    steps: dict[str, list[float]] = {}
    for one in found:
        for name, seconds in one["steps_s"].items():
            steps.setdefault(name, []).append(seconds)
    if steps:
        shown = ", ".join(f"{name} {spread(of)['p50']:.1f}/{spread(of)['longest']:.1f}" for name, of in steps.items())
        lines.append(f"steps, median/longest s: {shown}")
    wrong = sum(bool(one["findings"]) for one in found)
    return [
        *lines,
        f"{len(found)} cut-overs, {_sum(found, 'acknowledged')} acknowledged records, {wrong} with findings",
    ]


def _sum(found: Iterable[dict[str, Any]], key: str) -> int:
    """Return the sum of the last, and largest, count of each campaign."""
    last: dict[str, int] = {}
    for one in found:
        last[one["campaign"]] = max(last.get(one["campaign"], 0), one[key])
    return sum(last.values())
