"""What is written of the results: RESULTS.md, and the claims in README. Pure: texts from figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tests.benchmarks.side_by_side.figures import CEILINGS, COPIERS, HERE, Results, Run
from tests.benchmarks.side_by_side.statistics import Ratio, Spread
from tests.benchmarks.side_by_side.targets import Finding, findings

ROOT: Final = HERE.parents[2]
RESULTS_MD: Final = HERE.parent / "RESULTS.md"
README: Final = ROOT / "README.md"
REMARKS: Final = HERE / "remarks.json"
"""Why a target is missed, by its key: the only words of these pages that a person writes, shown while it is missed."""
BEGIN: Final = "<!-- from here: made by `make bench` -->"
END: Final = "<!-- to here -->"


def results_page(results: Results, remarks: Mapping[str, str]) -> str:
    """RESULTS.md."""
    found = findings(results)
    missed = {one.target.key for one in found if one.missed}
    return (
        _environment()
        .get_template("results.md.j2")
        .render(
            machine=results.machine,
            versions=results.versions,
            date=results.date,
            findings=found,
            remarks=[(key, why) for key, why in remarks.items() if key in missed],
            workloads=results.workloads,
            copiers=COPIERS,
            results=results,
            latency=[dict(one) for one in results.latency],
        )
    )


def claims(results: Results) -> str:
    """What README says, between its two marks."""
    lines = [
        "<picture>",
        '<source media="(prefers-color-scheme: dark)" srcset="tests/benchmarks/side_by_side/picture-dark.svg">',
        '<img alt="Throughput and CPU by copier and workload" src="tests/benchmarks/side_by_side/picture-light.svg">',
        "</picture>",
        "",
        f"Measured on {results.date} with brokers of Apache Kafka {results.versions['kafka']}, all on the same",
        f"{results.machine['cores']} cores: ratios of medians, and what 95% of resampled rounds give.",
        "",
        "| exactly once, beside others | measured | wanted | |",
        "|---|---|---|---|",
        *(_claim(one) for one in findings(results) if one.ratio is not None),
        "",
        "; ".join(f"({name}) {workload.title}" for name, workload in sorted(results.workloads.items())) + ".",
    ]
    return "\n".join(lines)


def readme_with(text: str, block: str) -> str:
    """README's ``text`` with ``block`` between its marks. ValueError where they are not there."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"README.md has no place for the claims: put {BEGIN!r} and {END!r} where they belong"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def remarks(path: Path = REMARKS) -> Mapping[str, str]:
    """By the target's key."""
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def bars(results: Results) -> dict[str, dict[str, tuple[Spread, Spread]]]:
    """For the picture: workload -> copier -> (MB/s, CPU seconds a GB of all its processes)."""
    told: dict[str, dict[str, tuple[Spread, Spread]]] = {}
    for name in results.workloads:
        for copier in COPIERS:
            runs = results.of_copier(name, copier)
            if runs and copier not in CEILINGS - {"null-copier"}:
                rate = Spread.of([run.megabytes_per_second for run in runs])
                cpu = Spread.of([run.cpu_per_gb("copying") for run in runs])
                told.setdefault(name, {})[copier] = (rate, cpu)
    return told


def _claim(one: Finding) -> str:
    assert one.ratio is not None
    return (
        f"| {one.target.what} | {_ratio(one.ratio.ratio)} {_interval(one.ratio)} | {one.target.bound} | {one.verdict} |"
    )


def _environment() -> Environment:
    # Markdown, of figures and of our own words: nothing to escape.
    made = Environment(loader=FileSystemLoader(HERE), undefined=StrictUndefined, keep_trailing_newline=False)  # noqa: S701
    made.filters |= {
        "ratio": _ratio,
        "interval": _interval,
        "spread": lambda runs, name: _spread([getattr(run, name) for run in runs]),
        "cpu": lambda runs, *roles: _spread([run.cpu_per_gb(*roles) for run in runs]),
        "life": lambda runs: _spread([run.whole_cpu_per_gb() for run in runs]),
        "peak": lambda runs: _spread([run.peak_rss_mb["all"] for run in runs]),
        "figures": lambda some, name: _spread([one[name] for one in some]),
        "equal": _equal,
    }
    return made


def _equal(runs: Sequence[Run]) -> str:
    compared = [run.equal for run in runs if run.equal is not None]
    if not compared:
        return ""
    return "yes" if all(compared) else "NO"


def _spread(values: Sequence[float]) -> str:
    spread: Any = Spread.of(values)
    if spread.least == spread.most:
        return _number(spread.median)
    return f"{_number(spread.median)} [{_number(spread.least)} to {_number(spread.most)}]"


def _number(value: float) -> str:
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(value: float) -> str:
    return f"{value:.3g}" if value < 1 else f"{value:.2f}"


def _interval(ratio: Ratio) -> str:
    if ratio.rounds == 1:
        return "(one round)"
    return f"[{_ratio(ratio.low)} to {_ratio(ratio.high)}]"
