"""What lineage says about a run, without OpenLineage's client, which is an extra."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror.relay.model.ranges import CountBasis, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.model.ranges import RangeResult
    from mirror.verify.partition_results import PartitionResult


class JobKind(enum.StrEnum):
    """What a run does. The values are OpenLineage's ``jobType``."""

    STREAM = "STREAM"
    RUN = "RUN"
    VERIFICATION = "VERIFICATION"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageJob:
    """One run of one flow."""

    flow: str
    kind: JobKind
    run: str
    """The name of the run."""
    source: str
    """``bootstrap.servers`` of the source."""
    target: str

    @property
    def name(self) -> str:
        """The name of the job."""
        return f"mirror.{self.flow}.verify" if self.kind is JobKind.VERIFICATION else f"mirror.{self.flow}"

    @property
    def run_id(self) -> str:
        """A UUID that every process derives from the run's name."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"mirror:{self.name}:{self.run}"))


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """What was copied of one topic; None: it is not known of all partitions."""

    topic: str
    target_topic: str
    records: int | None
    bytes: int | None

    def plus(self, later: TopicCounts) -> TopicCounts:
        """Return the sums."""
        return TopicCounts(
            self.topic, self.target_topic, _sum(self.records, later.records), _sum(self.bytes, later.bytes)
        )


@dataclass(frozen=True, slots=True)
class TopicVerdict:
    """What a verification has found about the copy of one topic."""

    topic: str
    target_topic: str
    records: int
    """Compared."""
    equal: bool
    """Whether everything that is copied was compared, and is equal."""
    complete: bool
    """Whether the target has every record that the source has."""
    lines: tuple[str, ...] = field(default=())
    """Why it is not both."""


def topic_counts(results: Iterable[RangeResult]) -> list[TopicCounts]:
    """Return the sums by topic."""
    found: dict[tuple[str, str], TopicCounts] = {}
    for result in results:
        known = result.counted is CountBasis.RECORDS
        counts = TopicCounts(
            result.topic, result.target_topic, result.records if known else None, result.bytes if known else None
        )
        key = (result.topic, result.target_topic)
        found[key] = found[key].plus(counts) if key in found else counts
    return list(found.values())


def topic_verdicts(results: Iterable[PartitionResult]) -> list[TopicVerdict]:
    """Return the verdicts by topic."""
    found: dict[tuple[str, str], list[PartitionResult]] = {}
    for result in results:
        found.setdefault((result.topic, result.target_topic), []).append(result)
    return [
        TopicVerdict(
            topic,
            target_topic,
            sum(one.verdict.records for one in ofs if one.verdict is not None),
            all(one.outcome == "equal" for one in ofs),
            not any(one.incomplete for one in ofs),
            tuple(
                f"partition {one.partition}: {'; '.join([one.outcome, *one.incomplete])}"
                for one in ofs
                if one.outcome != "equal" or one.incomplete
            ),
        )
        for (topic, target_topic), ofs in found.items()
    ]


class RunEnd(enum.StrEnum):
    """How a run has ended, in OpenLineage's words."""

    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"
    """Someone, or another run, has ended it before it had copied everything."""


def end_of(outcome: Outcome) -> RunEnd:
    """Return what ``outcome`` is for OpenLineage."""
    if outcome is Outcome.COMPLETE:
        return RunEnd.COMPLETE
    return RunEnd.ABORT if outcome in {Outcome.UNFINISHED, Outcome.FENCED} else RunEnd.FAIL


def _sum(one: Any, other: Any) -> int | None:
    return None if one is None or other is None else one + other
