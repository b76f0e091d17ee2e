"""What this project wants to reach, most of it as ratios of medians, and whether it did. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.benchmarks.side_by_side.figures import Results, Run
from tests.benchmarks.side_by_side.statistics import Ratio, ratio_of_medians

Values = Mapping[int, float]
Figure = Callable[[Run], float]
OURS: Final = "mirror-exactly-once"
TUNED: Final = "mirrormaker-tuned"
_NULL: Final = "null-copier"
_DEFAULT: Final = "mirrormaker-default"
_LOW_LATENCY: Final = "mirrormaker-low-latency"


@dataclass(frozen=True, slots=True)
class Target:
    """``wanted`` of a ratio: at least so much, or at most (not ``least``). ``sides`` are its upper and lower figure.

    The lower one is 1 where a figure is wanted, with its unit in ``what``, and no ratio.

    ``life`` are the same two over the whole life of the processes, start-up included; None where ``sides`` are that.
    """

    key: str
    what: str
    wanted: float
    least: bool
    sides: Callable[[Results], tuple[Values, Values]]
    life: Callable[[Results], tuple[Values, Values]] | None = None

    def met(self, ratio: Ratio) -> bool:
        """By the median."""
        return ratio.ratio >= self.wanted if self.least else ratio.ratio <= self.wanted

    def certain(self, ratio: Ratio) -> bool:
        """Whether the whole interval says the same."""
        return not ratio.low < self.wanted < ratio.high

    @property
    def bound(self) -> str:
        """As it is written."""
        return f"{'at least' if self.least else 'at most'} {self.wanted:g}"


@dataclass(frozen=True, slots=True)
class Finding:
    """A target and its ratio (None: not measured). ``life`` as in :class:`Target`."""

    target: Target
    ratio: Ratio | None
    life: Ratio | None = None

    @property
    def missed(self) -> bool:
        """Measured, and not reached."""
        return self.ratio is not None and not self.target.met(self.ratio)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.ratio is None:
            return "not measured"
        said = "met" if self.target.met(self.ratio) else "missed"
        return said if self.target.certain(self.ratio) else f"{said}, within the noise"


def findings(results: Results) -> list[Finding]:
    """All targets, in their order."""
    return [_finding(target, results) for target in TARGETS]


def _finding(target: Target, results: Results) -> Finding:
    ratio = ratio_of_medians(*target.sides(results))
    life = None if ratio is None or target.life is None else ratio_of_medians(*target.life(results))
    return Finding(target, ratio, life)


def _copies(workload: str, figure: Figure, theirs: str) -> Callable[[Results], tuple[Values, Values]]:
    return lambda results: (results.values(workload, OURS, figure), results.values(workload, theirs, figure))


def _throughput(run: Run) -> float:
    return run.megabytes_per_second


def _whole_throughput(run: Run) -> float:
    return run.whole_megabytes_per_second


def _whole_cpu(run: Run) -> float:
    return run.whole_cpu_per_gb()


def _all_memory(run: Run) -> float:
    return run.peak_rss_mb["all"]


def _copying_cpu(run: Run) -> float:
    return run.cpu_per_gb("copying")


def _all_cpu(run: Run) -> float:
    return run.cpu_per_gb()


def _memory(run: Run) -> float:
    return run.copying_mb


def _idle(results: Results) -> tuple[Values, Values]:
    with_them, without = (
        {
            one["round"]: one["epoch_seconds"]
            for one in results.idle
            if one["with_idle"] is which and not one.get("failed")
        }
        for which in (True, False)
    )
    return with_them, without


def _late(results: Results) -> tuple[Values, Values]:
    return _streams(results.counted_latency, "p99")


def _recovered(results: Results) -> tuple[Values, Values]:
    return _streams(results.counted_recovery, "drained")


def _streams(entries: Sequence[Mapping[str, Any]], figure: str) -> tuple[Values, Values]:
    ours, theirs = (
        {one["round"]: one[figure] for one in entries if one["copier"] == name} for name in (OURS, _LOW_LATENCY)
    )
    return ours, theirs


def _whole_cpu_alone(results: Results) -> tuple[Values, Values]:
    return _alone(results.values("j", OURS, _whole_cpu))


def _groups_p99_s(results: Results) -> tuple[Values, Values]:
    return _alone({number: p99 / 1_000 for number, p99 in results.of_groups(OURS, "p99").items()})


def _groups_cpu(results: Results) -> tuple[Values, Values]:
    return results.of_groups(OURS, "copier_cpu"), results.of_groups(_DEFAULT, "copier_cpu")


def _alone(values: Values) -> tuple[Values, Values]:
    return values, dict.fromkeys(values, 1.0)


def _target(
    workload: str, name: str, what: str, wanted: float, figures: tuple[Figure, Figure], theirs: str = TUNED
) -> Target:
    """Throughput is wanted to be at least so much, all else at most. ``figures``: of the copy, of the whole life."""
    copying, life = (_copies(workload, figure, theirs) for figure in figures)
    return Target(f"{workload}-{name}", f"({workload}) {what}", wanted, figures is _THROUGHPUT, copying, life)


_THROUGHPUT: Final = (_throughput, _whole_throughput)
_CPU: Final = (_copying_cpu, _whole_cpu)
_CPU_WITH_SPARK: Final = (_all_cpu, _whole_cpu)
_MEMORY: Final = (_memory, _all_memory)
_TO_TUNED: Final = "to MirrorMaker 2 tuned"

TARGETS: Final = (
    _target("a", "throughput", f"throughput, {_TO_TUNED}", 2.5, _THROUGHPUT),
    _target("a", "cpu", f"CPU per GB of copying processes, {_TO_TUNED}", 0.1, _CPU),
    _target("a", "null", "throughput, to the null copier's", 0.9, _THROUGHPUT, _NULL),
    _target("a", "once", "throughput exactly once, to at least once", 0.9, _THROUGHPUT, "mirror-at-least-once"),
    _target("a", "memory", f"peak memory of copying processes, {_TO_TUNED}", 0.5, _MEMORY),
    _target("b", "throughput", f"throughput, {_TO_TUNED}", 1.0, _THROUGHPUT),
    _target("b", "cpu", f"CPU per GB of copying processes, {_TO_TUNED}", 1.0, _CPU),
    _target("b", "all-cpu", f"CPU per GB with Spark's JVM, {_TO_TUNED}", 1.0, _CPU_WITH_SPARK),
    *(_target(workload, "throughput", f"throughput, {_TO_TUNED}", 1.0, _THROUGHPUT) for workload in "cdefghi"),
    _target("j", "throughput", f"throughput, {_TO_TUNED}", 2.5, _THROUGHPUT),
    _target("j", "cpu", f"CPU per GB of copying processes, {_TO_TUNED}", 0.1, _CPU),
    Target("j-whole-cpu", "(j) CPU s a GB, whole run", 1.2, False, _whole_cpu_alone),
    _target("j", "memory", f"peak memory of copying processes, {_TO_TUNED}", 0.5, _MEMORY),
    Target("f-idle", "(f) a run beside 180 idle partitions, to one without", 1.05, False, _idle),
    Target("latency", "p99 of a stream's latency, to MirrorMaker 2 tuned for latency", 1.0, False, _late),
    Target("recovery", "from SIGKILL until a stream has caught up, to MirrorMaker 2", 1.0, False, _recovered),
    Target("groups-p99", "1,000 groups' positions, p99 s", 1.0, False, _groups_p99_s),
    Target("groups-cpu", "CPU of copying 1,000 groups' positions, to MirrorMaker 2", 0.5, False, _groups_cpu),
)
"""Exactly once on our side, unless they say otherwise."""
