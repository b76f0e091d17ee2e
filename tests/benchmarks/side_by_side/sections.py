"""The sections beside the workloads, each measured by one of the ``bench_*.py``, by turns in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.benchmarks import bench_groups, bench_latency, bench_losses, bench_quiet_partitions, bench_recovery
from tests.benchmarks.latency_table.page import LOADS, WANTED_NAMES
from tests.benchmarks.latency_table.page import NAMES as OF_LOADS
from tests.benchmarks.side_by_side.figures import AT_LEAST_ONCE
from tests.benchmarks.side_by_side.workloads import MORE_ROUNDS, ROUNDS

STREAMS: Final = {
    "mirror-exactly-once": "mirror",
    "mirrormaker-low-latency": "mirrormaker-low-latency",
    **{name: name for name in sorted(AT_LEAST_ONCE)},
}
"""Those whose latency and recovery are measured, and their names there."""
_OF_GROUPS: Final = {
    ("mirror-exactly-once", 1_000): "mirror-1s",
    ("mirrormaker-default", 1_000): "mirrormaker",
    ("mirror-exactly-once", bench_groups.INTERVAL_MS): "mirror",
}
"""(copier, interval in ms) of those whose groups' positions are measured, and their names in bench_groups.py."""
_OF_LOSSES: Final = {
    "mirror-exactly-once": "mirror",
    "mirrormaker-exactly-once": "mirrormaker",
    "plain-spark": "plain-spark",
}
_QUIET_PARTITIONS: Final = 10_000
_QUIET_ROUNDS: Final = 2
_RATE: Final = 1_000
PERIOD_MS: Final = 60_000
"""Shorter than the default, so that a period ends while latency is measured."""
SECONDS: Final = 80.0
"""For which latency is measured."""
_SECONDS_OF_LOADS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Case:
    """What a section measures in each of ``rounds``. ``entry``: what its entries begin with, also if it fails."""

    entry: Mapping[str, Any]
    rounds: int
    measure: Callable[[], dict[str, Any]]

    @property
    def copier(self) -> str:
        return str(self.entry["copier"])


def sections(seconds: float) -> dict[str, list[Case]]:
    """By name. ``seconds``: for which latency is measured."""
    return {
        "loads": [*_loads()],
        "latency": [
            Case(
                {"copier": copier, "rate": _RATE, "seconds": seconds, "epoch_ms": PERIOD_MS},
                _rounds(copier),
                partial(_latency, name, _RATE, seconds, PERIOD_MS, bench_latency.PARTITIONS),
            )
            for copier, name in STREAMS.items()
        ],
        "recovery": [
            Case({"copier": copier, "rate": _RATE}, _rounds(copier), partial(_recovery, name))
            for copier, name in STREAMS.items()
        ],
        "groups": [
            Case(
                {"copier": copier, "interval_ms": interval_ms, **bench_groups.SIZE},
                ROUNDS if interval_ms == 1_000 else 1,
                partial(_groups, name),
            )
            for (copier, interval_ms), name in _OF_GROUPS.items()
        ],
        "losses": [
            Case({"copier": copier}, 1, partial(bench_losses.measure, name)) for copier, name in _OF_LOSSES.items()
        ],
        "quiet": [Case({"copier": "mirror-exactly-once", "partitions": _QUIET_PARTITIONS}, 1, _quiet)],
    }


def turns(cases: Sequence[Case], most_rounds: int) -> Iterator[tuple[int, Case]]:
    """(round, case), one after the other; each second round is in the opposite order."""
    for number in range(1, most_rounds + 1):
        here = [case for case in cases if number <= case.rounds]
        for case in here if number % 2 else here[::-1]:
            yield number, case


def _rounds(copier: str) -> int:
    return ROUNDS if copier in AT_LEAST_ONCE else MORE_ROUNDS


def _loads() -> Iterator[Case]:
    for partitions, rate in LOADS:
        for name in OF_LOADS:
            entry = {"copier": name, "partitions": partitions, "rate": rate}
            entry |= {"seconds": _SECONDS_OF_LOADS, "epoch_ms": PERIOD_MS}
            measure = partial(_latency, name, rate, _SECONDS_OF_LOADS, PERIOD_MS, partitions)
            yield Case(entry, ROUNDS if name in WANTED_NAMES else 1, measure)


def _latency(name: str, rate: int, seconds: float, epoch_ms: int, partitions: int) -> dict[str, Any]:
    found = bench_latency.measure(name, rate, seconds, epoch_ms, partitions)
    return {key: round(value, 1) for key, value in found.items()}


def _recovery(name: str) -> dict[str, Any]:
    found = bench_recovery.measure(name, _RATE)
    return {key: None if value is None else round(value, 2) for key, value in found.items()}


def _groups(name: str) -> dict[str, Any]:
    copier = bench_groups.copiers(bench_groups.INTERVAL_MS)[name]
    found = bench_groups.measure(copier, **bench_groups.SIZE, seconds=bench_groups.SECONDS)
    return {key: round(value, 3) for key, value in found.items()}


def _quiet() -> dict[str, Any]:
    return {"runs": bench_quiet_partitions.measure(_QUIET_PARTITIONS, _QUIET_ROUNDS)}
