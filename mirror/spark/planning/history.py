"""What earlier runs of a flow left in the ledger. It only informs: a plan without it is right, too."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.config.models import FlowConfig
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.partition_health import UnhealthyPartitions, unhealthy_after

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.models import FlowConfig

_EPOCHS: Final = 20
"""Of a stream's run, the last ones: whose turn it is shows there."""


def read_history(flow: FlowConfig, flow_folder: Path, run: str = "") -> RunHistory:
    """What a plan of ``flow`` wants to know; ``flow_folder`` is the flow's in the ledger (a run's parent).

    Old plans are read only where the flow's limits ask whose turn it is. Where a scheduled ``run`` is planned, who did
    not get through in the one before is told, too; a stream asks its own epochs.
    """
    limits = flow.max_partitions_in_parallel or flow.max_bytes_per_epoch
    turns = last_planned_ms(flow_folder) if limits else {}
    sick = unhealthy_before(flow_folder, run) if run else {}
    return RunHistory(last_planned_ms=turns, unhealthy=sick) if turns or sick else NO_HISTORY


def unhealthy_before(flow_folder: Path, run: str) -> UnhealthyPartitions:
    """Who did not get through in the run before ``run``, scheduled or a stream; nobody where that cannot be read."""
    older = [ledger for ledger in _runs(flow_folder) if ledger.path.name < run]
    last = older[-1].last_completed_epoch() if older else None
    if last is None:
        return {}
    try:
        return unhealthy_after(older[-1].attempts(last), older[-1].path.name, last)
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def last_planned_ms(flow_folder: Path) -> dict[TopicPartition, int]:
    """From the plans in a flow's folder of the ledger; those that cannot be read tell nothing."""
    found: dict[TopicPartition, int] = {}
    for ledger in _runs(flow_folder):
        last = ledger.last_planned_epoch() or 0
        for epoch in range(max(0, last - _EPOCHS), last + 1):
            try:
                plan, at_ms = ledger.plan(epoch), ledger.planned_ms(epoch)
            except (OSError, ValueError, TypeError, KeyError):
                continue
            for each in plan.ranges if plan else ():
                tp = TopicPartition(each.topic, each.partition)
                found[tp] = max(found.get(tp, 0), at_ms)
    return found


def bytes_per_second(flow_folder: Path) -> float | None:
    """At what rate the remembered scheduled runs copied, all partitions together; None where they copied nothing.

    A run's time is that of its longest copy: its tasks run side by side. (A stream's time is that of its epochs.)
    """
    size = seconds = 0.0
    for ledger in _runs(flow_folder):
        try:
            copied = [each.result for each in ledger.attempts() if each.result.bytes > 0]
        except (OSError, ValueError, TypeError, KeyError):
            continue
        size += sum(one.bytes for one in copied)
        seconds += max((one.seconds for one in copied), default=0.0)
    return size / seconds if size and seconds else None


def overhead_seconds(ledger: Path) -> float | None:
    """What a run takes beside copying, in the middle of those that all flows remember; None where none tells.

    ``ledger`` is the folder of all flows. Only the first flow of a run waits for Spark, so that any flow's runs count.
    """
    found = []
    for folder in _folders(ledger):
        for run in _runs(folder):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                found.append(run.overhead())
    known = [seconds for seconds in found if seconds is not None and 0 <= seconds < float("inf")]
    return statistics.median(known) if known else None


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
    """What earlier runs of the flow tell; it only informs, a plan without it is right, too.

    ``turns``: when a source partition was last given to a task, in ms since 1970. ``sick``: those that did not get
    through the last time.
    """

    last_planned_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    unhealthy: UnhealthyPartitions = field(default_factory=dict)


NO_HISTORY: Final = RunHistory()
