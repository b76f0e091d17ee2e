"""Progress: the next source offset to copy, stored as committed offsets on the target.

The offsets are keyed by the *target* topic and partition, in one of 16 groups per flow: a single group would send every
commit to one coordinator partition. The metadata names the source that the offsets belong to.

Exactly once, these groups are written only in transactions, so that an earlier attempt which is still running cannot
change them once it is fenced. A partition that is copied by sequences has two offsets. The *claim*, in these groups, is
written by the fence with which an attempt begins. The *lazy progress*, in groups of its own, is committed plainly
while the attempt copies. Both say truly which records the target had received; neither says that these were the last.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, Protocol

from mirror.cluster.types import OffsetAndMetadata, Outcomes, TopicPartition
from mirror.errors import FlowError, KafkaError
from mirror.relay.model.way import Way
from mirror.relay.progress import stored_record
from mirror.relay.progress.anchors import NO_ANCHOR, AnchorCount
from mirror.relay.progress.stored_record import Int16, Int32, Int64
from mirror.relay.progress.target_log import TargetMark

SHARDS: Final = 16


class ProgressTotals(NamedTuple):
    """Counts of what was copied; bytes as on the wire."""

    records: int = 0
    batches: int = 0
    bytes: int = 0


NO_TOTALS: Final = ProgressTotals()


class Searched(NamedTuple):
    """How far a target's log was searched for what earlier attempts had appended: all of it is in the progress."""

    end: int
    """The target offset behind the marker of the fence."""
    leader_epoch: Int32
    """The leader epoch in which that marker was appended."""


class Beginning(NamedTuple):
    """Where a copy has begun: the records that it has copied are in both logs from these offsets on."""

    source: int
    target: int


# Invariant: Progress is committed with the transaction that carries the data, under the leader epoch of the last copied
#   batch, by which a truncated source is found.
# Test: tests/relay/partition/test_machine.py::test_progress_has_the_leader_epoch_of_the_last_batch
@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The committed progress of one partition."""

    offset: int
    """The next source offset to copy."""
    leader_epoch: Int32 | None
    """The source's leader epoch of the last batch copied; None if there is none."""
    source_cluster_id: str
    topic_id: str
    """The id of the source topic."""
    time_ms: int = 0
    """When it was committed (ms since 1970); 0 if that is not known."""
    target: TargetMark | None = None
    """The log that it was copied into; None if that is not known: another program has committed it."""
    way: Way = Way.TRANSACTIONS
    """By which way the attempt copies that committed it. By sequences, the target may hold records behind it."""
    generation: int = 0
    """Set when a copy starts, starts over or moves back (ms since 1970). Lazy progress of another one is void."""
    producer_id: Int64 = -1
    """The producer id of the attempt that committed it, by sequences; otherwise -1."""
    earlier_ids: frozenset[Int64] = frozenset()
    """More producer ids of attempts that may have appended behind it: each claim of a search that did not end."""
    attempt: Int16 = -1
    """The producer epoch of the claim of the attempt that committed it, by sequences; otherwise -1."""
    ended: bool = False
    """Whether that attempt sends nothing more, and nothing of it is behind this progress."""
    searched: Searched | None = None
    """How far the target's log was searched, by sequences."""
    claimed_ms: int = 0
    """Of lazy progress that was read: when its claim was committed (ms since 1970). It is not stored."""
    claimed_by: tuple[int, int] | None = None
    """Of lazy progress that was read: the producer id and the attempt of its claim. It is not stored."""
    anchor: AnchorCount = NO_ANCHOR
    """The last anchor that was made before."""
    series: int = 0
    """Set when a copy starts or starts over (ms since 1970). Anchors of another series are void."""
    beginning: Beginning | None = None
    """Where the series begins; None if that is not known: another program has committed it."""
    source_topic: str = ""
    """The name of the source topic; empty if that is not known: an earlier release has committed it."""

    @property
    def exact(self) -> bool:
        """Whether the target holds nothing behind it; otherwise it is a lower bound."""
        return self.way is Way.TRANSACTIONS or self.ended

    # Invariant: Nothing is copied behind the records of another source topic, also if a rule gives its copy's name to
    #   this one.
    # Test: tests/relay/partition/test_machine.py::test_progress_of_another_source_topic_fails_the_copy
    # Test: tests/alignment/test_renamed_copies_on_fakes.py::test_nothing_of_another_topic_touches_the_copy
    def is_of_topic(self, name: str) -> bool:
        """Return whether it is that of the source topic of this name, as far as is known."""
        return self.source_topic in {"", name}

    @property
    def claim(self) -> tuple[int, int]:
        """The producer id and the attempt of the claim: a fenced attempt may have committed lazy progress since."""
        return self.claimed_by or (self.producer_id, self.attempt)

    # Invariant: A claim names all producer ids that may have appended behind it: also those of attempts that died
    #   before they committed a position.
    # Test: tests/relay/partition/writers/
    #   test_fence.py::test_attempts_that_died_before_they_committed_a_position_are_all_searched_for
    @property
    def appender_ids(self) -> frozenset[int]:
        """The producer ids of the attempts that may have appended behind it.

        In transactions these are no plain batches: such a mark is that of a copy at least once, which may repeat some.
        """
        known = self.target is not None and (self.way is Way.SEQUENCES or self.target.batch is None)
        marked = self.target.producer_id if self.target is not None and known else -1
        return frozenset({*self.earlier_ids, self.producer_id, marked} - {-1})


class StartChanged(KafkaError):
    """Where an attempt began is not valid any more: the next one resolves its start again."""


class ProgressChanged(StartChanged):
    """Another attempt has changed the progress since it was read: what was concluded from it may be wrong."""

    def __init__(self) -> None:
        super().__init__("another attempt has changed the progress meanwhile")


def group_of(flow: str, tp: TopicPartition) -> str:
    """Return the group that stores a target partition's progress; the same in every process and version."""
    return f"mirror.{flow}.{shard_of(tp)}"


def shard_of(tp: TopicPartition) -> int:
    """Return the number of the group that stores a target partition's progress, from 0 to ``SHARDS`` - 1."""
    return zlib.crc32(str(tp).encode()) % SHARDS


def renewal_ms(tp: TopicPartition, most_ms: int) -> int:
    """Return the age at which what has to be younger than ``most_ms`` is renewed for a target partition.

    It is between half of ``most_ms`` and all of it: partitions that have begun together are not renewed together.
    """
    return most_ms - zlib.crc32(str(tp).encode()) % max(1, most_ms // 2)


def lazy_group_of(flow: str, tp: TopicPartition) -> str:
    """Return the group that stores the lazy progress of a target partition."""
    return f"mirror.{flow}.progress.{shard_of(tp)}"


def group_names(flow: str) -> list[str]:
    """Return all groups that store a flow's progress."""
    groups = f"mirror.{flow}"
    return [f"{group}.{shard}" for group in (groups, f"{groups}.progress") for shard in range(SHARDS)]


# Invariant: Lazy progress counts only from the claim of its own generation on: what moves a position back begins a new
#   generation.
# Test: tests/relay/progress/test_committed.py::test_lazy_progress_counts_from_the_claim_on
# Test: tests/relay/partition/test_gap_check.py::test_lazy_progress_of_a_log_that_the_copy_has_left_does_not_count
def latest_of(claim: Progress, lazy: Progress | None) -> Progress:
    """Return the later of both. Lazy progress counts only for the way, and in the generation, of the claim.

    A fenced attempt may commit its lazy progress late: that is no more than what the target had received from it, and
    never beyond the claim of a later attempt in transactions, which is exact. That its attempt has ended counts only if
    the claim is that attempt's, too: otherwise another one may have appended since.
    """
    if claim.way is not Way.SEQUENCES or lazy is None or lazy.generation != claim.generation:
        return claim
    if (lazy.offset, lazy.time_ms) < (claim.offset, claim.time_ms):
        return claim
    of_claim = claim.attempt >= 0 and (lazy.producer_id, lazy.attempt) == (claim.producer_id, claim.attempt)
    return replace(
        lazy,
        way=Way.SEQUENCES,
        # The attempt of the claim may have appended, even if it never committed its progress.
        earlier_ids=frozenset({*claim.earlier_ids, claim.producer_id} - {lazy.producer_id, -1}),
        ended=lazy.ended and of_claim,
        claimed_ms=claim.time_ms,
        claimed_by=claim.claim,
    )


def to_offset(progress: Progress) -> OffsetAndMetadata:
    """Return ``progress`` as an offset to commit."""
    without = _NOT_STORED if progress.way is Way.SEQUENCES else _NOT_STORED | _OF_SEQUENCES
    metadata = stored_record.encode(progress, without).decode()
    return OffsetAndMetadata(progress.offset, progress.leader_epoch, metadata)


_NOT_STORED: Final = frozenset({"offset", "leader_epoch", "claimed_ms", "claimed_by"})
"""Fields that the metadata does not have."""
_OF_SEQUENCES: Final = frozenset({"producer_id", "earlier_ids", "attempt", "ended", "searched"})
"""Fields that mean nothing in transactions: what an attempt there takes over from sequences is not stored again."""
_OF_ATTEMPT: Final = _OF_SEQUENCES | {"way", "generation", "claimed_ms", "claimed_by"}
_NO_ATTEMPT: Final[Mapping[str, Any]] = {one.name: one.default for one in fields(Progress) if one.name in _OF_ATTEMPT}


def without_attempt(progress: Progress) -> Progress:
    """Return the progress of a position that nothing is behind, whatever its attempt was."""
    return replace(progress, **_NO_ATTEMPT)


# Invariant: Nothing that is stored on a broker is trusted, because any client may have written it: what cannot be read
#   counts as absent, and progress of another source cluster fails the copy.
# Test: tests/relay/partition/test_machine.py::test_progress_of_another_source_cluster_fails_the_copy
# Test: tests/relay/progress/test_status_values.py::test_anything_that_is_stored_is_a_value_to_compute_with_or_nothing
def from_offset(committed: OffsetAndMetadata) -> Progress:
    """Parse a committed offset. Never raises: one that another program committed has no cluster, topic and time."""
    known: dict[str, Any] = {"offset": committed.offset, "leader_epoch": committed.leader_epoch}
    found = stored_record.decode(Progress, committed.metadata, **known, claimed_ms=0, claimed_by=None)
    return found or Progress(**known, source_cluster_id="", topic_id="")


def metadata_error(flow: str) -> FlowError:
    """Return the error of a target that cannot be copied to by sequences: the same one for all its partitions."""
    return FlowError(
        f"metadata-not-kept: the target's brokers do not keep the metadata of committed offsets, without which flow"
        f" {flow} cannot copy by sequences: nothing would show what a killed attempt has appended; set exactly-once-by"
        ' = "transactions", or delivery = "at-least-once", which need only the offset; nothing shows then that a topic'
        " was made again, or that the target has lost records"
    )


class OffsetsAdmin(Protocol):
    """The part of ``Admin`` that is needed to read progress."""

    def offsets_of_groups_async(
        self, groups: Mapping[str, Collection[TopicPartition]], timeout_ms: int | None = None
    ) -> Future[Outcomes[str, Outcomes[TopicPartition, OffsetAndMetadata]]]:
        """Return the offsets that groups have committed."""
        ...


def read_progress(admin: OffsetsAdmin, flow: str, tps: Collection[TopicPartition]) -> dict[TopicPartition, Progress]:
    """Return the progress of these target partitions, without those that have none. Raises KafkaError.

    Open transactions are not waited for: what they would commit is not included. A copy that was killed during a
    commit leaves its transaction open until ``transaction.timeout.ms``, or until the next attempt fences it, and that
    attempt needs a plan first.
    """
    found = read_each_progress(admin, flow, tps, None)
    for error in found.failed.values():
        raise error
    return dict(found)


def read_each_progress(
    admin: OffsetsAdmin, flow: str, tps: Collection[TopicPartition], timeout_ms: int | None
) -> Outcomes[TopicPartition, Progress]:
    """Do what :func:`read_progress` does; the errors of partitions whose progress cannot be read are ``failed``.

    It takes up to twice ``timeout_ms``.
    """
    claims = _read_each(admin, flow, tps, group_of, timeout_ms)
    # Only these have lazy progress: a flow in transactions needs no access to its groups.
    by_sequences = [tp for tp, claim in claims.items() if claim.way is Way.SEQUENCES]
    lazy = _read_each(admin, flow, by_sequences, lazy_group_of, timeout_ms)
    found = {tp: latest_of(claim, lazy.get(tp)) for tp, claim in claims.items() if tp not in lazy.failed}
    return Outcomes(found, {**claims.failed, **lazy.failed})


def _read_each(
    admin: OffsetsAdmin,
    flow: str,
    tps: Collection[TopicPartition],
    group_of_tp: Callable[[str, TopicPartition], str],
    timeout_ms: int | None,
) -> Outcomes[TopicPartition, Progress]:
    groups: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in sorted(tps):
        groups[group_of_tp(flow, tp)].append(tp)
    if not groups:
        return Outcomes({}, {})
    outcomes = admin.offsets_of_groups_async(groups, timeout_ms).result()
    found: dict[TopicPartition, Progress] = {}
    failed: dict[TopicPartition, KafkaError] = {}
    for group, members in groups.items():
        if group in outcomes.failed:
            failed.update(dict.fromkeys(members, outcomes.failed[group]))
        else:
            failed.update(outcomes[group].failed)
            found.update({tp: from_offset(committed) for tp, committed in outcomes[group].items()})
    return Outcomes(found, failed)
