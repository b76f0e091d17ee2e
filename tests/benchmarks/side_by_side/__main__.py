"""This project beside others, on the same data and real brokers: ``make bench``.

    PYTHONPATH=. python -m tests.benchmarks.side_by_side [--within 60] [--plan] [--replace] [--rounds 5]
        [--workload a]... [--copier NAME]...

For each workload its records are made once; then, in each round, all copiers run one after the other, each round
beginning elsewhere in their order. Clusters are warmed up by a copy that does not count. After each run source and
target are compared, record by record; a run whose copy is not equal does not count. Further sections
(:mod:`.sections`) are ``loads``, ``latency``, ``recovery``, ``groups``, ``losses`` and ``quiet``, and ``idle`` is what
idle partitions cost an epoch. Results: unpublished.json beside this file, after every run, with the commit and the
arguments (:mod:`.results`).

Each call goes on where the last one ended, and first says what is left, with the minutes that it took before
(``--plan`` only says it); no run begins ``--within`` so many minutes. A run that failed is tried once more. All rows
are of one commit: a call on another one goes on if only documents, results and tests have changed, and otherwise ends,
unless ``--replace`` drops these rows. Once nothing is left, unpublished.json becomes results.json, of which RESULTS.md,
LATENCY.md, the pictures and the claims in README.md and tests/README.md are made (:mod:`.publish`), unless
``--results`` names another file. Rows of a work tree with changes are not published.
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

from mirror.sandbox.cluster import Cluster
from tests.benchmarks.brokers import VERSION, cluster
from tests.benchmarks.side_by_side import filling, results, stock
from tests.benchmarks.side_by_side.copiers import COPIER
from tests.benchmarks.side_by_side.figures import OTHERS, UnpublishableError
from tests.benchmarks.side_by_side.mirrormaker_settings import heap_gb
from tests.benchmarks.side_by_side.publish import publish_new
from tests.benchmarks.side_by_side.results import Results
from tests.benchmarks.side_by_side.running import Pair, run
from tests.benchmarks.side_by_side.sections import SECONDS, Case, sections, turns
from tests.benchmarks.side_by_side.stock import Stock
from tests.benchmarks.side_by_side.workloads import (
    BESIDE_IDLE,
    COPIERS,
    MORE_ROUNDS,
    ROUNDS,
    WORKLOADS,
    Workload,
    order,
)
from tests.releases.releases import VERSIONS, distribution

ROOT: Final = Path(__file__).parents[3]
IDLE: Final = "idle"
SECTIONS: Final = (*WORKLOADS, *OTHERS)
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
    plan: bool
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
    parser.add_argument("--rounds", type=int, default=MORE_ROUNDS, help="at most so many of each (default: all)")
    parser.add_argument("--workload", action="append", choices=SECTIONS, help="may come again; default: all")
    parser.add_argument("--copier", action="append", choices=COPIERS, help="may come again; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of the records to be used (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replace", action="store_true", help="drop results of another commit")
    parser.add_argument("--plan", action="store_true", help="only say what is left")
    parser.add_argument("--seconds-latency", type=float, default=SECONDS)
    parser.add_argument("--within", type=float, metavar="MINUTES", help="begin no run after it")
    parser.add_argument("--cold", action="store_true", help="begin without warming up the brokers: to try things out")
    parser.add_argument("--source-release", choices=VERSIONS, default=VERSION, help="of the source's broker")
    parser.add_argument("--results", type=Path, default=results.FILE)
    options = parser.parse_args(arguments)
    if options.scale != 1 and options.results == results.FILE:
        parser.error("rows of another --scale need a file of their own: give --results")
    return Asked(
        # Without the folder: the results are published, and name no path of the machine that made them.
        tuple(word.replace(str(options.results), options.results.name) for word in arguments),
        options.rounds,
        tuple(sorted(set(options.workload or SECTIONS), key=SECTIONS.index)),
        tuple(sorted(set(options.copier or COPIERS), key=COPIERS.index)),
        options.scale,
        options.seed,
        options.replace,
        options.plan,
        options.seconds_latency,
        float("inf") if options.within is None else time.monotonic() + options.within * 60,
        not options.cold,
        options.source_release,
        options.results,
    )


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
        now = results.invocation(wanted.seed, wanted.words, results.measured_commit(wanted.file))
        self._results = Results(wanted.file, now, replace=wanted.replace or wanted.plan)
        self._sections = sections(wanted.latency_s)

    def left(self, wanted: Sequence[str] = SECTIONS, copiers: Sequence[str] = COPIERS) -> dict[str, list[str]]:
        """Section of ``wanted`` -> the copiers of its runs that are not there yet."""
        plans = {key: [copier for _, copier in self._plan(workload, copiers)] for key, workload in WORKLOADS.items()}
        plans |= {key: [case.copier for _, case in self._cases(key)] for key in self._sections}
        plans[IDLE] = [""] * len(self._idle_plan())
        return {key: plans[key] for key in wanted if plans[key]}

    def describe(self, left: Mapping[str, Sequence[str]]) -> list[str]:
        """What is left, in lines: runs and minutes by section."""
        known, lines, total = self._results.seconds, [], 0.0
        for name, copiers in left.items():
            seconds = [known[name, copier] for copier in copiers if (name, copier) in known]
            unknown = f", and {len(copiers) - len(seconds)} never timed" if len(seconds) < len(copiers) else ""
            lines.append(f"{name:9} {len(copiers):4} runs {sum(seconds) / 60:6.0f} minutes{unknown}")
            total += sum(seconds)
        runs = sum(map(len, left.values()))
        return [*lines, f"{'left':9} {runs:4} runs {total / 60:6.0f} minutes, by those that were timed"]

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
        for name in self._sections:
            if name in self._asked.sections:
                self._section(name)

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

    def _plan(self, workload: Workload, copiers: Sequence[str] = ()) -> list[tuple[int, str]]:
        """(round, copier) of the runs that are not there yet; ``copiers``: by default those that are asked for."""
        rounds = self._asked.rounds
        return [
            (number, copier)
            for number in range(1, rounds + 1)
            for copier in order(workload, copiers or self._asked.copiers, number, rounds)
            if not self._results.has("runs", workload=workload.key, copier=copier, round=number)
        ]

    @contextlib.contextmanager
    def _pair(self, brokers: int) -> Iterator[Pair]:
        say(f"starting a source of 1 broker and a target of {brokers}")
        source_brokers = distribution(self._asked.source_release)
        with (
            Cluster(distribution=source_brokers, properties=filling.SOURCE_PROPERTIES) as source,
            cluster(brokers, properties=_TARGET_PROPERTIES) as target,
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
                began = time.monotonic()
                result = self._run(pair, copier, workload, held, compared=workload.compares(number))
                self._results.add("runs", {**result, "round": number, "took_s": _since(began)})
                say(f"{workload.key} round {number} {line(result)}")

    def _idle_plan(self) -> list[tuple[int, bool]]:
        """(round, with idle partitions) of the runs that are not there yet."""
        rounds = range(1, min(ROUNDS, self._asked.rounds) + 1)
        wanted = [(number, with_idle) for number in rounds for with_idle in (False, True)]
        return [one for one in wanted if not self._results.has(IDLE, round=one[0], with_idle=one[1])]

    def _idle(self, pair: Pair) -> None:
        alone, beside = (BESIDE_IDLE[with_idle].scaled(self._asked.scale) for with_idle in (False, True))
        with self._filled(pair, alone) as one, self._filled(pair, beside) as other:
            for number, with_idle in self._idle_plan():
                if self._asked.late:
                    return
                workload, held = (beside, other) if with_idle else (alone, one)
                began = time.monotonic()
                result = self._run(pair, "mirror-exactly-once", workload, held)
                say(f"{workload.key} round {number} {line(result)}")
                entry = {"round": number, "with_idle": with_idle, **_idle_entry(result), "took_s": _since(began)}
                self._results.add(IDLE, entry)

    def _section(self, name: str) -> None:
        for number, case in self._cases(name):
            if self._asked.late:
                return
            entry: dict[str, Any] = {"round": number, **case.entry}
            began = time.monotonic()
            try:
                entry |= case.measure()
            except Exception as error:  # noqa: BLE001 - the other one's turn comes all the same
                self._interruption.check()
                entry["failed"] = f"{type(error).__name__}: {error}"[:600]
            self._results.add(name, {**entry, "took_s": _since(began)})
            say(f"{name} round {number} {entry}")

    def _cases(self, name: str) -> list[tuple[int, Case]]:
        """(round, case) of the measurements that are not there yet."""
        wanted = turns(self._sections[name], self._asked.rounds)
        return [(number, case) for number, case in wanted if not self._results.has(name, round=number, **case.entry)]


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


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
        "mirrormaker_heap_gb": heap_gb(workload.partitions),
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
        for each in bench.describe(bench.left(wanted.sections, wanted.copiers)):
            say(each)
        if wanted.plan:
            return 0
        bench.run()
    except (KeyboardInterrupt, SystemError):
        with contextlib.suppress(KeyboardInterrupt):
            interruption.check()
            raise
        say(f"interrupted; what was measured is in {wanted.file}")
        return 130
    if left := bench.left():
        say(f"{sum(map(len, left.values()))} runs are left, of {', '.join(left)}: call it again")
        return 0
    if wanted.file == results.FILE:
        try:
            publish_new(results.FILE)
        except UnpublishableError as error:
            say(f"nothing is published: {error}")
            return 1
        say("nothing is left, and all is published")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
