"""What a run of a flow reads of its status topic, and writes there. No call fails the run."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
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
    outdated_records,
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
    from mirror.spark.ledger.status_table import Records

_READ_MS: Final = 10_000
_CLOSE_MS: Final = 2_000
"""A run that ends was usually asked to by a signal, and has little time left for all of its end."""


class RunStatus:
    """The status of one flow in one run. Times are ms since 1970. May be used by several threads."""

    def __init__(
        self, target_options: Mapping[str, object], flow: FlowConfig, run: str, say: Callable[[str], None]
    ) -> None:
        """``say`` receives a line about what cannot be read or written."""
        self._options: Final = target_options
        self._flow: Final = flow
        self._run: Final = run
        self._say: Final = say
        self._unix_ms: Final = SystemClock().unix_ms
        self._writer: Final = StatusWriter(target_options, flow.name)
        self._lock: Final = threading.Lock()
        self._known = StatusTable()
        self._is_read = self._is_clean = False

    @property
    def table(self) -> StatusTable | None:
        """What is reported, as far as planning needs it; None if the topic was not read, or cannot be."""
        return self._known if self._is_read else None

    def read(self, report_dir: Path) -> None:
        """Read what the topic has, and keep other hosts' evidence in ``report_dir``."""
        try:
            self._known = read_status(self._options, self._flow.name, _READ_MS)
        except KafkaError as error:
            self._say(f"its status topic cannot be read, so the report folder says what earlier runs did: {error}")
        else:
            self._is_read = True
            keep_evidence(report_dir, self._flow.name, self._known.evidence)

    def report_state(self, state: str, reason: str = "") -> None:
        """Report in which state the run is from now on."""
        found = RunState(run=self._run, host=socket.gethostname(), state=state, since_ms=self._unix_ms(), reason=reason)
        self._write({status_values.RUN: found.to_json()})

    def prepared(self, targets: TargetTopics) -> None:
        """Report which topics cannot be copied."""
        with self._lock:
            self._put(obstacle_records(self._known.obstacles, targets.obstacles))

    def planned(self, plan: Plan) -> None:
        """Report whose turn it is, if not all partitions have theirs each time."""
        with self._lock:
            if not self._is_clean:
                self._put(outdated_records(self._known, plan, self._run))
            self._is_clean = True
            if has_limits(self._flow):
                self._put(turn_records(self._known.turns, plan, self._unix_ms()))

    def copied(self, plan: Plan, attempts: Sequence[Attempt]) -> None:
        """Report which partitions have failed, and which have recovered."""
        with self._lock:
            unhealthy = unhealthy_after(attempts, self._run, plan.epoch)
            self._put(health_records(self._known.health, unhealthy, plan, attempts, self._unix_ms()))

    def close(self) -> None:
        """Write what waits, within :data:`_CLOSE_MS`."""
        if (error := self._writer.close(_CLOSE_MS)) is not None:
            self._say(f"other hosts will not know of this run: {error}")

    def _put(self, records: Records) -> None:
        self._known.put(records)
        self._write(records)

    def _write(self, records: Records) -> None:
        if self._known.exists:  # else the preparation has warned of it, and the end of the run would wait for nothing
            for key, value in records.items():
                self._writer.put(key, value)
