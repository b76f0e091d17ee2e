"""Decides about the rows of a round, from what was read on both sides. No I/O but what translations still have to read.

What is decided of these facts is in ``commit_decision.py``.
"""

from __future__ import annotations

from mirror.errors import KafkaError
from mirror.groups.bundles import Committed
from mirror.groups.commit_decision import Act, Observed, Reason, decide, next_intent, passed_text
from mirror.groups.group_partition import GroupPartition, has_other_metadata
from mirror.groups.other_direction import came_back, has_left
from mirror.groups.routes import Route
from mirror.groups.translation.logs import PartitionLogs


def decide_row(
    row: GroupPartition,
    route: Route,
    at_target: Committed | KafkaError,
    logs: PartitionLogs | None,
    now_ms: int,
    *,
    active: bool,
    resumed: int | None,
) -> None:
    """Decide what to do about a row, from what its group has committed on the target, at ``now_ms`` since 1970.

    ``active``: the group has members on the target. ``resumed`` is as :class:`Observed` has it.
    """
    if isinstance(at_target, KafkaError):
        return
    if row.target in at_target.failed:
        row.fail("on the target", at_target.failed[row.target])
        return
    there = at_target.get(row.target)
    row.at_target = None if there is None else there.offset
    if row.translation is None or logs is None:
        return
    theirs = route.intent_of_other(row)
    committed = None if row.committed is None else row.committed.offset
    returned = came_back(theirs, row.intent, committed, row.at_target, now_ms, both_directions=route.is_both_directions)
    if returned is not None:
        row.decision = returned
        return
    standing = None
    if row.intent is not None and row.at_target is not None:
        # Of what is behind its own offset, the intent does not say in which epoch the log had reached that.
        standing = logs.standing(min(row.at_target, row.intent.target), row.intent.epoch)
    row.seen = Observed(
        source=row.continued_at,
        target=row.at_target,
        translation=row.translation,
        copied_to=row.copied_to,
        repeats=route.repeats,
        truncated=row.is_truncated,
        passed=row.passed,
        moved=row.moved,
        waits_for_back=logs.waits_for_back(row.translation),
        intent=None if row.intent is None else row.intent.at(now_ms),
        resumed=resumed,
        left=has_left(theirs, row.intent, row.at_target),
        left_from=None if theirs is None else theirs.source,
        both_directions=route.is_both_directions,
        other_metadata=has_other_metadata(row.committed, there),
        active=active,
        standing=standing,
    )
    row.decision = decide(row.seen, delete=route.delete and not logs.kept_because)
    if row.decision.reason is not None:
        row.detail = _detail(row, route, logs) or row.detail
    position = row.decision.position
    goes_on_at = row.at_target if position is None else position.target
    if row.continued_at is not None and goes_on_at is not None:
        row.read_again = logs.read_again(row.continued_at, goes_on_at)
    if row.decision.act is Act.WRITE and position is not None:
        epoch = logs.epoch_at(position.target)
        row.intent = next_intent(row.seen, position, epoch=epoch, now_ms=now_ms)


def _detail(row: GroupPartition, route: Route, logs: PartitionLogs) -> str:
    """Return what there is to say about the reason of a decision."""
    match row.decision.reason:
        case Reason.UNKNOWN | Reason.NOT_COPIED:
            return logs.unknown_because
        case Reason.NOT_COPIED_BACK if row.translation is not None:
            at = f"{row.target} has records of its own from offset {row.translation.offset} on"
            return f"{at} that flow {route.flows[-1]} has not copied: run it"
        case Reason.PASSED:
            return passed_text(row.passed, "target")
        case Reason.TRUNCATED:
            return f"the source has lost the records from offset {row.continued_at} on"
        case Reason.DELETED if route.delete:
            return logs.kept_because
    return ""
