"""The pool compared with a model: never too many, never behind a slow one, nothing leaked, no request forgotten."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror.cluster.connection.pools import ROOM_BYTES, SLOW_AFTER_MS, Slot
from mirror.errors import ConnectionFailed
from tests.cluster.pool_probes import Bench
from tests.examples import examples

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
        self.quickest: dict[int, int] = {}

    @initialize(size=st.integers(1, 3), quick=st.booleans())
    def begin(self, size: int, quick: bool) -> None:
        self.bench = Bench(size=size, quick=quick)

    # --- what happens

    @rule(node=NODES, size=SIZES, slow=st.booleans(), sole=st.booleans(), burst=st.integers(1, 6))
    def send(self, node: int, size: int, slow: bool, sole: bool, burst: int) -> None:
        bench = self.bench
        for _ in range(burst):
            slot = bench.pool.pick(node, bench.now, slow=slow, dedicated=sole)
            self.sole = {channel for channel in self.sole if bench.owed.get(channel)}
            if slot is None:
                self._refused(node, slow, sole)
                return
            self.slots[slot.channel] = slot
            self._chosen_well(slot, node, slow, sole)
            if slot.dedicated:
                self.sole.add(slot.channel)
            bench.put(slot, size)

    @rule(data=st.data())
    @precondition(lambda self: any(self.bench.owed.values()))
    def go_on_where_it_stands(self, data: st.DataObject) -> None:
        slot = self.slots[data.draw(self._busy())]
        if self.bench.pool.accepts_more(slot, self.bench.now):
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

    @rule(node=NODES)
    def trouble(self, node: int) -> None:
        """Connections to it fail, or no longer do."""
        troubles = self.bench.network.troubles
        if troubles.pop(node, None) is None:
            troubles[node] = ConnectionFailed("no more of you")

    @rule(ms=st.sampled_from([1, 20, 50, SLOW_AFTER_MS - 1, SLOW_AFTER_MS, 5_000]))
    def wait(self, ms: int) -> None:
        self.bench.now += ms
        self.bench.pool.update_slow(self.bench.now)

    @rule(node=NODES, slow=st.booleans(), ms=st.sampled_from([SLOW_AFTER_MS - 1, SLOW_AFTER_MS]))
    def stall(self, node: int, slow: bool, ms: int) -> None:
        """Whatever there is gets something to do, and does not answer for a while."""
        self.bench.network.usable.update(self.bench.network.open)
        self.send(node, 10, slow, False, 2 * self.bench.size)
        self.wait(ms)

    @rule()
    def everything_is_answered(self) -> None:
        """Then each caller that was refused, for what was owed, was notified; and after a check nothing is too many."""
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
        left = self.bench.pool.brokers.get(2)
        assert left is None or all(slot.outstanding for slot in left.all())

    # --- what is checked

    def _busy(self) -> st.SearchStrategy[int]:
        return st.sampled_from(sorted(channel for channel, owed in self.bench.owed.items() if owed))

    def _answer(self, channel: int, throttle_ms: int) -> None:
        bench, node = self.bench, self.slots[channel].node
        took_ms = bench.now + throttle_ms - (bench.waiting_since(channel) or 0)
        bench.answer(channel, throttle_ms)
        # One that was slow counts as one that has just become so.
        self.quickest[node] = min(took_ms, SLOW_AFTER_MS, self.quickest.get(node, SLOW_AFTER_MS))

    def _lose(self, channel: int) -> None:
        self.bench.lose(channel)
        self.refused.clear()  # the network tells everybody of that

    def _common(self, node: int) -> list[Slot]:
        broker = self.bench.pool.brokers.get(node)
        return broker.common if broker is not None else []

    def _group(self, node: int, slow: bool) -> list[Slot]:
        broker = self.bench.pool.brokers[node]
        return broker.quarantined if slow else broker.common

    def _chosen_well(self, slot: Slot, node: int, slow: bool, sole: bool) -> None:
        bench = self.bench
        assert slot.node == node
        assert slot.channel in bench.network.usable, "ready at once"
        assert slot.bytes < ROOM_BYTES
        group = self._group(node, slow)
        if sole and not slow:
            assert slot in group or not slot.outstanding, "quarantined, and in no group"
            return
        assert slot in group
        if slow:
            assert slot.channel not in self.sole or not self._comes(node), "a connection comes that is nobody's"
        else:
            assert slot.channel not in self.sole, "behind none of which nothing is known"
            self._not_behind_a_slow_one(slot)
        usable = [one for one in group if one.channel in bench.network.usable and (slow or not one.slow)]
        usable = [one for one in usable if slow or one.channel not in self.sole]
        roomy = [one for one in usable if one.bytes < ROOM_BYTES]
        assert self._cost(slot) == min(self._cost(one) for one in roomy), "the least busy"
        if slot.outstanding:
            opening = any(not one.outstanding for one in group)
            assert opening or len(group) == bench.size or node in bench.network.throttling, "grown while it helps"

    def _cost(self, slot: Slot) -> tuple[bool, int, int]:
        """Where nothing is known of an answer, slow ones go last."""
        return slot.channel in self.sole, len(slot.outstanding), slot.bytes

    def _on_its_way(self, slots: list[Slot]) -> bool:
        return any(not one.outstanding and one.channel not in self.bench.network.usable for one in slots)

    def _comes(self, node: int) -> bool:
        """Whether one is on its way that is set apart, and nothing is known against it."""
        return self._on_its_way(self._group(node, True)) and node not in self.bench.network.troubles

    def _not_behind_a_slow_one(self, slot: Slot) -> None:
        since = self.bench.waiting_since(slot.channel)
        throttled = slot.node in self.bench.network.throttling
        assert throttled or since is None or self.bench.now - since < SLOW_AFTER_MS

    def _may_be_overdue(self, slot: Slot) -> bool:
        """Usual is never less than the quickest answer."""
        quickest = self.quickest.get(slot.node)
        owed = self.bench.owed.get(slot.channel)
        if quickest is None or not owed:
            return False
        return self.bench.now - owed[0].sent_ms > max(10, 3 * quickest)

    def _refused(self, node: int, slow: bool, sole: bool) -> None:
        group = self._group(node, slow)
        usable = self.bench.network.usable
        healthy = [one for one in group if one.channel in usable and (slow or not one.slow)]
        roomy = [one for one in healthy if one.bytes < ROOM_BYTES]
        least = min((self._cost(one) for one in roomy), default=None)
        overdue = any(self._may_be_overdue(one) for one in roomy if self._cost(one) == least)
        for one in roomy:
            new = one.channel in self.sole
            if slow:  # it stands behind anybody, but where one comes that is nobody's
                wait = new and self._comes(node)
            else:
                wait = (new and not sole) or (overdue and self._on_its_way(group))
                wait = wait or (sole and self._comes(node) and bool(one.outstanding))
            assert wait, "no connection was to be had"
        if any(one.outstanding for one in group):
            self.refused.setdefault(node, self.bench.pool.freed)

    @invariant()
    def the_account_is_right(self) -> None:
        for channel, slot in self.slots.items():
            owed = self.bench.owed.get(channel, ())
            assert slot.bytes == sum(one.size for one in owed)
            assert len(slot.outstanding) == len(owed)
            assert slot.bytes < ROOM_BYTES + _LARGEST

    @invariant()
    def there_are_never_too_many(self) -> None:
        for broker in self.bench.pool.brokers.values():
            assert len(broker.common) <= self.bench.size
            assert len(broker.quarantined) <= self.bench.size
            assert not set(broker.common) & set(broker.quarantined)

    @invariant()
    def half_is_left_to_those_that_answer(self) -> None:
        for broker in self.bench.pool.brokers.values():
            for slots in (broker.common, broker.quarantined):
                assert sum(slot.dedicated and not slot.slow for slot in slots) <= max(1, self.bench.size // 2)

    @invariant()
    def nothing_is_leaked(self) -> None:
        known = {slot.channel for broker in self.bench.pool.brokers.values() for slot in broker.all()}
        assert set(self.bench.network.open) <= known

    @invariant()
    def no_caller_was_notified_twice(self) -> None:
        for owed in self.bench.owed.values():
            assert all(one.probe.completions <= 1 for one in owed)


def test_slow_and_new_behind_one_that_is_new_and_has_become_slow() -> None:
    """Found by the model: a pool of one, whose only connection apart was kept for those that are new."""
    model = PoolModel()
    model.begin(size=1, quick=True)
    model.send(node=2, size=10, slow=False, sole=True, burst=1)
    model.stall(node=1, slow=False, ms=SLOW_AFTER_MS - 1)
    model.stall(node=1, slow=False, ms=SLOW_AFTER_MS - 1)
    model.send(node=2, size=10, slow=True, sole=True, burst=1)
    model.everything_is_answered()


def test_nobody_goes_behind_an_overdue_one_while_another_is_on_its_way() -> None:
    """The model once took that for a refusal without a reason."""
    model = PoolModel()
    model.begin(size=2, quick=False)
    model.send(node=1, size=10, slow=False, sole=False, burst=1)
    model.everything_is_ready()
    model.send(node=1, size=10, slow=False, sole=False, burst=1)
    model.everything_is_answered()
    model.send(node=1, size=10, slow=False, sole=False, burst=2)
    model.wait(20)
    refusals = model.bench.pool.refusals
    model.send(node=1, size=10, slow=False, sole=False, burst=1)
    assert model.bench.pool.refusals == refusals + 1


PoolModel.TestCase.settings = settings(max_examples=examples(30, 200), stateful_step_count=50, deadline=None)
TestPoolModel = PoolModel.TestCase
