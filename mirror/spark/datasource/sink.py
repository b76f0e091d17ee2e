"""Spark data source ``mirror``: copies the ranges that are written to it.

A task copies the ranges of its rows and returns their results. An error becomes a ``failed`` result: if the task raised
it, Spark would repeat the whole task, including the ranges that succeeded, and print tracebacks. Spark repeats a task
only if its worker dies; the new attempt resumes from the progress on the target.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass, replace
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


_MIN_EPOCH_MS: Final = 5_000
_NO_PROGRESS_TIMEOUT_MS: Final = 120_000
"""How long the other attempt of a scheduled run may show no progress: the default of ``delivery.timeout.ms``."""


@dataclass
class TaskResults(WriterCommitMessage):
    """The results of one task in its epoch, by range."""

    attempts: list[Attempt]
    epoch: int = 0
    report: TaskReport | None = None


class MirrorSink(DataSource):
    """``df.write.format("mirror")``, or ``writeStream``, with the options of :class:`FlowOptions`.

    The rows are those of ``mirror-ranges``, read with the same options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SINK_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> RangesWriter:  # noqa: ARG002  (PySpark's signature)
        """Return the batch writer."""
        return RangesWriter(FlowOptions.from_spark(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RangesStreamWriter:  # noqa: N802, ARG002  (PySpark's)
        """Return the streaming writer."""
        return RangesStreamWriter(FlowOptions.from_spark(self.options))


class RangesWriter(DataSourceArrowWriter):
    """Copies in the tasks, and writes their results into the ledger when Spark commits or aborts."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self.environment: Final = TaskEnvironment.of(os.environ)

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """Copy the ranges of this task's rows. An error of a copy is in its result, and is not raised."""
        self.environment.complete(os.environ)
        return copy_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the results of all tasks into the ledger. Runs on the driver's host, in a process of its own."""
        record(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the results into the ledger although a task was lost for good; nothing is undone."""
        record(self.options, messages)


class RangesStreamWriter(DataSourceStreamArrowWriter):
    """As :class:`RangesWriter`, for each epoch of a stream."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self.environment: Final = TaskEnvironment.of(os.environ)

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """As :meth:`RangesWriter.write`; ranges without an end are copied until the epoch ends."""
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
    parsed = [rows.read(row) for batch in iterator for row in batch.to_pylist()]
    if not parsed:
        return TaskResults([])
    spec = parsed[0][0]
    ranges = [range_ for _, range_ in parsed]
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    telemetry = _telemetry(options, spec, attempt, ranges[0].flow)
    try:
        results = _copy(options, spec, ranges, telemetry)
    except Exception as error:  # noqa: BLE001  (a task that raises is repeated by Spark; the ledger keeps the trace)
        expected = isinstance(error, MirrorError)
        line = str(error) if expected else f"{type(error).__name__}: {error}"
        trace = None if expected else traceback.format_exc()
        attempts = [Attempt(spec.task, attempt, failed(range_, line), trace) for range_ in ranges]
    else:
        attempts = [Attempt(spec.task, attempt, result) for result in results]
    return TaskResults(attempts, spec.epoch, telemetry.finish() if telemetry else None)


def _telemetry(options: FlowOptions, spec: rows.TaskSpec, attempt: int, flow: str) -> TaskTelemetry | None:
    """Return the task's telemetry, or None if it is off.

    Invalid settings in an executor's environment count as the defaults; the driver reports its own.
    """
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
        epoch=SpanId.parse(spec.trace) or epoch_id(flow, options.ledger.name, spec.epoch),
        flow=flow,
        task=spec.task,
        attempt=attempt,
        follows=spec.until_ms is not None,
        clock=SystemClock(),
    )


def _copy(
    options: FlowOptions, spec: rows.TaskSpec, ranges: list[Range], telemetry: TaskTelemetry | None
) -> list[RangeResult]:
    # Each epoch's commit runs in a new process, which would spend half a second on imports that only tasks need.
    from mirror.config.flow_rules import source_options, target_options
    from mirror.relay.task.copy_ranges import copy_ranges

    config, flow = options.load_live()
    until_ms = spec.until_ms
    if until_ms is not None:
        # A task that starts late, behind other tasks or after a lost one, still copies for a while.
        until_ms = max(until_ms, SystemClock().unix_ms() + min(_MIN_EPOCH_MS, flow.epoch_ms))
    results = copy_ranges(
        ranges,
        source_options=source_options(config, flow),
        target_options=target_options(config, flow),
        policy=replace(flow.copy_policy(spec.tasks, spec.run, spec.epoch, until_ms, spec.renew_ms), task=spec.task),
        watcher=telemetry,
    )
    # Results of ranges that were added to the epoch follow: no other attempt of this task has them to itself.
    fenced = [range_ for range_, result in zip(ranges, results, strict=False) if result.outcome is Outcome.FENCED]
    if fenced and spec.run:
        timeout_ms = _NO_PROGRESS_TIMEOUT_MS if spec.until_ms is None else flow.shutdown_timeout_ms
        from mirror.client import Admin
        from mirror.spark.datasource.speculation import OtherAttempt, wait_for_other_attempt

        with Admin(config.clusters[flow.target].client_options()) as target:
            wait_for_other_attempt(
                OtherAttempt(target, flow.name, spec, fenced), spec, timeout_ms=timeout_ms, clock=SystemClock()
            )
    return results


def record(options: FlowOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Write the results of all tasks into the ledger."""
    completed = [message for message in messages if isinstance(message, TaskResults) and message.attempts]
    if completed:
        attempts = [attempt for message in completed for attempt in message.attempts]
        # The results last: for readers of the ledger the epoch is complete as soon as they exist.
        write_task_reports(
            options.ledger, [message.report for message in completed if message.report], completed[0].epoch
        )
        write_results(options.ledger, attempts, completed[0].epoch)


def failed(range_: Range, line: str) -> RangeResult:
    """Return the result of a range of which nothing was copied, with ``line`` as its error."""
    return RangeResult.initial(range_, range_.start, Outcome.FAILED, " ".join(line.split()))
