"""Decides from where MirrorMaker 2 continues in one partition that a flow has copied, and reports it. Pure."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.errors import MirrorError
from mirror.mirrormaker.source_offsets import SourceOffsetKey, encode_offset, partition_of
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.gaps import find_gap
from mirror.relay.progress.target_log import is_other_topic
from mirror.takeover.continuation import Continuation, Facts, SourceLog, TargetLog
from mirror.wire.decode import Record


class Return(enum.StrEnum):
    """What became of a partition. The values are published (``mirror takeover --back --json``)."""

    HANDED_BACK = "handed-back"
    """MirrorMaker 2 continues at the flow's position."""
    KEPT = "kept"
    """The flow has copied nothing behind MirrorMaker 2's own position, which stays."""
    LEFT_OUT = "left-out"
    """MirrorMaker 2 would lose or double records: it must not continue here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnDecision:
    """What becomes of a partition."""

    source: TopicPartition
    target: TopicPartition
    outcome: Return
    stored: int | None
    """The offset that MirrorMaker 2 has stored of the last record that it has copied."""
    next_offset: int | None = None
    """The source offset at which MirrorMaker 2 continues."""
    reason: str = ""
    """Why it is left out."""


class StoredPosition(NamedTuple):
    """A record of MirrorMaker 2's positions, as Kafka Connect writes it."""

    partition: int
    key: bytes
    value: bytes


# Invariant: MirrorMaker 2 gets only a position that is exact: a partition that was interrupted, forgotten, or whose
#   last commits were lost is left out until a run has settled it.
# Test: tests/takeover/test_hand_back_on_fakes.py::test_partition_whose_position_is_not_certain_is_left_out
# Test: tests/takeover/
#   test_hand_back_on_fakes.py::test_a_partition_whose_last_commits_are_lost_is_left_out_until_the_flow_has_run
def decide(
    facts: Facts | Continuation,
    recorded: Progress | None,
    *,
    exactly_once: bool,
    not_fenced: MirrorError | None = None,
    has_lost_commits: bool = False,
) -> ReturnDecision:
    """Return what becomes of a partition.

    ``facts`` are a Continuation if the partition cannot be read. ``recorded`` is the progress of the flow's progress
    topic, which outlives the committed one. ``exactly_once`` says how the flow copies. ``not_fenced`` is why its
    earlier attempts may still append. ``has_lost_commits``: the target has what a lost commit of the progress had
    covered.
    """
    if isinstance(facts, Continuation):
        return _left_out(facts, facts.reason)
    if not_fenced is not None:
        return _left_out(facts, f"earlier attempts of the flow could not be fenced, and may still append: {not_fenced}")
    progress = facts.progress
    if progress is None:
        own = 0 if facts.stored is None else facts.stored + 1
        if recorded is not None and recorded.offset > own:
            return _left_out(facts, "its committed progress was forgotten: run the flow once, which restores it")
        return ReturnDecision(
            source=facts.source,
            target=facts.target,
            outcome=Return.KEPT,
            stored=facts.stored,
            next_offset=None if facts.stored is None else own,
        )
    reason = _gap_of(progress, facts.source_log) or _why_not(
        progress, facts.target_log, facts.stored, exactly_once=exactly_once
    )
    if not reason and has_lost_commits:
        reason = "the target has lost commits of the flow, which has copied more than its progress says: run it once"
    if reason:
        return _left_out(facts, reason)
    return ReturnDecision(
        source=facts.source,
        target=facts.target,
        outcome=Return.HANDED_BACK if progress.offset else Return.KEPT,
        stored=facts.stored,
        next_offset=progress.offset or None,
    )


def _gap_of(progress: Progress, source: SourceLog) -> str:
    """Return why the source cannot be copied from ``progress`` on: MirrorMaker 2 skips what is lost in silence."""
    gap = find_gap(progress, source.topic_id, source.first, source.stable_end)
    return "" if gap is None else f"{gap}; run the flow first, and {gap.advice()}"


def _why_not(progress: Progress, target: TargetLog | None, stored: int | None, *, exactly_once: bool) -> str:
    mark = progress.target
    if target is None:
        return "the target has no such partition any more"
    if stored is not None and stored >= progress.offset:
        return (
            f"MirrorMaker 2 has copied up to offset {stored} itself, and the flow only up to {progress.offset - 1}:"
            " take it over again first"
        )
    if mark is None or is_other_topic(mark, target.topic_id):
        return "the target's topic is not the one that the flow has copied into"
    if target.end < mark.end:
        return f"the target's log ended at {mark.end}, and now at {target.end}: run the flow once, which repairs it"
    if not progress.exact or (not exactly_once and target.end > mark.end):
        return "the flow's last run was interrupted, and has copied more than its progress says: run the flow once more"
    return ""


def _left_out(partition: Facts | Continuation, reason: str) -> ReturnDecision:
    return ReturnDecision(
        source=partition.source,
        target=partition.target,
        outcome=Return.LEFT_OUT,
        stored=partition.stored,
        reason=reason,
    )


def keys_of(records: Iterable[Record], connector: str, cluster: str) -> dict[TopicPartition, set[bytes]]:
    """Return the keys of each source partition's position, as they are: MirrorMaker 2 looks it up by its own bytes."""
    found: dict[TopicPartition, set[bytes]] = defaultdict(set)
    for record in records:
        key = SourceOffsetKey.parse(record.key)
        if key is not None and record.key is not None and (key.connector, key.cluster) == (connector, cluster):
            found[key.tp].add(record.key)
    return found


def positions_of(
    decisions: Iterable[ReturnDecision],
    keys: Mapping[TopicPartition, Collection[bytes]],
    *,
    connector: str,
    cluster: str,
    partitions: int,
) -> list[StoredPosition]:
    """Return what is to be written for those that are handed back.

    A position is written under the key that Kafka Connect makes, and under all ``keys`` that the topic has for it, so
    that none of them says anything else. The topic has so many ``partitions``. Raises InvalidArgument for a name that
    is no Unicode text.
    """
    found = []
    for one in decisions:
        if one.outcome is Return.HANDED_BACK and one.next_offset is not None:
            value = encode_offset(one.next_offset - 1)
            own = SourceOffsetKey(connector, cluster, one.source).to_bytes()
            found += [
                StoredPosition(partition_of(key, partitions), key, value)
                for key in sorted({own, *keys.get(one.source, ())})
            ]
    return found


_TEXTS: Final = {
    Return.HANDED_BACK: "MirrorMaker 2 continues at {at}",
    Return.KEPT: "MirrorMaker 2 keeps its own position{at}",
    Return.LEFT_OUT: "left out: {reason}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBackReport:
    """One flow that was handed back, or would be."""

    flow: str
    source: str
    target: str
    dry_run: bool
    offsets_topic: str
    connector: str
    decisions: Sequence[ReturnDecision]
    not_removed: Sequence[str] = ()
    """Errors about progress of the flow that is there still: with it, the flow would copy behind MirrorMaker 2."""
    warnings: Sequence[str] = ()

    @property
    def is_complete(self) -> bool:
        """Whether no partition was left out, and no progress of the flow is left."""
        return not self._left_out and not self.not_removed

    @property
    def _left_out(self) -> bool:
        return any(one.outcome is Return.LEFT_OUT for one in self.decisions)

    def lines(self) -> Iterator[str]:
        """Yield the report as lines."""
        dry_run = ", dry run: nothing is changed" if self.dry_run else ""
        yield f"flow {self.flow}: {self.source} to {self.target}, back to MirrorMaker 2{dry_run}"
        yield f"  positions of {self.connector} are in {self.offsets_topic}"
        for one in self.decisions:
            at = f" and continues at {one.next_offset}" if one.next_offset is not None else ""
            shown = at if one.outcome is Return.KEPT else one.next_offset
            stored = "none" if one.stored is None else one.stored
            yield f"  {one.source}: {_TEXTS[one.outcome].format(at=shown, reason=one.reason)} (stored offset: {stored})"
        counts = Counter(one.outcome for one in self.decisions)
        yield "  " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in Return if counts[outcome])
        if self._left_out:
            yield "  before the rest is handed back, do not start MirrorMaker 2, or exclude these topics there"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "flow": self.flow,
            "source": self.source,
            "target": self.target,
            "dry_run": self.dry_run,
            "complete": self.is_complete,
            "mirrormaker": {"offsets_topic": self.offsets_topic, "connector": self.connector},
            "partitions": [
                {
                    "topic": one.source.topic,
                    "target_topic": one.target.topic,
                    "partition": one.source.partition,
                    "outcome": one.outcome.value,
                    "stored": one.stored,
                    "next_offset": one.next_offset,
                    "reason": one.reason or None,
                }
                for one in self.decisions
            ],
            "not_removed": [*self.not_removed],
            "warnings": [*self.warnings],
        }
