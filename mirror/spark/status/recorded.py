"""What is recorded of a flow's partitions: in its status topic, by live tasks, and in the ledger of runs on this host.

The later of both counts: the topic has what tasks of any host report, and the ledger has the results of runs whose
tasks do not report while they copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.target_loss import loss_text
from mirror.relay.readback.result import difference_count, differences_text
from mirror.spark.ledger.last_errors import LastError, last_error
from mirror.spark.ledger.status_table import StatusTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.ledger.last_errors import LastErrors
    from mirror.spark.ledger.obstacles import Obstacle, TargetTopics


class Recorded:
    """Reads both; a new table replaces the one before."""

    def __init__(self, ledger: LastErrors | None) -> None:
        """``ledger`` is None if it is not read."""
        self._ledger: Final = ledger
        self.table = StatusTable()

    def last_errors(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LastError]:
        """Return the last error of each of these source partitions that had one."""
        found = {} if self._ledger is None else self._ledger.of(partitions)
        for tp, (result, time_ms) in self._results().items():
            error = last_error(result.error, result.expiries, time_ms) if tp in partitions else None
            if error is not None and (tp not in found or found[tp].time_ms <= error.time_ms):
                found[tp] = error
        return found

    def failures(self) -> dict[TopicPartition, LastError]:
        """Return the errors of the source partitions that failed the last time."""
        found = {} if self._ledger is None else dict(self._ledger.failures())
        for tp, (result, time_ms) in self._results().items():
            if tp in found and found[tp].time_ms > time_ms:
                continue
            found.pop(tp, None)
            if result.outcome is Outcome.FAILED and result.error is not None:
                found[tp] = LastError(result.error, time_ms)
        return found

    def way_reasons(self) -> Mapping[tuple[TopicPartition, str], str]:
        """Return why source partitions went their way, by partition and way."""
        reported = {(tp, result.way): result.way_reason for tp, (result, _) in self._results().items() if result.way}
        return reported if self._ledger is None else {**self._ledger.way_reasons(), **reported}

    def target_losses(self) -> Mapping[TopicPartition, str]:
        """Return what the target had lost, and was copied again, by source partition."""
        losses = {tp: result.target_losses for tp, (result, _) in self._results().items()}
        reported = {tp: loss_text(found[-1]) for tp, found in losses.items() if found}
        return reported if self._ledger is None else {**self._ledger.target_losses(), **reported}

    def differences(self) -> Mapping[TopicPartition, str]:
        """Return how the target differs from what was committed, by source partition."""
        results = {tp: result.read_back for tp, (result, _) in self._results().items()}
        reported = {tp: differences_text(one) for tp, one in results.items() if one and difference_count(one)}
        return reported if self._ledger is None else {**self._ledger.differences(), **reported}

    def obstacles(self) -> Mapping[str, Obstacle]:
        """Return why source topics cannot be copied, by the last preparation of a run: of any host, or of this one."""
        recorded = None if self._ledger is None else self._ledger.last_targets()
        reported = self.table.run
        if recorded is None or (reported is not None and recorded[0] <= reported.run):
            return self.table.obstacles
        return recorded[1].obstacles

    def first_targets(self) -> TargetTopics | None:
        """Return the outcome of the preparation with which the last run on this host began; None if it is not known."""
        return None if self._ledger is None else self._ledger.first_targets()

    def _results(self) -> dict[TopicPartition, tuple[RangeResult, int]]:
        """Return what tasks have reported, by source partition, and when (ms since 1970)."""
        reports = self.table.partitions.values()
        return {
            TopicPartition(report.result.topic, report.result.partition): (report.result, time_ms)
            for report, time_ms in reports
            if report.result.topic
        }
