"""Reports what a task and its partitions do while it lives: only what has changed, a bounded number at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from mirror.client import TopicPartition
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.reports import COPYING, SETTLED, PartitionReport, TaskState
from mirror.relay.partition.machine.partition_copy import PartitionCopy

ROUND_MS: Final = 5_000
"""How often it is determined what has changed."""
ALIVE_MS: Final = 3_000
"""How often a task reports that it is alive: a record of some 250 bytes."""
URGENT_ROUND_MS: Final = 1_000
"""How often what has changed is reported, and how soon failures are."""
MAX_REPORTS: Final = 1_000
"""So many partitions are reported at once, the most urgent ones, then those that have waited longest: that takes some
20 ms, and 5,000 active partitions are all reported within 10 s. The next report of the others has all that they have
done until then.
"""
MAX_REPORTED_LOSSES: Final = 3
"""So many expiries, and losses of the target, are in a report: the latest ones."""
MAX_ERROR_LENGTH: Final = 500

SendReport = Callable[[TaskState | PartitionReport], object]
"""Takes a report to send some time; the last one of each partition counts. It never waits, and never raises."""


# Invariant: What a task counts is in the metrics of the driver within ten seconds, and at a backend within 15.
# Test: tests/spark/driver/test_seen_soon.py::test_a_count_reaches_a_backend_soon_whenever_it_happens
class TaskReporter:
    """The reports of one attempt of a task. Used on the task's thread."""

    def __init__(
        self,
        send: SendReport,
        policy: CopyPolicy,
        flow: str,
        unix_ms: Callable[[], int],
        now: int,
    ) -> None:
        self._send: Final = send
        self._policy: Final = policy
        self._flow: Final = flow
        self._unix_ms: Final = unix_ms
        self._since_ms: Final = unix_ms()
        self._taken: Final = dict[TopicPartition, int]()
        """By target partition: up to which version the changes of assignments were applied when it was taken."""
        self._sequences: Final = dict[TopicPartition, int]()
        self._reported: Final = dict[TopicPartition, tuple[object, ...]]()
        self._changed = dict[TopicPartition, None]()
        """What a round has left to the next one."""
        self._failing: Final = set[TopicPartition]()
        """Those of which an attempt has failed since their last report."""
        self._alive_at = self._round_at = now
        self._urgent_at = now

    # --- what happens

    def on_taken(self, targets: Iterable[TopicPartition], version: int) -> None:
        """The task begins to copy ``targets``, having applied the changes up to ``version``."""
        for target in targets:
            self._taken[target] = version

    def on_failed(self, target: TopicPartition) -> None:
        """An attempt at ``target`` has failed."""
        self._failing.add(target)

    def settle(self, target: TopicPartition, copy: PartitionCopy | None, version: int, now: int) -> None:
        """Report that the task has released ``target`` with ``version``; ``copy`` is done, None: it held nothing."""
        result = self._nothing(target) if copy is None else copy.result_at(now)
        self._report(target, SETTLED, result, version)
        for known in (self._taken, self._sequences, self._reported, self._changed):
            known.pop(target, None)
        self._failing.discard(target)

    def refuse(self, result: RangeResult, version: int) -> None:
        """Report a partition that was given to the task with ``version``, and that it does not begin."""
        self._report(TopicPartition(result.target_topic, result.partition), result.outcome.value, result, version)

    def _nothing(self, target: TopicPartition) -> RangeResult:
        return RangeResult(
            flow=self._flow,
            topic="",
            target_topic=target.topic,
            partition=target.partition,
            start=0,
            end=0,
            outcome=Outcome.COMPLETE,
        )

    # --- rounds

    def update(
        self, now: int, copies: Mapping[TopicPartition, PartitionCopy], version: int = 0, stopping: str = ""
    ) -> None:
        """Report what is due. ``copies`` are all of the task; ``version`` is that of the last applied change."""
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_MS
            self._report_task(len(copies), version, stopping)
        if now >= self._round_at:
            self._round_at = now + ROUND_MS
            self._changed.update(dict.fromkeys(self._changes(copies)))
        if now >= self._urgent_at and (self._changed or self._failing):
            self._urgent_at = now + URGENT_ROUND_MS
            self._failing.intersection_update(copies)
            self._changed.update(dict.fromkeys(self._failing))
            self._report_changed(copies, MAX_REPORTS, version, now)

    def end(self, now: int, copies: Mapping[TopicPartition, PartitionCopy], version: int, stopping: str) -> None:
        """The task ends: report all that has changed, however much."""
        self._report_task(len(copies), version, stopping or "its ranges are copied")
        self._changed.update(dict.fromkeys(self._changes(copies)))
        self._report_changed(copies, len(copies), version, now)

    def due_ms(self) -> int:
        """Return when :meth:`update` is wanted next."""
        due_ms = min(self._alive_at, self._round_at)
        return min(due_ms, self._urgent_at) if self._failing or self._changed else due_ms

    def _changes(self, copies: Mapping[TopicPartition, PartitionCopy]) -> Iterable[TopicPartition]:
        reported = self._reported
        return (target for target, copy in copies.items() if reported.get(target) != _digest(copy))

    def _report_changed(
        self, copies: Mapping[TopicPartition, PartitionCopy], most: int, version: int, now: int
    ) -> None:
        changed = [target for target in self._changed if target in copies]
        urgent = sorted(changed, key=lambda target: self._urgency(target, copies[target]))  # stable: in their order
        self._changed = dict.fromkeys(urgent[most:])
        for target in urgent[:most]:
            self._report_copy(target, copies[target], version, now)

    def _urgency(self, target: TopicPartition, copy: PartitionCopy) -> int:
        """Return a smaller number for what is more urgent; thousands that have begun and are idle come last."""
        if target in self._failing or copy.failing:
            return 0
        return 1 if target in self._reported or copy.result.end > copy.result.start else 2

    def _report_copy(self, target: TopicPartition, copy: PartitionCopy, version: int, now: int) -> None:
        result = copy.result_at(now)
        state = result.outcome.value if copy.done or copy.failing else COPYING
        self._failing.discard(target)
        self._reported[target] = _digest(copy)
        self._report(target, state, result, version)

    def _report(self, target: TopicPartition, state: str, result: RangeResult, version: int) -> None:
        policy = self._policy
        sequence = self._sequences[target] = self._sequences.get(target, 0) + 1
        error = result.error
        shown = replace(
            result,
            timeline=None,
            error=error if error is None else error[:MAX_ERROR_LENGTH],
            expiries=result.expiries[-MAX_REPORTED_LOSSES:],
            target_losses=result.target_losses[-MAX_REPORTED_LOSSES:],
        )
        self._send(
            PartitionReport(
                target=target,
                run=policy.run,
                job=policy.job,
                task=policy.task,
                attempt=policy.attempt,
                taken=self._taken.get(target, version),
                state=state,
                sequence=sequence,
                version=version,
                result=shown,
            )
        )

    def _report_task(self, partitions: int, version: int, stopping: str) -> None:
        policy = self._policy
        self._send(
            TaskState(
                run=policy.run,
                job=policy.job,
                task=policy.task,
                attempt=policy.attempt,
                host=socket.gethostname(),
                pid=os.getpid(),
                since_ms=self._since_ms,
                seen_ms=self._unix_ms(),
                version=version,
                partitions=partitions,
                stopping=stopping,
            )
        )


def _digest(copy: PartitionCopy) -> tuple[object, ...]:
    """Return what differs if there is something new to report: it is computed for thousands of idle partitions."""
    result = copy.result
    return result.end, result.records, result.retries, copy.failing, copy.done, len(result.target_losses)
