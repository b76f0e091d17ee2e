"""A failback that rebuilds a topic, whose commands are killed at any step, behind a fence that leaks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.switch.facts import GRACE_MS, Ends, Watch
from mirror.switch.failback.deciding import OldFacts, Wish, failback, spans
from mirror.switch.failback.rebuilding import RebuildFacts
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.record import Command, Rebuild, State, SwitchRecord
from tests.examples import examples

TERMS: Final = Terms(name="s", quiet_ms=0, deadline_ms=1, back=("back",))
_KILLS: Final = ("", "", "", "", "", "before store", "before act", "after act")
_EVENTS: Final = ("leak", "created by others", "export", "rebuild", *["rebuild"] * 3, "lift")
_TURNS: Final = 60


@dataclass
class World:
    """One partition of the old cluster, which lost what was copied of it; records are numbers."""

    live_id: str = "old"
    log: list[int] = field(default_factory=lambda: [1, 2])
    exported: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=lambda: [1, 2])
    denied: bool = False
    held: bool = True
    back_held: bool = False
    begun: str = ""
    now_ms: int = 1_000_000
    record: SwitchRecord = field(
        default_factory=lambda: SwitchRecord(
            state=State.DONE, command=Command.FAILOVER, flows=("f",), copied={"t": (9,)}, topic_ids={"t": "old"}
        )
    )
    ids: itertools.count[int] = field(default_factory=itertools.count)

    def facts(self) -> OldFacts:
        back = self.record.failback
        names = {"t"} if self.live_id else set[str]()
        made = {"t": Rebuild(partitions=1)} if "t" in back.broken else {}
        begun = {"t"} if self.live_id and self.begun == self.live_id else set[str]()
        return OldFacts(
            topics={"t": 1},
            denied={"t"} if self.denied else set(),
            denied_everywhere={"t"} if self.denied else set(),
            ends={"t": (Ends(len(self.log), len(self.log)),)} if names else {},
            live_ids={"t": self.live_id} if names else {},
            rebuild=RebuildFacts(made=made, begun=begun),
        )

    def act(self, act: Act) -> StepResult:  # noqa: C901 - one for each act
        evidence: dict[str, str] = {}
        back = self.record.failback
        match act:
            case Act.FENCE:
                self.denied = True
            case Act.UNFENCE:
                self.denied = False
            case Act.LOCATE:
                is_done = (one := back.rebuilds.get("t")) is not None and one.done_ms and self.live_id == one.created_id
                evidence = {} if is_done else {"": "t", "t": "0"}
            case Act.EXPORT:
                (span,) = spans(back, "t")
                tail = self.log[span.start : span.end]
                self.exported = [*self.exported, *(one for one in tail if one not in self.exported)]
                evidence = {"t": "1"}
            case Act.HOLD:
                self.back_held = True
            case Act.DELETE:
                assert self.held, "the flows write nothing"
                assert self.back_held
                assert {*self.log} <= {*self.exported}, "a tail is lost"
                assert self.denied, "it is fenced"
                self.live_id, self.log = "", []
            case Act.CREATE:
                if self.live_id:  # it exists: such a command fails, and is repeated
                    return StepResult(ok=False, retry=True)
                self.live_id = f"new {next(self.ids)}"
                evidence = {"t": self.live_id}
            case Act.BEGIN:
                assert self.back_held
                assert self.live_id == back.rebuilds["t"].created_id
                self.begun = self.live_id
            case Act.REVERSE:
                assert self.begun == self.live_id, "the flows begin where the topic is"
                self.back_held = False
            case Act.SKIP_TAIL:
                assert self.begun != self.live_id or not spans(back, "t"), "the new log has no tail"
            case Act.RELEASE:
                assert not {*self.log} - {*self.exported} or self.begun == self.live_id
                self.held = False
        return StepResult(ok=True, evidence=evidence)

    def run(self, wish: Wish, kill: str, at: int) -> str:
        """Run a command, which is killed in a turn; return why it has ended."""
        machine = failback(wish)
        for turn in range(_TURNS):
            now = kill if turn == at else ""
            self.now_ms += GRACE_MS + 1
            wanted = machine.decide(self.record, self.facts(), Watch(), TERMS, self.now_ms)
            if now == "before store":
                return now
            self.record = wanted.record
            if wanted.act is Act.END:
                return wanted.why
            if wanted.act in {Act.STORE, Act.WAIT}:
                continue
            if now == "before act":
                return now
            result = self.act(wanted.act)
            if now == "after act":
                return now
            self.record = machine.applied(self.record, wanted.act, result, self.now_ms)
        raise AssertionError("it does not end")

    def happens(self, event: str) -> None:
        if event == "leak" and self.live_id:
            self.log.append(number := len(self.written) + 1)
            self.written.append(number)
        elif event == "created by others" and not self.live_id:
            self.live_id = f"others {next(self.ids)}"


def check(world: World) -> None:
    """Each record is exported, or where a flow copies it from, or where nothing deletes it."""
    assert {*world.written} <= {*world.exported, *world.log}
    assert len(world.exported) == len({*world.exported})


@settings(max_examples=examples(200, 600), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(_EVENTS), st.sampled_from(_KILLS), st.integers(0, 14)), max_size=14),
    st.booleans(),
)
def test_nothing_is_lost_wherever_commands_are_killed(events: list[tuple[str, str, int]], missing: bool) -> None:
    world = World(live_id="", log=[], written=[]) if missing else World()
    wishes = {"export": Wish(export=True), "rebuild": Wish(rebuild_all=True), "lift": Wish(lift=True)}
    for event, kill, at in events:
        world.happens(event)
        if event in wishes:
            world.run(wishes[event], kill, at)
        check(world)
    why = ""
    for _ in range(4):
        world.run(Wish(export=True), "", 0)
        why = world.run(Wish(rebuild_all=True), "", 0)
        check(world)
    world.run(Wish(export=True), "", 0)
    check(world)
    if world.record.failback.lifted_ms or "created by others" in why:
        return
    assert (world.held, world.back_held, world.record.failback.broken) == (False, False, ())
    assert world.begun == world.live_id != "old"


def test_the_model_ends_without_any_kill() -> None:
    world = World()
    assert "--rebuild-all" in world.run(Wish(export=True), "", 0)
    assert world.run(Wish(rebuild_all=True), "", 0) == ""
    assert world.run(Wish(export=True), "", 0) == ""
    assert (world.exported, world.held, replace(world.record.failback).broken) == ([1, 2], False, ())
