"""Compares a cluster that has come back with what its flows knew of it at the failover. Pure.

The divergence is the offset up to which the flow had copied a partition when the other cluster opened. What the old
cluster has behind it, only that cluster has; what it lacks in front of it, it has lost.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mirror.cluster.types import EpochEndOffset


class Verdict(enum.StrEnum):
    """What a topic of the old cluster is, from the best to the worst. The values are published (``--json``)."""

    SAME = "same"
    """It has all that was copied: the flow back continues it."""
    TRUNCATED = "truncated"
    """Its log lacks records that were copied, or has others in their place."""
    UNKNOWN = "unknown"
    """It could not be read, or nothing says what it was."""
    REBUILT = "rebuilt"
    """It was made again since the failover."""
    MISSING = "missing"
    """The old cluster does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The log of one partition of the old cluster now."""

    start: int
    end: int
    """The high watermark."""
    leader_epoch: int | None = None
    """The leader epoch of the last copied batch; None: the flow's progress is lost, or says nothing of it."""
    epoch_end: EpochEndOffset | None = None
    """Where the log ends that epoch (KIP-320); None: not asked for, or the broker does not offer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What the failover has stored of a topic, and what the old cluster shows of it."""

    copied: tuple[int, ...]
    """The divergence of each partition; -1: nothing was copied."""
    known_id: str
    """The topic's id as the flow knew it last; empty: not known."""
    live_id: str | None
    """Its id now, empty on brokers without topic ids; None: there is no such topic."""
    rebuilt_id: str = ""
    """Its id since a failback has created it again; empty if none has."""
    logs: Sequence[LogFacts | None] = ()
    """None for a partition that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInspection:
    """One partition. The field names are keys of ``--json``."""

    partition: int
    verdict: Verdict
    divergence: int
    """-1: nothing was copied."""
    start: int = -1
    end: int = -1
    tail_start: int = -1
    """Where the tail begins; by sequences a few offsets later, which both logs show."""
    tail: int = 0
    """Offsets behind the divergence: an upper bound of the records that only the old cluster has."""
    deleted: int = 0
    """Offsets behind the divergence that retention has deleted: their records are lost."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInspection:
    """One topic. The field names are keys of ``--json``."""

    topic: str
    verdict: Verdict
    why: str = ""
    partitions: tuple[PartitionInspection, ...] = ()

    @property
    def tail(self) -> int:
        """Offsets behind the divergence of all partitions."""
        return sum(one.tail for one in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The old cluster. The field names are keys of ``--json``."""

    cluster: str
    """The id of the cluster that answers."""
    known: str
    """The id of the cluster that the failover has left; empty: not known."""
    topics: tuple[TopicInspection, ...] = field(default=())

    @property
    def is_same_cluster(self) -> bool:
        """Whether nothing shows that another cluster answers."""
        return not self.known or self.known == self.cluster

    @property
    def rebuilt(self) -> tuple[str, ...]:
        """The topics that the flow back cannot continue."""
        wrong = {Verdict.TRUNCATED, Verdict.REBUILT, Verdict.MISSING}
        return tuple(one.topic for one in self.topics if one.verdict in wrong)

    @property
    def is_sound(self) -> bool:
        """Whether the flow back may continue each topic."""
        return self.is_same_cluster and all(one.verdict is Verdict.SAME for one in self.topics)


_ORDER: Final = list(Verdict)


def inspect(cluster: str, known: str, topics: Mapping[str, TopicFacts]) -> Inspection:
    """Return what became of the old cluster, whose id is ``cluster`` now, and was ``known``."""
    found = tuple(inspect_topic(topic, topics[topic]) for topic in sorted(topics))
    return Inspection(cluster=cluster, known=known, topics=found)


def inspect_topic(topic: str, facts: TopicFacts) -> TopicInspection:
    """Return what became of one topic: the worst of its partitions, unless it is another topic as a whole."""
    if facts.live_id is None:
        return TopicInspection(topic=topic, verdict=Verdict.MISSING, why="the old cluster has no such topic")
    if facts.rebuilt_id and facts.rebuilt_id == facts.live_id:
        why = "this failback has created it again, and the flow back copies it as a whole"
        return TopicInspection(topic=topic, verdict=Verdict.SAME, why=why)
    known_id = facts.rebuilt_id or facts.known_id
    if known_id and facts.live_id and known_id != facts.live_id:
        why = f"its topic id is {facts.live_id}, and was {known_id} when it was copied"
        logs = enumerate(facts.logs)
        return TopicInspection(
            topic=topic,
            verdict=Verdict.REBUILT,
            why=why,
            partitions=tuple(_of_other_topic(number, log) for number, log in logs),
        )
    count = max(len(facts.copied), len(facts.logs))
    partitions = tuple(_partition(number, facts) for number in range(count))
    verdict = max((one.verdict for one in partitions), key=_ORDER.index, default=Verdict.UNKNOWN)
    why = next((one.why for one in partitions if one.verdict is verdict and one.why), "")
    return TopicInspection(topic=topic, verdict=verdict, why=why, partitions=partitions)


# Invariant: A partition of the old cluster is continued only if its log reaches the divergence, in the leader epoch of
#   the last copied batch: a shorter epoch has lost, or replaced, records that were copied.
# Test: tests/switch/failback/test_inspection.py::test_an_epoch_that_ends_before_the_divergence_is_truncated
def _partition(number: int, facts: TopicFacts) -> PartitionInspection:
    divergence = facts.copied[number] if number < len(facts.copied) else -1
    log = facts.logs[number] if number < len(facts.logs) else None
    if log is None:
        missing = number >= len(facts.logs)
        why = "the old cluster does not have it" if missing else "it could not be read"
        verdict = Verdict.REBUILT if missing else Verdict.UNKNOWN
        return PartitionInspection(partition=number, verdict=verdict, divergence=divergence, why=why)
    verdict, why = _of_log(divergence, log)
    first = max(divergence, 0)
    if verdict is Verdict.TRUNCATED and log.epoch_end is not None:
        first = min(first, max(log.epoch_end.end_offset, log.start))  # what it has there, the other cluster has not
    start = min(max(first, log.start), log.end)
    return PartitionInspection(
        partition=number,
        verdict=verdict,
        divergence=divergence,
        start=log.start,
        end=log.end,
        tail_start=start,
        tail=log.end - start,
        # What was deleted before anything was copied, the flow was not asked to copy.
        deleted=max(0, min(log.start, log.end) - first) if divergence >= 0 else 0,
        why=why,
    )


def _of_other_topic(number: int, log: LogFacts | None) -> PartitionInspection:
    """Return a partition of a topic that was made again: all that was produced there, only this cluster has."""
    if log is None:
        why = "it could not be read"
        return PartitionInspection(partition=number, verdict=Verdict.UNKNOWN, divergence=-1, why=why)
    return PartitionInspection(
        partition=number,
        verdict=Verdict.REBUILT,
        divergence=-1,
        start=log.start,
        end=log.end,
        tail_start=log.start,
        tail=log.end - log.start,
        why="it is that of another topic",
    )


def _of_log(divergence: int, log: LogFacts) -> tuple[Verdict, str]:
    if log.end < divergence:
        return Verdict.TRUNCATED, f"it ends at offset {log.end}, and was copied up to {divergence}"
    end, epoch = log.epoch_end, log.leader_epoch
    if end is None or epoch is None or divergence <= log.start:
        return Verdict.SAME, ""
    if end.end_offset < 0:
        return Verdict.TRUNCATED, f"its leader does not know the leader epoch {epoch}, in which it was copied"
    if end.end_offset < divergence:
        was = f"and it was copied up to {divergence} in leader epoch {epoch}"
        return Verdict.TRUNCATED, f"leader epoch {end.leader_epoch} ends at offset {end.end_offset} there, {was}"
    return Verdict.SAME, ""
