"""What this project wants to reach, as ratios of medians, and whether it did. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.side_by_side.figures import Results, Run
from tests.benchmarks.side_by_side.statistics import Ratio, ratio_of_medians

Values = Mapping[int, float]
OURS: Final = "mirror-exactly-once"
TUNED: Final = "mirrormaker-tuned"
_NULL: Final = "null-copier"


@dataclass(frozen=True, slots=True)
class Target:
    """``wanted`` of a ratio: at least so much, or at most (not ``least``). ``sides`` are its upper and lower figure."""

    key: str
    what: str
    wanted: float
    least: bool
    sides: Callable[[Results], tuple[Values, Values]]

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
    """A target and what came of it; ``ratio`` None: not measured."""

    target: Target
    ratio: Ratio | None

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
    return [Finding(target, ratio_of_medians(*target.sides(results))) for target in TARGETS]


def _copies(workload: str, figure: Callable[[Run], float], theirs: str) -> Callable[[Results], tuple[Values, Values]]:
    return lambda results: (results.values(workload, OURS, figure), results.values(workload, theirs, figure))


def _throughput(run: Run) -> float:
    return run.megabytes_per_second


def _copying_cpu(run: Run) -> float:
    return run.cpu_per_gb("copying")


def _all_cpu(run: Run) -> float:
    return run.cpu_per_gb()


def _memory(run: Run) -> float:
    return run.copying_mb


def _idle(results: Results) -> tuple[Values, Values]:
    with_them, without = (
        {one["round"]: one["epoch_seconds"] for one in results.idle if one["with_idle"] is which}
        for which in (True, False)
    )
    return with_them, without


def _late(results: Results) -> tuple[Values, Values]:
    ours, theirs = (
        {one["round"]: one["p99"] for one in results.latency if one["copier"] == name}
        for name in (OURS, "mirrormaker-exactly-once")
    )
    return ours, theirs


TARGETS: Final = (
    Target("a-throughput", "(a) throughput, to MirrorMaker 2 tuned", 2.5, True, _copies("a", _throughput, TUNED)),
    Target(
        "a-cpu",
        "(a) CPU per GB of copying processes, to MirrorMaker 2 tuned",
        0.1,
        False,
        _copies("a", _copying_cpu, TUNED),
    ),
    Target("a-null", "(a) throughput, to the null copier's", 0.9, True, _copies("a", _throughput, _NULL)),
    Target(
        "a-once",
        "(a) throughput exactly once, to at least once",
        0.9,
        True,
        _copies("a", _throughput, "mirror-at-least-once"),
    ),
    Target(
        "a-memory",
        "(a) peak memory of copying processes, to MirrorMaker 2 tuned",
        0.5,
        False,
        _copies("a", _memory, TUNED),
    ),
    Target("b-throughput", "(b) throughput, to MirrorMaker 2 tuned", 1.0, True, _copies("b", _throughput, TUNED)),
    Target(
        "b-cpu",
        "(b) CPU per GB of copying processes, to MirrorMaker 2 tuned",
        1.0,
        False,
        _copies("b", _copying_cpu, TUNED),
    ),
    Target(
        "b-all-cpu",
        "(b) CPU per GB with Spark's JVM, to MirrorMaker 2 tuned",
        1.0,
        False,
        _copies("b", _all_cpu, TUNED),
    ),
    *(
        Target(
            f"{name}-throughput",
            f"({name}) throughput, to MirrorMaker 2 tuned",
            1.0,
            True,
            _copies(name, _throughput, TUNED),
        )
        for name in "egh"
    ),
    Target("f-idle", "(f) an epoch beside 180 idle partitions, to one without", 1.05, False, _idle),
    Target("latency", "p99 of a stream's latency, to MirrorMaker 2's with exactly-once support", 1.0, False, _late),
)
"""Exactly once on our side, unless they say otherwise."""
