"""The position in a log whose records come from both sides, where they are in another order. Pure.

A group at offset p of the source's log has read what is in front of p there: the source's own records, and copies of
the target's own. In the target's log, the records that it has not read are

- the copies of the source's own records at p and behind, which the flow makes;
- the target's own records whose copies on the source are at p or behind, which the flow in the other direction makes;
- the target's own records that are not copied to the source yet.

Its position there is in front of all of them, and as far ahead as that can be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from mirror.relay.offsets.index import Place, Translation

_EXACT: Final = (Place.RECORD, Place.NEXT)
_MOST_PENDING: Final = 16


class EndsSeen(NamedTuple):
    """The ends of both logs, of which the target's was read first.

    What the source has behind its end is copied later, and so behind the target's end: unless the target has lost
    records since, which takes another leader epoch.
    """

    target: int
    source: int
    leader_epoch: int
    """That of the target."""


def appended_from(seen: Sequence[EndsSeen], offset: int) -> int:
    """Return a target offset behind which all copies of the records from a source offset on are, or will be."""
    return max((ends.target for ends in seen if ends.source <= offset), default=0)


def kept_ends(seen: Sequence[EndsSeen], latest: EndsSeen | None, copied_to: int) -> list[EndsSeen]:
    """Return which ends are to be remembered for later: the best one of the past, and some that are not copied yet."""
    if latest is None:
        return list(seen)
    valid = [one for one in seen if one.leader_epoch == latest.leader_epoch and one.target <= latest.target]
    ordered = sorted({*valid, latest})
    passed = [one for one in ordered if one.source <= copied_to][-1:]
    pending = [one for one in ordered if one.source > copied_to]
    if len(pending) > _MOST_PENDING:
        pending = [*pending[:-1:2], pending[-1]]
    return passed + pending


# Invariant: Where both sides feed a topic under one name, a position is as far ahead as it can be without skipping a
#   record, now or later; where more flows feed it, nothing is committed.
# Test: tests/groups/test_lowest_position.py::test_no_position_skips_a_record_now_or_later
# Test: tests/groups/
#   test_lowest_position.py::test_once_all_is_copied_a_position_is_in_front_of_a_record_that_was_not_read
# Test: tests/groups/test_both_ways_model.py::test_no_order_of_rounds_and_consumers_skips_a_record
# Test: tests/groups/test_both_directions_on_fakes.py::test_a_group_moves_there_and_back_and_skips_nothing
# Test: tests/groups/test_both_ways_on_fakes.py::test_topics_that_more_flows_feed_are_held
def lowest_position(ahead: Translation, back: Translation, appended: int, target_end: int | None) -> Translation:
    """Return the target's position, which skips no record.

    ``ahead`` is the translation by the flow's own index, ``back`` that by the index of the flow in the other direction,
    of whose source it is an offset. If no copy of one of the source's own records behind the position is known, all of
    them are, or will be, behind the target offset ``appended``. ``target_end`` is the end of the target's log, if it is
    known. The place is that of the record in front of which the position is; ``NOT_COPIED`` if the
    position will go ahead with the copies.
    """
    if ahead.offset is None or back.offset is None:
        return ahead if ahead.offset is None else back
    copies = ahead.offset if ahead.place in _EXACT else max(ahead.offset, appended)
    offset = min(copies, back.offset)
    if ahead.place is Place.NOT_COPIED:
        return Translation(Place.NOT_COPIED, offset)
    found = [one.place for one, at in ((ahead, copies), (back, back.offset)) if at == offset and one.place in _EXACT]
    if found:
        return Translation(Place.RECORD if Place.RECORD in found else Place.NEXT, offset)
    return Translation(Place.END if offset == target_end else Place.NOT_COPIED, offset)
