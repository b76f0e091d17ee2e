"""What a scheduled run reads of its flow's status topic, and writes there. No call fails the run."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
from mirror.relay.model.ranges import SEVERITY, Outcome
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import StatusWriter
from mirror.relay.progress.status_values import RunState
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.evidence_files import keep_evidence
from mirror.spark.ledger.partition_health import unhealthy_after
from mirror.spark.ledger.status_table import (
    StatusTable,
    health_records,
    obstacle_records,
    read_status,
    turn_records,
)
from mirror.spark.planning.history import has_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror.config.models import FlowConfig
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.obstacles import TargetTopics
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.results import FlowReport
    from mirror.spark.ledger.status_table import Records

_READ_MS: Final = 10_000
_CLOSE_MS: Final = 2_000
"""A run that ends was usually asked to by a signal, and has little time left for all of its end."""


class RunStatus:
    """The status of one flow in one run. Times are ms since 1970."""

    def __init__(
        self, target_options: Mapping[str, object], flow: FlowConfig, run: str, say: Callable[[str], None]
    ) -> None:
        """``say`` receives a line about what cannot be read or written."""
        self._options: Final = target_options
        self._flow: Final = flow
        self._say: Final = say
        self._unix_ms: Final = SystemClock().unix_ms
        self._writer: Final = StatusWriter(target_options, flow.name)
        self._state = RunState(run=run, host=socket.gethostname(), state="running", since_ms=self._unix_ms())
        self.before: StatusTable | None = None
        """What earlier runs have reported; None if that was not read, or cannot be."""

    def read(self, report_dir: Path) -> None:
        """Read what the topic has, keep other hosts' evidence in ``report_dir``, and report that this run began."""
        try:
            self.before = read_status(self._options, self._flow.name, _READ_MS)
        except KafkaError as error:
            self._say(f"its status topic cannot be read, so the report folder says what earlier runs did: {error}")
        else:
            keep_evidence(report_dir, self._flow.name, self.before.evidence)
        self._writer.put(status_values.RUN, self._state.to_json())

    def prepared(self, targets: TargetTopics) -> None:
        """Report which topics cannot be copied."""
        self._put(obstacle_records(self._known.obstacles, targets.obstacles))

    def planned(self, plan: Plan) -> None:
        """Report whose turn it was, if not all partitions have theirs in each run."""
        if has_limits(self._flow):
            self._put(turn_records(self._known.turns, plan, self._unix_ms()))

    def ended(self, report: FlowReport, attempts: Sequence[Attempt]) -> None:
        """Report what came of the run, and write all of it within :data:`_CLOSE_MS`."""
        if report.partitions:
            unhealthy = unhealthy_after(attempts, report.run, 0)
            self._put(health_records(self._known.health, unhealthy, report.partitions))
        worst = max((result.outcome for result in report.partitions), key=SEVERITY.index, default=Outcome.FAILED)
        reason = report.fenced or worst.value
        self._state = replace(self._state, state="ended", since_ms=self._unix_ms(), reason=reason)
        self._writer.put(status_values.RUN, self._state.to_json())
        if (error := self._writer.close(_CLOSE_MS)) is not None:
            self._say(f"other hosts will not know of this run: {error}")

    @property
    def _known(self) -> StatusTable:
        return self.before or StatusTable()

    def _put(self, records: Records) -> None:
        for key, value in records.items():
            self._writer.put(key, value)
