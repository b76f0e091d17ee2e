"""A flow's plan: what its source holds now, what its target has already, and the tasks that close the difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.progress.open_transactions import OpenTransaction
from mirror.spark.ledger.attempts import plain
from mirror.spark.ledger.partition_health import UnhealthyPartitions, with_health

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One epoch of one flow: ``tasks`` to copy, and ``settled`` results that need none.

    ``cut`` has the partitions (``topic-number``) whose ranges end early, or wait, for the flow's limits, with the
    offset where they would have ended.
    ``took_ms`` is how long planning took, None where that is not known; ``targets`` is the version of the
    :class:`mirror.spark.ledger.obstacles.TargetTopics` that it was made with, 0 where there were none.
    By source topic: ``ends`` is the sum of its partitions' last stable offsets, ``lags`` the records not copied yet.
    ``withheld`` has the open transactions that keep records from being copied, by source partition.
    """

    flow: str
    tasks: list[list[Range]]
    results_without_task: list[RangeResult]
    truncated_at: dict[str, int] = field(default_factory=dict)
    epoch: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    took_ms: int | None = None
    withheld: dict[TopicPartition, OpenTransaction] = field(default_factory=dict)
    targets_version: int = 0

    @property
    def ranges(self) -> list[Range]:
        """All ranges, task by task."""
        return [each for task in self.tasks for each in task]

    def to_json(self) -> dict[str, Any]:
        """As plain values for the ledger."""
        return {
            "flow": self.flow,
            "tasks": [[plain(each) for each in task] for task in self.tasks],
            "settled": [plain(each) for each in self.results_without_task],
            "cut": self.truncated_at,
            "epoch": self.epoch,
            "ends": self.ends,
            "lags": self.lags,
            "took_ms": self.took_ms,
            "withheld": [one.to_json() for one in self.withheld.values()],
            "targets": self.targets_version,
        }

    def with_health(self, sick: UnhealthyPartitions) -> Plan:
        """The same, with what is known of those that did not get through the last time."""
        return replace(self, tasks=[[with_health(one, sick) for one in task] for task in self.tasks])

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`to_json`."""
        return cls(
            flow=values["flow"],
            tasks=[[Range(**each) for each in task] for task in values["tasks"]],
            results_without_task=[result_from_json(each) for each in values["settled"]],
            truncated_at=dict(values.get("cut", {})),
            epoch=values.get("epoch", 0),
            ends=dict(values.get("ends", {})),
            lags=dict(values.get("lags", {})),
            took_ms=values.get("took_ms"),
            withheld={one.tp: one for one in (OpenTransaction(**each) for each in values.get("withheld", []))},
            targets_version=values.get("targets", 0),
        )


def result_from_json(values: Mapping[str, Any]) -> RangeResult:
    """A RangeResult from plain values, as ``dataclasses.asdict`` gives them."""
    return RangeResult(**{**values, "outcome": Outcome(values["outcome"])})
