"""Has a running job copy what is new on the source, and no longer what is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from mirror.client import TopicPartition
from mirror.errors import MAX_NAMES_SHOWN
from mirror.spark.discovery.additions import plan_additions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.client import Admin
    from mirror.config.models import FlowConfig
    from mirror.errors import KafkaError
    from mirror.relay.model.ranges import Range
    from mirror.spark.ledger.obstacles import TargetTopics


class Assignments(Protocol):
    """Who copies what in the job."""

    def ranges(self) -> list[Range]:
        """Return the ranges that have a task."""
        ...

    def lacking(self, targets: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return those of these target partitions that have no task."""
        ...

    def take(self, ranges: Iterable[Range]) -> Mapping[TopicPartition, KafkaError]:
        """Give ``ranges`` to tasks; return the target partitions that the target refuses. Raises KafkaError."""
        ...

    def release(self, targets: Collection[TopicPartition]) -> None:
        """Take these target partitions from their tasks. Raises KafkaError."""
        ...


class JobAdditions:
    """Gives the tasks of a job what was prepared since. Its calls wait for the clusters; for one thread."""

    def __init__(
        self,
        flow: FlowConfig,
        assignments: Assignments,
        version: int,
        is_initial: Callable[[TopicPartition], bool],
        report: Callable[[str], None],
    ) -> None:
        """``version`` is that of the preparation with which the job was planned.

        ``is_initial`` is whether the source had a partition when the run began: others are copied from their first
        record. ``report`` receives a line about what is copied from now on.
        """
        self._flow: Final = flow
        self._assigned_version = version
        """The version of the preparation up to which everything has a task, or cannot be given to one now."""
        self._reported: Final = set[TopicPartition]()
        self._refused = ""
        """The last line about partitions that the target refuses to have added."""
        self._assignments: Final = assignments
        self._is_initial: Final = is_initial
        self._report: Final = report

    def assign(self, targets: TargetTopics, source: Admin, target: Admin) -> None:
        """Give to tasks what they lack of ``targets``, unless nothing was prepared since. Raises KafkaError."""
        if targets.version == self._assigned_version:
            return
        wanted = lacking_sources(self._flow, targets, self._assignments)
        ranges, waiting = plan_additions(self._flow, wanted, self._is_initial, source, target)
        refused = self._assignments.take(ranges)
        if refused:
            self._report_refused(refused)
        taken = [one for one in ranges if TopicPartition(one.target_topic, one.partition) not in refused]
        self._report_new([TopicPartition(one.topic, one.partition) for one in taken])
        if not (waiting or refused):
            self._assigned_version = targets.version

    def _report_refused(self, refused: Mapping[TopicPartition, KafkaError]) -> None:
        """Report what is tried again: the permission may come later than the topic."""
        error = next(iter(refused.values()))
        line = f"new on the source, and refused by the target, so tried again ({_counted(len(refused))}): {error}"
        if line != self._refused:
            self._report(line)
        self._refused = line

    def _report_new(self, tps: Collection[TopicPartition]) -> None:
        if not (unreported := set(tps) - self._reported):
            return
        self._reported.update(unreported)
        names = _named([tp.topic for tp in unreported])
        self._report(f"new on the source, and copied from now on: {names} ({_counted(len(unreported))})")


def lacking_sources(flow: FlowConfig, targets: TargetTopics, assignments: Assignments) -> set[TopicPartition]:
    """Return the source partitions that can be copied and have no task."""
    copies = {
        TopicPartition(flow.target_topic(topic), partition): TopicPartition(topic, partition)
        for topic, count in targets.copyable.items()
        for partition in range(count)
    }
    return {copies[target] for target in assignments.lacking(copies.keys())}


def gone(targets: TargetTopics, assignments: Assignments) -> list[Range]:
    """Return the ranges that have a task, and whose topics are not copied any more, as :func:`gone_line` says."""
    return [one for one in assignments.ranges() if one.topic not in targets.copyable]


def gone_line(ranges: Collection[Range]) -> str:
    """Return the line about ranges that lose their task: what has an obstacle is reported as such, too."""
    names = _named([one.topic for one in ranges])
    return f"gone from the source, or not to be copied, and followed no more: {names} ({_counted(len(ranges))})"


def _named(topics: Iterable[str]) -> str:
    names = sorted(set(topics))
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else "")


def _counted(partitions: int) -> str:
    return f"{partitions:,} partition{'s' if partitions > 1 else ''}"
