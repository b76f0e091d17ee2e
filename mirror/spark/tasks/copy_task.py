"""One task of a job: copies its ranges in a Python worker of Spark, and returns their results.

In a scheduled run an error becomes a ``failed`` result: if the task raised it, Spark would repeat the whole task,
including the ranges that succeeded. Spark repeats a task only if its worker dies, or in a stream fails, but for an
invalid configuration; the new attempt resumes from the progress on the target.
"""

from __future__ import annotations

import os
import socket
import traceback
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from mirror.errors import ConfigError, MirrorError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.reports import LastReports, PartitionReport
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.attempt_results import AttemptResult, CopiedTask

if TYPE_CHECKING:
    from mirror.relay.model.reports import TaskState
    from mirror.spark.tasks.options import FlowOptions
    from mirror.spark.tasks.task_environment import TaskEnvironment
    from mirror.spark.tasks.task_spec import CopyTask, TaskSpec
    from mirror.telemetry.task_telemetry import TaskTelemetry

_LAST_REPORT_MS: Final = 2_000
"""How long the end of a task waits for its last reports to be written: its results have them, too."""


def copy_in_worker(options: FlowOptions, environment: TaskEnvironment, task: CopyTask) -> CopiedTask:
    """As :func:`copy_task`, with the driver's variables in the environment of this process."""
    environment.complete(os.environ)
    return copy_task(options, task)


def copy_task(options: FlowOptions, task: CopyTask) -> CopiedTask:
    """Copy the ranges of ``task``. In a scheduled run an error is in the results.

    In a stream it is raised: Spark begins the task again, on another executor if it can, and the other tasks go on.
    But a task without a valid configuration cannot report: it returns why, and the driver ends the job with that error.
    """
    spec, ranges = task.spec, task.ranges
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    telemetry = _telemetry(options, task, attempt)
    last_reports, invalid = LastReports(), ""
    try:
        results = _copy(options, spec, ranges, attempt, telemetry, last_reports)
    except Exception as error:
        if spec.first_period is not None and not isinstance(error, ConfigError):
            raise
        expected = isinstance(error, MirrorError)
        line = str(error) if expected else f"{type(error).__name__}: {error}"
        invalid = f"task {spec.task} on host {socket.gethostname()}: {line}" if isinstance(error, ConfigError) else ""
        trace = None if expected else traceback.format_exc()
        attempts = [AttemptResult(spec.task, attempt, failed(range_, line), trace) for range_ in ranges]
    else:
        attempts = [AttemptResult(spec.task, attempt, result) for result in results]
    return CopiedTask(attempts, spec.job, telemetry.finish() if telemetry else None, last_reports.all(), invalid)


def _telemetry(options: FlowOptions, copied: CopyTask, attempt: int) -> TaskTelemetry | None:
    """Return the task's telemetry, or None if it is off.

    Invalid settings in an executor's environment count as the defaults; the driver reports its own.
    """
    from mirror.telemetry import logs
    from mirror.telemetry.settings import TelemetrySettings
    from mirror.telemetry.task_telemetry import TaskTelemetry
    from mirror.telemetry.traces.ids import SpanId, period_id

    try:
        settings = TelemetrySettings.of(os.environ)
    except ConfigError:
        settings = TelemetrySettings()
    if settings.disabled:
        return None
    logs.configure()
    spec, flow, run = copied.spec, options.flow, options.run

    def period_at(unix_ms: int) -> SpanId:
        return period_id(flow, run, max(1, unix_ms // spec.period_ms - (spec.first_period or 0) + 1))

    return TaskTelemetry(
        settings,
        period=SpanId.parse(spec.trace) or period_id(flow, run, spec.job),
        flow=flow,
        task=spec.task,
        attempt=attempt,
        clock=SystemClock(),
        run=spec.run,
        period_at=None if spec.first_period is None else period_at,
    )


def _copy(
    options: FlowOptions,
    spec: TaskSpec,
    ranges: list[Range],
    attempt: int,
    telemetry: TaskTelemetry | None,
    last_reports: LastReports,
) -> list[RangeResult]:
    """Copy ``ranges``, and what the task is given meanwhile, until it is to stop, or all have their end.

    ``last_reports`` gets what it reports of its partitions.
    """
    from mirror.config.flow_rules import source_options, target_options
    from mirror.relay.progress.status_topic import StatusWriter
    from mirror.relay.progress.status_values import measured_key
    from mirror.relay.task.copy_ranges import copy_ranges

    config, flow = options.load()
    of_target = target_options(config, flow)
    policy = replace(
        flow.copy_policy(spec.tasks),
        run=spec.run,
        job=spec.job,
        task=spec.task,
        generation=spec.generation,
        attempt=attempt,
        renew_ms=spec.renew_ms,
        refresh_ms=spec.refresh_ms,
        period_ms=spec.period_ms,
    )
    writer = StatusWriter(of_target, flow.name)
    if telemetry is not None:
        telemetry.describe_flow(flow.source, flow.target)
        telemetry.report_to(partial(writer.put, measured_key(spec.task)))

    def send(report: TaskState | PartitionReport) -> None:
        if isinstance(report, PartitionReport):
            last_reports.take(report)
        writer.send(report)

    try:
        return copy_ranges(
            ranges,
            source_options=source_options(config, flow),
            target_options=of_target,
            policy=policy,
            watcher=telemetry,
            selection=lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
            send=send,
            flow=flow.name,
        )
    finally:
        writer.close(_LAST_REPORT_MS)


def failed(range_: Range, line: str) -> RangeResult:
    """Return the result of a range of which nothing was copied, with ``line`` as its error."""
    return RangeResult.initial(range_, range_.start, Outcome.FAILED, " ".join(line.split()))
