"""What a switch concerns and a flow does not cover: topics, groups and partitions. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.groups.summary import counted
from mirror.rehearsal.values import Blocker, Kind

_SHOWN: Final = 5
_CONNECTOR: Final = "connect-"
"""Kafka Connect names the group of a sink connector so (``SinkUtils.consumerGroupId``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingGroup:
    """A consumer group of the old cluster."""

    group: str
    topics: Collection[str] = ()
    """Those for which it has committed offsets, of those that exist."""
    error: str = ""
    """Why its offsets could not be read; empty if they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """What the flows from the old cluster to the new one cover, of which one is rehearsed."""

    flow: str
    new: str
    copies: Callable[[str], bool]
    """Whether the flow copies a topic."""
    is_copied: Callable[[str], bool]
    """Whether some flow copies a topic."""
    is_brought: Callable[[str, str], bool]
    """Whether some flow brings a group's positions in a topic to the new cluster."""


# Invariant: What a switch concerns and no flow covers is not ready, unless it is waived by its name.
# Test: tests/rehearsal/test_coverage.py::test_what_no_flow_covers_is_not_ready
# Test: tests/rehearsal/test_coverage_on_fakes.py::test_what_the_flow_does_not_cover_is_not_ready_unless_it_is_waived
# Test: tests/rehearsal/test_coverage_on_fakes.py::test_last_records_of_the_old_cluster_are_not_left_behind
# Test: tests/rehearsal/test_both_directions_on_fakes.py::test_what_was_copied_back_is_no_last_record_of_the_old_cluster
def uncovered(groups: Iterable[ReadingGroup], flows: Flows) -> Iterator[Blocker]:
    """Yield topics that groups of the flow read and that no flow copies, and groups that read its topics without it."""
    readers: dict[str, list[str]] = {}
    for one in sorted(groups, key=lambda one: one.group):
        if one.error:
            yield Blocker(kind=Kind.GROUP, name=one.group, reason=one.error, action=_waive("read it again"))
            continue
        copied = sorted(topic for topic in one.topics if flows.copies(topic))
        if copied and not any(flows.is_brought(one.group, topic) for topic in copied):
            yield _left_out(one.group, copied, flows)
        elif copied:
            for topic in one.topics:
                if not flows.is_copied(topic):
                    readers.setdefault(topic, []).append(one.group)
    for topic, names in sorted(readers.items()):
        reason = f"{_named('group', names)} {'reads' if len(names) == 1 else 'read'} it, and no flow copies it"
        yield Blocker(kind=Kind.TOPIC, name=topic, reason=reason, action=_waive("add it to the topics of a flow"))


def _left_out(group: str, topics: Sequence[str], flows: Flows) -> Blocker:
    words = "the connector's group" if group.startswith(_CONNECTOR) else "the group"
    return Blocker(
        kind=Kind.GROUP,
        name=group,
        reason=f"{words} reads {_named('topic', topics)}, and no flow brings its positions to {flows.new}",
        action=_waive(f"include it in [flows.{flows.flow}.groups], or move it by its own means"),
    )


def target_only(sizes: Mapping[TopicPartition, int | None], old: str, new: str) -> Iterator[Blocker]:
    """Yield the partitions of copies that the old cluster does not have, with how many offsets they hold."""
    effect = f"keys go to other partitions than on {old}"
    return _one_sided(sizes, new, effect, f"give the topic of {old} as many partitions")


def old_only(sizes: Mapping[TopicPartition, int | None], old: str, new: str) -> Iterator[Blocker]:
    """Yield the partitions of the old cluster that the new one does not have, with how many offsets they hold."""
    remedy = f"give the topic of {new} as many partitions, and copy what this one holds"
    return _one_sided(sizes, old, "they stay there", remedy)


def _one_sided(sizes: Mapping[TopicPartition, int | None], cluster: str, effect: str, remedy: str) -> Iterator[Blocker]:
    for tp, size in sorted(sizes.items()):
        held = "an unknown number of" if size is None else f"{size:,}"
        yield Blocker(
            kind=Kind.PARTITION,
            name=str(tp),
            reason=f"only {cluster} has this partition, with {held} offsets: {effect}",
            action=_waive(remedy),
        )


def left_behind(tails: Mapping[TopicPartition, tuple[int, int]], flow: str, old: str, new: str) -> Iterator[Blocker]:
    """Yield the partitions of the new cluster with records that have not arrived on the old one.

    ``tails``: the offset of the first one, and the end of the log.
    """
    for tp, (start, end) in sorted(tails.items()):
        yield Blocker(
            kind=Kind.PARTITION,
            name=str(tp),
            reason=f"up to {counted(end - start, 'record')} of {new}, from offset {start} on, have not arrived on"
            f" {old}, where groups have not read them, and flow {flow} is not running",
            action=_waive(
                f"run the flow, unless newer records were written to {old}, which they would follow; otherwise let the"
                f" groups read them on {new}"
            ),
        )


def of_others(counts: Mapping[TopicPartition, int], flow: str) -> Iterator[Blocker]:
    """Yield the partitions of the new cluster with records of others in front of the position of a group."""
    for tp, count in sorted(counts.items()):
        yield Blocker(
            kind=Kind.PARTITION,
            name=str(tp),
            reason=f"{counted(count, 'record')} in front of the positions of groups, which continue behind them,"
            f" {'is' if count == 1 else 'are'} not of flow {flow}",
            action=_waive("find out who has written them, and whether the groups need them"),
        )


@dataclass(frozen=True, slots=True)
class Waivers:
    """Blockers of coverage that an operator has accepted, as regular expressions for their whole names."""

    patterns: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Waivers:
        """Return the waivers with these patterns. Raises re.error."""
        return cls(tuple(re.compile(text) for text in texts))

    def apply(self, found: Iterable[Blocker]) -> tuple[list[Blocker], list[str]]:
        """Return the blockers that are left, and notes: what was waived, and waivers that match nothing."""
        left, notes, used = list[Blocker](), list[str](), set[str]()
        for one in found:
            matching = [pattern.pattern for pattern in self.patterns if pattern.fullmatch(one.name)]
            used.update(matching)
            if matching:
                notes.append(f"waived: {one.kind} {one.name}: {one.reason}")
            else:
                left.append(one)
        unused = sorted({pattern.pattern for pattern in self.patterns} - used)
        return left, notes + [f"--waive {text} matches nothing" for text in unused]


def _waive(action: str) -> str:
    return f"{action}; or --waive it"


def _named(noun: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{noun}{'' if len(names) == 1 else 's'} {', '.join(names[:_SHOWN])}{more}"
