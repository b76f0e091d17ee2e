"""The picture in tests/README.md, drawn from the results, light and dark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.benchmarks.side_by_side.figures import COPIERS, HERE, RESULTS, Results
from tests.benchmarks.side_by_side.statistics import Spread
from tests.benchmarks.side_by_side.written import bars

PICTURES: Final = {"light": HERE / "picture-light.svg", "dark": HERE / "picture-dark.svg"}
_INK: Final = {"light": "#24292f", "dark": "#c9d1d9"}
_COLOURS: Final = {
    "mirror-exactly-once": "#d9480f",
    "mirror-at-least-once": "#f59f00",
    "mirrormaker-tuned": "#1971c2",
    "mirrormaker-exactly-once": "#74a9d8",
    "mirrormaker-default": "#b6c8d9",
    "confluent-loop": "#2f9e44",
    "kafka-python": "#8ac997",
    "plain-spark": "#9c36b5",
    "null-copier": "#868e96",
}
"""Distinguishable also where red and green are not: ours are warm, MirrorMaker's are blue, loops are green."""


def digest() -> str:
    """Of the results that the pictures are drawn from, SHA-256 in hex: it is kept in the picture."""
    return hashlib.sha256(RESULTS.read_bytes()).hexdigest()


def draw(results: Results, mode: str, path: Path, made_from: str) -> None:
    """Write the picture for ``mode``, light or dark."""
    result, ink = bars(results), _INK[mode]
    style: dict[Any, Any] = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "axes.edgecolor": ink,
    }
    with mpl.rc_context({**style, "font.size": 9, "svg.hashsalt": "mirror", "svg.fonttype": "path"}):
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        _panel(upper, {name: {one: both[0] for one, both in some.items()} for name, some in result.items()})
        _panel(lower, {name: {one: both[1] for one, both in some.items()} for name, some in result.items()})
        upper.set_ylabel("MB/s: more is better")
        lower.set_ylabel("CPU seconds a GB of the\ncopying processes: less is better")
        lower.set_yscale("log")
        lower.set_xticks(range(len(result)), [f"({name})\n{_short(results.workloads[name].title)}" for name in result])
        handles, labels = upper.get_legend_handles_labels()
        known = dict(zip(labels, handles, strict=True))
        wanted = [label for label in COPIERS.values() if label in known]
        figure.legend([known[one] for one in wanted], wanted, loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Description": made_from})


def _panel(axes: Any, panels: Mapping[str, Mapping[str, Spread]]) -> None:
    for place, some in enumerate(panels.values()):
        width = 0.86 / len(some)
        for number, (copier, spread) in enumerate(some.items()):
            at = place + (number - (len(some) - 1) / 2) * width
            error = [[spread.median - spread.least], [spread.most - spread.median]]
            axes.bar(
                at,
                spread.median,
                width * 0.94,
                yerr=error,
                color=_COLOURS[copier],
                ecolor="#868e96",
                error_kw={"linewidth": 0.8},
                label=COPIERS[copier],
            )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def _short(title: str) -> str:
    """On three lines at most."""
    words, lines = title.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 15 and len(lines) < 3:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
