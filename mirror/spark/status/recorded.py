"""What the flow's status topic has of its partitions: what tasks of any host, and drivers, have reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.target_loss import loss_text
from mirror.spark.ledger.status_table import StatusTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.ledger.obstacles import Obstacle


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error of a partition."""

    line: str
    time_ms: int
    """In ms since 1970: the time of an expiry, else when it was reported."""


class Recorded:
    """Reads the table, which is kept up to date. Partitions are those of the source."""

    def __init__(self) -> None:
        self.table = StatusTable()

    def last_errors(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LastError]:
        """Return the last error of each of these partitions that had one."""
        found = {tp: last_error(result, time_ms) for tp, (result, time_ms) in self._results().items()}
        return {tp: error for tp, error in found.items() if error is not None and tp in partitions}

    def failures(self) -> dict[TopicPartition, LastError]:
        """Return the errors of the partitions that failed the last time."""
        return {
            tp: LastError(result.error, time_ms)
            for tp, (result, time_ms) in self._results().items()
            if result.outcome is Outcome.FAILED and result.error is not None
        }

    def way_reasons(self) -> Mapping[tuple[TopicPartition, str], str]:
        """Return why partitions went their way, by partition and way."""
        return {(tp, result.way): result.way_reason for tp, (result, _) in self._results().items() if result.way}

    def target_losses(self) -> Mapping[TopicPartition, str]:
        """Return what the target had lost, and was copied again, by partition."""
        losses = {tp: result.target_losses for tp, (result, _) in self._results().items()}
        return {tp: loss_text(found[-1]) for tp, found in losses.items() if found}

    def obstacles(self) -> Mapping[str, Obstacle]:
        """Return why topics of the source cannot be copied, by the last preparation that any run has reported."""
        return self.table.obstacles

    def _results(self) -> dict[TopicPartition, tuple[RangeResult, int]]:
        """Return the last result of each partition, and when it was reported (ms since 1970)."""
        reports = self.table.partitions.values()
        return {
            TopicPartition(report.result.topic, report.result.partition): (report.result, time_ms)
            for report, time_ms in reports
            if report.result.topic
        }


def last_error(result: RangeResult, time_ms: int) -> LastError | None:
    """Return the last error of a result that was reported at ``time_ms`` (since 1970); None if it had none."""
    last: dict[str, Any] | None = max(result.expiries, key=lambda expiry: int(expiry["time_ms"]), default=None)
    if last is None:
        return None if result.error is None else LastError(result.error, time_ms)
    # If the copy did not recover from the expiry, `error` describes it in full.
    cause = f": {last['last_error']}" if last.get("last_error") else ""
    line = result.error or f"expired ({last['phase']}, {last['cause']}){cause}"
    return LastError(line, int(last["time_ms"]))
