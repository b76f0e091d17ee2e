"""One task of an epoch: copies its ranges in a Python worker of Spark, and returns their results.

An error becomes a ``failed`` result: if the task raised it, Spark would repeat the whole task, including the ranges
that succeeded, and print tracebacks. Spark repeats a task only if its worker dies; the new attempt resumes from the
progress on the target.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from mirror.errors import ConfigError, MirrorError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.attempts import Attempt, CopiedTask

if TYPE_CHECKING:
    from mirror.relay.task.added_ranges import Selection
    from mirror.spark.datasource.options import FlowOptions
    from mirror.spark.datasource.task_environment import TaskEnvironment
    from mirror.spark.datasource.task_spec import CopyTask, JobTerms, TaskSpec
    from mirror.telemetry.task import TaskTelemetry

_MIN_EPOCH_MS: Final = 5_000
_LAST_REPORT_MS: Final = 2_000
"""How long the end of a task waits for its last reports to be written: its results have them, too."""
_NO_PROGRESS_TIMEOUT_MS: Final = 120_000
"""How long the other attempt of a scheduled run may show no progress: the default of ``delivery.timeout.ms``."""


def copy_in_worker(options: FlowOptions, environment: TaskEnvironment, task: CopyTask) -> CopiedTask:
    """As :func:`copy_task`, with the driver's variables in the environment of this process."""
    environment.complete(os.environ)
    return copy_task(options, task)


def copy_task(options: FlowOptions, task: CopyTask) -> CopiedTask:
    """Copy the ranges of ``task``. Never raises: an error is in the results."""
    spec, ranges = task.spec, task.ranges
    context = TaskContext.get()
    attempt = context.attemptNumber() if context else 0
    if attempt:  # an earlier attempt may have changed the progress since it was planned
        ranges = [replace(range_, progress=None) for range_ in ranges]
    telemetry = _telemetry(options, task, attempt)
    try:
        if task.terms is None:
            results = _copy(options, spec, ranges, telemetry)
        else:
            results = _copy_until_told(options, spec, task.terms, ranges, attempt, telemetry)
    except Exception as error:  # noqa: BLE001  (a task that raises is repeated by Spark; the ledger keeps the trace)
        expected = isinstance(error, MirrorError)
        line = str(error) if expected else f"{type(error).__name__}: {error}"
        trace = None if expected else traceback.format_exc()
        attempts = [Attempt(spec.task, attempt, failed(range_, line), trace) for range_ in ranges]
    else:
        attempts = [Attempt(spec.task, attempt, result) for result in results]
    return CopiedTask(attempts, spec.epoch, telemetry.finish() if telemetry else None)


def _telemetry(options: FlowOptions, copied: CopyTask, attempt: int) -> TaskTelemetry | None:
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
    spec, terms, flow, run = copied.spec, copied.terms, options.flow, options.ledger.name
    first = None if terms is None else terms.first_period

    def period_at(unix_ms: int) -> SpanId:
        assert terms is not None  # noqa: S101 - only then it is called
        assert first is not None  # noqa: S101 - the same
        return epoch_id(flow, run, max(1, unix_ms // terms.period_ms - first + 1))

    return TaskTelemetry(
        settings,
        epoch=SpanId.parse(spec.trace) or epoch_id(flow, run, spec.epoch),
        flow=flow,
        task=spec.task,
        attempt=attempt,
        follows=spec.until_ms is not None,
        clock=SystemClock(),
        epoch_at=None if first is None else period_at,
    )


def _copy_until_told(
    options: FlowOptions,
    spec: TaskSpec,
    terms: JobTerms,
    ranges: list[Range],
    attempt: int,
    telemetry: TaskTelemetry | None,
) -> list[RangeResult]:
    """Copy ``ranges``, and what the task is given meanwhile, until it is to stop, or all have their end."""
    from mirror.config.flow_rules import source_options, target_options
    from mirror.relay.progress.status_topic import StatusWriter
    from mirror.relay.task.copy_ranges import copy_ranges

    config, flow = options.load()
    of_target = target_options(config, flow)
    policy = replace(
        flow.copy_policy(spec.tasks, spec.run, spec.epoch, None, spec.renew_ms),
        task=spec.task,
        follows=True,
        generation=terms.generation,
        attempt=attempt,
        refresh_ms=terms.refresh_ms,
        period_ms=terms.period_ms,
    )
    writer = StatusWriter(of_target, flow.name)
    try:
        return copy_ranges(
            ranges,
            source_options=source_options(config, flow),
            target_options=of_target,
            policy=policy,
            watcher=telemetry,
            read_selection=lambda: lambda topic: flow.target_topic(topic) if flow.includes(topic) else None,
            send=writer.send,
            flow=flow.name,
        )
    finally:
        writer.close(_LAST_REPORT_MS)


def _copy(
    options: FlowOptions, spec: TaskSpec, ranges: list[Range], telemetry: TaskTelemetry | None
) -> list[RangeResult]:
    # Each epoch's commit runs in a new process, which would spend half a second on imports that only tasks need.
    from mirror.config.flow_rules import source_options, target_options
    from mirror.relay.task.copy_ranges import copy_ranges

    def selection() -> Selection:
        _, now = options.load_live()  # the file of a running stream may select more now
        return lambda topic: now.target_topic(topic) if now.includes(topic) else None

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
        read_selection=selection,
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


def failed(range_: Range, line: str) -> RangeResult:
    """Return the result of a range of which nothing was copied, with ``line`` as its error."""
    return RangeResult.initial(range_, range_.start, Outcome.FAILED, " ".join(line.split()))
