"""Begins the task of a stream again while it cannot begin, unless its flow is to stop meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from mirror.backoff import Backoff
from mirror.client import Admin
from mirror.errors import KafkaError, KafkaTimeout, MirrorError
from mirror.relay.futures import done, failed
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.partition.waiting import unfinished
from mirror.relay.progress.control_record import ControlWatch, RunControl, control_partition, from_offset
from mirror.runtime.clock import process_rng
from mirror.timing import Clock

_log: Final = logging.getLogger(__name__)

_BACKOFF_MS: Final = 1_000
_BACKOFF_MAX_MS: Final = 15_000
"""Far less than the minute that a task has for its first report after an outage: others would have its partitions."""
_READ_TIMEOUT_MS: Final = 3_000
_FAILED_PAUSE_MS: Final = 10_000
"""Spark begins a failed task again at once, up to a limit: other tasks copy its partitions meanwhile."""


def copy_once_clusters_answer(
    copy: Callable[[], list[RangeResult]],
    ranges: Sequence[Range],
    policy: CopyPolicy,
    target_options: Mapping[str, object],
    flow: str,
    clock: Clock,
    report: Callable[[str], object],
) -> list[RangeResult]:
    """Return what ``copy`` does, which is repeated while clusters do not answer: no other task begins in its place.

    Meanwhile it follows the control record: if the flow is to stop, or its driver has died, the results are unfinished.
    ``target_options`` are those of every client. Raises all other errors :data:`_FAILED_PAUSE_MS` later, after
    ``report`` was called with a line, and every error at once if all ``ranges`` have ends.
    """
    backoff, failures = Backoff(_BACKOFF_MS, _BACKOFF_MAX_MS, process_rng()), 0
    control = _Control(policy, target_options, flow, clock)
    while True:
        try:
            return copy()
        except Exception as error:
            if is_bounded(ranges):
                raise
            if not isinstance(error, KafkaTimeout):
                report(f"{error}" if isinstance(error, MirrorError) else f"{type(error).__name__}: {error}")
                if not (reason := control.stop_reason(clock.now() + _FAILED_PAUSE_MS)):
                    raise
                return _unfinished(ranges, reason)
            failures += 1
            pause_ms = backoff.after(failures)
            _log.warning("the task cannot begin, and tries again in %.1f s: %s", pause_ms / 1000, error)
        if reason := control.stop_reason(clock.now() + pause_ms):
            return _unfinished(ranges, reason)


def _unfinished(ranges: Sequence[Range], reason: str) -> list[RangeResult]:
    return [RangeResult.initial(one, one.start, Outcome.UNFINISHED, unfinished(reason)) for one in ranges]


def is_bounded(ranges: Sequence[Range]) -> bool:
    """Whether all ranges have ends, as those of a scheduled run. A task of a stream may begin without any."""
    return bool(ranges) and not any(one.open_ended for one in ranges)


class _Control:
    """The control record, for a task that has not begun."""

    def __init__(self, policy: CopyPolicy, target_options: Mapping[str, object], flow: str, clock: Clock) -> None:
        self._target_options: Final = target_options
        self._group, self._partition = control_partition(flow)
        self._clock: Final = clock
        self._target: Admin | None = None
        self._watch: Final = ControlWatch(
            self._read,
            policy.run,
            policy.job,
            clock.now(),
            generation=policy.generation,
            task=policy.task,
            attempt=policy.attempt,
        )

    def stop_reason(self, until_ms: int) -> str:
        """Wait until then; return before, with the reason, if the task is to stop. Otherwise ""."""
        with Admin(self._target_options) as self._target:
            while (now := self._clock.now()) < until_ms:
                command = self._watch.poll(now)
                if command is not None and command.stop is not None:
                    return command.reason()
                time.sleep(max(0, min(until_ms, self._watch.due_ms()) - self._clock.now()) / 1000)
        return ""

    def _read(self) -> Future[RunControl | None]:
        assert self._target is not None  # noqa: S101 - only stop_reason polls
        try:
            offsets = self._target.group_offsets(self._group, [self._partition], timeout_ms=_READ_TIMEOUT_MS)
        except KafkaError as error:
            return failed(error)
        return done(from_offset(offsets.get(self._partition)))
