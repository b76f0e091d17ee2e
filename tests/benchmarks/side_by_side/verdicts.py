"""Each claim beside MirrorMaker 2 and plain Spark: what was measured of all three, and who won. Pure, from results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from tests.benchmarks.side_by_side.figures import AT_LEAST_ONCE, Results, Run
from tests.benchmarks.side_by_side.statistics import Ratio, ratio_of_medians

Values = Mapping[int, float]
"""A figure by round."""
OURS: Final = "ours"
MIRRORMAKER: Final = "MirrorMaker 2"
PLAIN: Final = "plain Spark"
RIVALS: Final = (MIRRORMAKER, PLAIN)
_COPIERS: Final = {OURS: "mirror-exactly-once", MIRRORMAKER: "mirrormaker-tuned", PLAIN: "plain-spark"}
_STREAMS: Final = {
    OURS: ("mirror-exactly-once",),
    MIRRORMAKER: ("mirrormaker-low-latency",),
    PLAIN: tuple(sorted(AT_LEAST_ONCE)),
}
_LOSSES: Final = {OURS: "mirror-exactly-once", MIRRORMAKER: "mirrormaker-exactly-once", PLAIN: "plain-spark"}
_OF_TABLE: Final = {OURS: "mirror-sequences", MIRRORMAKER: "mirrormaker-default"}
_OF_GROUPS: Final = {OURS: "mirror-1s", MIRRORMAKER: "mirrormaker"}
_MANY: Final = 1_000
_BESIDE: Final = ("configuration", "acl", "group")


@dataclass(frozen=True, slots=True)
class Claim:
    """What is compared. ``more``: is better. ``counted``: whole numbers that are equal or not, without noise."""

    key: str
    what: str
    more: bool = False
    counted: bool = False


CLAIMS: Final = (
    *(
        claim
        for workload in "abj"
        for claim in (
            Claim(f"{workload}-rate", f"({workload}) MB/s, whole run", more=True),
            Claim(f"{workload}-cpu", f"({workload}) CPU s a GB, whole run"),
        )
    ),
    Claim("h-rate", "(h) MB/s, whole run", more=True),
    Claim("a-start", "(a) s until the first record"),
    Claim("a-memory", "(a) peak MB of all processes"),
    Claim("p50", "a stream's latency, p50 ms"),
    Claim("p99", "a stream's latency, p99 ms"),
    Claim("stream-cpu", "the stream's cores"),
    Claim("many-p50", "1,000 partitions: p50 ms"),
    Claim("many-p99", "1,000 partitions: p99 ms"),
    Claim("groups", "1,000 groups' positions, p99 ms"),
    Claim("groups-cores", "the cores that takes"),
    Claim("recovery", "s from SIGKILL until caught up"),
    Claim("lost", "records lost by SIGKILL", counted=True),
    Claim("doubled", "records doubled by it, of 300,000", counted=True),
    Claim("aborted", "records of aborted transactions", counted=True),
    Claim("changed", "records changed, moved or reordered, of 6,600", counted=True),
    Claim("retimed", "with another timestamp", counted=True),
    Claim("offsets", "with another offset", counted=True),
    Claim("codecs", "codecs lost, of 2", counted=True),
    Claim("beside", "not kept of configurations, ACLs, groups", counted=True),
    Claim("again", "records that the group reads again", counted=True),
)


@dataclass(frozen=True, slots=True)
class Source:
    """A file of results. ``figures``: key of a claim -> side -> its values."""

    file: str
    commit: str
    date: str
    figures: Mapping[str, Mapping[str, Values]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, its source, the medians by side, and by rival our median to its, where there is one."""

    claim: Claim
    source: Source
    medians: Mapping[str, float]
    ratios: Mapping[str, Ratio]

    def beside(self, rival: str) -> str:
        """``won``, ``lost`` or ``equal``; empty where the rival was not measured."""
        if rival not in self.medians:
            return ""
        ours, theirs = self.medians[OURS], self.medians[rival]
        ratio = self.ratios.get(rival)
        if ours == theirs or (ratio is not None and ratio.low <= 1 <= ratio.high):
            return "equal"
        return "won" if (ours > theirs) is self.claim.more else "lost"

    @property
    def said(self) -> str:
        """In a word where it is the same beside all that were measured; the worst comes first."""
        found = {said: [rival for rival in RIVALS if self.beside(rival) == said] for said in ("lost", "equal", "won")}
        known = {said: who for said, who in found.items() if who}
        return (
            "".join(known) if len(known) == 1 else "; ".join(f"{said}: {', '.join(who)}" for said, who in known.items())
        )


def verdicts(sources: Sequence[Source]) -> list[Verdict]:
    """Of each claim that was measured, by the source that has most of the sides; of those the first."""
    return [found for claim in CLAIMS if (found := _verdict(claim, sources)) is not None]


def _verdict(claim: Claim, sources: Sequence[Source]) -> Verdict | None:
    source = max(sources, key=lambda one: len(one.figures.get(claim.key, ())))
    sides = source.figures.get(claim.key, {})
    if OURS not in sides or len(sides) == 1:
        return None
    ratios: dict[str, Ratio] = {}
    if not claim.counted:
        for rival in RIVALS:
            if rival in sides and (ratio := ratio_of_medians(sides[OURS], sides[rival])) is not None:
                ratios[rival] = ratio
    medians = {side: statistics.median(values.values()) for side, values in sides.items()}
    return Verdict(claim, source, medians, ratios)


def of_results(file: str, results: Results) -> Source:
    """What ``make bench`` has measured."""
    figures: dict[str, dict[str, Values]] = {}
    for workload in "abhj":
        figures[f"{workload}-rate"] = _runs(results, workload, lambda run: run.whole_megabytes_per_second)
        figures[f"{workload}-cpu"] = _runs(results, workload, lambda run: run.whole_cpu_per_gb())
    figures["a-start"] = _runs(results, "a", lambda run: run.startup_seconds)
    figures["a-memory"] = _runs(results, "a", lambda run: run.peak_rss_mb["all"])
    for percentile in ("p50", "p99"):
        figures[percentile] = _streams(results.counted_latency, itemgetter(percentile))
    figures["stream-cpu"] = _streams(
        (one for one in results.counted_latency if "copier_cpu_s" in one),
        lambda one: one["copier_cpu_s"] / one["seconds"],
    )
    figures["recovery"] = _streams(results.counted_recovery, lambda one: one["drained"])
    figures |= _losses([one for one in results.losses if not one.get("failed")])
    return Source(file, results.commit, results.date, figures)


def of_table(file: str, document: Mapping[str, Any]) -> Source:
    """What latency_table has measured."""
    measured, runs = document["measured"], document["runs"]
    found = [run for run in runs if run["partitions"] == _MANY and "failed" not in run]
    figures = {
        f"many-{percentile}": _sides(
            {
                side: {run["round"]: run[percentile] for run in found if run["copier"] == name}
                for side, name in _OF_TABLE.items()
            }
        )
        for percentile in ("p50", "p99")
    }
    return Source(file, measured["commit"], measured["started"][:10], figures)


def of_groups(file: str, document: Mapping[str, Mapping[str, Any]], commit: str, date: str) -> Source:
    """What bench_groups.py has measured with the same interval on both sides."""
    figures = {
        key: {side: {1: document[name][figure]} for side, name in _OF_GROUPS.items() if name in document}
        for key, figure in (("groups", "p99"), ("groups-cores", "copier_cpu"))
    }
    return Source(file, commit, date, figures)


def _runs(results: Results, workload: str, figure: Callable[[Run], float]) -> dict[str, Values]:
    return _sides({side: results.values(workload, name, figure) for side, name in _COPIERS.items()})


def _streams(entries: Iterable[Mapping[str, Any]], figure: Callable[[Mapping[str, Any]], float]) -> dict[str, Values]:
    """Of a side with several streams the one whose median is best."""
    by_name: dict[str, dict[int, float]] = {}
    for entry in entries:
        by_name.setdefault(entry["copier"], {})[entry["round"]] = figure(entry)
    return {
        side: min(known, key=lambda values: statistics.median(values.values()))
        for side, names in _STREAMS.items()
        if (known := [by_name[name] for name in names if name in by_name])
    }


def _losses(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Values]]:
    figures: dict[str, Callable[[Mapping[str, Any]], float]] = {
        "lost": lambda one: one["missing"] + one["killed_missing"],
        "doubled": lambda one: one["killed_doubled"],
        "aborted": lambda one: one["aborted"],
        "changed": lambda one: one["changed"] + one["moved"] + one["reordered"],
        "retimed": lambda one: one["retimed"],
        "offsets": lambda one: one["other_offset"],
        "codecs": lambda one: len(set(one["source_codecs"]) - set(one["target_codecs"])),
        "beside": lambda one: sum(not one[name] for name in _BESIDE),
    }
    by_side = {side: [one for one in entries if one["copier"] == name] for side, name in _LOSSES.items()}
    found = {
        key: _sides({side: {one["round"]: figure(one) for one in some} for side, some in by_side.items()})
        for key, figure in figures.items()
    }
    found["again"] = _sides(
        {
            side: {one["round"]: one["group_reads_again"] for one in some if one["group_reads_again"] is not None}
            for side, some in by_side.items()
        }
    )
    return found


def _sides(found: Mapping[str, Values]) -> dict[str, Values]:
    return {side: values for side, values in found.items() if values}
