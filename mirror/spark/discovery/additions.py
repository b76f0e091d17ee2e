"""Has the tasks of a running job copy what is new on the source, and no longer what is gone.

::

    topics that were prepared ──lacking──► plan_additions ──ranges──► Assigner ──► tasks
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import MAX_NAMES_SHOWN
from mirror.relay.model.ranges import OPEN_END, Range
from mirror.spark.planning.flow_observation import Needs, observe_flow
from mirror.spark.planning.range_planner import NO_LEADER, plan_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mirror.config.models import FlowConfig
    from mirror.errors import KafkaError
    from mirror.observation import Sides
    from mirror.spark.discovery.assigner import Assigner
    from mirror.spark.ledger.topic_obstacles import TargetTopics

_OFFSETS_TIMEOUT_MS: Final = 3_000
"""A new partition whose leader does not answer by then is looked up again; others do not wait for it."""


class JobAdditions:
    """Gives the tasks of a job what was prepared since. Its calls wait for the clusters; for one thread."""

    def __init__(
        self,
        flow: FlowConfig,
        assigner: Assigner,
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
        self._reported: Final = {TopicPartition(one.topic, one.partition) for one in assigner.ranges()}
        """The source partitions that are no news: they may only get a task again, with a target topic made again."""
        self._refused = ""
        """The last line about partitions that the target refuses to have added."""
        self._assigner: Final = assigner
        self._is_initial: Final = is_initial
        self._report: Final = report

    def on_released(self) -> None:
        """Partitions were released: :meth:`assign` gives them to a task again once they are settled."""
        self._assigned_version = 0

    def on_gone(self, ranges: Iterable[Range]) -> None:
        """``ranges`` lose their task: they are news if they come back."""
        self._reported.difference_update(TopicPartition(one.topic, one.partition) for one in ranges)

    def assign(self, targets: TargetTopics, sides: Sides) -> None:
        """Give to tasks what they lack of ``targets``, unless nothing was prepared since. Raises KafkaError."""
        if targets.version == self._assigned_version:
            return
        copies = _copies(self._flow, targets)
        wanted = {copies[each] for each in self._assigner.lacking(copies)}
        ranges, waiting = list[Range](), set[TopicPartition]()
        if wanted:
            ranges, waiting = plan_additions(self._flow, wanted, self._is_initial, sides)
        refused = self._assigner.take(ranges)
        if refused:
            self._report_refused(refused)
        taken = [one for one in ranges if TopicPartition(one.target_topic, one.partition) not in refused]
        self._report_new([TopicPartition(one.topic, one.partition) for one in taken])
        if not (waiting or refused or self._assigner.settling(copies)):
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


def _copies(flow: FlowConfig, targets: TargetTopics) -> dict[TopicPartition, TopicPartition]:
    """Return the source partition of each target partition that can be copied into."""
    return {
        TopicPartition(flow.target_topic(topic), partition): TopicPartition(topic, partition)
        for topic, count in targets.copyable.items()
        for partition in range(count)
    }


def lacks_some(flow: FlowConfig, targets: TargetTopics, assigner: Assigner) -> bool:
    """Whether partitions can be copied and have no task."""
    return bool(assigner.lacking(_copies(flow, targets)))


def gone(targets: TargetTopics, assigner: Assigner) -> list[Range]:
    """Return the ranges that have a task, and whose topics are not copied any more, as :func:`gone_line` says."""
    return [one for one in assigner.ranges() if one.topic not in targets.copyable]


def gone_line(ranges: Collection[Range]) -> str:
    """Return the line about ranges that lose their task: what has an obstacle is reported as such, too."""
    names = _named([one.topic for one in ranges])
    return f"gone from the source, or not to be copied, and followed no more: {names} ({_counted(len(ranges))})"


def _named(topics: Iterable[str]) -> str:
    names = sorted(set(topics))
    return ", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else "")


def _counted(partitions: int) -> str:
    return f"{partitions:,} partition{'s' if partitions > 1 else ''}"


def plan_additions(
    flow: FlowConfig,
    wanted: Collection[TopicPartition],
    is_initial: Callable[[TopicPartition], bool],
    sides: Sides,
) -> tuple[list[Range], set[TopicPartition]]:
    """Return the ranges to copy of the ``wanted`` source partitions, and those that may be copied later.

    Their leaders do not answer yet, or the broker that answers does not know them yet, as others do.

    A partition in neither has nothing to copy now, or cannot be copied: the next plan has the reason. One that
    is not initial is copied from its first record. Raises KafkaError if a cluster does not answer.
    """
    numbers: dict[str, set[int]] = {}
    for tp in wanted:
        numbers.setdefault(tp.topic, set()).add(tp.partition)
    source = sides.source
    found = source.describe(numbers)
    topics = {
        name: replace(topic, partitions=tuple(each for each in topic.partitions if each.partition in numbers[name]))
        for name, topic in found.items()
    }
    seen = observe_flow(flow, sides, Needs(topics=topics, is_initial=is_initial, call_timeout_ms=_OFFSETS_TIMEOUT_MS))
    cluster_id = source.cluster.cluster_id
    shown = {TopicPartition(name, each.partition) for name, topic in topics.items() for each in topic.partitions}
    ranges, waiting = list[Range](), set(wanted) - shown
    for partition in seen.partitions:
        committed = seen.progress.get(partition.target_tp)
        planned = plan_range(flow, cluster_id, partition, committed, follow=True)
        if partition.leader == NO_LEADER:
            waiting.add(partition.tp)
        elif isinstance(planned, Range):
            ranges.append(replace(planned, end=OPEN_END))
    return ranges, waiting
