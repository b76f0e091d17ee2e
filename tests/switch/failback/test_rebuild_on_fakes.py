"""A topic that the old cluster has lost comes back: deleted, created, and copied as a whole by the flow back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from mirror.client import AclBinding, AclOperation, Admin, ResourceType
from mirror.config.load import load
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.relay.progress.flow_topic import latch_topic_of, switch_topic_of
from mirror.relay.progress.latch import Role, read_latch, set_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.holding import hold, release
from mirror.switch.command import CommandOutcome, SwitchCommand
from mirror.switch.facts import Facts
from mirror.switch.failback.deciding import Wish, failback
from mirror.switch.failback.inspection import Verdict
from mirror.switch.failback.site import FailbackSite
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.operator import Operator
from mirror.switch.record import Command, State, SwitchRecord
from mirror.verify.log_reader import LogReader
from tests.groups.sync_site import GROUP
from tests.groups.test_both_directions_on_fakes import BothDirections
from tests.relay.both_directions import FLOWS, TP, A, B
from tests.relay.fake_pair import FakePair

TERMS: Final = Terms(name="s", quiet_ms=0, deadline_ms=20_000, back=(FLOWS[B],))
EXPORT: Final = Wish(export=True)
REBUILD: Final = Wish(rebuild_all=True)
GUARDS: Final = [
    AclBinding(ResourceType.TOPIC, TP.topic, "User:b", AclOperation.READ),
    AclBinding(ResourceType.GROUP, GROUP, "User:b", AclOperation.READ),
]
TAIL: Final = f"{TP.topic}.tail.1"


class Clock:
    """The time of holds, which passes in their pauses."""

    def __init__(self) -> None:
        self._passed_ms = 0

    def unix_ms(self) -> int:
        return SystemClock().unix_ms() + self._passed_ms

    def pause(self, seconds: float) -> None:
        self._passed_ms += int(seconds * 1000)


class Killed(BaseException):
    """The process ends here."""


class LostTopic(BothDirections):
    """Both sides have written, and what was produced on A is on B; then A was lost, and comes back."""

    def __init__(self, pair: FakePair, way: Way, folder: Path) -> None:
        super().__init__(pair, way)
        old, new = self.clusters
        new.add_topic(switch_topic_of("s"))
        new.add_topic(latch_topic_of(FLOWS[A]))
        for first in (0, 5):  # batches
            self.write(A, *(b"%d" % number for number in range(first, first + 5)))
        self.write(B, b"of b")
        self.copy_all()
        self.consume(A, 5)
        assert self.round(A).reason is None
        copied = self.progress(A)
        set_latch(self.options(A)[1], FLOWS[A], Role.HELD, reason="", by=TERMS.by, now_ms=1)
        self.record = SwitchRecord(
            state=State.DONE,
            command=Command.FAILOVER,
            flows=(FLOWS[A],),
            clusters=(old.cluster_id, new.cluster_id),
            topics=(TP.topic,),
            latches={FLOWS[A]: 1},
            copied={TP.topic: (copied,)},
            topic_ids={TP.topic: str(old.topics[TP.topic].topic_id)},
            target_ends={TP.topic: (new.log(TP.topic).end_offset,)},
        )
        self.write(B, b"new 0", b"new 1", b"new 2")
        self.consume(B, 8)
        file = folder / "mirror.toml"
        switch = f'[switches.s]\nflows = ["{FLOWS[A]}"]\nback = ["{FLOWS[B]}"]\n'
        file.write_text(self.config("[flows.{flow}.groups]") + switch)
        self.loaded = load(file)
        with Admin(self.options(A)[0]) as admin:
            admin.create_acls(GUARDS)
        self.site = self.new_site()
        self.site.store(self.record)

    def new_site(self) -> FailbackSite:
        return FailbackSite(self.loaded, self.loaded.switch("s"), TERMS, lambda _: None)

    def close(self) -> None:
        super().close()
        self.site.close()

    def lose(self, kind: str) -> None:
        """Have A come back with another topic than was copied."""
        old = self.clusters[A]
        if kind == "truncated":
            old.elect_uncleanly(TP.topic, 0, old.log(TP.topic).leader, 5)
        elif kind == "rebuilt":
            old.add_topic(TP.topic)
        else:
            del old.topics[TP.topic]
        if kind != "missing":
            self.write(A, b"tail 0", b"tail 1")
        else:  # as brokers do
            for offsets in old.groups.values():
                offsets.pop(TP, None)

    def run(self, wish: Wish, later_ms: int = 0) -> CommandOutcome:
        passed_ms = [0]
        clock = SystemClock()
        operator = Operator(self.site, TERMS, "me", lambda: clock.unix_ms() + passed_ms[0], failback(wish))
        operator.claim((FLOWS[A],), self.record.clusters)
        passed_ms[0] = later_ms  # an operator that was killed is waited for
        outcome = SwitchCommand(operator, TERMS, lambda _: None, lambda _: "", pause=lambda _: None).run()
        operator.leave()
        return outcome

    def killed(self, wish: Wish, act: Act, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
        """Run a command that is killed at ``act``."""
        do = self.site.act

        def dies(wanted: Act, record: SwitchRecord, facts: Facts) -> StepResult:
            if wanted is act and before:
                raise Killed
            result = do(wanted, record, facts)
            if wanted is act:
                raise Killed
            return result

        monkeypatch.setattr(self.site, "act", dies)
        with pytest.raises(Killed):
            self.run(wish, TERMS.takeover_ms)
        self.site.close()
        self.site = self.new_site()

    def exported(self) -> list[bytes | None]:
        with LogReader(self.options(B)[0], SystemClock(), 5_000) as reader:
            end = self.clusters[B].log(TAIL).end_offset
            fetches = reader.read(TP._replace(topic=TAIL), 0, end)
            return [one.value for fetched in fetches for one in fetched.records()]

    def is_held(self, side: int) -> bool:
        return read_latch(self.options(side)[1], FLOWS[side]).is_held

    def go_home(self) -> None:
        """Copy back, and pass that; both sides have the same then, and nothing twice."""
        before = self.values(B)
        for side in (B, A):
            found = self.copy_from(side)
            assert found.outcome is Outcome.COMPLETE, found.error
        assert self.values(B) == before, "nothing comes back to the standby"
        assert self.values(A) == before


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LostTopic]:
    for module in ("deciding", "rebuilding"):
        monkeypatch.setattr(f"mirror.switch.failback.{module}.GRACE_MS", -1)
    clock = Clock()
    for module, call in (("rebuild_site", hold), ("rebuild_site", release), ("site", release)):
        timed = partial(call, unix_ms=clock.unix_ms, pause=clock.pause)
        monkeypatch.setattr(f"mirror.switch.failback.{module}.{call.__name__}", timed)
    made = LostTopic(FakePair(monkeypatch), request.param, tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("lost", "kind"),
    [(Way.SEQUENCES, "truncated"), (Way.TRANSACTIONS, "rebuilt"), (Way.SEQUENCES, "missing")],
    indirect=["lost"],
)
def test_a_topic_that_was_lost_comes_back_whole_and_nothing_is_doubled(lost: LostTopic, kind: str) -> None:
    lost.lose(kind)
    found = lost.run(EXPORT)
    assert found.status == 3
    assert "--rebuild-all" in found.lines[0]
    tail = [] if kind == "missing" else [b"tail 0", b"tail 1"]
    assert (TAIL in lost.clusters[B].topics, lost.is_held(A)) == (bool(tail), True)
    assert not tail or lost.exported() == tail

    outcome = lost.run(REBUILD)
    assert (outcome.status, outcome.lines) == (0, ())
    assert (outcome.record.failback.broken, lost.is_held(B)) == ((), False)
    assert lost.is_held(A), "only an export releases"
    (shown,) = lost.site.inspect(outcome.record).topics
    assert (shown.verdict, shown.tail) == (Verdict.SAME, 0)
    assert lost.run(EXPORT).status == 0
    assert not lost.is_held(A)

    lost.go_home()
    assert lost.round(B).reason is None
    left = lost.values(B, lost.committed(B))
    assert left[-3:] == [b"new 0", b"new 1", b"new 2"]
    assert lost.values(A, lost.committed(A)) == left
    lost.write(A, b"home")
    lost.write(B, b"away")
    lost.copy_all()
    assert lost.values(B)[-2:] == [b"away", b"home"]
    assert lost.values(A)[-2:] == [b"home", b"away"]


_REBUILDING: Final = (Act.HOLD, Act.DELETE, Act.CREATE, Act.BEGIN, Act.REVERSE)


@pytest.mark.parametrize("lost", [Way.SEQUENCES], indirect=True)
def test_a_rebuild_that_is_killed_at_each_step_goes_on(lost: LostTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    lost.lose("truncated")
    assert lost.run(EXPORT).status == 3
    for act in _REBUILDING:
        for before in (True, False):
            lost.killed(REBUILD, act, monkeypatch, before=before)
            assert lost.is_held(A)
            assert act is Act.REVERSE or act is Act.HOLD or lost.is_held(B)
    assert lost.run(REBUILD, TERMS.takeover_ms).status == 0
    assert lost.run(EXPORT).status == 0
    assert lost.exported() == [b"tail 0", b"tail 1"]
    lost.go_home()


@pytest.mark.parametrize("lost", [Way.TRANSACTIONS], indirect=True)
def test_a_record_that_passes_the_fence_after_the_export_is_exported_before_the_release(lost: LostTopic) -> None:
    """A fence that leaks: nothing is deleted in front of it, and nothing released."""
    lost.lose("truncated")
    assert lost.run(EXPORT).status == 3
    lost.write(A, b"leaked")
    for wish in (REBUILD, EXPORT):
        found = lost.run(wish)
        assert found.status == 3
        if wish == REBUILD:
            assert found.lines[0].startswith("changed behind the fence")
            assert f"{TP} (end 8, was 7)" in found.lines[0]
    assert lost.exported() == [b"tail 0", b"tail 1", b"leaked"]
    assert lost.values(A)[-1] == b"leaked", "it was not deleted"
    assert lost.run(REBUILD).status == 0
    assert lost.run(EXPORT).status == 0
    lost.go_home()


@pytest.mark.parametrize("lost", [Way.TRANSACTIONS], indirect=True)
def test_a_topic_that_can_be_continued_is_never_rebuilt(lost: LostTopic) -> None:
    lost.write(A, b"tail")
    old_id = lost.clusters[A].topics[TP.topic].topic_id
    assert lost.run(REBUILD).status == 0, "there is nothing to do"
    found = lost.run(Wish(rebuild=(TP.topic,)))
    assert (found.status, "not among those that cannot be continued" in found.lines[0]) == (3, True)
    assert (lost.clusters[A].topics[TP.topic].topic_id, lost.is_held(B)) == (old_id, False)


@pytest.mark.parametrize("lost", [Way.TRANSACTIONS], indirect=True)
def test_nothing_is_deleted_in_front_of_its_export(lost: LostTopic) -> None:
    lost.lose("rebuilt")
    found = lost.run(REBUILD)
    assert (found.status, "--export first" in found.lines[0]) == (3, True)
    assert lost.values(A) == [b"tail 0", b"tail 1"]
