"""Owners of one flow that crash, fail and take over after any step: what the engine of all kinds keeps in any case.

The kind is a small one, over the decisions about configurations: a name has a value on the source, and on the target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mirror.alignment.config_decision import Act, ConfigMark, Known, Observed, Reason, decide
from mirror.alignment.reconciler import FENCED_MS, Change, Failure, Making, Outcome, Reconciler
from mirror.errors import BrokerError, Fenced, KafkaError, KafkaTimeout
from mirror.observation import Sides
from tests.examples import examples

OWNED = ("a", "b", "c", "d")
FOREIGN = ("theirs", "older")
LIMIT = 2
"""So many values at most are removed by a round."""
VALUES = ("1", "2", "3")
REFUSED = "refused"
"""The target refuses this value."""

NO_SIDES = cast("Sides", None)
"""This kind reads them from its world."""

EVENTS = st.sampled_from(["crash", "refused", "lost", "unanswered", "unclear", "slow", "takeover"])
ROUNDS = st.dictionaries(st.sampled_from([0, 1, 2, 3, 4, 4, 4, 5, 6, 6, 7]), EVENTS, max_size=2)
"""What happens at which step: begin, read, plan, store, and two requests, each with a store. Else nothing does."""
EDITS = st.dictionaries(st.sampled_from((*OWNED, *FOREIGN)), st.sampled_from((*VALUES, REFUSED, None)), max_size=4)


class Crash(Exception):
    """The process of an owner is gone."""


@dataclass
class World:
    """Both clusters and the inventory, and what is to happen at the next steps of a round."""

    source: dict[str, str] = field(default_factory=dict)
    target: dict[str, str] = field(default_factory=dict)
    stored: dict[str, Known] = field(default_factory=dict)
    epoch: int = 0
    """Of the last owner that has begun."""
    stores: int = 0
    """How often something was stored."""
    script: dict[int, str] = field(default_factory=dict)
    steps: int = 0
    """How many steps the round has done."""
    take_over: Callable[[], object] = lambda: None
    now_ms: int = 0
    by_flow: set[str] = field(default_factory=set)
    """What the flow has set or removed last on the target."""

    def now(self) -> int:
        return self.now_ms

    def unix_ms(self) -> int:
        return self.now_ms

    def step(self) -> str:
        """Return what happens at this step, as far as it concerns the call itself."""
        event, self.steps = self.script.get(self.steps, ""), self.steps + 1
        if event == "slow":
            self.now_ms += FENCED_MS
        if event == "takeover":
            self.take_over()
        return event


class Owner:
    """One process that does rounds: its ledger, and its kind."""

    name = "inventory"

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch: int | None = None
        self.is_fenced = False
        self.known: dict[str, Known] = {}
        self.stored_ms = self.stores = 0
        self.removed = 0
        self.rounds = Reconciler(self, world)

    def round(self) -> dict[str, Change[Known]]:
        self.removed = 0
        return self.rounds.round(self, NO_SIDES)

    # --- the ledger

    def begin(self) -> None:
        if self.world.step() == "crash":
            raise Crash
        self.is_fenced = False
        if self.epoch is None:
            self.world.epoch += 1
            self.epoch = self.world.epoch

    def read(self) -> bool:
        if self.world.step() == "crash":
            raise Crash
        self.known, self.stores = dict(self.world.stored), self.world.stores
        return True

    def store(self, records: Mapping[str, Known | None]) -> None:
        began_ms, event = self.world.now_ms, self.world.step()
        if event == "crash":
            raise Crash
        assert not self.is_fenced, "nothing more of a round is stored after a takeover was seen"
        if self.epoch is None:  # the writer does so: it was closed by a failure
            self.world.epoch += 1
            self.epoch = self.world.epoch
        if self.epoch != self.world.epoch:
            self.epoch, self.is_fenced = None, True
            raise Fenced("another owner has begun")
        if event == "lost":
            self.epoch = None
            raise KafkaTimeout("not stored")
        assert self.stores == self.world.stores, "nothing is stored over what this owner has not read"
        self.world.stores += 1
        self.stores = self.world.stores
        for name, one in records.items():
            if one is None:
                self.world.stored.pop(name, None)
            else:
                self.world.stored[name] = one
        self.known, self.stored_ms = dict(self.world.stored), began_ms
        if event == "unanswered":
            self.epoch = None
            raise KafkaTimeout("whether it was stored is not known")

    # --- the kind

    def plan(self, _: Sides) -> Settings:
        if self.world.step() == "crash":
            raise Crash
        return Settings(self.world, self.known)

    def make(self, plan: Settings, making: Making) -> None:
        for first in range(0, len(OWNED), 2):
            making.send({name: plan.changes[name] for name in OWNED[first : first + 2]}, self._call(plan))
            making.store()

    def _call(self, plan: Settings) -> Callable[[list[str], int], dict[str, KafkaError | None]]:
        def call(names: list[str], left_ms: int) -> dict[str, KafkaError | None]:
            assert 0 < left_ms <= FENCED_MS
            event = self.world.step()
            if event == "crash":
                raise Crash
            if event in {"lost", "slow"}:
                raise KafkaTimeout("no answer")
            errors: dict[str, KafkaError | None] = {}
            for name in names:
                value = plan.wanted[name]
                if value == REFUSED or event == "refused":
                    errors[name] = BrokerError("not that one", 40)
                    continue
                self.change(name, value)
                errors[name] = KafkaTimeout("no answer about it") if event == "unclear" else None
            if event == "unanswered":
                raise KafkaTimeout("no answer")
            return errors

        return call

    def change(self, name: str, value: str | None) -> None:
        """The target does what this owner has sent. Each property that one request could break is here."""
        world, there = self.world, self.world.target.get(name)
        assert name in OWNED, "what is not owned is never changed"
        assert not (there or "").startswith("theirs"), "what others have set is never replaced"
        assert not self.is_fenced, "nothing is done by an owner that has seen a takeover"
        assert world.now_ms - self.stored_ms < FENCED_MS, "nor long after it has shown that there was none"
        world.by_flow.add(name)
        intent = self.world.stored[name]
        assert value in {intent.value, *intent.before}, "what is made was stored before"
        assert there in {intent.value, *intent.before}, "and what it replaces"
        if value is None:
            self.removed += 1
            assert self.removed <= LIMIT, "the limit holds"
            world.target.pop(name, None)
        else:
            world.target[name] = value

    def report(self, plan: Settings) -> dict[str, Change[Known]]:
        return plan.changes


class Settings:
    """What one round has decided. The owned names have been in the inventory from the beginning."""

    def __init__(self, world: World, known: Mapping[str, Known]) -> None:
        self.wanted = {name: world.source.get(name) for name in (*OWNED, *FOREIGN)}
        self.changes: dict[str, Change[Known]] = {}
        for name, wanted in self.wanted.items():
            there, before = world.target.get(name), known.get(name)
            decision = decide(name, Observed(wanted, there, before, begun=True))
            if name in FOREIGN:
                change = Change[Known].left(None, Reason.NOT_OWNED)
            elif decision.act is Act.NOTHING:
                change = Change.left(decision.known, decision.reason or Reason.ONLY_ON_TARGET)
            else:
                assert decision.known is not None
                change = Change(kept=before, intent=decision.known, settled=decision.known.settled())
            self.changes[name] = change
        removed = [name for name, one in self.changes.items() if one.is_due and self.wanted[name] is None]
        if len(removed) > LIMIT:
            for name in removed:
                self.changes[name].hold(Reason.OVER_LIMIT)

    def records(self) -> dict[str, Known | None]:
        return {name: self.changes[name].stored for name in OWNED}


class Owners(RuleBasedStateMachine):
    """One owner after the other, and two at once."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.take_over = self.take_over
        self.owner = Owner(self.world)

    def take_over(self) -> None:
        """Another owner does a round of its own, in which nothing happens."""
        before, self.world.script = (self.world.script, self.world.steps), {}
        self.owner = Owner(self.world)
        self.owner.round()
        self.world.script, self.world.steps = before

    @initialize(names=st.sets(st.sampled_from(FOREIGN)))
    def begin(self, names: set[str]) -> None:
        self.world.target |= dict.fromkeys(names, "theirs")

    @rule(name=st.sampled_from(OWNED[2:]), value=st.sampled_from(("theirs", "theirs, too")))
    def set_on_target(self, name: str, value: str) -> None:
        self.world.target[name] = value
        self.world.by_flow.discard(name)

    @precondition(lambda self: any(value.startswith("theirs") for value in self.world.target.values()))
    @rule()
    def give_back(self) -> None:
        """What a person has set on the target becomes equal to the source."""
        for name in OWNED:
            if self.world.target.get(name, "").startswith("theirs"):
                self._make_equal(name)

    def _make_equal(self, name: str) -> None:
        self.world.by_flow.discard(name)
        if name in self.world.source:
            self.world.target[name] = self.world.source[name]
        else:
            del self.world.target[name]

    @rule(edits=EDITS, script=ROUNDS, restart=st.booleans())
    def rounds(self, edits: dict[str, str | None], script: dict[int, str], restart: bool) -> None:
        """The source is edited, and a round is done: by a new process, or by the one that did the last one."""
        for name, value in edits.items():
            if value is None:
                self.world.source.pop(name, None)
            else:
                self.world.source[name] = value
        if restart:
            self.owner = Owner(self.world)
        owner, self.world.script, self.world.steps = self.owner, script, 0
        try:
            owner.round()
        except Crash:
            self.owner = Owner(self.world)
        except (Fenced, KafkaTimeout):
            pass
        self.world.script = {}

    @rule()
    def comes_in_step(self) -> None:
        """Without failures a round brings in step what it does not name, and the next one settles what is left."""
        self.owner = Owner(self.world)
        before, first = dict(self.world.stored), self.owner.round()
        for name in OWNED:
            known = self.world.stored.get(name)
            if first[name].outcome is Outcome.MADE:
                assert known is None or not known.before, f"the intent of {name} is settled"
            if first[name].reason is Failure.REFUSED:
                assert known == before.get(name), f"the intent of {name} is withdrawn"
        changes = self.owner.round()
        for name, change in changes.items():
            differs = self.world.source.get(name) != self.world.target.get(name)
            assert not differs or change.reason is not None, f"{name} is left out and named"
            if name in self.world.by_flow:
                assert change.reason is not Reason.CHANGED, f"{name} is taken for one of others"
            if change.reason is None and name in OWNED:
                known = self.world.stored.get(name)
                assert known is None or not known.before, f"the intent of {name} is settled"
        over = [name for name, one in changes.items() if one.reason is Reason.OVER_LIMIT]
        assert not over or len(over) > LIMIT
        for name, one in changes.items():
            if one.reason is Failure.REFUSED:
                assert self.world.source[name] == REFUSED

    @invariant()
    def what_others_have_is_there(self) -> None:
        for name in FOREIGN:
            assert self.world.target.get(name, "theirs") == "theirs"


def test_owners_that_crash_fail_and_take_over() -> None:
    run_state_machine_as_test(Owners, settings=settings(max_examples=examples(25, 60), stateful_step_count=20))


@pytest.mark.parametrize(("event", "error"), [("takeover", Fenced), ("slow", KafkaTimeout)])
def test_what_was_not_stored_in_time_is_not_made(event: str, error: type[KafkaError]) -> None:
    """Another owner begins, or the time passes, before the first request."""
    world = World(source={"a": "1"})
    world.take_over, world.script = Owner(world).begin, {3: event}
    with pytest.raises(error):
        Owner(world).round()
    assert world.target == {}


@pytest.mark.parametrize("event", ["unanswered", "unclear"])
def test_what_may_have_been_made_stays_the_flow_s_own(event: str) -> None:
    world = World(source={"a": "1"}, script={4: event})
    owner = Owner(world)
    with contextlib.suppress(KafkaTimeout):
        assert owner.round()["a"].reason is Failure.UNAVAILABLE
    assert world.target == {"a": "1"}
    world.source["a"], world.script = "2", {}
    assert owner.round()["a"].outcome is Outcome.MADE
    assert world.target == {"a": "2"}


def test_what_was_made_is_settled_and_what_was_refused_is_withdrawn() -> None:
    world = World(source={"a": "1", "b": REFUSED})
    Owner(world).round()
    assert world.stored == {"a": Known(ConfigMark.SET, "1")}
    world.source["a"], world.script, world.steps = "2", {4: "refused"}, 0
    Owner(world).round()
    assert world.stored == {"a": Known(ConfigMark.SET, "1")}
