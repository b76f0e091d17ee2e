"""Each claim beside MirrorMaker 2 and plain Spark: what was measured of all three, and who won. Pure, from results."""

from __future__ import annotations

import math
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
_OF_LOADS: Final = {OURS: "mirror-sequences", MIRRORMAKER: "mirrormaker-default", PLAIN: "plain-spark"}
_OF_GROUPS: Final = {OURS: "mirror-exactly-once", MIRRORMAKER: "mirrormaker-default"}
_OF_LOSS: Final = {OURS: "mirror", MIRRORMAKER: "mirrormaker", PLAIN: "spark"}
_OF_LINK: Final = {OURS: "mirror-tuned", MIRRORMAKER: "mirrormaker-tuned"}
_SERVED: Final = {
    "loss-driver": "driver",
    "loss-broker": "target-broker",
    "loss-cut": "target-cut",
    "loss-failover": "source-lost",
    "loss-cutover": "cut-over",
}
_DISASTER: Final = "source-lost"
_MOVES: Final = (_DISASTER, "cut-over")
_PLACES: Final = ("pull", "push")
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
    Claim("loss-driver", "s until served: driver, or all nodes, killed"),
    Claim("loss-broker", "s until served: a leader of the target killed"),
    Claim("loss-cut", "s until served: target cut off for 30 s"),
    Claim("loss-cutover", "s until served: cut-over"),
    Claim("loss-failover", "s until served: source lost, failover"),
    Claim("loss-records", "records lost with the source"),
    Claim("loss-missing", "records missing after all other losses", counted=True),
    Claim("loss-doubled", "records doubled by all losses", counted=True),
    Claim("loss-moved", "records read again or skipped by a group that moves", counted=True),
    *(Claim(f"link-{place}", f"part of a link of 100 ms that loses 0.1%: {place}", more=True) for place in _PLACES),
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
            if rival in sides and (ratio := _ratio(sides[OURS], sides[rival])) is not None:
                ratios[rival] = ratio
    medians = {side: statistics.median(values.values()) for side, values in sides.items()}
    return Verdict(claim, source, medians, ratios)


def _ratio(ours: Values, theirs: Values) -> Ratio | None:
    """None also where a figure has none: nothing was lost, or it was not reached in time."""
    values = (*ours.values(), *theirs.values())
    return ratio_of_medians(ours, theirs) if all(0 < one < math.inf for one in values) else None


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
        figures[f"many-{percentile}"] = _many(results.loads, percentile)
    figures["stream-cpu"] = _streams(
        (one for one in results.counted_latency if "copier_cpu_s" in one),
        lambda one: one["copier_cpu_s"] / one["seconds"],
    )
    figures["recovery"] = _streams(results.counted_recovery, lambda one: one["drained"])
    figures["groups"] = _groups(results, "p99")
    figures["groups-cores"] = _groups(results, "copier_cpu")
    figures |= _losses([one for one in results.losses if not one.get("failed")])
    return Source(file, results.commit, results.date, figures)


def _many(entries: Iterable[Mapping[str, Any]], figure: str) -> dict[str, Values]:
    """At the load of most partitions."""
    found = [one for one in entries if one["partitions"] == _MANY and not one.get("failed")]
    return _sides({side: _by_round(found, name, figure) for side, name in _OF_LOADS.items()})


def _groups(results: Results, figure: str) -> dict[str, Values]:
    return _sides({side: results.of_groups(name, figure) for side, name in _OF_GROUPS.items()})


def _by_round(entries: Iterable[Mapping[str, Any]], copier: str, figure: str) -> Values:
    return {one["round"]: one[figure] for one in entries if one["copier"] == copier}


def of_loss(file: str, document: Mapping[str, Any]) -> Source:
    """What ``make loss`` has measured: what clients were not served after in time, has taken for ever."""
    found = _scenarios(document["runs"])
    figures: dict[str, Mapping[str, Values]] = {}
    for key, scenario in _SERVED.items():
        figures[key] = {
            side: {
                number: math.inf if one[scenario]["served_s"] is None else one[scenario]["served_s"]
                for number, one in of_side.items()
                if scenario in one
            }
            for side, of_side in found.items()
        }
    figures |= {
        "loss-records": _counted(found, lambda scenario: scenario == _DISASTER, "missing"),
        "loss-missing": _counted(found, lambda scenario: scenario != _DISASTER, "missing"),
        "loss-doubled": _counted(found, lambda _: True, "doubled"),
        "loss-moved": _counted(found, lambda scenario: scenario in _MOVES, "read_again", "skipped"),
    }
    return _source(file, document, figures)


_Scenarios = Mapping[str, Mapping[int, Mapping[str, Mapping[str, Any]]]]
"""Of each side and round the figures by scenario."""


def _scenarios(runs: Sequence[Mapping[str, Any]]) -> _Scenarios:
    found: dict[str, dict[int, dict[str, Mapping[str, Any]]]] = {}
    for side, name in _OF_LOSS.items():
        for run in runs:
            if run["copier"] == name and run["found"]:
                found.setdefault(side, {}).setdefault(run["round"], {}).update(run["found"])
    return found


def _counted(found: _Scenarios, included: Callable[[str], bool], *keys: str) -> Mapping[str, Values]:
    """Return the sums over the included scenarios of each round that all sides have."""
    values: dict[str, dict[int, float]] = {side: {} for side in found}
    for number in {number for of_side in found.values() for number in of_side}:
        of_round = {side: of_side[number] for side, of_side in found.items() if number in of_side}
        common = set.intersection(*({*filter(included, one)} for one in of_round.values()))
        for side, one in of_round.items() if common else ():
            values[side][number] = sum(one[scenario][key] for scenario in common for key in keys)
    return values


def of_wide_area(file: str, document: Mapping[str, Any]) -> Source:
    """What ``make distance`` has measured over the lossy line, with copiers and far brokers tuned."""
    figures: dict[str, dict[str, Values]] = {}
    for place in _PLACES:
        case = {"line": "lossy", "place": place, "brokers": "tuned"}
        found = [run for run in document["runs"] if case.items() <= run.items() and "used" in run]
        figures[f"link-{place}"] = {
            side: {run["round"]: run["used"] for run in found if run["copier"] == name}
            for side, name in _OF_LINK.items()
        }
    return _source(file, document, figures)


def _source(file: str, document: Mapping[str, Any], figures: Mapping[str, Mapping[str, Values]]) -> Source:
    measured = document["measured"]
    sides = {key: _sides(of_key) for key, of_key in figures.items()}
    return Source(file, measured["commit"], measured["started"][:10], sides)


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
