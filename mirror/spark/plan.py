"""A flow's plan: what its source holds now, what its target has already, and the tasks that close the difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from mirror.client import EARLIEST, LATEST, TopicPartition
from mirror.relay.progress import ProgressStore
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.spark.offsets_retention import commit_anew_after_ms
from mirror.spark.planner import NO_LEADER, SourcePartition, pack, select_topics, start_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.client import Admin, TopicDescription
    from mirror.config.models import FlowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One epoch of one flow: ``tasks`` to copy, and ``settled`` results that need none.

    By source topic: ``ends`` is the sum of its partitions' last stable offsets, ``lags`` the records not copied yet.
    """

    flow: str
    tasks: list[list[Range]]
    settled: list[RangeResult]
    epoch: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)

    @property
    def ranges(self) -> list[Range]:
        """All ranges, task by task."""
        return [each for task in self.tasks for each in task]

    def within(self, bounds: Mapping[tuple[str, int], int]) -> Plan:
        """The same tasks with what of each topic and partition lies before its bound, and nothing of the others."""
        cut = [
            [replace(one, end=end) for one in task if (end := bounds.get((one.topic, one.partition), 0)) > one.start]
            for task in self.tasks
        ]
        return replace(self, tasks=[task for task in cut if task])

    def to_json(self) -> dict[str, Any]:
        """As plain values for the ledger."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """The inverse of :meth:`to_json`."""
        return cls(
            flow=values["flow"],
            tasks=[[Range(**each) for each in task] for task in values["tasks"]],
            settled=[result_from_json(each) for each in values["settled"]],
            epoch=values["epoch"],
            ends=values["ends"],
            lags=values["lags"],
        )


def result_from_json(values: Mapping[str, Any]) -> RangeResult:
    """A RangeResult from plain values, as ``dataclasses.asdict`` gives them."""
    return RangeResult(**{**values, "outcome": Outcome(values["outcome"])})


Stuck = Mapping[tuple[str, int], int]
"""Source topic and partition -> since when (ms since 1970) its first undelivered batch has waited."""
_NOBODY: Final[Stuck] = MappingProxyType({})


def make_plan(
    flow: FlowConfig,
    source: Admin,
    target: Admin,
    parallelism: int,
    *,
    wall_ms: int,
    epoch: int = 0,
    follow: bool = False,
    stuck: Stuck = _NOBODY,
) -> Plan:
    """Look at both clusters and plan; changes nothing on either.

    ``parallelism`` is the largest number of tasks, ``wall_ms`` the time (ms since 1970) that the age of progress is
    measured by. With ``follow`` every partition that can be copied has a range without an end. ``stuck`` goes
    into the ranges.

    Raises FlowError where no topic matches, KafkaError where a cluster cannot be asked.
    """
    source_id = source.describe_cluster().cluster_id
    topics = source.list_topics()
    wanted = {name: topics[name] for name in select_topics(flow, topics)}
    seen = _survey(flow, wanted, source)
    store = ProgressStore(target, flow.name)
    progress = store.read({TopicPartition(each.target_topic, each.partition) for each in seen})
    anew_before_ms = wall_ms - commit_anew_after_ms(target)
    starts = [
        start_of(
            flow,
            source_id,
            each,
            progress.get(TopicPartition(each.target_topic, each.partition)),
            anew_before_ms=anew_before_ms,
            follow=follow,
        )
        for each in seen
    ]
    ends, lags = Counter[str](), Counter[str]()
    for each, start in zip(seen, starts, strict=True):
        ends[each.topic] += each.end
        lags[each.topic] += max(0, each.end - start.start)
    ranges = [
        replace(one, stuck_since_ms=stuck.get((one.topic, one.partition))) for one in starts if isinstance(one, Range)
    ]
    return Plan(
        flow=flow.name,
        tasks=pack(ranges, parallelism),
        settled=[each for each in starts if isinstance(each, RangeResult)],
        epoch=epoch,
        ends=dict(ends),
        lags=dict(lags),
    )


def _survey(flow: FlowConfig, wanted: Mapping[str, TopicDescription], source: Admin) -> list[SourcePartition]:
    """Every partition of the wanted topics with its offsets.

    One without a leader is not asked for offsets: the answer would take the whole ``default.api.timeout.ms``, and its
    neighbours would wait with it.
    """
    partitions = [(topic, each) for topic in wanted.values() for each in topic.partitions]
    led = [TopicPartition(topic.name, each.partition) for topic, each in partitions if each.leader != NO_LEADER]
    earliest = _offsets(source, led, EARLIEST)
    end = _offsets(source, led, LATEST)
    first = _first_offsets(flow, source, earliest, end)
    return [
        SourcePartition(
            topic=topic.name,
            target_topic=flow.target_topic(topic.name),
            partition=each.partition,
            topic_id=str(topic.topic_id or ""),
            leader=each.leader,
            earliest=earliest.get(tp, 0),
            end=end.get(tp, 0),
            first=first.get(tp, 0),
        )
        for topic, each in partitions
        for tp in [TopicPartition(topic.name, each.partition)]
    ]


def _first_offsets(
    flow: FlowConfig,
    source: Admin,
    earliest: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """Where partitions without progress begin: the flow's ``start``. A time after the last record means the end."""
    if flow.start == "earliest":
        return earliest
    if flow.start_timestamp_ms is None:
        return end
    found = _offsets(source, earliest, flow.start_timestamp_ms)
    return {tp: offset if 0 <= offset < end[tp] else end[tp] for tp, offset in found.items()}


def _offsets(source: Admin, partitions: Iterable[TopicPartition], spec: int) -> dict[TopicPartition, int]:
    asked = dict.fromkeys(partitions, spec)
    if not asked:
        return {}
    return {tp: result.offset for tp, result in source.list_offsets(asked).items()}
