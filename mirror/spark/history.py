"""What earlier runs of a flow left in the ledger. It only informs: a plan without it is right, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.spark.ledger import Ledger
from mirror.spark.plan import NOTHING, History

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.config.models import FlowConfig

RUN_NAME: Final = "%Y%m%dT%H%M%S.%fZ"
"""A run's folder in the ledger, as :meth:`datetime.strftime` makes it from UTC; it sorts by time."""


def history_of(flow: FlowConfig, flow_folder: Path) -> History:
    """What a plan of ``flow`` wants to know; ``flow_folder`` is the flow's in the ledger (a run's parent).

    Old plans are read only where the flow's limits ask whose turn it is.
    """
    limits = flow.max_partitions_in_parallel or flow.max_bytes_per_epoch
    return History(turns=last_turns(flow_folder)) if limits else NOTHING


def last_turns(flow_folder: Path) -> dict[TopicPartition, int]:
    """From the plans in a flow's folder of the ledger; those that cannot be read tell nothing."""
    found: dict[TopicPartition, int] = {}
    for run, at_ms in _runs(flow_folder):
        try:
            plan = Ledger(run).plan()
        except (OSError, ValueError, TypeError, KeyError):
            continue
        for each in plan.ranges if plan else ():
            tp = TopicPartition(each.topic, each.partition)
            found[tp] = max(found.get(tp, 0), at_ms)
    return found


def bytes_per_second(flow_folder: Path) -> float | None:
    """At what rate the remembered runs copied, all partitions together; None where they copied nothing.

    A run's time is that of its longest copy: its tasks run side by side.
    """
    size = seconds = 0.0
    for run, _ in _runs(flow_folder):
        copied = [each for each in _results(run) if each["bytes"] > 0]
        size += sum(each["bytes"] for each in copied)
        seconds += max((each["seconds"] for each in copied), default=0.0)
    return size / seconds if size and seconds else None


def _runs(flow_folder: Path) -> Iterator[tuple[Path, int]]:
    try:
        folders = sorted(flow_folder.iterdir())
    except OSError:
        return
    for run in folders:
        try:
            at = datetime.strptime(run.name, RUN_NAME).replace(tzinfo=UTC)
        except ValueError:
            continue
        yield run, int(at.timestamp() * 1000)


def _results(run: Path) -> Iterator[Mapping[str, float]]:
    """Of each result ``bytes`` and ``seconds``; a line that is not understood tells nothing."""
    try:
        lines = (run / "results.jsonl").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        try:
            result = json.loads(line)["result"]
            yield {key: float(result[key]) for key in ("bytes", "seconds")}
        except (ValueError, TypeError, KeyError):
            continue
