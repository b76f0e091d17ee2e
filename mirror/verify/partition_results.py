"""What a verification comes to: the result of each partition, and the exit status. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from mirror.cluster.types import TopicPartition
from mirror.exit_status import ATTENTION, DONE, FAILED
from mirror.verify.values import LEFT_OUT, Bounds, Kind, Uncompared, Verdict
from mirror.wire.integers import INT32_MAX, INT64_MAX

OUTCOMES: Final = ("different", "unknown", "not compared", "equal")
"""What the result of a partition may be, the worst first. The values are JSON values."""
_NO_VERDICT: Final = "nothing was compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What the configurations of a topic on both sides explain."""

    source_compacted: bool = False
    target_compacted: bool = False
    before_ms: int = INT64_MAX
    """How far before its clock a broker of the target accepts timestamps, and ``after_ms`` how far after."""
    after_ms: int = INT64_MAX
    max_message_bytes: int = INT32_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRange:
    """A part of one partition that is to be compared, with what is known of its topics."""

    topic: str
    target_topic: str
    partition: int
    bounds: Bounds
    source_limit: int = 0
    """The last stable offset of the source, read after the target's: the source is read up to there."""
    source_topic_id: str = ""
    """Empty on brokers without topic ids."""
    target_topic_id: str = ""
    facts: TopicFacts = TopicFacts()
    first_copy_ms: int = 0
    """The flow has copied nothing into the partition before (ms since 1970)."""
    expected_digest: str = ""
    """What a proof says of the source's batches; empty: nothing."""
    notes: tuple[str, ...] = ()
    outside: tuple[Uncompared, ...] = ()
    """Records that the source has outside the bounds."""
    log_starts: tuple[int, int] = (0, 0)
    """Where the logs of source and target begin."""

    @property
    def source_tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def target_tp(self) -> TopicPartition:
        return TopicPartition(self.target_topic, self.partition)


@dataclass(slots=True, kw_only=True)
class PartitionResult:
    """What is known of one partition."""

    topic: str
    target_topic: str
    partition: int
    verdict: Verdict | None = None
    """None if nothing was compared."""
    error: str = ""
    """Why it could not be looked at, or not to the end; empty if it was."""
    source_topic_id: str = ""
    target_topic_id: str = ""
    notes: list[str] = field(default_factory=list)
    """What else a user has to know."""

    @classmethod
    def of(cls, range_: VerifyRange, verdict: Verdict | None = None, error: str = "") -> PartitionResult:
        """Return the result of a range."""
        return cls(
            topic=range_.topic,
            target_topic=range_.target_topic,
            partition=range_.partition,
            verdict=verdict,
            error=error,
            source_topic_id=range_.source_topic_id,
            target_topic_id=range_.target_topic_id,
            notes=list(range_.notes),
            outside=range_.outside,
        )

    outside: tuple[Uncompared, ...] = ()
    """Records that the source has outside the range that was compared."""

    @property
    def differs(self) -> bool:
        """Whether a difference was found."""
        return self.verdict is not None and not self.verdict.equal

    @property
    def proved(self) -> bool:
        """Whether everything that is copied, and that both sides have still, was found to be equal."""
        verdict = self.verdict
        if verdict is None or self.error:
            return False
        return verdict.equal and verdict.complete and not verdict.nothing_compared

    @property
    def outcome(self) -> str:
        """One of :data:`OUTCOMES`: not compared if the source has records and the target has none for any of them."""
        if self.differs:
            return "different"
        if self.proved:
            return "equal"
        verdict = self.verdict
        nothing = verdict is not None and verdict.complete and verdict.nothing_compared and not self.error
        return "not compared" if nothing else "unknown"

    @property
    def incomplete(self) -> list[str]:
        """Return why the target is not known to have every record that the source has now; empty if it has."""
        verdict = self.verdict
        if verdict is None or self.error:
            return [self.error or _NO_VERDICT]
        reasons = [f"{count:,} {kind}" for kind, count in sorted(verdict.kinds.items())]
        parts = [one for one in verdict.uncompared if one.side == "source" or not verdict.complete]
        reasons += [str(one) for one in (*parts, *self.outside)]
        reasons += [f"{verdict.named[name]:,} {name}" for name in LEFT_OUT if verdict.named[name]]
        return reasons if verdict.absent is None else [*reasons, str(verdict.absent)]

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        record: dict[str, Any] = {
            "topic": self.topic,
            "target_topic": self.target_topic,
            "partition": self.partition,
            "outcome": self.outcome,
            "complete": not self.incomplete,
            "incomplete": self.incomplete,
            "error": self.error or None,
            "notes": self.notes,
        }
        if self.verdict is None:
            return record
        verdict = self.verdict
        return record | {
            "source": {"start": verdict.source_start, "equal_to": verdict.source_end},
            "target": {"start": verdict.target_start, "equal_to": verdict.target_end},
            "records": verdict.records,
            "bytes": verdict.bytes,
            "batches_compared_as_bytes": verdict.batches,
            "records_compared_one_by_one": verdict.decoded,
            "differences": [difference.to_record() for difference in verdict.differences],
            "differing_records": {kind.value: count for kind, count in verdict.kinds.items()},
            "named": {name.value: count for name, count in verdict.named.items()},
            "not_compared": [uncompared.to_record() for uncompared in verdict.uncompared],
            "absent": None if verdict.absent is None else verdict.absent.to_record(),
        }


def exit_status(results: Iterable[PartitionResult], *, strict: bool = False) -> int:
    """Return the exit status: a difference outweighs a partition that was not, or not wholly, compared.

    ``strict``: so does a partition that is not complete, unless it could not be examined.
    """
    listed = list(results)
    outcomes = {result.outcome for result in listed}
    if "different" in outcomes or (strict and any(result.incomplete and not result.error for result in listed)):
        return ATTENTION
    return DONE if outcomes <= {"equal"} else FAILED


def name_other_partitions(results: Iterable[PartitionResult]) -> None:
    """Note where a record that one partition lacks is in another partition of the topic."""
    listed = list(results)
    foreign: dict[tuple[str, str], tuple[int, int]] = {}
    for result in listed:
        for difference in result.verdict.differences if result.verdict is not None else ():
            if difference.kind is Kind.FOREIGN and difference.digest:
                foreign[result.target_topic, difference.digest] = (result.partition, difference.target_offset)
    for result in listed:
        for difference in result.verdict.differences if result.verdict is not None else ():
            place = foreign.get((result.target_topic, difference.digest))
            if difference.kind is Kind.MISSING and place is not None and place[0] != result.partition:
                result.notes.append(
                    f"the record that is missing at the source offset {difference.source_offset} is in partition"
                    f" {place[0]} of the target, at offset {place[1]}"
                )
