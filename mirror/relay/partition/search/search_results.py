"""What a search for the exact position concludes: the position, or why it cannot be shown. Pure."""

from __future__ import annotations

from dataclasses import replace

from mirror.errors import FlowError
from mirror.relay.batches.own_appends import OwnAppends
from mirror.relay.progress.committed import Progress, Searched
from mirror.relay.progress.position import FoundPosition, PositionQuery
from mirror.relay.progress.target_log import TargetMark, truncated_error
from mirror.relay.progress.target_loss import TargetLoss


def marked_end(query: PositionQuery) -> int:
    """Return the target offset behind which everything may count: an exact one, if one is known."""
    mark = query.progress.target
    if mark is None:
        return 0
    return mark.end if query.loss is not None else mark.exact_end


def settled_mark(query: PositionQuery, appends: OwnAppends) -> TargetMark | None:
    """Return the mark of the progress with its exact end, if that is known now."""
    mark = query.progress.target
    if mark is None or (appends.covered_end is None and query.loss is None):
        return mark
    return mark.ending_at(max(mark.end, appends.covered_end or 0))


def found_position(query: PositionQuery, progress: Progress, appends: OwnAppends) -> FoundPosition:
    """Return the position, with a mark at the last own batch: markers of a fence may be followed by other ones."""
    mark, last = query.progress.target, appends.last
    if last is not None:
        topic_id = "" if mark is None else mark.topic_id
        epoch = appends.leader_epoch
        mark = TargetMark(
            topic_id=topic_id, end=last.end, leader_epoch=epoch, producer_id=last.producer_id, batch=last.batch
        ).ending_at(last.end)
    return FoundPosition(replace(progress, target=mark, searched=searched_to(appends)), appends.totals)


# Invariant: What was searched once need not be there any more, and behind an attempt that has ended nothing was
#   appended: retention may delete all of it.
# Test: tests/relay/partition/test_sequences_races.py::test_retention_may_delete_all_that_an_ended_attempt_copied
def searched_to(appends: OwnAppends) -> Searched | None:
    """Return how far the log was searched; None if that is not known."""
    epoch = appends.leader_epoch
    return None if epoch is None or appends.end is None else Searched(appends.end, epoch)


def unhealed_error(query: PositionQuery, loss: TargetLoss, reason: str) -> FlowError:
    """Return the error of a target whose ``loss`` cannot be mended."""
    unhealed = f"what still stands from the target's offset {marked_end(query)} on is not what the source has: {reason}"
    copied_to = None if loss.progress is None else loss.progress.offset
    mark = TargetMark(topic_id="", end=loss.end)
    return truncated_error(loss.flow, query.target, mark, loss.cut, copied_to, unhealed)


def unproved_error(query: PositionQuery, appends: OwnAppends, reason: str) -> FlowError:
    """Return the error of a position that cannot be shown, although something was appended."""
    return FlowError(
        f"position-unproved: how far {query.source} was copied into {query.target} cannot be shown from the source's"
        f" offset {query.progress.offset} and the target's offset {appends.start} on, behind which an earlier"
        f" attempt appended {appends.totals.records} records: {reason}; if the flow's transform, or its headers,"
        " were changed since, change them back for one run; otherwise compare the two partitions from these offsets on"
        " with kafka-console-consumer, and copy the rest under another flow name with from, or set start-over = true to"
        " copy again from the flow's start (what is still in the target is then there twice)"
    )
