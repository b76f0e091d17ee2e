"""The history of a flow: what earlier runs have left. For information only; a plan without it is valid, too."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.progress.status_values import StatusKind, partition_key
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.partition_health import UnhealthyPartitions, unhealthy_after
from mirror.spark.ledger.status_table import health_records

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.status_table import Records, StatusTable

_MAX_EPOCHS: Final = 20
"""How many epochs of a stream's run are read, the last ones: they show whose turn it is."""


def has_limits(flow: FlowConfig) -> bool:
    """Return whether not all partitions of ``flow`` may be copied in each run, so that they take turns."""
    return bool(flow.max_partitions_in_parallel or flow.max_bytes_per_epoch)


def read_history(flow: FlowConfig, flow_folder: Path, run: str = "", status: StatusTable | None = None) -> RunHistory:
    """Return the history that a plan of ``flow`` uses: that in ``status``, which has the :func:`newer_records`, too.

    Without one (None), ``flow_folder`` is read: the flow's in the ledger (a run's parent). Old plans are read only if
    the flow has limits, so that its partitions take turns. The health of partitions is read if ``run`` names a
    scheduled run; a stream reads it from its own epochs.
    """
    if status is not None:
        return RunHistory(last_planned_ms=status.turns, unhealthy=status.health)
    turns = last_planned_ms(flow_folder) if has_limits(flow) else {}
    unhealthy = unhealthy_before(flow_folder, run) if run else {}
    return RunHistory(last_planned_ms=turns, unhealthy=unhealthy) if turns or unhealthy else NO_HISTORY


def newer_records(flow: FlowConfig, flow_folder: Path, run: str, status: StatusTable) -> Records:
    """Return what the ledger has of runs before ``run`` that is newer than what ``status`` has, for each partition.

    The status topic may be missing, or not writable for these runs, or an earlier version has left only the ledger.
    Streams of epochs report no turns and no health there.
    """
    turns = last_planned_ms(flow_folder) if has_limits(flow) else {}
    newer: Records = {
        partition_key(StatusKind.TURN, tp): {"ms": ms} for tp, ms in turns.items() if ms > status.turns.get(tp, 0)
    }
    ledger, epoch = _last_before(flow_folder, run)
    if ledger is None or epoch is None or (status.run is not None and ledger.path.name < status.run.run):
        return newer
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        attempts, plan = ledger.attempts(epoch), ledger.plan(epoch)
        if plan is not None:
            unhealthy = unhealthy_after(attempts, ledger.path.name, epoch)
            newer |= health_records(status.health, unhealthy, plan, attempts, ledger.planned_ms(epoch))
    return newer


def unhealthy_before(flow_folder: Path, run: str) -> UnhealthyPartitions:
    """Return the partitions that did not complete in the run before ``run``; none if its ledger cannot be read."""
    ledger, epoch = _last_before(flow_folder, run)
    if ledger is None or epoch is None:
        return {}
    try:
        return unhealthy_after(ledger.attempts(epoch), ledger.path.name, epoch)
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _last_before(flow_folder: Path, run: str) -> tuple[Ledger | None, int | None]:
    """Return the ledger of the run before ``run``, and its last completed epoch."""
    older = [ledger for ledger in _runs(flow_folder) if ledger.path.name < run]
    return (older[-1], older[-1].last_completed_epoch()) if older else (None, None)


def last_planned_ms(flow_folder: Path) -> dict[TopicPartition, int]:
    """Return when each source partition was last given to a task, in ms since 1970. Skips plans that are unreadable."""
    found: dict[TopicPartition, int] = {}
    for ledger in _runs(flow_folder):
        last = ledger.last_planned_epoch() or 0
        for epoch in range(max(0, last - _MAX_EPOCHS), last + 1):
            try:
                plan, planned_ms = ledger.plan(epoch), ledger.planned_ms(epoch)
            except (OSError, ValueError, TypeError, KeyError):
                continue
            for range_ in plan.ranges if plan else ():
                tp = TopicPartition(range_.topic, range_.partition)
                found[tp] = max(found.get(tp, 0), planned_ms)
    return found


def bytes_per_second(flow_folder: Path) -> float | None:
    """Return the rate at which the ledger's runs copied, over all partitions; None if they copied nothing.

    A run's time is that of its longest copy, since its tasks run in parallel. Of a stream, what it has caught up with
    counts.
    """
    size = seconds = 0.0
    for ledger in _runs(flow_folder):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            caught_up = ledger.rate() or (0.0, 0.0)
            size, seconds = size + caught_up[0], seconds + caught_up[1]
        try:
            results = [attempt.result for attempt in ledger.attempts() if attempt.result.bytes > 0]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        size += sum(result.bytes for result in results)
        seconds += max((result.seconds for result in results), default=0.0)
    return size / seconds if size and seconds else None


def overhead_seconds(ledger: Path) -> float | None:
    """Return the median time that a run spends on anything but copying; None if no run recorded it.

    ``ledger`` is the folder of all flows. Only the first flow of a run waits for Spark, so the runs of all flows count.
    """
    found = []
    for folder in _folders(ledger):
        for run in _runs(folder):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                found.append(run.overhead())
    valid = [seconds for seconds in found if seconds is not None and 0 <= seconds < float("inf")]
    return statistics.median(valid) if valid else None


def _folders(ledger: Path) -> list[Path]:
    try:
        return [folder for folder in ledger.iterdir() if folder.is_dir()]
    except OSError:
        return []


def _runs(flow_folder: Path) -> list[Ledger]:
    try:
        return [Ledger(run) for run in sorted(flow_folder.iterdir()) if run.is_dir()]
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The part of a flow's history that a plan uses."""

    last_planned_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """When a source partition was last given to a task, in ms since 1970."""
    unhealthy: UnhealthyPartitions = field(default_factory=dict)
    """The partitions that did not complete the last time."""


NO_HISTORY: Final = RunHistory()
