"""A failback between two clusters in memory: the exact tail, its export, and a flow that goes on behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from mirror.client import AclBinding, AclOperation, Admin, Producer, Record, ResourceType, TopicPartition
from mirror.cluster.acls import read_denial, write_denial
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.relay.progress.committed import group_of, lazy_group_of, read_progress
from mirror.relay.progress.flow_topic import group_topic_of, latch_topic_of, switch_topic_of
from mirror.relay.progress.latch import Role, read_latch, set_latch
from mirror.runtime.clock import SystemClock
from mirror.switch.acl_fence import exactly
from mirror.switch.command import CommandOutcome, SwitchCommand
from mirror.switch.failback import exporting, tail
from mirror.switch.failback.deciding import Wish, failback, spans
from mirror.switch.failback.inspection import Verdict
from mirror.switch.failback.listing import GroupCost, TailLister, costs_of_groups
from mirror.switch.failback.site import FailbackSite
from mirror.switch.machine import Terms
from mirror.switch.operator import Operator
from mirror.switch.record import Command, State, SwitchRecord
from mirror.verify.log_reader import LogReader
from tests.fakes.api_admin import FakeGroup
from tests.fakes.cluster import GroupOffset
from tests.fakes.record_batches import build
from tests.relay.fake_pair import FLOW, FakePair

TP: Final = TopicPartition("t", 0)
TERMS: Final = Terms(name="s", quiet_ms=0, deadline_ms=20_000)
TAIL: Final = "t.tail.1"
GUARDS: Final = [
    AclBinding(ResourceType.TOPIC, "t", "User:b", AclOperation.READ),
    AclBinding(ResourceType.GROUP, "g", "User:b", AclOperation.READ),
]
"""What no ACL concerns is not fenced."""


class Returned:
    """A flow has copied ten records; the source had three more when clients moved, and is back."""

    def __init__(self, pair: FakePair, folder: Path, way: Way = Way.TRANSACTIONS) -> None:
        self.pair = pair
        # Records that are older than producer ids are kept go in transactions.
        values = tuple(b"%d" % number for number in range(10))
        pair.source.log("t").append(build(values, timestamp=SystemClock().unix_ms()))
        for name in ("t", latch_topic_of(FLOW), group_topic_of(FLOW), switch_topic_of("s")):
            pair.target.add_topic(name)
        self.options = {"bootstrap.servers": pair.target.bootstrap}
        with Admin({"bootstrap.servers": pair.source.bootstrap}) as admin:
            admin.create_acls(GUARDS)
        self.copy(way)
        pair.write(b"lost 0", b"lost 1", b"lost 2")
        set_latch(self.options, FLOW, Role.HELD, reason="", by=TERMS.by, now_ms=1)
        pair.target.log("t", 0).append_values(b"new 0", b"new 1")
        file = folder / "mirror.toml"
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\nnaming = "identity"\n'
            f'[flows.{FLOW}.groups]\n[switches.s]\nflows = ["{FLOW}"]\n'
        )
        self.config = load(file)
        self.flow = self.config.flows[FLOW]
        self.record = SwitchRecord(
            state=State.DONE,
            command=Command.FAILOVER,
            flows=(FLOW,),
            clusters=("paris", "berlin"),
            topics=("t",),
            latches={FLOW: 1},
            copied={"t": (10,)},
            topic_ids={"t": str(pair.source.topics["t"].topic_id)},
            target_ends={"t": (pair.target.log("t", 0).end_offset - 2,)},
        )
        self.site = self.new_site()
        self.site.store(self.record)

    def new_site(self) -> FailbackSite:
        return FailbackSite(self.config, self.config.switch("s"), TERMS, lambda _: None)

    def copy(self, way: Way = Way.TRANSACTIONS) -> None:
        to_copy = replace(self.pair.range_of(), target_topic="t", start=self.progress())
        (result,) = self.pair.copy_all([to_copy], exactly_once_by=way)
        assert result.outcome is Outcome.COMPLETE, result.error

    def progress(self) -> int:
        with Admin(self.options) as admin:
            found = read_progress(admin, FLOW, [TP])
            return found[TP].offset if TP in found else 0

    def run(self, wish: Wish, later_ms: int = 0) -> CommandOutcome:
        clock, passed_ms = SystemClock(), [0]
        operator = Operator(self.site, TERMS, "me", lambda: clock.unix_ms() + passed_ms[0], failback(wish))
        operator.claim((FLOW,), ("paris", "berlin"))
        passed_ms[0] = later_ms  # an operator that was killed is waited for
        outcome = SwitchCommand(operator, TERMS, lambda _: None, lambda _: "", pause=lambda _: None).run()
        operator.leave()
        return outcome

    def exported(self) -> list[Record]:
        with LogReader(self.options, SystemClock(), 5_000) as reader:
            end = self.pair.target.log(TAIL, 0).end_offset
            return [one for fetched in reader.read(TopicPartition(TAIL, 0), 0, end) for one in fetched.records()]

    def target_values(self) -> list[bytes | None]:
        with LogReader(self.options, SystemClock(), 5_000) as reader:
            end = self.pair.target.log("t", 0).end_offset
            return [one.value for fetched in reader.read(TP, 0, end) for one in fetched.records()]


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Returned]:
    monkeypatch.setattr("mirror.switch.failback.deciding.GRACE_MS", -1)
    found = Returned(FakePair(monkeypatch), tmp_path)
    yield found
    found.site.close()


def test_the_tail_is_exported_and_the_flow_goes_on_behind_it(returned: Returned) -> None:
    found = returned.run(Wish(export=True))
    assert (found.status, found.lines) == (0, ())
    back = found.record.failback
    assert spans(back, "t") == ((10, 13),)
    assert [one.value for one in returned.exported()] == [b"lost 0", b"lost 1", b"lost 2"]
    assert [dict(one.headers)[tail.OFFSET] for one in returned.exported()] == [b"10", b"11", b"12"]
    assert not read_latch(returned.options, FLOW).is_held
    returned.pair.write(b"after")
    returned.copy()
    assert returned.target_values() == [*(b"%d" % n for n in range(10)), b"new 0", b"new 1", b"after"]
    assert returned.run(Wish(export=True)).status == 0
    assert len(returned.exported()) == 3


@pytest.fixture
def by_sequences(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Returned]:
    monkeypatch.setattr("mirror.switch.failback.deciding.GRACE_MS", -1)
    found = Returned(FakePair(monkeypatch), tmp_path, Way.SEQUENCES)
    del found.pair.target.groups[lazy_group_of(FLOW, TP)]  # what was committed last is lost
    found.record = replace(found.record, copied={"t": (found.progress(),)})
    found.site.store(found.record)
    yield found
    found.site.close()


def test_a_progress_that_is_a_lower_bound_is_found_in_the_log(by_sequences: Returned) -> None:
    assert by_sequences.record.copied == {"t": (0,)}
    assert by_sequences.site.inspect(by_sequences.record).topics[0].tail == 13
    found = by_sequences.run(Wish(export=True))
    assert spans(found.record.failback, "t") == ((10, 13),)
    assert [one.value for one in by_sequences.exported()] == [b"lost 0", b"lost 1", b"lost 2"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_flow_begins_behind_the_tail_of_a_partition_that_it_has_never_copied(
    returned: Returned, *, exists: bool
) -> None:
    target = returned.pair.target
    for group in (group_of(FLOW, TP), lazy_group_of(FLOW, TP)):
        target.groups.pop(group, None)
    returned.record = replace(returned.record, copied={}, topic_ids={})
    returned.site.store(returned.record)
    if not exists:
        del target.topics["t"]
        operator = Operator(returned.site, TERMS, "me", SystemClock().unix_ms, failback(Wish(export=True)))
        operator.claim((FLOW,), ("paris", "berlin"))
        lines = [operator.turn().why for _ in range(9)]
        assert "t-0 is missing on berlin" in lines[-1]
        operator.leave()
        target.add_topic("t")
    before = returned.target_values()
    assert returned.run(Wish(export=True)).status == 0
    assert len(returned.exported()) == 13
    assert not read_latch(returned.options, FLOW).is_held
    returned.pair.write(b"after")
    returned.copy()
    assert returned.target_values() == [*before, b"after"]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("has_committed", [False, True])
def test_an_export_that_is_killed_goes_on(
    returned: Returned, monkeypatch: pytest.MonkeyPatch, *, has_committed: bool
) -> None:
    monkeypatch.setattr(tail, "TRANSACTION_RECORDS", 1)
    commit, calls = Producer.commit_transaction, list[str]()

    def killed(producer: Producer, timeout_ms: int | None = None) -> None:
        if producer._transactional_id == exporting.transactional_id("s"):
            calls.append("commit")
            if len(calls) == 2 and not has_committed:
                raise Killed
        commit(producer, timeout_ms)
        if len(calls) == 2 and has_committed:
            calls.append("killed")
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Producer, "commit_transaction", killed)
        with pytest.raises(Killed):
            returned.run(Wish(export=True))
    returned.site.close()
    returned.site = returned.new_site()
    assert returned.run(Wish(export=True), TERMS.takeover_ms).status == 0
    assert [one.value for one in returned.exported()] == [b"lost 0", b"lost 1", b"lost 2"]


def test_the_denials_are_created_shown_and_removed_exactly(returned: Returned) -> None:
    source, committed = returned.pair.source, GroupOffset(10, -1, "")
    source.groups["g"][TP] = committed
    source.admin.groups["g"] = FakeGroup()
    with Admin({"bootstrap.servers": source.bootstrap}) as admin:
        others = [AclBinding(ResourceType.TOPIC, "t", "User:a", AclOperation.WRITE), write_denial("other")]
        admin.create_acls(others)
        found = returned.run(Wish())
        assert {*admin.describe_acls()} == {*GUARDS, *others, write_denial("t"), read_denial("g")}
        back = found.record.failback
        assert (back.denied, back.denied_groups, back.exported) == (("t",), ("g",), ())
        assert returned.run(Wish(lift=True)).status == 0
        assert {*admin.describe_acls()} == {*GUARDS, *others}
    assert TAIL not in returned.pair.target.topics


def test_what_is_written_while_denials_are_missing_is_exported_too(returned: Returned) -> None:
    assert returned.run(Wish()).status == 0
    with Admin({"bootstrap.servers": returned.pair.source.bootstrap}) as admin:
        admin.delete_acls([exactly(write_denial("t"))])
        returned.pair.write(b"lost 3")
        assert returned.run(Wish(export=True)).status == 0
        assert {*admin.describe_acls()} == {*GUARDS, write_denial("t")}
    assert [one.value for one in returned.exported()] == [b"lost %d" % n for n in range(4)]
    returned.copy()
    assert returned.target_values()[-2:] == [b"new 0", b"new 1"]


def test_denials_that_are_lifted_too_early_are_created_again(returned: Returned) -> None:
    assert returned.run(Wish(lift=True)).status == 0
    assert returned.run(Wish(export=True)).status == 0
    assert len(returned.exported()) == 3
    assert not read_latch(returned.options, FLOW).is_held


def test_what_the_flow_is_to_append_is_confirmed_and_then_copied(returned: Returned) -> None:
    switch = returned.config.switch("s").model_copy(update={"append_tail": ("t",)})
    returned.site.close()
    returned.site = FailbackSite(returned.config, switch, TERMS, lambda _: None)
    refused = returned.run(Wish(export=True))
    assert (refused.status, "confirm it by --append" in refused.lines[0]) == (3, True)
    assert read_latch(returned.options, FLOW).is_held
    assert returned.run(Wish(export=True, append=True)).status == 0
    returned.copy()
    assert returned.target_values()[-5:] == [b"new 0", b"new 1", b"lost 0", b"lost 1", b"lost 2"]


def test_the_tail_of_a_compacted_topic_is_exported_whatever_the_pattern(returned: Returned) -> None:
    switch = returned.config.switch("s").model_copy(update={"append_tail": ("t",)})
    returned.pair.target.topics["t"].configs["cleanup.policy"] = "compact"
    returned.site.close()
    returned.site = FailbackSite(returned.config, switch, TERMS, lambda _: None)
    assert returned.run(Wish(export=True)).record.failback.exported == ("t",)


def test_a_topic_that_was_made_again_is_named_and_nothing_of_it_is_exported(returned: Returned) -> None:
    returned.pair.source.add_topic("t").configs.clear()
    found = returned.run(Wish(export=True))
    assert found.record.failback.broken == ("t",)
    assert (found.status, "so the flows stay held" in found.lines[0]) == (3, True)
    assert TAIL not in returned.pair.target.topics
    (shown,) = returned.site.inspect(found.record).topics
    assert shown.verdict is Verdict.REBUILT


def test_another_cluster_is_refused(returned: Returned) -> None:
    operator = Operator(returned.site, TERMS, "me", SystemClock().unix_ms, failback(Wish()))
    with pytest.raises(FlowError, match="correct addresses"):
        operator.claim((FLOW,), ("rome", "berlin"))


def test_a_tail_is_listed_with_the_keys_that_were_written_since(returned: Returned) -> None:
    source, target = returned.pair.source, returned.pair.target
    with Producer({"bootstrap.servers": source.bootstrap}) as producer:
        for key in (b"a", b"b"):
            producer.send("t", 0, key=key, value=b"", timestamp_ms=5000).result()
    with Producer(returned.options) as producer:
        producer.send("t", 0, key=b"b", value=b"", timestamp_ms=6000).result()
    lister = TailLister(returned.config, returned.flow, 10_000)
    (found,) = lister.list({"t": [tail.Span(10, 15)]}, returned.record, returned.site.source, returned.site.target)
    assert (found.records, found.written_since, found.written_since_is_exact) == (5, 1, True)
    assert found.times is not None
    assert found.times[0] <= 5000
    target.admin.groups["g"] = FakeGroup()
    opened = returned.record.target_ends["t"][0]
    target.groups["g"][TP] = GroupOffset(opened + 2, -1, "")
    costs = costs_of_groups([returned.flow], [found], returned.record, returned.site.target, 10_000)
    assert costs == [GroupCost(group="g", tail=5, again=2)]


def test_a_tail_s_topic_with_records_of_others_is_refused(returned: Returned) -> None:
    returned.pair.target.add_topic(TAIL).configs.clear()
    returned.pair.target.log(TAIL, 0).append_values(b"of others")
    operator = Operator(returned.site, TERMS, "me", SystemClock().unix_ms, failback(Wish(export=True)))
    operator.claim((FLOW,), ("paris", "berlin"))
    lines = [operator.turn().why for _ in range(12)]
    assert "is no record of this tail" in lines[-1]
    assert read_latch(returned.options, FLOW).is_held


def test_what_retention_deletes_of_a_tail_is_passed_with_a_line(returned: Returned) -> None:
    assert returned.run(Wish()).status == 0
    with Admin({"bootstrap.servers": returned.pair.source.bootstrap}) as admin:
        admin.delete_records({TP: 12})
    lines: list[str] = []
    returned.site.close()
    returned.site = FailbackSite(returned.config, returned.config.switch("s"), TERMS, lines.append)
    assert returned.run(Wish(export=True)).status == 0
    assert [one.value for one in returned.exported()] == [b"lost 2"]
    assert "t-0: retention has deleted offsets 10 to 12 of the tail" in lines


@pytest.mark.parametrize("gone", GUARDS, ids=["topic", "group"])
def test_a_topic_or_group_that_no_acl_concerns_is_refused_before_anything_is_fenced(
    returned: Returned, gone: AclBinding
) -> None:
    returned.pair.source.groups["g"][TP] = GroupOffset(10, -1, "")
    returned.pair.source.admin.groups["g"] = FakeGroup()
    with Admin({"bootstrap.servers": returned.pair.source.bootstrap}) as admin:
        admin.delete_acls([exactly(gone)])
        found = returned.run(Wish())
        assert (found.status, f" {gone.name}: no ACL of the source concerns it" in found.lines[0]) == (3, True)
        assert {*admin.describe_acls()} == {*GUARDS} - {gone}


def test_an_old_cluster_without_an_authorizer_needs_a_hook(returned: Returned) -> None:
    returned.pair.source.admin.acls = None
    found = returned.run(Wish())
    assert (found.status, 'use fence = "hook"' in found.lines[0]) == (3, True)
