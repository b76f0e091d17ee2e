"""One run: a copier as a process between two clusters, watched, metered, bounded, stopped, and compared if asked.

``startup_seconds`` is from the start of the process to the first record in the target's log, ``copy_seconds`` from
there until all is visible to a reader at read_committed (:mod:`.watching`); ``whole_seconds`` is both. A copier that
ends by itself then has its end awaited, for its CPU and its exit status; MirrorMaker, which never ends, is stopped, and
its CPU counts up to the last observation. fetch-alone leaves nothing at a target: it prints when its first batches
came, and when its copy ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka.admin import AdminClient

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.process import Process, launch, stop
from tests.benchmarks.side_by_side import filling, stock
from tests.benchmarks.side_by_side.comparing import comparison
from tests.benchmarks.side_by_side.copiers import Copier, Job
from tests.benchmarks.side_by_side.metering import Meter, figures
from tests.benchmarks.side_by_side.stock import Stock
from tests.benchmarks.side_by_side.watching import EVERY_S, Watcher
from tests.benchmarks.side_by_side.workloads import Workload

WITHIN_S: Final = 300.0
_SLOWEST: Final = 20e6
"""Bytes a second: a copier gets the time that a copy at this rate takes, beside :data:`WITHIN_S`."""
_COMPARED_AT_LEAST: Final = 20_000.0
"""Records a second: the comparison gets the time that it takes at this rate, beside :data:`WITHIN_S`."""
_END_WITHIN_S: Final = 60.0
_VISIBLE_WITHIN_S: Final = 15.0
"""After the end of a copier that ends by itself."""
_GRACE_S: Final = 20.0
_TAIL_BYTES: Final = 64 * 1024
"""Of a copier's log: one that fails again and again may have written gigabytes."""
_REASONS: Final = ("Error", "ERROR", "Exception")
"""In a line of a log that says why a copier ended: MirrorMaker 2 goes on about how it stops."""
_QUIET: Final = 0.05
"""Of a core, for all brokers together; they are given time to come down to it before a run."""
_QUIET_WITHIN_S: Final = 20.0


class RunError(Exception):
    """Why a run failed, in a line."""


@dataclass(slots=True)
class Pair:
    """Two running clusters. ``number`` counts the runs, for their names."""

    source: Cluster
    target: Cluster
    number: int = 0

    @property
    def pids(self) -> dict[str, list[int]]:
        return {"source": list(self.source.pids.values()), "target": list(self.target.pids.values())}


def run(pair: Pair, copier: Copier, workload: Workload, held: Stock, *, compared: bool) -> dict[str, Any]:
    """One run's figures, in the form of the results file; ``failed`` says why there are none, and nothing is raised."""
    pair.number += 1
    wanted = stock.part_of(held, copier.share(workload), pair.source.bootstrap_servers, workload.topic)
    result: dict[str, Any] = {"workload": workload.key, "copier": copier.name, "failed": None, "equal": None}
    result |= {"records": wanted.records, "bytes": wanted.size}
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder, _clean(pair) as before:
        source, target = pair.source.bootstrap_servers, pair.target.bootstrap_servers
        job = Job(workload, source, target, f"r{pair.number}", Path(folder))
        filling.create(target, job.copy, workload.partitions, workload.replicas)
        result |= {"load_before": before, "started": datetime.now(UTC).isoformat(timespec="seconds")}
        try:
            result |= _measured(pair, copier, job, wanted)
        except Exception as error:  # noqa: BLE001 - a run that breaks is a result, and the others go on
            lines = str(error).splitlines() or [type(error).__name__]
            return result | {"failed": " ".join(lines)[:600]}
        result |= _epoch_seconds(job)
        if compared and copier.copies and wanted is held:
            result |= comparison(
                source,
                workload.topic,
                target,
                job.copy,
                job.folder,
                within_s=WITHIN_S + wanted.records / _COMPARED_AT_LEAST,
                timestamps=copier.times,
            )
    return result


def _measured(pair: Pair, copier: Copier, job: Job, wanted: Stock) -> dict[str, Any]:
    log = job.folder / "copier.log"
    command = copier.command(job)
    watcher = Watcher(job.target, job.copy, wanted.lasts, wanted.counts) if copier.copies else None
    began = time.monotonic()
    until = began + WITHIN_S + wanted.size / _SLOWEST
    process = launch(command, output=log, outlives_owner=False)
    meter = Meter(process.pid, pair.pids, roles=copier.several)
    meter.start()
    try:
        if watcher is not None:
            _watch(watcher, process, until, log)
        if copier.ends:
            _await_end(process, until, log)
        meter.stop()
    finally:
        meter.stop()
        if watcher is not None:
            watcher.close()
        _stop(process, meter.family())
    first, done = _window(watcher, log)
    return {
        "whole_seconds": round(done - began, 3),
        "startup_seconds": round(first - began, 3),
        "copy_seconds": round(done - first, 3),
        "process_seconds": round(meter.samples[-1].at - began, 3) if copier.ends else None,
        **figures(meter.samples, first, done, meter.samples[-1].at),
    }


def _watch(watcher: Watcher, process: Process, until: float, log: Path) -> None:
    """Wait until all is visible, at most ``until`` (monotonic seconds). Raises RunError where that does not come."""
    ended: float | None = None
    while watcher.window.done is None:
        turn = time.monotonic()
        watcher.observe()
        if ended is None and not process.alive():
            ended = turn
            if _status(process):
                raise RunError(f"exit status {_status(process)}: {last_line(log)}")
        if ended is not None and turn > ended + _VISIBLE_WITHIN_S:
            raise RunError(f"it ended, and {watcher.window.missing} partitions are not all there: {last_line(log)}")
        if turn > until:
            missing = watcher.window.missing
            raise RunError(f"not done in time: {missing} partitions are not all there; {last_line(log)}")
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - turn)))


def _await_end(process: Process, until: float, log: Path) -> None:
    until = max(until, time.monotonic() + _END_WITHIN_S)
    while process.alive():
        if time.monotonic() > until:
            raise RunError(f"all was visible, but it did not end: {last_line(log)}")
        time.sleep(0.02)
    if _status(process):
        raise RunError(f"exit status {_status(process)}: {last_line(log)}")


def _status(process: Process) -> int | None:
    return None if process.child is None else process.child.returncode


def _window(watcher: Watcher | None, log: Path) -> tuple[float, float]:
    """(first record, all visible), in monotonic seconds."""
    if watcher is not None:
        first, done = watcher.window.first, watcher.window.done
        assert first is not None
        assert done is not None
        return first, done
    result = dict(line.split() for line in log.read_text(encoding="utf-8").splitlines())
    return float(result["first"]), float(result["done"])


def _epoch_seconds(job: Job) -> dict[str, Any]:
    """How long ``mirror run`` says that its epoch took, from planning to results, without Spark's start."""
    file = job.report / "summary.json"
    if not file.exists():
        return {}
    (flow,) = json.loads(file.read_text(encoding="utf-8"))["flows"]
    began, ended = (datetime.fromisoformat(flow[key]) for key in ("started", "ended"))
    return {"epoch_seconds": round((ended - began).total_seconds(), 3)}


def last_line(log: Path) -> str:
    """Of the end of a copier's log: the first and the last line that give a reason, or otherwise the last one."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    result = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", " "))]
    why = [line for line in result if any(word in line for word in _REASONS)]
    if len(why) > 1:
        return f"{why[0][:250]} ... {why[-1][:250]}"
    return (why or result or ["it said nothing"])[-1]


def _stop(process: Process, family: list[psutil.Process]) -> None:
    """End it in order, then whatever it started and left, each by its id."""
    stop([process], _GRACE_S)
    for one in family:
        # psutil knows a process by its id and start: no other one is meant.
        with contextlib.suppress(psutil.Error):
            if one.pid != process.pid and one.is_running():
                one.kill()


@contextlib.contextmanager
def _clean(pair: Pair) -> Iterator[float]:
    """The load before; afterwards every topic that came in between is deleted, but the brokers' own."""
    addresses = [cluster.bootstrap_servers for cluster in (pair.source, pair.target)]
    kept = [_topics(address) for address in addresses]
    load = quiet(pair)
    try:
        yield load
    finally:
        for address, before in zip(addresses, kept, strict=True):
            filling.delete(address, sorted(_topics(address) - before))


def _topics(address: str) -> set[str]:
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).topics
    return {name for name in found if not name.startswith("__")}


def quiet(pair: Pair) -> float:
    """Wait until the brokers have next to nothing to do, or 20 s; the machine's load by then (1 minute)."""
    brokers = [psutil.Process(pid) for pids in pair.pids.values() for pid in pids]
    until = time.monotonic() + _QUIET_WITHIN_S

    def used() -> float:
        return float(sum(times.user + times.system for times in (one.cpu_times() for one in brokers)))

    while time.monotonic() < until:
        before = used()
        time.sleep(1.0)
        if used() - before <= _QUIET:
            break
    return round(os.getloadavg()[0], 2)
