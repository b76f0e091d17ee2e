"""What is written of the results: RESULTS.md, and parts of README.md and tests/README.md. Pure: texts from figures."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mirror.spark.driver.rounds.periodic_rounds import ROUND_SHARE
from mirror.spark.driver.rounds.reconciling import SHARE_OF_CHANGES
from tests.benchmarks.latency_table.page import PAGE as LATENCY_MD
from tests.benchmarks.latency_table.page import page
from tests.benchmarks.plain_spark.command import pinned_version
from tests.benchmarks.side_by_side.figures import (
    CEILINGS,
    COPIERS,
    EARLIER,
    HERE,
    RESULTS,
    STREAMS,
    Results,
    Run,
    latency_dropped,
    recovery_dropped,
)
from tests.benchmarks.side_by_side.mirrormaker_settings import HEAP_GB
from tests.benchmarks.side_by_side.statistics import Ratio, Spread
from tests.benchmarks.side_by_side.targets import Finding, findings
from tests.benchmarks.side_by_side.verdicts import (
    CLAIMS,
    OURS,
    RIVALS,
    Claim,
    Source,
    Verdict,
    of_loss,
    of_results,
    of_wide_area,
    verdicts,
)

ROOT: Final = HERE.parents[2]
RESULTS_MD: Final = HERE.parent / "RESULTS.md"
README: Final = ROOT / "README.md"
CLAIMS_MD: Final = ROOT / "tests" / "README.md"
REMARKS: Final = HERE / "remarks.json"
"""Why a target is missed, by its key: the only words of these pages that a person writes, shown while it is missed."""
BEGIN: Final = "<!-- from here: made by `make bench` -->"
END: Final = "<!-- to here -->"
LOSSES: Final = HERE.parent / "loss" / "results.json"
DISTANCES: Final = HERE.parent / "wide_area" / "results.json"
_SUMMARY: Final = ("a-rate", "a-cpu", "a-memory", "j-rate", "j-cpu", "p99", "recovery", "groups", "doubled", "retimed")
"""The claims, by key, that README.md shows."""
_WIDTH: Final = 119


def results_page(results: Results, remarks: Mapping[str, str], earlier: Mapping[str, Results] | None = None) -> str:
    """RESULTS.md. ``earlier``: what was measured on other commits, by its file."""
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
            earlier=earlier or {},
            share_of_changes=SHARE_OF_CHANGES,
            round_share=ROUND_SHARE,
            connector=pinned_version("spark-sql-kafka"),
            client=pinned_version("kafka-clients"),
            heap_gb=HEAP_GB,
        )
    )


def summary(sources: Sequence[Source], results: Results) -> str:
    """The few claims in README.md, and the missed targets."""
    missed = [_missed(finding) for finding in findings(results) if finding.missed]
    lines = [
        *_claims(sources, _SUMMARY, "tests/benchmarks"),
        "",
        *textwrap.wrap(
            f"Missed targets, of a copy without its start where nothing else is said: {'; '.join(missed) or 'none'}.",
            _WIDTH,
        ),
    ]
    return "\n".join(lines)


def claims(sources: Sequence[Source], results: Results) -> str:
    """The claims in tests/README.md: all of them, on one screen."""
    lines = [
        "<picture>",
        '<source media="(prefers-color-scheme: dark)" srcset="benchmarks/side_by_side/picture-dark.svg">',
        '<img alt="Throughput and CPU by copier and workload" src="benchmarks/side_by_side/picture-light.svg">',
        "</picture>",
        "",
        *_claims(sources, [claim.key for claim in CLAIMS], "benchmarks"),
        "",
        "; ".join(f"({name}) {workload.title}" for name, workload in sorted(results.workloads.items())) + ".",
    ]
    return "\n".join(lines)


def read_results() -> dict[str, Results]:
    """results.json and what is earlier, by its place beside RESULTS.md. Raises UnpublishableError."""
    return {_place(path): Results.read(path) for path in (RESULTS, *sorted(EARLIER.glob("*.json")))}


def _place(path: Path) -> str:
    return str(path.relative_to(RESULTS_MD.parent))


def read_sources() -> list[Source]:
    """The files that there are, of which claims are made. Raises UnpublishableError."""
    found = [of_results(place, results) for place, results in read_results().items()]
    for path, read in ((LOSSES, of_loss), (DISTANCES, of_wide_area)):
        if path.exists():
            found.append(read(_place(path), json.loads(path.read_text(encoding="utf-8"))))
    return found


def unused() -> set[Path]:
    """The earlier files of which no claim is made, since results.json has all of theirs."""
    used = {verdict.source.file for verdict in verdicts(read_sources())}
    return {path for path in EARLIER.glob("*.json") if _place(path) not in used}


def pages() -> dict[Path, str]:
    """All that is written of the files of results, by its file. Raises UnpublishableError."""
    files, sources = read_results(), read_sources()
    results, *others = files.values()
    earlier = {_place(path): files[_place(path)] for path in sorted({*EARLIER.glob("*.json")} - unused())}
    blocks = {README: summary(sources, results), CLAIMS_MD: claims(sources, results)}
    return {
        RESULTS_MD: results_page(results, remarks(), earlier),
        LATENCY_MD: page(next(one for one in (results, *others) if one.loads)),
        **{path: readme_with(path.read_text(encoding="utf-8"), block) for path, block in blocks.items()},
    }


def _claims(sources: Sequence[Source], keys: Collection[str], folder: str) -> list[str]:
    """The table of these claims, what its cells are, and the files of ``folder`` that it is made of."""
    found = [verdict for verdict in verdicts(sources) if verdict.claim.key in keys]
    used = [source for source in sources if any(verdict.source is source for verdict in found)]
    text = (
        "Medians; in brackets ours divided by theirs, with what 95% of resampled rounds give. *Won* is better beyond"
        " that noise, *equal* within it; one round has no noise, and its verdict is that of the figures alone. More is"
        " better of MB/s and of a link, less of all else. Ours is exactly once; MirrorMaker 2 is tuned for what is"
        " measured; plain Spark, at least once, is Spark's Kafka source and sink, in the best of its modes. *Whole run*"
        " is from the start of the process, with all processes, Spark's JVM among them."
    )
    places = "; ".join(
        f"{number}: [{source.file}]({folder}/{source.file}), {source.date}, commit {source.commit[:12]}"
        for number, source in enumerate(used, 1)
    )
    others = (
        " Files of two dates are of machines with other loads." if len({source.date for source in used}) > 1 else ""
    )
    return [
        *textwrap.wrap(text, _WIDTH),
        "",
        f"| | ours | {' | '.join(RIVALS)} | | from |",
        "|---|---|---|---|---|---|",
        *(_claim(verdict, used.index(verdict.source) + 1) for verdict in found),
        "",
        f"From {places}; two cores for everything.{others}",
    ]


def _claim(verdict: Verdict, source: int) -> str:
    cells = [_figure(verdict.claim, verdict.medians[OURS])]
    for rival in RIVALS:
        median, ratio = verdict.medians.get(rival), verdict.ratios.get(rival)
        bracket = "" if ratio is None else f" ({_ratio(ratio.ratio)} {_interval(ratio)})"
        cells.append("" if median is None else f"{_figure(verdict.claim, median)}{bracket}")
    return f"| {verdict.claim.what} | {' | '.join(cells)} | {verdict.said} | {source} |"


def _figure(claim: Claim, value: float) -> str:
    if math.isinf(value):
        return "not in time"
    return f"{value:,.0f}" if claim.counted else _number(value)


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
        "kept": lambda kept: "kept" if kept else "not kept",
        "latency_dropped": latency_dropped,
        "recovery_dropped": recovery_dropped,
    }
    return made


def _equal(runs: Sequence[Run]) -> str:
    compared = sum(run.equal is True for run in runs)
    return f"{compared} of {len(runs)}" if compared else ""


def _spread(values: Sequence[float]) -> str:
    return Spread.of(values).text(_number)


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
