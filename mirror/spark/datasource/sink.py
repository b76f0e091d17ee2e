"""Spark data source ``mirror``: writing ranges to it copies them.

A task copies the ranges of its rows and answers with their results; an error becomes a ``failed`` result, because a
raised one would make Spark repeat the whole task, with the neighbours that went well, and print its own traces. Only
a worker that dies is repeated by Spark; the new attempt goes on from the progress on the target.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from mirror.errors import ConfigError, MirrorError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.runtime.clock import SystemClock
from mirror.spark.datasource import rows
from mirror.spark.datasource.options import SINK_FORMAT, FlowOptions
from mirror.spark.datasource.task_environment import TaskEnvironment
from mirror.spark.ledger.attempts import Attempt
from mirror.spark.ledger.parquet import write_results, write_task_reports
from mirror.telemetry.task_report import TaskReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from mirror.telemetry.task import TaskTelemetry


_LEAST_MS: Final = 5_000
_PATIENCE_MS: Final = 120_000
"""As long as a batch may take by default: so long the other attempt of a scheduled run may show no progress."""


@dataclass
class TaskResults(WriterCommitMessage):
    """What one task did in its epoch, range by range."""

    attempts: list[Attempt]
    epoch: int = 0
    told: TaskReport | None = None


class MirrorSink(DataSource):
    """``df.write.format("mirror")``, or ``writeStream``, with the options of :class:`FlowOptions`.

    Over rows of ``mirror-ranges``, read with the same options.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SINK_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> RangesWriter:  # noqa: ARG002  (PySpark's signature)
        """The batch writer."""
        return RangesWriter(FlowOptions.from_spark(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RangesStreamWriter:  # noqa: N802, ARG002  (PySpark's)
        """The streaming writer."""
        return RangesStreamWriter(FlowOptions.from_spark(self.options))


class RangesWriter(DataSourceArrowWriter):
    """Copies in the tasks; writes what they answered into the ledger when Spark commits or aborts."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self.environment: Final = TaskEnvironment.of(os.environ)

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """Copy the ranges of this task's rows. Does not raise for what a copy meets; the results say it."""
        self.environment.complete(os.environ)
        return copy_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks answered: their results go into the ledger. Runs on the driver's host, in a process of its own."""
        record(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task was lost for good: what the others answered goes into the ledger just the same; nothing is undone."""
        record(self.options, messages)


class RangesStreamWriter(DataSourceStreamArrowWriter):
    """The same for each epoch of a stream."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self.environment: Final = TaskEnvironment.of(os.environ)

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """As :meth:`RangesWriter.write`; what is followed is followed until the epoch ends."""
        self.environment.complete(os.environ)
        return copy_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  (PySpark's)
        """As :meth:`RangesWriter.commit`."""
        record(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  (PySpark's)
        """As :meth:`RangesWriter.abort`."""
        record(self.options, messages)


def copy_rows(options: FlowOptions, iterator: Iterator[RecordBatch]) -> TaskResults:
    """Copy the ranges of a task's rows."""
    told = [rows.read(row) for batch in iterator for row in batch.to_pylist()]
    if not told:
        return TaskResults([])
    errand = told[0][0]
    ranges = [one for _, one in told]
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    telemetry = _telemetry(options, errand, attempt, ranges[0].flow)
    try:
        results = _copy(options, errand, ranges, telemetry)
    except Exception as error:  # noqa: BLE001  (a task that raises is repeated by Spark; the ledger keeps the trace)
        foreseen = isinstance(error, MirrorError)
        line = str(error) if foreseen else f"{type(error).__name__}: {error}"
        trace = None if foreseen else traceback.format_exc()
        attempts = [Attempt(errand.task, attempt, failed(each, line), trace) for each in ranges]
    else:
        attempts = [Attempt(errand.task, attempt, result) for result in results]
    return TaskResults(attempts, errand.epoch, telemetry.ends() if telemetry else None)


def _telemetry(options: FlowOptions, errand: rows.TaskSpec, attempt: int, flow: str) -> TaskTelemetry | None:
    """None where it is switched off, or the executor's environment is wrong: the driver's is checked, and says so."""
    from mirror.telemetry import logs
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.task import TaskTelemetry
    from mirror.telemetry.traces.ids import SpanId, epoch_id

    try:
        settings = TelemetrySettings.of(os.environ)
    except ConfigError:
        settings = TelemetrySettings()
    if settings.disabled:
        return None
    logs.configure()
    return TaskTelemetry(
        settings,
        epoch=SpanId.parse(errand.trace) or epoch_id(flow, options.ledger.name, errand.epoch),
        flow=flow,
        task=errand.task,
        attempt=attempt,
        follows=errand.until_ms is not None,
        clock=SystemClock(),
    )


def _copy(
    options: FlowOptions, errand: rows.TaskSpec, ranges: list[Range], telemetry: TaskTelemetry | None
) -> list[RangeResult]:
    # Each epoch's commit is a new process, and would spend half a second on the import of what only tasks need.
    from mirror.config.flow_rules import source_options, target_options
    from mirror.relay.task.copy_ranges import copy_ranges

    config, flow = options.load_in_force()
    until_ms = errand.until_ms
    if until_ms is not None:
        # Also who comes late, behind other tasks or after a lost one, tries for a while.
        until_ms = max(until_ms, SystemClock().unix_ms() + min(_LEAST_MS, flow.epoch_ms))
    results = copy_ranges(
        ranges,
        source_options=source_options(config, flow),
        target_options=target_options(config, flow),
        policy=flow.copy_policy(errand.tasks, errand.run, errand.epoch, until_ms, errand.renew_ms),
        watcher=telemetry,
    )
    fenced = [one for one, result in zip(ranges, results, strict=True) if result.outcome is Outcome.FENCED]
    if fenced and errand.run:
        patience_ms = _PATIENCE_MS if errand.until_ms is None else flow.shutdown_timeout_ms
        from mirror.client import Admin
        from mirror.spark.datasource.speculation import OtherAttempt, wait_for_other_attempt

        with Admin(config.clusters[flow.target].client_options()) as target:
            wait_for_other_attempt(
                OtherAttempt(target, flow.name, errand, fenced), errand, patience_ms=patience_ms, clock=SystemClock()
            )
    return results


def record(options: FlowOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Into the ledger. Runs on the driver's host, in a process of its own."""
    answered = [message for message in messages if isinstance(message, TaskResults) and message.attempts]
    if answered:
        attempts = [each for message in answered for each in message.attempts]
        # The results last: once they are there, the epoch is over for whoever looks into the ledger.
        write_task_reports(options.ledger, [message.told for message in answered if message.told], answered[0].epoch)
        write_results(options.ledger, attempts, answered[0].epoch)


def failed(each: Range, line: str) -> RangeResult:
    """The result of a range of which nothing was copied, for a reason of one line."""
    return RangeResult.begun(each, each.start, Outcome.FAILED, " ".join(line.split()))
