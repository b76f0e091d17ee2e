"""What a flow makes of the positions that the flow in the other direction has written. Pure.

A group moves from one cluster to the other and back. The flow that brings it over has an intent for it, and while both
flows run, only that one: so each of them knows in which direction the group has moved last.
"""

from __future__ import annotations

from mirror.groups.commit_decision import NEVER, Act, CommitDecision, Intent


# Invariant: Two flows bring a group there and back, and neither undoes what the other has done: no order of rounds and
#   consumers skips a record.
# Test: tests/groups/test_handover_model.py::test_no_order_of_rounds_and_consumers_skips_a_record
# Test: tests/groups/test_handover_model.py::test_planned_moves_are_exact_any_number_of_times
# Test: tests/groups/test_both_ways_on_fakes.py::test_a_position_behind_records_of_others_stays_on_the_target
def is_theirs(theirs: Intent | None, committed: int | None) -> bool:
    """Whether the other flow has put the group where it is on this flow's source: it comes from the target."""
    return theirs is not None and committed is not None and committed in {theirs.target, *theirs.others}


def has_left(theirs: Intent | None, mine: Intent | None, at_target: int | None) -> bool:
    """Whether the group has left the target from ``at_target``, which this flow has not written.

    It has, if the other flow has brought it to the source from there, or from an earlier position that it had on the
    target since this flow has written it last. Then the offset is replaced by a later one, once. Any other offset is a
    takeover.
    """
    if theirs is None or at_target is None or theirs.source > at_target:
        return False
    return theirs.source >= (NEVER if mine is None else mine.target)


def came_back(
    theirs: Intent | None,
    mine: Intent | None,
    committed: int | None,
    at_target: int | None,
    now_ms: int,
    *,
    both_directions: bool = False,
) -> CommitDecision | None:
    """Return what to do about a group that the other flow has put where it is on the source; None: it has not.

    Nothing is brought over: the group is further on the target, or there is what this position is a translation of. An
    intent is of no use then, unless its commit may still arrive. Without an offset on the target, there is nothing that
    the position came from any more, and with one that this flow has written, the group never left.

    ``both_directions``: positions are the lowest ones that skip nothing. Then what the other flow has committed for
    just what is on the target must not be translated back: that would be lower, and so on.
    """
    if at_target is None or theirs is None or not is_theirs(theirs, committed):
        return None
    if mine is not None and mine.is_own(at_target):
        is_translation = (theirs.target, theirs.source) == (committed, at_target)
        return CommitDecision(Act.NOTHING) if both_directions and is_translation else None
    is_settled = mine is not None and mine.previous == NEVER and not mine.at(now_ms).others
    return CommitDecision(Act.FORGET if is_settled else Act.NOTHING)
