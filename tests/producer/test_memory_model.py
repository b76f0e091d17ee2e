"""Any order of asking, giving back and withdrawing, against a plain reading of the rule (Hypothesis)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mirror.cluster.types import TopicPartition
from mirror.producer.batch.memory import BufferPool, Grant

_SIZE = 60
_partitions = st.integers(0, 5).map(lambda number: TopicPartition("t", number))
_counts = st.one_of(st.integers(1, 8), st.integers(1, _SIZE))


class PoolModel(RuleBasedStateMachine):
    """The oracle keeps lists, and goes through all of them each time."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(_SIZE)
        self.held: list[Grant] = []
        self.line: list[Grant] = []

    def _held_by(self, tp: TopicPartition) -> int:
        return sum(grant.count for grant in self.held if grant.tp == tp)

    def _free(self) -> int:
        return _SIZE - sum(grant.count for grant in self.held)

    def _next(self) -> Grant | None:
        """The caller that is served next: only those that would get more than their share are passed over."""
        seen: set[TopicPartition] = set()
        for grant in self.line:
            if grant.tp in seen:
                continue
            seen.add(grant.tp)
            held, free = self._held_by(grant.tp), self._free()
            if not held:
                return grant if grant.count <= free else None
            if held + grant.count <= free - grant.count:
                return grant
        return None

    def _served(self) -> list[Grant]:
        served = []
        while (grant := self._next()) is not None:
            self.line.remove(grant)
            self.held.append(grant)
            served.append(grant)
        return served

    @rule(tp=_partitions, count=_counts)
    def ask(self, tp: TopicPartition, count: int) -> None:
        grant = self.pool.ask(tp, count)
        self.line.append(grant)
        assert self._served() == ([grant] if grant.granted else [])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        grant = data.draw(st.sampled_from(self.held))
        self.held.remove(grant)
        assert self.pool.give_back(grant.tp, grant.count) == self._served()

    @precondition(lambda self: self.held or self.line)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        grant = data.draw(st.sampled_from([*self.held, *self.line]))
        (self.held if grant.granted else self.line).remove(grant)
        assert self.pool.cancel(grant) == self._served()
        assert self.pool.cancel(grant) == []

    @invariant()
    def nothing_is_lost_or_made(self) -> None:
        assert self.pool.free == self._free() >= 0
        for grant in self.held:
            assert grant.granted
            assert self.pool.held(grant.tp) == self._held_by(grant.tp)
        assert not any(grant.granted for grant in self.line)
        assert self.pool.waiting == bool(self.line)

    def teardown(self) -> None:
        """As long as what is held comes back, everybody is served, and nothing is left behind."""
        while self.held:
            grant = self.held.pop(0)
            assert self.pool.give_back(grant.tp, grant.count) == self._served()
        assert not self.line, "somebody starved"
        assert self.pool.free == _SIZE
        assert self.pool.largest_holder() is None


TestPoolModel = PoolModel.TestCase
