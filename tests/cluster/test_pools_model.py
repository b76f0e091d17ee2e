"""The pool against an account of its own: never too many, never behind a slow one, nothing leaked, nobody forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror.cluster.pools import ROOM_BYTES, SLOW_AFTER_MS, Slot
from tests.cluster.pool_probes import Bench

_LARGEST = 2 * ROOM_BYTES
NODES = st.integers(1, 2)
SIZES = st.sampled_from([10, 1024 * 1024, ROOM_BYTES // 2, ROOM_BYTES, _LARGEST])


class PoolModel(RuleBasedStateMachine):
    """Requests, answers, losses, throttling and time in any order; the bench knows what each connection owes."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.slots: dict[int, Slot] = {}
        self.refused: dict[int, int] = {}
        self.sole: set[int] = set()

    @initialize(size=st.integers(1, 3), quick=st.booleans())
    def begin(self, size: int, quick: bool) -> None:
        self.bench = Bench(size=size, quick=quick)

    # --- what happens

    @rule(node=NODES, size=SIZES, slow=st.booleans(), sole=st.booleans(), burst=st.integers(1, 6))
    def send(self, node: int, size: int, slow: bool, sole: bool, burst: int) -> None:
        bench = self.bench
        for _ in range(burst):
            slot = bench.pool.pick(node, bench.now, slow=slow, sole=sole)
            self.sole = {channel for channel in self.sole if bench.owed.get(channel)}
            if slot is None:
                self._refused(node, slow, sole)
                return
            self.slots[slot.channel] = slot
            self._chosen_well(slot, node, slow, sole)
            if sole and not slow and not slot.owed:
                self.sole.add(slot.channel)
            bench.put(slot, size)

    @rule(data=st.data())
    @precondition(lambda self: any(self.bench.owed.values()))
    def go_on_where_it_stands(self, data: st.DataObject) -> None:
        slot = self.slots[data.draw(self._busy())]
        if self.bench.pool.stands(slot, self.bench.now):
            assert slot.channel in self.bench.network.usable
            assert slot.bytes < ROOM_BYTES
            if slot in self._common(slot.node):
                self._not_behind_a_slow_one(slot)
            self.bench.put(slot, 10)

    @rule(data=st.data(), throttle_ms=st.sampled_from([0, 0, 700]))
    @precondition(lambda self: any(self.bench.owed.values()))
    def answer(self, data: st.DataObject, throttle_ms: int) -> None:
        self._answer(data.draw(self._busy()), throttle_ms)

    @rule(data=st.data())
    @precondition(lambda self: any(self.bench.owed.values()))
    def time_out(self, data: st.DataObject) -> None:
        self.bench.time_out(data.draw(self._busy()))

    @rule(data=st.data())
    @precondition(lambda self: self.bench.network.open)
    def lose(self, data: st.DataObject) -> None:
        self._lose(data.draw(st.sampled_from(sorted(self.bench.network.open))))

    @rule()
    def everything_is_ready(self) -> None:
        self.bench.network.usable.update(self.bench.network.open)

    @rule(node=NODES)
    def throttle(self, node: int) -> None:
        self.bench.network.throttling ^= {node}

    @rule(ms=st.sampled_from([1, 50, SLOW_AFTER_MS - 1, SLOW_AFTER_MS, 5_000]))
    def wait(self, ms: int) -> None:
        self.bench.now += ms
        self.bench.pool.look(self.bench.now)

    @rule(node=NODES, slow=st.booleans(), ms=st.sampled_from([SLOW_AFTER_MS - 1, SLOW_AFTER_MS]))
    def stall(self, node: int, slow: bool, ms: int) -> None:
        """Whatever there is gets something to do, and does not answer for a while."""
        self.bench.network.usable.update(self.bench.network.open)
        self.send(node, 10, slow, False, 2 * self.bench.size)
        self.wait(ms)

    @rule()
    def everything_is_answered(self) -> None:
        """Then whoever was refused, for what was owed, has been told; and after a look nothing is too many."""
        bench = self.bench
        for channel in list(bench.owed):
            while bench.owed.get(channel):
                self._answer(channel, 0)
        for freed in self.refused.values():
            assert bench.pool.freed > freed
        self.refused.clear()
        for node in (1, 2):
            bench.pool.pick(node, bench.now)
            common = [slot for slot in self._common(node) if not slot.slow]
            assert len(common) <= bench.size

    @rule()
    def a_broker_leaves(self) -> None:
        self.bench.pool.retain({1})
        left = self.bench.pool._brokers.get(2)
        assert left is None or all(slot.owed for slot in left.all())

    # --- how it is judged

    def _busy(self) -> st.SearchStrategy[int]:
        return st.sampled_from(sorted(channel for channel, owed in self.bench.owed.items() if owed))

    def _answer(self, channel: int, throttle_ms: int) -> None:
        self.bench.answer(channel, throttle_ms)

    def _lose(self, channel: int) -> None:
        self.bench.lose(channel)
        self.refused.clear()  # the network tells everybody of that

    def _common(self, node: int) -> list[Slot]:
        broker = self.bench.pool._brokers.get(node)
        return broker.common if broker is not None else []

    def _group(self, node: int, slow: bool) -> list[Slot]:
        broker = self.bench.pool._brokers[node]
        return broker.apart if slow else broker.common

    def _chosen_well(self, slot: Slot, node: int, slow: bool, sole: bool) -> None:
        bench = self.bench
        assert slot.node == node
        assert slot.channel in bench.network.usable, "ready at once"
        assert slot.bytes < ROOM_BYTES
        assert slot.channel not in self.sole, "behind nobody that wants to be alone"
        group = self._group(node, slow)
        if sole and not slow:
            apart = self._group(node, True)
            if slot in apart:
                assert not slot.owed, "set apart, and nobody's"
                return
            assert not slot.owed or (len(apart) == bench.size or node in bench.network.throttling), "shared at the last"
        assert slot in group
        if not slow:
            self._not_behind_a_slow_one(slot)
        usable = [one for one in group if one.channel in bench.network.usable and (slow or not one.slow)]
        usable = [one for one in usable if one.channel not in self.sole]
        roomy = [one for one in usable if one.bytes < ROOM_BYTES]
        assert (len(slot.owed), slot.bytes) == min((len(one.owed), one.bytes) for one in roomy), "the least busy"
        if slot.owed:
            opening = any(not one.owed for one in group)
            assert opening or len(group) == bench.size or node in bench.network.throttling, "grown while it helps"

    def _not_behind_a_slow_one(self, slot: Slot) -> None:
        since = self.bench.waiting_since(slot.channel)
        throttled = slot.node in self.bench.network.throttling
        assert throttled or since is None or self.bench.now - since < SLOW_AFTER_MS

    def _refused(self, node: int, slow: bool, sole: bool) -> None:
        group = self._group(node, slow)
        usable = self.bench.network.usable
        healthy = [one for one in group if one.channel in usable and (slow or not one.slow)]
        on_its_way = sole and any(not one.owed and one.channel not in usable for one in self._group(node, True))
        for one in healthy:
            wait = one.bytes >= ROOM_BYTES or one.channel in self.sole or (on_its_way and one.owed)
            assert wait, "no connection was to be had"
        if any(one.owed for one in group):
            self.refused.setdefault(node, self.bench.pool.freed)

    @invariant()
    def the_account_is_right(self) -> None:
        for channel, slot in self.slots.items():
            owed = self.bench.owed.get(channel, ())
            assert slot.bytes == sum(one.size for one in owed)
            assert len(slot.owed) == len(owed)
            assert slot.bytes < ROOM_BYTES + _LARGEST

    @invariant()
    def there_are_never_too_many(self) -> None:
        for broker in self.bench.pool._brokers.values():
            assert len(broker.common) <= self.bench.size
            assert len(broker.apart) <= self.bench.size
            assert not set(broker.common) & set(broker.apart)

    @invariant()
    def nothing_is_leaked(self) -> None:
        known = {slot.channel for broker in self.bench.pool._brokers.values() for slot in broker.all()}
        assert set(self.bench.network.open) <= known

    @invariant()
    def nobody_was_told_twice(self) -> None:
        for owed in self.bench.owed.values():
            assert all(one.probe.told <= 1 for one in owed)


PoolModel.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestPoolModel = PoolModel.TestCase
