"""A standby in memory, a source that comes and goes, and copies of which some outlive their run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mirror.errors import LatchMoved
from mirror.switch.facts import Facts, FlowLatch
from mirror.switch.failover.deciding import FAILOVER, takes_over
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.operator import Operator
from mirror.switch.record import State, SwitchRecord
from mirror.switch.record_store import NoTopic, RecordStore
from tests.switch.world import CALL_MS, TOPICS, Cluster, Killed, Topic

FLOW: Final = "ahead"
TERMS: Final = Terms(name="s", quiet_ms=0, deadline_ms=90_000, switches=True)
OTHER: Final = "switch other"


@dataclass(eq=False)
class Copy:
    """An attempt of the flow at one topic."""

    topic: str
    epoch: int
    outlives: bool
    """Whether it goes on when its run is stopped, as a task that reaches only the partitions."""
    has_checked: bool = False


class World:
    """What there is, and what others than the operators do."""

    def __init__(self, denied_before: set[str], denied_there: set[str]) -> None:
        self.now_ms = 1_000_000
        self.source, self.target = Cluster(), Cluster()
        self.denied_before = frozenset(denied_before)
        self.source.denied = set(denied_before)
        self.target.denied = set(denied_there)
        self.latch = FlowLatch(is_held=False, generation=0, by="")
        self.copies: list[Copy] = []
        self.epochs = dict.fromkeys(TOPICS, 0)
        self.open: dict[str, int] = {}
        """The epoch of the copy that has a transaction open, by topic."""
        self.fails_to_fence = False
        self.switched = False
        self.number = 0
        self.at_open: dict[str, list[str]] = {}
        self.opened_unfenced = False

    @property
    def record(self) -> SwitchRecord | None:
        return self.target.record

    @property
    def is_open(self) -> bool:
        return self.record is not None and self.record.state.is_open

    def copied(self, topic: str) -> list[str]:
        return [one for one in self.target.logs[topic] if one.startswith("a")]

    def write(self, topic: str) -> None:
        """Have a client write to the source or, once it was switched, to the target."""
        self.number += 1
        if self.switched and topic not in self.target.denied and not self.target.away:
            self.target.logs[topic].append(f"n{self.number}")
        elif not self.source.away and topic not in self.source.denied:
            self.source.logs[topic].append(f"a{self.number}")

    def begin_copy(self, topic: str, outlives: bool) -> None:
        """Have an attempt begin, which fences the one before."""
        if not self.target.away:
            self.epochs[topic] += 1
            self.open.pop(topic, None)
            self.copies.append(Copy(topic, self.epochs[topic], outlives))

    def copy(self) -> None:
        """Have each attempt go on: it reads the latch first, and is refused once its epoch is an old one."""
        for one in [*self.copies]:
            if self.target.away:
                return
            if not one.has_checked:
                one.has_checked = True
                if self.latch.is_held:
                    self.copies.remove(one)
            elif one.epoch != self.epochs[one.topic]:
                self.copies.remove(one)
            elif not self.source.away or one.outlives:  # what it has fetched before
                done = len(self.copied(one.topic))
                self.target.logs[one.topic] += self.source.logs[one.topic][done : done + 1]

    def leave_open(self) -> None:
        for one in self.copies:
            if one.has_checked and one.epoch == self.epochs[one.topic]:
                self.open[one.topic] = one.epoch

    def set_latch(self, *, held: bool, by: str) -> None:
        if self.latch.is_held is not held:
            self.latch = FlowLatch(is_held=held, generation=self.latch.generation + 1, by=by)

    def propagate(self) -> None:
        for shown in self.source.shown:
            shown.clear()
            shown.update(self.source.denied)


class Site:
    """The clusters, as one operator reaches them; it may be killed, or stall, at each of its calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store_ = RecordStore(Topic(world.target), NoTopic())
        self.kill = ""
        self.late: list[tuple[int, Callable[[], object]]] = []
        self.answered = False

    def _maybe(self, point: str) -> None:
        if self.kill == point:
            raise Killed

    def read_record(self) -> SwitchRecord | None:
        return self.store_.read()

    def store(self, record: SwitchRecord) -> None:
        self._maybe("before store")
        opens = record.state is State.OPEN and not self.world.is_open
        self.store_.store(record)
        if opens:
            self.world.at_open = {topic: self.world.copied(topic) for topic in TOPICS}
            self.world.opened_unfenced = self.answered and not record.shown_ms and not record.unfenced
        self._maybe("after store")

    def facts(self, record: SwitchRecord) -> Facts:
        """What :class:`mirror.switch.failover.standby.StandbyReader` reads, and nothing else."""
        w, state = self.world, record.state
        if state is State.ROLLED_BACK:
            return Facts()
        w.target.check()
        if state.is_open:
            latches = {FLOW: w.latch} if state is State.DONE else None
            return Facts(denied_on_target=set(w.target.denied), latches=latches)
        self.answered = not w.source.away
        first, second = w.source.shown
        known = Facts(
            source_away="" if self.answered else "away",
            latches={FLOW: w.latch},
            denied=first | second | w.source.denied if self.answered else None,
            denied_everywhere=first & second if self.answered else None,
        )
        if state not in {State.PLANNED, State.MOVED}:
            return known
        return replace(
            known,
            source_id="old",
            topic_ids=dict.fromkeys(TOPICS, "id"),
            progress={topic: (len(w.copied(topic)),) for topic in TOPICS},
            positions={"g": "hash"},
            target_ends={topic: (len(log),) for topic, log in w.target.logs.items()} if state is State.MOVED else None,
            open_transactions=dict.fromkeys(w.open, "t-0"),
        )

    def act(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        self._maybe("before act")
        if self.kill == "stall":
            self.late.append((self.world.now_ms + CALL_MS, lambda: self._do(act, record, facts)))
            raise Killed
        result = self._do(act, record, facts)
        self._maybe("after act")
        return result

    def _do(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:  # noqa: C901, PLR0912 - one case for each act
        w = self.world
        match act:
            case Act.FENCE:
                w.source.check()
                if w.fails_to_fence:
                    return StepResult(ok=False, why="refused")
                w.source.denied |= set(record.denied)
            case Act.UNFENCE:
                w.source.check()
                w.source.denied -= set(record.denied)
                for shown in w.source.shown:
                    shown -= set(record.denied)
            case Act.HOLD:
                return self._hold(facts)
            case Act.RELEASE:
                w.target.check()
                seen = (facts.latches or {})[FLOW]
                if w.latch == seen and seen.is_held and seen.by == TERMS.by:
                    w.set_latch(held=False, by=TERMS.by)
            case Act.END_COPIES:
                w.target.check()
                for topic in TOPICS:
                    w.epochs[topic] += 1
                    w.open.pop(topic, None)
                    if self.kill == "half":
                        raise Killed
            case Act.LIFT:
                w.target.check()
                w.target.denied -= set(record.topics)
            case Act.SWITCH:
                w.switched = True
            case _:
                raise AssertionError(act)
        return StepResult(ok=True)

    def _hold(self, facts: Facts) -> StepResult:
        """Compare and set, as set_latch does, and stop the runs; what cannot be stopped goes on."""
        w = self.world
        w.target.check()
        seen = (facts.latches or {})[FLOW]
        if w.latch.generation != seen.generation:
            msg = "the latch has moved"
            raise LatchMoved(msg)
        if not seen.is_held or takes_over(seen, TERMS):
            w.latch = FlowLatch(is_held=True, generation=seen.generation + 1, by=TERMS.by)
        if self.kill == "half":
            raise Killed
        w.copies = [one for one in w.copies if one.outlives]
        return StepResult(ok=True)


def operator(world: World, number: int, terms: Terms) -> tuple[Operator, Site]:
    """An operator that has claimed the switch, or raises what a claim does."""
    site = Site(world)
    made = Operator(site, terms, f"operator {number}", lambda: world.now_ms, FAILOVER)
    made.claim((FLOW,), ("", "new"))
    return made, site
