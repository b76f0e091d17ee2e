"""Two flows feed a topic from each other's side, and bring a group there and back: no order of events skips a record.

A consumer goes on at either side, from what is committed there. Once all is copied, both positions stay as they are.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mirror.groups.commit_decision import Act, Intent, Observed, decide, next_intent
from mirror.groups.other_direction import came_back, has_left
from mirror.relay.offsets.index import UNKNOWN
from tests.groups.both_sides import A, B, BothSides, Record
from tests.groups.test_lowest_position import BEFORE, SIDES, step

STEPS = st.lists(
    st.tuples(st.just("produce"), SIDES, st.integers(1, 4))
    | st.tuples(st.just("mark"), SIDES, st.just(0))
    | st.tuples(st.just("copy"), SIDES, st.integers(1, 6))
    | st.tuples(st.just("commit"), SIDES, st.booleans())
    | st.tuples(st.just("round"), SIDES, st.booleans())
    | st.tuples(st.just("consume"), SIDES, st.tuples(st.integers(0, 9), st.integers(0, 3)))
    | st.tuples(st.just("expire"), SIDES, st.just(0)),
    max_size=60,
)


class Model:
    """The group: what is committed on each side, the intents of the flows that write there, and what was read."""

    def __init__(self, before: tuple[int, int]) -> None:
        self.sides = BothSides(before)
        self.committed: list[int | None] = [None, None]
        self.intents: list[Intent | None] = [None, None]
        self.read: set[Record] = set()
        self.written = 0

    def check(self) -> None:
        """A consumer that goes on anywhere has read all in front of its position."""
        for side, offset in enumerate(self.committed):
            if offset is not None:
                skipped = self.sides.read(side, offset) - self.read
                assert not skipped, f"{skipped} are in front of offset {offset} of side {side}"

    def consume(self, side: int, ahead: int, behind: int) -> None:
        offset = self.committed[side] or 0
        end = min(offset + ahead, len(self.sides.logs[side]))
        self.read |= {one for one in self.sides.logs[side][offset:end] if one is not None}
        self.committed[side] = max(offset, end - behind)

    def round(self, source: int, *, killed: bool = False) -> None:
        """Of the flow that copies from ``source``; ``killed``: between the intent and its commit."""
        target = 1 - source
        offset, there, mine = self.committed[source], self.committed[target], self.intents[target]
        theirs = self.intents[source]
        if offset is None and there is None:
            return
        translation, copied_to = UNKNOWN, 0
        if offset is not None:
            translation, copied_to = self.sides.opened(source).translate(offset, patient=True)
        found = came_back(theirs, mine, offset, there, 0, both_directions=True)
        seen = Observed(
            source=offset,
            target=there,
            translation=translation,
            copied_to=copied_to,
            intent=mine,
            left=has_left(theirs, mine, there),
            left_from=None if theirs is None else theirs.source,
            both_directions=True,
        )
        found = found or decide(seen, delete=False)
        if found.act is Act.FORGET:
            self.intents[target] = None
        if found.act is Act.WRITE and found.position is not None:
            self.written += 1
            intent = next_intent(seen, found.position, epoch=-1, now_ms=0)
            self.intents[target] = intent if killed else intent.settled()
            if not killed:
                self.committed[target] = found.position.target

    def step(self, kind: str, side: int, value: Any) -> None:
        if kind == "round":
            self.round(side, killed=value)
        elif kind == "consume":
            self.consume(side, *value)
        elif kind == "expire":
            self.committed[side] = None
        else:
            step(self.sides, kind, side, value)


@given(BEFORE, STEPS)
def test_no_order_of_rounds_and_consumers_skips_a_record(
    before: tuple[int, int], steps: list[tuple[str, int, Any]]
) -> None:
    model = Model(before)
    for one in steps:
        model.step(*one)
        model.check()
    model.sides.settle()
    for _ in range(4):
        model.round(A)
        model.round(B)
    model.check()
    at_rest, written = list(model.committed), model.written
    for _ in range(4):
        model.round(B)
        model.round(A)
        assert model.committed == at_rest, "the flows go on moving a group that has not moved"
    assert model.written == written


@given(BEFORE, STEPS, st.lists(st.tuples(st.integers(1, 9), SIDES), max_size=8))
def test_a_consumer_that_moves_goes_on_from_its_position_and_is_followed(
    before: tuple[int, int], steps: list[tuple[str, int, Any]], moves: list[tuple[int, int]]
) -> None:
    """No flow holds the group up: after each move its position on the other side is one that this flow has written."""
    model, side = Model(before), A
    for one in steps:
        if one[0] not in {"consume", "round", "expire"}:
            model.step(*one)
    for ahead, first in moves:
        model.sides.produce(A, 2)
        model.sides.produce(B, 1)
        model.sides.settle()
        model.consume(side, ahead, 0)
        for source in (first, 1 - first) * 3:
            model.round(source)
        model.check()
        offset, other = model.committed[side], model.committed[1 - side]
        assert offset is not None
        translation, _ = model.sides.opened(side).translate(offset)
        assert other is not None
        assert translation.offset is not None
        assert other >= translation.offset
        side = 1 - side
