"""What a run of a flow reads of its status topic, and writes there. No call fails the run."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import KafkaError
from mirror.relay.model.reports import NO_TASK, PartitionReport
from mirror.relay.progress import status_values
from mirror.relay.progress.status_topic import STATUS_MS, StatusWriter
from mirror.relay.progress.status_values import RunState
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.evidence_files import keep_evidence
from mirror.spark.ledger.obstacles import TargetTopics
from mirror.spark.ledger.partition_health import unhealthy_after
from mirror.spark.ledger.status_table import (
    Reported,
    StatusTable,
    health_records,
    obstacle_records,
    outdated_records,
    read_status,
    turn_records,
)
from mirror.spark.planning.limits import has_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from mirror.config.models import FlowConfig
    from mirror.relay.model.ranges import RangeResult
    from mirror.spark.ledger.attempts import Attempt
    from mirror.spark.ledger.plan import Plan
    from mirror.spark.ledger.status_table import Records

_READ_AGAIN_MS: Final = 60_000
"""How often a run, or a stream, tries again to read the topic if it could not."""
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
        self._targets = TargetTopics()
        self._report_dir: Path | None = None
        self._is_read = self._is_clean = False
        self._read_due_ms = 0

    @property
    def table(self) -> StatusTable:
        """What earlier runs have reported, unless the topic cannot be read, and this one."""
        return self._known

    def read(self, report_dir: Path) -> None:
        """Read what the topic has, and keep other hosts' evidence in ``report_dir``."""
        with self._lock:
            self._report_dir = report_dir
            if (error := self._read()) is not None:
                self._say(f"its status topic cannot be read, so it is not known what has failed: {error}")

    def _read(self) -> KafkaError | None:
        """Read the topic; return why it cannot be read."""
        try:
            found = read_status(self._options, self._flow.name, STATUS_MS)
        except KafkaError as error:
            return error
        for tp, turn_ms in self._known.turns.items():  # this run has given some before it could read
            found.turns[tp] = max(turn_ms, found.turns.get(tp, 0))
        self._known, self._is_read = found, True
        if self._report_dir is not None:
            keep_evidence(self._report_dir, self._flow.name, found.evidence)
        return None

    def _read_if_unread(self) -> None:
        """Read what could not be read when the run began: what it has of earlier runs must not stay for ever."""
        if self._is_read or (now := self._unix_ms()) < self._read_due_ms:
            return
        self._read_due_ms = now + _READ_AGAIN_MS
        if self._read() is None:
            self._put(obstacle_records(self._known.obstacles, self._targets.obstacles))

    def report_state(self, state: str, reason: str = "") -> None:
        """Report in which state the run is from now on."""
        found = RunState(run=self._run, host=socket.gethostname(), state=state, since_ms=self._unix_ms(), reason=reason)
        self._write({status_values.RUN: found.to_json()})

    def prepared(self, targets: TargetTopics) -> None:
        """Report which topics cannot be copied."""
        with self._lock:
            self._targets = targets
            self._put(obstacle_records(self._known.obstacles, targets.obstacles))

    def planned(self, plan: Plan) -> None:
        """Report whose turn it is, if not all partitions have theirs each time."""
        with self._lock:
            if not self._is_clean:
                self._put(outdated_records(self._known, plan, self._run))
            self._is_clean = True
            self._report(plan.results_without_task, plan.epoch)
            if has_limits(self._flow):
                self._put(turn_records(self._known.turns, plan, self._unix_ms()))

    def returned(self, plan: Plan, attempts: Sequence[Attempt]) -> None:
        """Report what the tasks of a job have returned, as :meth:`copied`, and the error of each that has one.

        A task whose reports were lost, or that could not begin, has reported nothing.
        """
        self.copied(plan, attempts)
        with self._lock:
            self._report([attempt.result for attempt in attempts], plan.epoch)

    def copied(self, plan: Plan, attempts: Sequence[Attempt]) -> None:
        """Report which partitions have failed, and which have recovered."""
        with self._lock:
            self._read_if_unread()
            unhealthy = unhealthy_after(attempts, self._run, plan.epoch)
            self._put(health_records(self._known.health, unhealthy, plan, attempts, self._unix_ms()))

    def close(self) -> None:
        """Write what waits, within :data:`_CLOSE_MS`."""
        if (error := self._writer.close(_CLOSE_MS)) is not None:
            self._say(f"other hosts will not know of this run: {error}")

    def _report(self, results: Iterable[RangeResult], number: int) -> None:
        """Report results that have an error, and take back those of the driver that have none any more."""
        for result in results:
            target = TopicPartition(result.target_topic, result.partition)
            before = self._known.partitions.get(target)
            if result.error is None and (before is None or before.report.result.error is None):
                continue
            report = PartitionReport(
                target=target,
                run=self._run,
                job=number,
                task=NO_TASK,
                attempt=0,
                taken=0,
                state=result.outcome.value,
                sequence=0,
                version=0,
                result=replace(result, timeline=None, withheld=None),
            )
            self._known.partitions[target] = Reported(report, self._unix_ms())
            if self._known.exists:
                self._writer.send(report)

    def _put(self, records: Records) -> None:
        self._known.put(records)
        self._write(records)

    def _write(self, records: Records) -> None:
        if self._known.exists:  # else the preparation has warned of it, and the end of the run would wait for nothing
            for key, value in records.items():
                self._writer.put(key, value)
