"""LATENCY.md of the results. Pure: a text from figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.benchmarks.bench_latency import WARM_S
from tests.benchmarks.side_by_side.figures import Results
from tests.benchmarks.side_by_side.statistics import Ratio, Spread, ratio_of_medians

PAGE: Final = Path(__file__).parents[1] / "LATENCY.md"
LOADS: Final = ((4, 100), (300, 150), (1_000, 250))
"""Partitions and records a second in all: MirrorMaker 2 follows each of them on two cores."""
NAMES: Final = {
    "mirror-sequences": "mirror, exactly once by sequences",
    "mirror-at-least-once": "mirror, at least once",
    "mirrormaker-default": "MirrorMaker 2, defaults",
    "mirror-transactions": "mirror, exactly once in transactions",
    "mirrormaker": "MirrorMaker 2, exactly-once support",
    "plain-spark": "plain Spark, micro-batches",
}
_FIGURES: Final = ("p50", "p99", "copier_cpu_s", "target_cpu_s", "source_cpu_s")
_OURS: Final = "mirror-sequences"
_INTRODUCTION: Final = """\
Made by `make bench`; nothing here is written by hand. From when a record is handed to its producer until another
client, which reads committed records, has it at the target: ms. Records of 100 bytes, spread evenly over the
partitions. One broker for each cluster, producer, reader and copier share the machine. CPU is what the copier's
processes (with Spark's JVM) and the brokers have used in the measured seconds, which begin {warm:.0f} s after a record
of each partition has arrived. Figures are medians of all rounds, with the least and the most; the copiers take turns
within a round."""


class _Wanted(NamedTuple):
    text: str
    figures: tuple[str, ...]
    """Their sum is compared."""
    beside: str
    most: float


_WANTED: Final = (
    _Wanted("p50, to MirrorMaker 2's defaults", ("p50",), "mirrormaker-default", 1),
    _Wanted("p99, to MirrorMaker 2's defaults", ("p99",), "mirrormaker-default", 1),
    _Wanted("CPU of both brokers, to at least once", ("source_cpu_s", "target_cpu_s"), "mirror-at-least-once", 1.05),
)
WANTED_NAMES: Final = frozenset({_OURS, *(wanted.beside for wanted in _WANTED)})
"""They are compared; the others are in first rounds only."""
_Case = tuple[int, int, float, int]
"""Partitions, records a second, measured seconds, epoch-ms."""


def page(results: Results) -> str:
    """Return the text of LATENCY.md."""
    runs = results.loads
    cases = sorted({_case(run) for run in runs}, key=lambda case: (case[2], case[:2]))
    lines = ["# Latency of streams", _INTRODUCTION.format(warm=WARM_S), "", *_where(results), ""]
    lines += [
        "## Wanted",
        f"Ratios of the medians of *{NAMES[_OURS]}*; the interval holds 95% of resampled rounds.",
        "",
    ]
    lines += ["| load | | wanted | measured | interval | rounds | |", "|---|---|---|---|---|---|---|"]
    lines += [line for case in cases for line in _verdicts(case, runs)]
    for case in cases:
        lines += ["", f"## {_title(case)}", _edges(case), ""]
        lines += ["| | rounds | p50 | p99 | longest | CPU s: copier | target broker | source broker |"]
        lines += ["|---|---|---|---|---|---|---|---|", *_rows(case, runs)]
    if remarks := list(_remarks(runs)):
        lines += ["", "## Runs that are not like the others", *remarks]
    return "\n".join(lines) + "\n"


def where(measured: Mapping[str, Any]) -> list[str]:
    """Return lines that say when, on which commit and on which machine this was ``measured``."""
    machine, versions = measured["machine"], measured["versions"]
    text = (
        f"Measured {measured['started'][:10]} on commit {measured['commit'][:12]}"
        f"{'' if measured['clean'] else ' with changes'}: {machine['cores']} cores ({machine['cpu']}),"
        f" {machine['memory_gb']} GB, Kafka {versions['kafka']}, Java {versions['java']}, Python {versions['python']},"
        f" Spark {versions['spark']}."
    )
    return textwrap.wrap(text, 119)


def _where(results: Results) -> list[str]:
    here = {"started": results.date, "commit": results.commit, "clean": True, "machine": results.machine}
    return where({**here, "versions": results.versions})


def _case(run: Mapping[str, Any]) -> _Case:
    return run["partitions"], run["rate"], run["seconds"], run["epoch_ms"]


def _title(case: _Case) -> str:
    partitions, rate, seconds, _ = case
    return f"{partitions:,} partitions, {rate:,} records a second, {seconds:.0f} s"


def _edges(case: _Case) -> str:
    _, _, seconds, epoch_ms = case
    edges = int((WARM_S + seconds) * 1_000 // epoch_ms)
    ends = {0: "no period of ours ends", 1: "one period of ours ends"}.get(edges, f"{edges} periods of ours end")
    return f"`period-ms` is {epoch_ms:,}: {ends} meanwhile."


def _of(case: _Case, name: str, runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [run for run in runs if _case(run) == case and run["copier"] == name and "failed" not in run]


def _rows(case: _Case, runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for name, called in NAMES.items():
        if found := _of(case, name, runs):
            cells = [_spread([run[figure] for run in found]) for figure in ("p50", "p99", "max", *_FIGURES[2:])]
            yield f"| {called} | {len(found)} | {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> str:
    return Spread.of(values).text(_number)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _verdicts(case: _Case, runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for wanted in _WANTED:
        ours, theirs = (
            {run["round"]: sum(run[figure] for figure in wanted.figures) for run in _of(case, name, runs)}
            for name in (_OURS, wanted.beside)
        )
        if (ratio := ratio_of_medians(ours, theirs)) is not None:
            verdict = _verdict(ratio, wanted.most)
            yield (
                f"| {_title(case)} | {wanted.text} | at most {wanted.most} | {ratio.ratio:.2f} |"
                f" {ratio.low:.2f} to {ratio.high:.2f} | {ratio.rounds} | {verdict} |"
            )


def _verdict(ratio: Ratio, most: float) -> str:
    if ratio.low <= most < ratio.high:
        return f"{'met' if ratio.ratio <= most else 'missed'}, within the noise"
    return "met" if ratio.ratio <= most else "missed"


def _remarks(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for run in runs:
        what = f"- {_title(_case(run))}, round {run['round']}, {NAMES[run['copier']]}"
        if "failed" in run:
            yield f"{what}: failed, counts in no figure: {run['failed']}"
        elif run["missing"] > 0:
            yield f"{what}: not arrived 30 s after the last record was sent: {run['missing']:,.0f}"
        elif run["missing"] < 0:
            yield f"{what}: arrived twice: {-run['missing']:,.0f}"
