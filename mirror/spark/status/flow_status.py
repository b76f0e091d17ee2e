"""The status of a flow and of its partitions, as ``mirror status`` shows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mirror.telemetry.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.alignment.sync_state import SyncState
    from mirror.groups.summary import GroupsSummary
    from mirror.relay.model.reports import TaskState
    from mirror.relay.progress.control_record import RunControl
    from mirror.relay.progress.latch import Latch
    from mirror.relay.progress.open_transactions import OpenTransaction
    from mirror.relay.progress.status_values import RunState
    from mirror.spark.ledger.status_table import LastError
    from mirror.telemetry.lag.lags import Lag, LagTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """The status of one source partition. A value that could not be read is None."""

    topic: str
    partition: int
    target_topic: str
    earliest: int | None
    """The log start offset."""
    end: int | None
    """The last stable offset, no further than where the flow ends."""
    progress: int | None
    """The committed source position: the next offset to copy."""
    committed_ms: int | None
    """When the progress was committed, in ms since 1970."""
    lag: Lag
    trouble: LastError | None = None
    """Why an unhealthy partition is not copied; None for a healthy one."""
    last_error: LastError | None = None
    """Its last error of the last seven days, whether it has recovered or not."""
    high_watermark: int | None = None
    """The high watermark, no further than where the flow ends."""
    withheld: OpenTransaction | None = None
    """The open transaction that keeps records before the high watermark from being copied; None if there is none."""
    way: str = ""
    """The value of the :class:`mirror.relay.model.way.Way` by which the progress was committed; empty if unknown."""
    way_reason: str = ""
    """Why the partition goes that way, in one clause; empty if unknown."""
    target_loss: str = ""
    """What the target had lost of it, and was copied again, according to the last results; empty if nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an infinite time is None, as an unknown one is."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "target_topic": self.target_topic,
            "state": self.lag.state.value,
            "earliest": self.earliest,
            "end": self.end,
            "progress": self.progress,
            "lag": self.lag.records,
            "committed_ms": self.committed_ms,
            **_measures(self.lag),
            "trouble": None if self.trouble is None else self.trouble.line,
            "trouble_ms": None if self.trouble is None else self.trouble.time_ms,
            "last_error": None if self.last_error is None else self.last_error.line,
            "last_error_ms": None if self.last_error is None else self.last_error.time_ms,
            "high_watermark": self.high_watermark,
            "withheld": None if self.withheld is None else self.withheld.to_json(),
            "way": self.way,
            "way_reason": self.way_reason,
            "target_loss": self.target_loss,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """The status of one flow at one time."""

    flow: str
    source: str
    target: str
    time_ms: int
    """In ms since 1970."""
    run: RunControl | None
    """The run that copies the flow now, by its own record; None if there is none."""
    state: RunState | None = None
    """What the last run says of the flow in its status topic; None if none has."""
    tasks: list[TaskState] = field(default_factory=list)
    """The tasks of the run's last job that have reported there, by number."""
    tasks_seen_ms: int | None = None
    """When a task has reported last, of whichever run; None: none has."""
    unread: str = ""
    """Why the status topic cannot be read; empty if it was."""
    totals: LagTotals
    """The totals of the partitions' lags."""
    partitions: list[PartitionStatus]
    groups: GroupsSummary | None = None
    """The consumer groups after the last round of a run; None if there was none."""
    sync: SyncState | None = None
    """What else is in step, according to the last run; None if it has said nothing."""
    evidence: Evidence = field(default_factory=Evidence)
    """The last verification and rehearsal."""
    index_bytes: int | None = None
    """The size of the offset index on the target, in bytes; None if it is not known."""
    mirrormaker: str | None = None
    """The line about a MirrorMaker 2 that copies again what was taken over, for which the flow has stopped."""
    latch: Latch | None = None
    """Whether the flow may write at all; None if that is not known."""
    away: Mapping[str, str] = field(default_factory=dict)
    """The cluster that does not answer, and its error: nothing is known that takes both clusters."""
    refused: str = ""
    """Why a run would refuse the flow as it is configured; empty if that is not known, or none would."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        withheld = [partition.withheld for partition in self.partitions if partition.withheld is not None]
        return {
            "flow": self.flow,
            "source": self.source,
            "target": self.target,
            "time_ms": self.time_ms,
            "run": None if self.run is None else {**asdict(self.run), "gone": self.run.is_dead(self.time_ms)},
            "lag": None if self.away else self.totals.records,
            "unknown": self.totals.unknown,
            **_measures(self.totals),
            "states": {state.value: count for state, count in self.totals.states.items()},
            "withheld_records": sum(transaction.records for transaction in withheld),
            "groups": None if self.groups is None else self.groups.to_json(),
            "sync": None if self.sync is None else self.sync.to_json(),
            "index_bytes": self.index_bytes,
            "state": None if self.state is None else asdict(self.state),
            "tasks": [asdict(task) for task in self.tasks],
            "unread": self.unread or None,
            "mirrormaker": self.mirrormaker,
            "latch": None if self.latch is None else asdict(self.latch),
            "away": dict(self.away),
            "refused": self.refused or None,
            "partitions": [partition.to_json() for partition in self.partitions],
        }


def _measures(lag: Lag | LagTotals) -> dict[str, float | None]:
    measures = {
        "lag_seconds": lag.seconds,
        "copied_per_second": lag.copied_per_s,
        "produced_per_second": lag.produced_per_s,
        "seconds_to_drain": lag.drain_s,
        "seconds_to_loss": lag.loss_s,
    }
    return {name: None if value is None or math.isinf(value) else round(value, 3) for name, value in measures.items()}
