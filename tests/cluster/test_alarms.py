"""Alarms, against a plain dictionary."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.timing import FOREVER_MS

THINGS = st.sampled_from("abcde")
TIMES = st.one_of(st.integers(0, 60), st.just(FOREVER_MS))


class AlarmsModel(RuleBasedStateMachine):
    """Deadlines that are set, set again, cleared and due."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.alarms: DeadlineHeap[str] = DeadlineHeap()
        self.expected: dict[str, int] = {}

    @rule(thing=THINGS, at_ms=TIMES)
    def set(self, thing: str, at_ms: int) -> None:
        self.alarms.set(thing, at_ms)
        self.expected.pop(thing, None)
        if at_ms < FOREVER_MS:
            self.expected[thing] = at_ms

    @rule(thing=THINGS, at_ms=TIMES)
    def sooner(self, thing: str, at_ms: int) -> None:
        self.alarms.sooner(thing, at_ms)
        if at_ms < self.expected.get(thing, FOREVER_MS):
            self.expected[thing] = at_ms

    @rule(thing=THINGS)
    def clear(self, thing: str) -> None:
        self.alarms.clear(thing)
        self.expected.pop(thing, None)

    @rule(ms=st.integers(0, 10))
    def due(self, ms: int) -> None:
        self.now += ms
        found = self.alarms.due(self.now)
        assert [self.expected[thing] for thing in found] == sorted(self.expected[thing] for thing in found)
        assert sorted(found) == sorted(thing for thing, at in self.expected.items() if at <= self.now)
        for thing in found:
            del self.expected[thing]

    @invariant()
    def the_earliest_is_known(self) -> None:
        assert self.alarms.next_ms() == min(self.expected.values(), default=FOREVER_MS)
        assert len(self.alarms) == len(self.expected)


TestAlarmsModel = AlarmsModel.TestCase


def test_setting_them_again_for_ever_takes_no_room() -> None:
    alarms: DeadlineHeap[int] = DeadlineHeap()
    for at_ms in range(10_000):
        alarms.set(at_ms % 3, 1_000_000 - at_ms)
    assert len(alarms._heap) < 100
    assert alarms.due(2_000_000) == [0, 2, 1]
