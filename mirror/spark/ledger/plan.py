"""The plan of one period of a flow: its ranges, packed into tasks, and the results of partitions that need no task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Range, RangeResult
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.spark.ledger.attempt_results import field_values, result_from_json
from mirror.spark.ledger.partition_health import UnhealthyPartitions, with_health


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of one period of one flow."""

    flow: str
    tasks: list[list[Range]]
    """The ranges to copy, task by task."""
    results_without_task: list[RangeResult]
    """The results of partitions that have nothing to copy or cannot be copied."""
    truncated_at: dict[str, int] = field(default_factory=dict)
    """By ``topic-partition``: where a range would have ended, if the flow's limits end it earlier or postpone it."""
    period: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    """By source topic: the sum of its partitions' last stable offsets."""
    lags: dict[str, int] = field(default_factory=dict)
    """By source topic: how many records are not copied yet."""
    took_ms: int | None = None
    """How long planning took; None if that is not known."""
    withheld: dict[TopicPartition, OpenTransaction] = field(default_factory=dict)
    """By source partition: the open transaction that keeps records from being copied."""

    @property
    def ranges(self) -> list[Range]:
        """All ranges, task by task."""
        return [range_ for task in self.tasks for range_ in task]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for the ledger."""
        return {
            "flow": self.flow,
            # Progress is read again if the period is: it may have moved.
            "tasks": [[field_values(range_) for range_ in task] for task in self.tasks],
            "settled": [field_values(result) for result in self.results_without_task],
            "cut": self.truncated_at,
            "period": self.period,
            "ends": self.ends,
            "lags": self.lags,
            "took_ms": self.took_ms,
            "withheld": [open_.to_json() for open_ in self.withheld.values()],
        }

    def with_health(self, unhealthy: UnhealthyPartitions) -> Plan:
        """Return a copy whose ranges carry their partitions' health records."""
        return replace(self, tasks=[[with_health(range_, unhealthy) for range_ in task] for task in self.tasks])

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """Return the plan that :meth:`to_json` was called on."""
        return cls(
            flow=values["flow"],
            tasks=[[Range(**range_) for range_ in task] for task in values["tasks"]],
            results_without_task=[result_from_json(result) for result in values["settled"]],
            truncated_at=dict(values.get("cut", {})),
            period=values.get("period", 0),
            ends=dict(values.get("ends", {})),
            lags=dict(values.get("lags", {})),
            took_ms=values.get("took_ms"),
            withheld={open_.tp: open_ for open_ in (OpenTransaction(**entry) for entry in values.get("withheld", []))},
        )
