"""Two flows, and a group that is consumed on either side: nothing is skipped, and planned moves are exact."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.commit_decision import Act, CommitDecision, Intent, Observed, decide, next_intent
from mirror.groups.other_direction import came_back, has_left
from mirror.relay.offsets.index import Place, Translation

A, B = 0, 1
SHIFT = (100, -100)
"""From an offset of A to that of the same record on B, and back."""


@dataclass
class Model:
    """Where the group is on each side, what the flow that writes there intends, and what the group has read."""

    committed: list[int | None] = field(default_factory=lambda: [None, None])
    intents: list[Intent | None] = field(default_factory=lambda: [None, None])
    """Of the flow that writes to A, and of that which writes to B."""
    read: int = 0
    """All records in front of this one were read, as an offset of A."""

    def consume(self, side: int, ahead: int, behind: int) -> None:
        """Read on from the position, and commit in front of the last ``behind`` records that were read."""
        offset = self.committed[side]
        position = 0 if offset is None else offset - SHIFT[0] * side
        assert position <= self.read, "records were skipped"
        self.read = max(self.read, position + ahead)
        self.committed[side] = position + max(0, ahead - behind) + SHIFT[0] * side

    def round(self, target: int, *, killed: bool = False) -> None:
        """``killed``: between the intent and its commit."""
        source = 1 - target
        offset, there, mine = self.committed[source], self.committed[target], self.intents[target]
        theirs = self.intents[source]
        if offset is None and there is None:
            return
        found = came_back(theirs, mine, offset, there, 0)
        left = has_left(theirs, mine, there)
        moved = Translation(Place.RECORD, (offset or 0) + SHIFT[source])
        seen = Observed(source=offset, target=there, translation=moved, intent=mine, left=left)
        found = found or decide(seen, delete=False)
        if found.act is Act.FORGET:
            self.intents[target] = None
        if found.act is Act.WRITE and found.position is not None:
            intent = next_intent(seen, found.position, epoch=-1, now_ms=0)
            self.intents[target] = intent if killed else intent.settled()
            if not killed:
                self.committed[target] = found.position.target


SIDES = st.sampled_from([A, B])
ROUNDS = st.tuples(st.just("round"), SIDES, st.booleans())
CONSUMED = st.tuples(st.just("consume"), SIDES, st.integers(0, 9), st.integers(0, 3))


@given(st.lists(ROUNDS | CONSUMED, max_size=40))
def test_no_order_of_rounds_and_consumers_skips_a_record(steps: list[tuple[str, int, int, int]]) -> None:
    model = Model()
    for kind, side, *rest in steps:
        if kind == "round":
            model.round(side, killed=bool(rest[0]))
        else:
            model.consume(side, *rest)
    model.consume(A, 0, 0)
    model.consume(B, 0, 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), SIDES, st.booleans()), max_size=20))
def test_planned_moves_are_exact_any_number_of_times(moves: list[tuple[int, int, int, bool]]) -> None:
    """The consumer stops, and starts on the other side after rounds in any order, of which one may have been killed."""
    model, side = Model(), A
    for ahead, behind, first, killed in moves:
        before = model.committed[side]
        model.consume(side, ahead, min(behind, ahead - 1))
        assert before is None or (model.committed[side] or 0) > before
        for turn, target in enumerate((first, 1 - first) * 3):
            model.round(target, killed=killed and turn == 0)
        offset, other = model.committed[side], model.committed[1 - side]
        assert offset is not None
        assert other == offset + SHIFT[side]
        side = 1 - side


def test_an_offset_is_left_behind_if_the_other_flow_began_at_or_in_front_of_it() -> None:
    theirs = Intent(source=200, target=100)
    assert has_left(theirs, None, 200)
    assert has_left(theirs, Intent(source=37, target=137), 250)
    assert not has_left(theirs, None, 199), "the target's group was reset"
    assert not has_left(theirs, None, None)
    assert not has_left(None, None, 200)


def test_an_offset_that_follows_this_flow_s_own_is_a_takeover_although_the_other_flow_has_an_older_intent() -> None:
    assert not has_left(Intent(source=37, target=137), Intent(source=300, target=200), 205)


def test_an_intent_is_kept_as_long_as_its_commit_may_arrive() -> None:
    theirs = Intent(source=300, target=200)
    settled = Intent(source=150, target=250)
    assert came_back(theirs, settled, 200, 300, 0) == CommitDecision(Act.FORGET)
    unsettled = settled._replace(previous=240, previous_source=140)
    late = settled._replace(others=(230,), others_until_ms=10)
    for mine in (None, unsettled, late):
        assert came_back(theirs, mine, 200, 300, 0) == CommitDecision(Act.NOTHING)
    assert came_back(theirs, late, 200, 300, 10) == CommitDecision(Act.FORGET)
    assert came_back(theirs, settled, 200, 250, 0) is None, "the group never left"
    assert came_back(theirs, settled, 201, 300, 0) is None, "the group has moved on the source"


def test_a_lowest_position_is_not_translated_back_to_what_it_came_from() -> None:
    """The group's offset has expired, and the other flow has brought it back from what this flow had written."""
    mine, theirs = Intent(source=300, target=150), Intent(source=150, target=290)
    assert came_back(theirs, mine, 290, 150, 0, both_directions=True) == CommitDecision(Act.NOTHING)
    assert came_back(theirs, mine, 290, 150, 0) is None
    assert came_back(theirs._replace(source=140), mine, 290, 150, 0, both_directions=True) is None
