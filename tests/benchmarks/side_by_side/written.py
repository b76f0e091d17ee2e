"""What is written of the results: RESULTS.md, and parts of README.md and tests/README.md. Pure: texts from figures."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tests.benchmarks.side_by_side.figures import (
    CEILINGS,
    COPIERS,
    HERE,
    STREAMS,
    Results,
    Run,
    latency_dropped,
    recovery_dropped,
)
from tests.benchmarks.side_by_side.statistics import Ratio, Spread
from tests.benchmarks.side_by_side.targets import Finding, findings

ROOT: Final = HERE.parents[2]
RESULTS_MD: Final = HERE.parent / "RESULTS.md"
README: Final = ROOT / "README.md"
CLAIMS_MD: Final = ROOT / "tests" / "README.md"
REMARKS: Final = HERE / "remarks.json"
"""Why a target is missed, by its key: the only words of these pages that a person writes, shown while it is missed."""
SAME_INTERVAL: Final = HERE.parent / "results-groups.json"
BEGIN: Final = "<!-- from here: made by `make bench` -->"
END: Final = "<!-- to here -->"
_SUMMARY: Final = {
    "a-throughput": "(a) throughput, whole life, beside MirrorMaker 2 tuned; more is better",
    "a-cpu": "(a) CPU, whole life, beside MirrorMaker 2 tuned; less is better",
    "a-memory": "(a) peak memory, whole life, beside MirrorMaker 2 tuned; less is better",
    "j-throughput": "(j) throughput of a copy of 21 GB, whole life, beside MirrorMaker 2 tuned; more is better",
    "latency": "p99 latency of a stream, beside MirrorMaker 2 tuned for latency; less is better",
    "recovery": "seconds from SIGKILL until a stream has caught up, beside MirrorMaker 2; less is better",
}
"""The targets, by key, whose ratios README.md shows, and what it calls them."""
_WIDTH: Final = 119


def results_page(
    results: Results, remarks: Mapping[str, str], same_interval: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """RESULTS.md. ``same_interval``: figures of :func:`same_interval`, by name."""
    found = findings(results)
    missed = {one.target.key for one in found if one.missed}
    return (
        _environment()
        .get_template("results.md.j2")
        .render(
            findings=found,
            remarks=[(key, why) for key, why in remarks.items() if key in missed],
            copiers=COPIERS,
            streams=STREAMS,
            results=results,
            same_interval=same_interval,
        )
    )


def summary(results: Results) -> str:
    """The few ratios in README.md, of the whole life of all processes where there is one, and the missed targets."""
    found = [finding for finding in findings(results) if finding.ratio is not None]
    shown = [finding for finding in found if finding.target.key in _SUMMARY]
    missed = [_missed(finding) for finding in found if finding.missed]
    text = (
        "Ratios of medians, and the interval of 95% of resampled rounds. Workload (a) is"
        f" {results.workloads['a'].title}. *Whole life* is from the start of the process to the last record, with"
        " Spark's JVM and all Python processes."
    )
    lines = [
        *textwrap.wrap(text, _WIDTH),
        "",
        "| this project, exactly once, divided by MirrorMaker 2 | ratio | interval | rounds |",
        "|---|---|---|---|",
        *(_summary_row(finding) for finding in shown),
        "",
        *textwrap.wrap(_measured_where(results), _WIDTH),
        "",
        *textwrap.wrap(f"Missed targets, all for the time while copying: {'; '.join(missed) or 'none'}.", _WIDTH),
    ]
    return "\n".join(lines)


def claims(results: Results) -> str:
    """The claims in tests/README.md."""
    found = [finding for finding in findings(results) if finding.ratio is not None]
    lines = [
        "<picture>",
        '<source media="(prefers-color-scheme: dark)" srcset="benchmarks/side_by_side/picture-dark.svg">',
        '<img alt="Throughput and CPU by copier and workload" src="benchmarks/side_by_side/picture-light.svg">',
        "</picture>",
        "",
        *textwrap.wrap(_measured_where(results), _WIDTH),
        "",
        "Ratios of medians, and what 95% of resampled rounds give. *While copying* is from the first record at the",
        "target to the last; *whole life* is from the start of the process, with Spark's JVM and all Python processes.",
        "The wanted ratio is the one while copying.",
        "",
        "| exactly once, beside others | while copying | whole life | wanted | |",
        "|---|---|---|---|---|",
        *(_claim(finding) for finding in found),
        "",
        "; ".join(f"({name}) {workload.title}" for name, workload in sorted(results.workloads.items())) + ".",
    ]
    return "\n".join(lines)


def readme_with(text: str, block: str) -> str:
    """A README's ``text`` with ``block`` between its marks. ValueError where they are not there."""
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


def same_interval(path: Path = SAME_INTERVAL) -> Mapping[str, Mapping[str, Any]]:
    """How long the positions of groups take with the same interval on both sides, by name (bench_groups.py)."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def bars(results: Results) -> dict[str, dict[str, tuple[Spread, Spread]]]:
    """For the picture: workload -> copier -> (MB/s, CPU seconds a GB of all its processes)."""
    result: dict[str, dict[str, tuple[Spread, Spread]]] = {}
    for name in results.workloads:
        for copier in COPIERS:
            runs = results.of_copier(name, copier)
            if runs and copier not in CEILINGS - {"null-copier"}:
                rate = Spread.of([run.megabytes_per_second for run in runs])
                cpu = Spread.of([run.cpu_per_gb("copying") for run in runs])
                result.setdefault(name, {})[copier] = (rate, cpu)
    return result


def _measured_where(results: Results) -> str:
    return (
        f"Measured on {results.date} at commit {results.commit[:12]} with brokers of Apache Kafka"
        f" {results.versions['kafka']}, all on the same {results.machine['cores']} cores."
    )


def _claim(finding: Finding) -> str:
    assert finding.ratio is not None
    life = "" if finding.life is None else f"{_ratio(finding.life.ratio)} {_interval(finding.life)}"
    ratio = f"{_ratio(finding.ratio.ratio)} {_interval(finding.ratio)}"
    return f"| {finding.target.what} | {ratio} | {life} | {finding.target.bound} | {finding.verdict} |"


def _summary_row(finding: Finding) -> str:
    life = finding.life
    ratio = finding.ratio if life is None else life
    assert ratio is not None
    return f"| {_SUMMARY[finding.target.key]} | {_ratio(ratio.ratio)} | {_interval(ratio)} | {ratio.rounds} |"


def _missed(finding: Finding) -> str:
    assert finding.ratio is not None
    doubt = "" if finding.target.certain(finding.ratio) else ", within the noise"
    return f"{finding.target.what}: {_ratio(finding.ratio.ratio)}, wanted {finding.target.bound}{doubt}"


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
        "number": _number,
        "latency_dropped": latency_dropped,
        "recovery_dropped": recovery_dropped,
    }
    return made


def _equal(runs: Sequence[Run]) -> str:
    compared = sum(run.equal is True for run in runs)
    return f"{compared} of {len(runs)}" if compared else ""


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
