"""This project beside others, on the same data and real brokers: ``make bench``.

    PYTHONPATH=. python -m tests.benchmarks.side_by_side [--rounds 3] [--workload a]... [--copier NAME]... [--within 9]

For each workload its records are made once; then, in each round, all copiers run one after the other, each round
beginning elsewhere in their order. Clusters are warmed up by a copy that does not count. After each run source and
target are compared, record by record; a run whose copy is not equal does not count. Results: results.json beside this
file, after every run, with the commit and the arguments (:mod:`.results`).

A call goes on where the last one of the same commit has ended (``--within``: no run begins after so many minutes), and
tries failed runs again. Rows of another commit are replaced if git has them, otherwise only with ``--replace``. Once
no run is left, RESULTS.md, the pictures and the claims in README.md and tests/README.md are made of the results
(:mod:`.publish`), unless ``--results`` names a file that they are not made of. Rows of several commits, or of a work
tree with changes, are not published.

Further sections beside the workloads are ``idle`` (what idle partitions cost an epoch), ``latency`` (of a stream, by
bench_latency.py), ``recovery`` (of a killed stream, by bench_recovery.py), ``quiet`` (10,000 partitions of which few
have something new, by bench_quiet_partitions.py), ``groups`` (consumer groups' positions, by bench_groups.py) and
``losses`` (what a copy does not keep, by bench_losses.py); all of them run where none is named. Their entries have the
commit as all others.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from mirror.config.models import FlowConfig
from mirror.sandbox.cluster import Cluster
from tests.benchmarks import bench_groups, bench_latency, bench_losses, bench_quiet_partitions, bench_recovery
from tests.benchmarks.side_by_side import filling, results, stock
from tests.benchmarks.side_by_side.copiers import COPIER
from tests.benchmarks.side_by_side.figures import AT_LEAST_ONCE, OTHERS, PLAIN_SPARK, UnpublishableError
from tests.benchmarks.side_by_side.publish import publish
from tests.benchmarks.side_by_side.results import Results
from tests.benchmarks.side_by_side.running import Pair, run
from tests.benchmarks.side_by_side.stock import Stock
from tests.benchmarks.side_by_side.workloads import BESIDE_IDLE, COPIERS, WORKLOADS, Workload, order
from tests.releases.releases import MAIN_VERSION, VERSIONS, distribution

PUBLISHED: Final = (results.FILE, PLAIN_SPARK)
"""The files that documents are made of."""
ROOT: Final = Path(__file__).parents[3]
IDLE: Final = "idle"
LATENCY: Final = "latency"
RECOVERY: Final = "recovery"
GROUPS: Final = "groups"
QUIET: Final = "quiet"
LOSSES: Final = "losses"
SECTIONS: Final = (*WORKLOADS, IDLE, LATENCY, RECOVERY, GROUPS, QUIET, LOSSES)
STREAMS: Final = {
    "mirror-exactly-once": "mirror",
    "mirrormaker-low-latency": "mirrormaker-low-latency",
    **{name: name for name in sorted(AT_LEAST_ONCE)},
}
"""Those whose latency and recovery are measured, and their names there."""
_OF_GROUPS: Final = {"mirror-exactly-once": "mirror", "mirrormaker-exactly-once": "mirrormaker"}
"""Those whose groups' positions are measured, once, and their names in bench_groups.py."""
_OF_LOSSES: Final = _OF_GROUPS | {"plain-spark": "plain-spark"}
"""The same of bench_losses.py."""
_MINUTES: Final = frozenset(OTHERS) - {IDLE}
_QUIET_PARTITIONS: Final = 10_000
_QUIET_ROUNDS: Final = 2
_PERIOD_MS: Final[int] = FlowConfig.model_fields["period_ms"].default
"""The default: one epoch ends while latency is measured."""
_RATE: Final = 1_000
_WARM_RECORDS: Final = 1_000_000
_TARGET_PROPERTIES: Final = {"log.segment.delete.delay.ms": "1000"}


def say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line. ``words`` are its own, ``until``: monotonic seconds after which no run begins."""

    words: tuple[str, ...]
    rounds: int
    sections: tuple[str, ...]
    copiers: tuple[str, ...]
    scale: float
    seed: int
    replace: bool
    latency_s: float
    until: float
    warm: bool
    source_release: str
    file: Path

    @property
    def late(self) -> bool:
        return time.monotonic() > self.until


def asked(arguments: Sequence[str]) -> Asked:
    parser = argparse.ArgumentParser(prog="side_by_side", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", action="append", choices=SECTIONS, help="may come again; default: all")
    parser.add_argument("--copier", action="append", choices=COPIERS, help="may come again; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of the records to be used (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replace", action="store_true", help="do not go on with the results that are there")
    parser.add_argument("--seconds-latency", type=float, default=200.0)
    parser.add_argument("--no-latency", action="store_true", help="without the sections that need streams for minutes")
    parser.add_argument("--within", type=float, metavar="MINUTES", help="begin no run after it")
    parser.add_argument("--cold", action="store_true", help="begin without warming up the brokers: to try things out")
    parser.add_argument("--source-release", choices=VERSIONS, default=MAIN_VERSION, help="of the source's broker")
    parser.add_argument("--results", type=Path, default=results.FILE)
    options = parser.parse_args(arguments)
    sections = [name for name in options.workload or SECTIONS if not (options.no_latency and name in _MINUTES)]
    return Asked(
        # Without the folder: the results are published, and name no path of the machine that made them.
        tuple(word.replace(str(options.results), options.results.name) for word in arguments),
        options.rounds,
        tuple(sorted(set(sections), key=SECTIONS.index)),
        tuple(sorted(set(options.copier or COPIERS), key=COPIERS.index)),
        options.scale,
        options.seed,
        options.replace,
        options.seconds_latency,
        float("inf") if options.within is None else time.monotonic() + options.within * 60,
        not options.cold,
        options.source_release,
        options.results,
    )


@dataclass(frozen=True, slots=True)
class Section:
    """One beside the workloads: in each of ``rounds`` it measures each of ``names`` (copier -> its own name for it).

    ``settings`` are in each entry, also of a measurement that failed.
    """

    name: str
    names: Mapping[str, str]
    rounds: int
    settings: Mapping[str, Any]
    measure: Callable[[str], dict[str, Any]]


class Interruption:
    """SIGINT and SIGTERM: raised at once, and remembered, since confluent-kafka's calls make another error of it."""

    def __init__(self) -> None:
        self._came = False
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._come)

    def _come(self, *_: object) -> None:
        self._came = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if it came."""
        if self._came:
            raise KeyboardInterrupt


class Bench:
    """All that was asked for, one after the other."""

    def __init__(self, wanted: Asked, interruption: Interruption) -> None:
        self._asked = wanted
        self._interruption = interruption
        self._results = Results(wanted.file, results.invocation(wanted.seed, wanted.words), replace=wanted.replace)

    @property
    def left(self) -> int:
        """How many runs are not there, or failed."""
        wanted = self._asked.sections
        sections = [len(self._section_plan(one)) for one in self._sections() if one.name in wanted]
        workloads = [len(self._plan(WORKLOADS[key])) for key in wanted if key in WORKLOADS]
        return sum((*sections, *workloads, len(self._idle_plan()) if IDLE in wanted else 0))

    def run(self) -> None:
        single = [WORKLOADS[key] for key in self._asked.sections if key in WORKLOADS and WORKLOADS[key].brokers == 1]
        larger = [WORKLOADS[key] for key in self._asked.sections if key in WORKLOADS and WORKLOADS[key].brokers > 1]
        idle = IDLE in self._asked.sections and any(self._idle_plan())
        if not self._asked.late and (idle or any(self._plan(one) for one in single)):
            with self._pair(1) as pair:
                for workload in single:
                    self._part(workload.key, partial(self._workload, pair, workload))
                if idle:
                    self._part(IDLE, partial(self._idle, pair))
        for workload in larger:
            if not self._asked.late and self._plan(workload):
                with self._pair(workload.brokers) as pair:
                    self._part(workload.key, partial(self._workload, pair, workload))
        for section in self._sections():
            if section.name in self._asked.sections:
                self._other(section)

    def _sections(self) -> list[Section]:
        rounds, seconds = self._asked.rounds, self._asked.latency_s
        return [
            Section(LATENCY, STREAMS, rounds, {"rate": _RATE, "seconds": seconds}, partial(_latency, seconds)),
            Section(RECOVERY, STREAMS, rounds, {"rate": _RATE}, _recovery),
            Section(GROUPS, _OF_GROUPS, 1, bench_groups.SIZE, _groups),
            Section(LOSSES, _OF_LOSSES, 1, {}, bench_losses.measure),
            Section(QUIET, {"mirror-exactly-once": ""}, 1, {"partitions": _QUIET_PARTITIONS}, _quiet),
        ]

    def _part(self, name: str, part: Callable[[], None]) -> None:
        """One that breaks leaves the others their turn."""
        try:
            part()
        except Exception as error:  # noqa: BLE001
            self._interruption.check()
            say(f"{name}: broken off: {type(error).__name__}: {error}")

    def _run(
        self, pair: Pair, copier: str, workload: Workload, held: Stock, *, compared: bool = True
    ) -> dict[str, Any]:
        result = run(pair, COPIER[copier], workload, held, compared=compared)
        self._interruption.check()
        return result

    def _plan(self, workload: Workload) -> list[tuple[int, str]]:
        """(round, copier) of the runs that are not there yet."""
        rounds = self._asked.rounds
        return [
            (number, copier)
            for number in range(1, rounds + 1)
            for copier in order(workload, self._asked.copiers, number, rounds)
            if not self._results.has(workload.key, copier, number)
        ]

    @contextlib.contextmanager
    def _pair(self, brokers: int) -> Iterator[Pair]:
        say(f"starting a source of 1 broker and a target of {brokers}")
        source_brokers = distribution(self._asked.source_release)
        with (
            Cluster(distribution=source_brokers, properties=filling.SOURCE_PROPERTIES) as source,
            Cluster(brokers, properties=_TARGET_PROPERTIES) as target,
        ):
            pair = Pair(source, target)
            if self._asked.warm:
                self._warm_up(pair, brokers)
            yield pair

    def _warm_up(self, pair: Pair, brokers: int) -> None:
        """All brokers are new JVMs, which compile for two GB: the first copier would pay for it."""
        warm = Workload("warm", "", _WARM_RECORDS, 1_000, partitions=4, brokers=brokers)
        with self._filled(pair, warm) as held:
            for copier in ("confluent-loop", "mirror-exactly-once"):
                result = self._run(pair, copier, warm, held, compared=False)
                say(f"warmed up by {copier}: {result['failed'] or 'done'}")

    @contextlib.contextmanager
    def _filled(self, pair: Pair, workload: Workload) -> Iterator[Stock]:
        began = time.monotonic()
        filling.fill(pair.source, workload, self._asked.seed)
        held = stock.take(pair.source.bootstrap_servers, workload.topic)
        size, batches = held.size / 1e6, held.batches
        took = time.monotonic() - began
        say(f"{workload.key}: {held.records:,} records, {size:,.0f} MB in {batches:,} batches, made in {took:.0f} s")
        try:
            yield held
        finally:
            filling.delete(pair.source.bootstrap_servers, [workload.topic])

    def _workload(self, pair: Pair, whole: Workload) -> None:
        plan = self._plan(whole)
        if not plan or self._asked.late:
            return
        workload = whole.scaled(self._asked.scale)
        with self._filled(pair, workload) as held:
            self._results.workload(workload.key, _workload_entry(workload, held))
            for number, copier in plan:
                if self._asked.late:
                    return
                result = self._run(pair, copier, workload, held, compared=workload.compares(number))
                self._results.add({**result, "round": number})
                say(f"{workload.key} round {number} {line(result)}")

    def _idle_plan(self) -> list[tuple[int, bool]]:
        """(round, with idle partitions) of the runs that are not there yet."""
        rounds = range(1, self._asked.rounds + 1)
        wanted = [(number, with_idle) for number in rounds for with_idle in (False, True)]
        return [one for one in wanted if not self._results.has_other(IDLE, round=one[0], with_idle=one[1])]

    def _idle(self, pair: Pair) -> None:
        alone, beside = (BESIDE_IDLE[with_idle].scaled(self._asked.scale) for with_idle in (False, True))
        with self._filled(pair, alone) as one, self._filled(pair, beside) as other:
            for number, with_idle in self._idle_plan():
                if self._asked.late:
                    return
                workload, held = (beside, other) if with_idle else (alone, one)
                result = self._run(pair, "mirror-exactly-once", workload, held)
                say(f"{workload.key} round {number} {line(result)}")
                self._results.add_other(IDLE, {"round": number, "with_idle": with_idle, **_idle_entry(result)})

    def _other(self, section: Section) -> None:
        for number, copier in self._section_plan(section):
            if self._asked.late:
                return
            entry: dict[str, Any] = {"copier": copier, "round": number, **section.settings}
            try:
                entry |= section.measure(section.names[copier])
            except Exception as error:  # noqa: BLE001 - the other one's turn comes all the same
                self._interruption.check()
                entry["failed"] = f"{type(error).__name__}: {error}"[:600]
            self._results.add_other(section.name, entry)
            say(f"{section.name} round {number} {entry}")

    def _section_plan(self, section: Section) -> list[tuple[int, str]]:
        """(round, copier) of the measurements that are not there yet."""
        wanted = [(number, copier) for number in range(1, section.rounds + 1) for copier in section.names]
        return [one for one in wanted if not self._results.has_other(section.name, round=one[0], copier=one[1])]


def _latency(seconds: float, name: str) -> dict[str, Any]:
    found = bench_latency.measure(name, _RATE, seconds, _PERIOD_MS)
    return {key: round(value, 1) for key, value in found.items()}


def _recovery(name: str) -> dict[str, Any]:
    found = bench_recovery.measure(name, _RATE)
    return {key: None if value is None else round(value, 2) for key, value in found.items()}


def _groups(name: str) -> dict[str, Any]:
    copier = bench_groups.copiers(bench_groups.INTERVAL_MS)[name]
    found = bench_groups.measure(copier, **bench_groups.SIZE, seconds=bench_groups.SECONDS)
    return {"interval_ms": copier.interval_ms, **{key: round(value, 3) for key, value in found.items()}}


def _quiet(_name: str) -> dict[str, Any]:
    return {"runs": bench_quiet_partitions.measure(_QUIET_PARTITIONS, _QUIET_ROUNDS)}


def _idle_entry(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a copy beside idle partitions; one that is not equal to its source failed."""
    difference = result.get("difference")
    failed = result["failed"] or (None if result["equal"] else f"not equal to the source: {difference}")
    names = ("epoch_seconds", "whole_seconds", "load_before", "equal")
    return {name: result.get(name) for name in names} | {"failed": failed}


def _workload_entry(workload: Workload, held: Stock) -> dict[str, Any]:
    """A workload's entry in the results."""
    return {
        "title": workload.title,
        "partitions": workload.partitions,
        "brokers": workload.brokers,
        "replicas": workload.replicas,
        "codec": workload.codec,
        "records": held.records,
        "bytes": held.size,
        "batches": held.batches,
        "left_out": dict(workload.left_out),
    }


def line(result: dict[str, Any]) -> str:
    """A run, for people."""
    if result["failed"] is not None:
        return f"{result['copier']}: FAILED: {result['failed']}"
    rate = result["bytes"] / 1e6 / max(1e-3, result["copy_seconds"])
    cpu = sum(result["cpu_seconds"].values())
    equal = {None: "", True: ", equal", False: f", NOT EQUAL: {result.get('difference')}"}[result["equal"]]
    return (
        f"{result['copier']}: copy {result['copy_seconds']:.2f} s ({rate:.0f} MB/s), "
        f"start {result['startup_seconds']:.1f} s, CPU {cpu:.1f} s, {result['peak_rss_mb']['all']:.0f} MB{equal}"
    )


def main(arguments: Sequence[str]) -> int:
    interruption = Interruption()
    os.environ["PYTHONPATH"] = str(ROOT)  # for whatever is started, in whatever folder
    wanted = asked(arguments)
    try:
        bench = Bench(wanted, interruption)
    except results.OtherCommitError as error:
        say(str(error))
        return 1
    try:
        bench.run()
    except (KeyboardInterrupt, SystemError):
        with contextlib.suppress(KeyboardInterrupt):
            interruption.check()
            raise
        say(f"interrupted; what was measured is in {wanted.file}")
        return 130
    if wanted.late and (left := bench.left):
        say(f"the time that was given is over, and {left} runs are left: the same command goes on with them")
        return 0
    if wanted.file in PUBLISHED:
        try:
            publish()
        except UnpublishableError as error:
            say(f"nothing is published: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
