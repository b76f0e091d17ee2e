"""Decides what one partition of a group would read again and skip on the new cluster, and whether it is ready. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mirror.cluster.types import TopicPartition
from mirror.errors import KafkaError
from mirror.groups.back_positions import BackReason
from mirror.groups.commit_decision import Reason
from mirror.groups.summary import counted
from mirror.rehearsal.advice import Advice
from mirror.rehearsal.values import GroupMove, GroupRehearsal, Limits, Why
from mirror.relay.offsets.copy_count import Move

_HOLDS: Final = frozenset(
    str(one)
    for one in (
        Reason.ACTIVE,
        Reason.TAKEN_OVER,
        Reason.UNKNOWN,
        Reason.NOT_SUPPORTED,
        Reason.UNAUTHORIZED,
        Reason.UNAVAILABLE,
        Reason.NO_PARTITION,
        Reason.REFUSED,
        Reason.OTHER_RUN,
        BackReason.ACTIVE,
    )
)
"""Reasons for which a group is not ready, whatever it would read. With the others it would continue where it is."""

Count = Callable[[int, int], Move | None]
"""What a group reads again and skips that goes from an offset of the old log to one of the new log; None: not known.

Raises KafkaError.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One partition of a group, as it was read from both clusters."""

    old: TopicPartition
    new: TopicPartition
    old_offset: int | None
    """Where the group would continue on the old cluster; None if it has no position there, or that is not known."""
    new_offset: int | None
    """What it has committed on the new cluster."""
    log: tuple[int, int] | None
    """The start and the end (high watermark) of the new log; None if they could not be read."""
    copied_to: int | None
    """The offset of the old log up to which all has arrived."""
    old_end: int | None
    """The end of the old log, as far as it can be read."""
    has_old_position: bool = True
    """Whether it has a position on the old cluster, also if that could not be read."""
    passed: int = 0
    """As of :class:`GroupMove`."""
    reason: str = ""
    """Why its position on the new cluster is not the same record's: a reason of its round."""
    detail: str = ""


# Invariant: What cannot be counted is not ready: neither an age nor a rate nor a position is guessed.
# Test: tests/rehearsal/test_readiness.py::test_what_cannot_be_counted_is_not_ready
# Test: tests/rehearsal/test_summary.py::test_what_is_not_known_is_over_a_limit
def rehearse_partition(seen: Seen, count: Count, advice: Advice, limits: Limits) -> GroupMove:
    """Return what would happen to one partition of a group."""
    move = GroupMove(
        old=seen.old,
        new=seen.new,
        old_offset=seen.old_offset,
        new_offset=seen.new_offset,
        passed=seen.passed,
        not_arrived=_not_arrived(seen),
        note=seen.reason,
        detail=seen.detail,
    )
    if not seen.has_old_position:
        return move  # nothing of it would move: its consumers begin there as they would here
    begins_at, reset = _beginning(seen)
    move = replace(move, begins_at=begins_at)
    counted, why_not = None, ""
    if begins_at is not None and seen.old_offset is not None:
        try:
            counted = count(seen.old_offset, begins_at)
            if reset is not None and seen.log is not None and (latest := count(seen.old_offset, seen.log[1])):
                move = replace(move, at_stake=latest.skipped.records)
        except KafkaError as error:
            why_not = str(error)
    if counted is not None:
        move = replace(
            move,
            read_again=counted.read_again.records,
            read_again_is_exact=counted.read_again.is_exact,
            skipped=counted.skipped.records,
            skipped_is_exact=counted.skipped.is_exact,
        )
    reason = _why_not_ready(seen, move, reset, limits)
    if not reason:
        return move
    also = "" if seen.reason in {"", reason} else f"its position is {seen.reason}"
    detail = "; ".join(filter(None, [_words(reason, move, advice.old), also, seen.detail, why_not]))
    is_deleted = reason == Why.SKIPS and (reset is not None or seen.reason == Reason.PASSED)
    action = advice.of(Reason.PASSED if is_deleted else reason, move.skipped or 0)
    return replace(move, reason=reason, note="", detail=detail, action=action)


def _not_arrived(seen: Seen) -> int | None:
    if seen.old_offset is None or seen.old_end is None or seen.copied_to is None:
        return None
    return max(0, seen.old_end - max(seen.old_offset, seen.copied_to))


def _beginning(seen: Seen) -> tuple[int | None, Why | None]:
    """Return where the group would begin, and why auto.offset.reset decides; then that is the start of the log."""
    start = None if seen.log is None else seen.log[0]
    if seen.new_offset is None:
        return start, Why.NO_POSITION
    if seen.log is not None and not seen.log[0] <= seen.new_offset <= seen.log[1]:
        return start, Why.OUT_OF_RANGE
    return seen.new_offset, None


def _why_not_ready(seen: Seen, move: GroupMove, reset: Why | None, limits: Limits) -> str:
    """Return the worst reason: records that are skipped come first."""
    if move.skipped:
        return Why.MOVED if seen.reason == Reason.ACTIVE else Why.SKIPS
    if seen.reason in _HOLDS:
        return seen.reason
    if reset is not None:
        return reset
    if move.skipped is None or seen.log is None:
        return Why.NOT_KNOWN
    if limits.max_records is not None and (move.read_again or 0) > limits.max_records:
        return Why.READ_AGAIN
    return ""


def _words(reason: str, move: GroupMove, old: str) -> str:
    at_most = "" if move.skipped_is_exact else "up to "
    match reason:
        case Why.SKIPS | Why.MOVED:
            return f"{at_most}{counted(move.skipped or 0, 'record')} in front of its position, not read on {old}"
        case Why.NO_POSITION | Why.OUT_OF_RANGE if move.at_stake:
            return f'with auto.offset.reset = "latest" it would skip {counted(move.at_stake, "record")}'
        case Why.NO_POSITION | Why.OUT_OF_RANGE:
            return "auto.offset.reset decides where it begins"
        case Why.READ_AGAIN:
            return f"{counted(move.read_again or 0, 'record')} would be read again"
    return ""


def in_order(groups: list[GroupRehearsal]) -> tuple[GroupRehearsal, ...]:
    """Return the groups with the worst first: those that skip records, then what is not ready, then by name."""
    return tuple(sorted(groups, key=lambda one: (-one.skipped, one.is_ready, one.group)))


def group_of(group: str, moves: list[GroupMove], reason: str, detail: str, advice: Advice) -> GroupRehearsal:
    """Return a group; ``reason``: why nothing of it can be read, which holds all of it."""
    ordered = sorted(moves, key=lambda one: (-(one.skipped or 0), one.is_ready, one.old))
    return GroupRehearsal(
        group=group,
        moves=tuple(ordered),
        reason=reason,
        detail=detail,
        action=advice.of(reason) if reason else "",
    )
