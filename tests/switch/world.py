"""Two clusters in memory, with a switch's operators, producers that are denied, and a flow that goes on copying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from mirror.errors import Fenced, FlowError, KafkaTimeout, LatchMoved
from mirror.switch.facts import Ends, Facts, FlowLatch
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.operator import Operator
from mirror.switch.record import State, SwitchRecord
from mirror.switch.record_store import RecordStore, later_of

TOPICS: Final = ("t", "u")
FLOW, BACK = "ahead", "back"
TERMS: Final = Terms(name="s", quiet_ms=10_000, deadline_ms=90_000, back=(BACK,), switches=True)
CALL_MS: Final = 5_000


class Killed(BaseException):
    """The operator's process ends here."""


@dataclass
class Cluster:
    """One cluster: its logs, and what each of its two brokers shows of denials."""

    logs: dict[str, list[str]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    denied: set[str] = field(default_factory=set)
    shown: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    away: bool = False
    record: SwitchRecord | None = None
    epoch: int = 0

    def check(self) -> None:
        if self.away:
            msg = "the cluster does not answer"
            raise KafkaTimeout(msg)


class Topic:
    """The record's topic on one cluster, as one operator writes it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.epoch = cluster, -1

    def begin(self) -> bool:
        self.cluster.check()
        if self.epoch >= 0:
            return False
        self.cluster.epoch += 1
        self.epoch = self.cluster.epoch
        return True

    def read(self) -> SwitchRecord | None:
        self.cluster.check()
        return self.cluster.record

    def write(self, record: SwitchRecord) -> None:
        try:
            self.begin()
        except KafkaTimeout:
            self.epoch = -1
            raise
        if self.epoch != self.cluster.epoch:
            self.epoch = -1
            msg = "fenced"
            raise Fenced(msg, 47)
        self.cluster.record = record


class World:
    """What there is, and what others than the operators do."""

    def __init__(self, denied_before: set[str]) -> None:
        self.now_ms = 1_000_000
        self.source, self.target = Cluster(), Cluster()
        self.denied_before = frozenset(denied_before)
        self.source.denied = set(denied_before)
        for shown in self.source.shown:
            shown.update(denied_before)
        self.copies_acls = False
        self.progress = dict.fromkeys(TOPICS, 0)
        self.latches = {name: FlowLatch(is_held=False, generation=0, by="") for name in (FLOW, BACK)}
        self.runs = True
        self.group, self.members, self.group_there = 0, False, 0
        self.in_flight: list[tuple[int, Cluster, str, str]] = []
        self.acknowledged: list[tuple[str, str]] = []
        self.number = 0
        self.switched = False
        self.group_at_open = 0
        """Where the group was on the source when the switch opened; what it reads there later is not moved."""
        self.transaction = ""

    @property
    def record(self) -> SwitchRecord | None:
        """The record that counts."""
        return later_of(self.target.record, self.source.record)

    # --- producers, consumers, the flow

    def produce(self, topic: str, broker: int) -> bool:
        """Have a producer send a record to a broker, which appends it a little later; return whether it may."""
        cluster = self.target if self.switched else self.source
        if topic in cluster.shown[broker] or cluster.away:
            return False
        self.number += 1
        self.in_flight.append((self.now_ms, cluster, topic, f"r{self.number}"))
        return True

    def append(self) -> None:
        """Append what was accepted."""
        for at_ms, cluster, topic, record in self.in_flight:
            if self.now_ms - at_ms <= 4_000 and not cluster.away:
                cluster.logs[topic].append(record)
                self.acknowledged.append((topic, record))
        self.in_flight.clear()

    def bypass(self, topic: str) -> None:
        """Have a super user write to the source, who stops once the switch is open."""
        if self.target.record is not None and self.target.record.state.is_open:
            return
        self.number += 1
        self.source.logs[topic].append(f"b{self.number}")

    def propagate(self) -> None:
        """Have the brokers learn of ACLs, and the flow copy them to the target."""
        for cluster in (self.source, self.target):
            for shown in cluster.shown:
                shown.clear()
                shown.update(cluster.denied)
        if self.copies_acls and not self.latches[FLOW].is_held:
            self.target.denied = set(self.source.denied)

    def copy(self, most: int) -> None:
        """Have a run copy some records."""
        if self.latches[FLOW].is_held or self.source.away or self.target.away:
            return
        for topic in TOPICS:
            new = self.source.logs[topic][self.progress[topic] :][:most]
            self.target.logs[topic] += new
            self.progress[topic] += len(new)

    def ann(self, does: str, flow: str = FLOW) -> None:
        """Have a person hold a flow that is free, or release what she holds."""
        for name, one in self.latches.items():
            wanted = not one.is_held if does == "holds" else one.is_held and one.by == "ann"
            if wanted and (name == flow or does == "releases"):
                self.latches[name] = FlowLatch(is_held=does == "holds", generation=one.generation + 1, by="ann")

    def consume(self) -> None:
        """Have the group read a record on the source."""
        if self.members and self.group < len(self.source.logs["t"]):
            self.group += 1


class Site:
    """The clusters, as one operator reaches them; it may be killed, or stall, at each of its calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store_ = RecordStore(Topic(world.target), Topic(world.source))
        self.kill = ""
        self.late: list[tuple[int, Callable[[], object]]] = []

    def _maybe(self, point: str) -> None:
        if self.kill == point:
            raise Killed

    def read_record(self) -> SwitchRecord | None:
        return self.store_.read()

    def store(self, record: SwitchRecord) -> None:
        self._maybe("before store")
        opens = record.state is State.OPEN and not (self.world.target.record or record).state.is_open
        self.store_.store(record)
        if opens:
            self.world.group_at_open = self.world.group
        self._maybe("after store")

    def facts(self, record: SwitchRecord) -> Facts:
        """What :class:`mirror.switch.reading.FactReader` reads, and nothing else."""
        w, state = self.world, record.state
        if state in {State.PLANNED, State.ROLLED_BACK}:
            return Facts()
        if w.target.away and record.fences:
            w.source.check()
            return self._with_fence(Facts(target_away="away"))
        w.target.check()
        if state.is_open:
            latches = {FLOW: w.latches[FLOW]} if state is State.DONE else None
            return Facts(denied_on_target=set(w.target.denied), latches=latches)
        if w.source.away:
            return Facts(source_away="away")
        reads = record.latches or state in {State.DRAINED, State.MOVED} or record.rollback
        known = self._with_fence(Facts(latches=dict(w.latches) if reads else None))
        if record.rollback:
            return known
        progress = {topic: (n,) for topic, n in w.progress.items()}
        ends = {topic: (len(log),) for topic, log in w.target.logs.items()}
        return replace(
            known,
            topics=dict.fromkeys(TOPICS, 1),
            ends={
                topic: (Ends(len(log), len(log) - (w.transaction == topic and len(log) > 0)),)
                for topic, log in w.source.logs.items()
            },
            progress=progress,
            is_copying=w.runs,
            open_transactions={},
            busy_groups={"g"} if w.members else set(),
            positions={"g": str(w.group)},
            target_ends=ends,
        )

    def _with_fence(self, known: Facts) -> Facts:
        source = self.world.source
        first, second = source.shown
        return replace(known, denied=first | second | source.denied, denied_everywhere=first & second)

    def act(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        self._maybe("before act")
        if self.kill == "stall":
            stored_ms = self.world.now_ms
            self.late.append((stored_ms + CALL_MS, lambda: self._do(act, record, facts)))
            raise Killed
        result = self._do(act, record, facts)
        self._maybe("after act")
        return result

    def _do(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:  # noqa: C901, PLR0912 - one case for each act
        w = self.world
        match act:
            case Act.FENCE:
                w.source.check()
                for topic in record.denied:
                    w.source.denied.add(topic)
                    if self.kill == "half":
                        raise Killed
            case Act.UNFENCE:
                w.source.check()
                w.source.denied -= set(record.denied)
                for shown in w.source.shown:  # brokers show what is removed at once: that they do later is harmless
                    shown -= set(record.denied)
            case Act.LIFT:
                w.target.check()
                w.target.denied -= set(record.topics)
            case Act.COPY:
                w.copy(100)
            case Act.PROVE:
                copied = {topic: log[: len(w.source.logs[topic])] for topic, log in w.target.logs.items()}
                if w.source.away:
                    return StepResult(ok=False, why="away", retry=True)
                self._latch(Act.HOLD, record, facts)
                return StepResult(ok=copied == w.source.logs, why="not equal", evidence={FLOW: "hash"}, held=True)
            case Act.MOVE:
                if w.latches[FLOW].is_held and w.latches[FLOW].by != TERMS.by:
                    return StepResult(ok=False, why="held", retry=True)
                w.group_there = w.group
                return StepResult(ok=True, evidence={"g": str(w.group)})
            case Act.HOLD | Act.RELEASE:
                self._latch(act, record, facts)
            case Act.SWITCH:
                w.switched = True
            case Act.REVERSE:
                w.source.check()
                one = w.latches[BACK]
                if one.is_held and one.by == TERMS.by:
                    w.latches[BACK] = FlowLatch(is_held=False, generation=one.generation + 1, by=TERMS.by)
        return StepResult(ok=True, held=act is Act.HOLD)

    def _latch(self, act: Act, record: SwitchRecord, facts: Facts) -> None:
        """Compare and set, as set_latch does: a flow that was held or released since the facts stays as it is."""
        w = self.world
        for flow in record.latches:
            (w.source if flow == BACK else w.target).check()
            one, seen = w.latches[flow], (facts.latches or {})[flow]
            if act is Act.RELEASE and not (seen.is_held and seen.by == TERMS.by):
                continue
            if one.generation != seen.generation:
                msg = "the latch has moved"
                raise LatchMoved(msg)
            if one.is_held is not (act is Act.HOLD):
                w.latches[flow] = FlowLatch(is_held=act is Act.HOLD, generation=one.generation + 1, by=TERMS.by)
                if self.kill == "half":
                    raise Killed


def operator(world: World, number: int, terms: Terms = TERMS) -> tuple[Operator, Site]:
    """An operator that has claimed the switch, or raises what a claim does."""
    site = Site(world)
    made = Operator(site, terms, f"operator {number}", lambda: world.now_ms)
    made.claim((FLOW,))
    return made, site


EXPECTED: Final = (KafkaTimeout, Fenced, FlowError, Killed)
"""What ends an operator, or a turn of it."""
