"""Whatever happens, in whatever order: no record is skipped, no consumer is overwritten, nothing goes back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest

from mirror.groups.commit_decision import Act, Intent, Observed, Position, decide, next_intent
from mirror.relay.offsets.index import UNKNOWN, Place, Translation

_STEPS: Final = 60


class Target:
    """Where each copied record is on the target, by its source offset. Every offset of the target is another record."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.end = 0
        self.copied_to = 0

    def translate(self, source: int) -> Translation:
        """As the offset index does."""
        if source > self.copied_to:
            return Translation(Place.NOT_COPIED, self.copied_end)
        following = min((one for one in self.at if one >= source), default=None)
        if following is None:
            return Translation(Place.END, self.copied_end)
        return Translation(Place.RECORD if following == source else Place.NEXT, self.at[following])

    @property
    def copied_end(self) -> int:
        return max(self.at.values(), default=-1) + 1


class GroupOnBothSides:
    """One partition of one group. A group of the source, a consumer of the target, and writers that may be killed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.copy = Target()
        self.records: set[int] = set()
        self.source_end = 0
        self.source: int | None = None
        self.target: int | None = None
        self.by_consumer = False
        self.active = False
        self.resumed: int | None = None
        self.intent: Intent | None = None
        self.replaced: int | None = None
        """What the last commit that is known to have succeeded has replaced."""
        self.now_ms = 0
        self.late: list[int] = []
        """Commits of killed writers that the target has not received yet."""
        self.stood_for: dict[int, int] = {}
        """The source offset of each offset that was to be written, last."""
        self.standing: int | None = None

    # --- the world

    def produce(self) -> None:
        count, hole = self._rng.randint(1, 5), self._rng.randint(0, 2)
        self.records |= set(range(self.source_end, self.source_end + count))
        self.source_end += count + hole

    def copy_some(self) -> None:
        count, foreign = self._rng.randint(1, 8), self._rng.randint(0, 2)
        end = min(self.source_end, self.copy.copied_to + count)
        self.copy.end += foreign
        for offset in range(self.copy.copied_to, end):
            if offset in self.records:
                self.copy.at[offset] = self.copy.end
                self.copy.end += 1
        self.copy.copied_to = end

    def commit_on_source(self) -> None:
        """Mostly forward; sometimes ahead of what this program has seen of the source, sometimes a reset."""
        last = self.source or 0
        offset = self._rng.choice([last + self._rng.randint(0, 6), self._rng.randint(0, self.source_end)])
        offset = min(offset, self.source_end + 1)
        self.source = offset

    def delete_on_source(self) -> None:
        self.source = None

    def commit_on_target(self) -> None:
        offset, active = self._rng.randint(0, self.copy.end), self._rng.random() < 0.5
        # An offset that is this flow's own is not known from the consumer's.
        intent = self._counting_intent
        own = offset == self.resumed or (intent is not None and intent.is_own(offset))
        if not own:
            self.target, self.by_consumer, self.active = offset, True, active

    def reset_to_what_was_replaced(self) -> None:
        """By an operator: once the commit is known to have arrived, that is a takeover like any other."""
        intent = self._counting_intent
        if intent is None or self.active or self.replaced in {None, self.resumed, intent.target, *intent.others}:
            return
        self.target, self.by_consumer = self.replaced, True

    def pass_time(self) -> None:
        """What was sent arrives in this time or never, and a round corrects it."""
        if self.target in self._late_ones:
            return
        self.late.clear()
        self.now_ms += 15 * 60_000

    def leave(self) -> None:
        self.active = False

    def resume(self) -> None:
        self.resumed = self.target
        self.by_consumer = False

    def lose(self) -> None:
        end = max(0, self.copy.end - self._rng.randint(1, 6))
        self.copy.at = {source: target for source, target in self.copy.at.items() if target < end}
        self.copy.copied_to = min(self.copy.copied_to, max(self.copy.at, default=-1) + 1)
        self.copy.end = end
        if (
            self.standing is not None
            or (self.target or 0) > end
            or (self.intent is not None and self.intent.target > end)
        ):
            self.standing = min(end, end if self.standing is None else self.standing)

    # --- the writers

    def _observed(self, *, known: bool) -> Observed:
        translation = UNKNOWN if self.source is None or not known else self.copy.translate(self.source)
        return Observed(
            source=self.source,
            target=self.target,
            translation=translation,
            copied_to=self.copy.copied_to,
            intent=self._counting_intent,
            resumed=self.resumed,
            active=self.active,
            standing=self.standing,
        )

    def write(self) -> None:
        known, delete = self._rng.random() < 0.8, self._rng.random() < 0.5
        ends = self._rng.choice(["well", "well", "before", "later", "unknown"])
        observed = self._observed(known=known)
        if not self.by_consumer:
            assert observed.own_source is not None, "an own offset was taken for a consumer's"
        act, position, _ = decide(observed, delete=delete)
        if act is Act.WRITE:
            assert position is not None
            self._check(position, known=known)
            self.intent = next_intent(observed, position, epoch=0, now_ms=self.now_ms)
            self.resumed = self.replaced = None
            # Four more runs have ended since: what is that late is not remembered.
            known_ones = {self.intent.target, *self.intent.others}
            self.late = [one for one in self.late if one in known_ones or len(self.intent.others) < 4]
            self.stood_for[position.target] = position.source
            self._commit(position.target, ends)
        elif self.intent is not None and self.target == self.intent.target and act is Act.NOTHING:
            self._settle()
        elif act is Act.DELETE:
            assert not self.by_consumer
            assert not self.active
            assert self.source is None
            self.target = self.intent = None
            self.late.clear()
        elif act is Act.FORGET:
            assert self.source is None
            assert self.target is None
            self.intent = None
            self.late.clear()

    def _check(self, position: Position, *, known: bool) -> None:
        assert self.source is not None
        assert not self.active
        assert not self.by_consumer
        assert position.target <= self.copy.end
        if not known:
            assert self.standing is not None
            assert self.target is not None
            assert position.target < self.target, "only what points behind a loss is withdrawn"
            return
        unread = [target for source, target in self.copy.at.items() if source >= self.source]
        assert all(target >= position.target for target in unread), "a record would be skipped"
        if self.source <= self.copy.copied_to:
            read = [target for source, target in self.copy.at.items() if source < self.source]
            assert all(target < position.target for target in read), "a record would be read again"
        if self.target is not None and position.target < self.target:
            went_back = position.source < self.stood_for.get(self.target, -1)
            assert went_back or self.standing is not None or self.target in self._late_ones

    @property
    def _counting_intent(self) -> Intent | None:
        return None if self.intent is None else self.intent.at(self.now_ms)

    @property
    def _late_ones(self) -> tuple[int, ...]:
        return () if self.intent is None else self.intent.others

    def _commit(self, offset: int, ends: str) -> None:
        if ends == "before":
            return
        if ends == "later":
            self.late = [*self.late, offset][-3:]
            return
        self._arrive(offset)
        self.standing = None
        if ends == "well":
            self._settle()

    def _settle(self) -> None:
        assert self.intent is not None
        if self.intent.previous >= 0:
            self.replaced = self.intent.previous
        self.intent = self.intent.settled()

    def _arrive(self, offset: int) -> None:
        self.target, self.by_consumer = offset, False

    def late_commit(self) -> None:
        """Of a writer that was killed: it may not arrive while a consumer has the group."""
        if not self.late:
            return
        offset = self.late.pop(0)
        if self.active or self.by_consumer:
            return
        self._arrive(offset)
        assert self.intent is not None
        assert self.intent.is_own(offset), "a late commit was taken for a consumer's"


def _turns(world: GroupOnBothSides) -> list[Callable[[], None]]:
    often = [world.produce, world.copy_some, world.commit_on_source, world.commit_on_source]
    seldom = [world.delete_on_source, world.commit_on_target, world.leave, world.resume, world.lose]
    seldom += [world.reset_to_what_was_replaced, world.pass_time]
    return [*often * 4, *[world.write] * 12, *[world.late_commit] * 4, *seldom]


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_events_skips_a_record_or_overwrites_a_consumer(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        world = GroupOnBothSides(rng)
        turns = _turns(world)
        for _ in range(_STEPS):
            rng.choice(turns)()
