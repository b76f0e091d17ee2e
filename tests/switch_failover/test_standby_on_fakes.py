"""What is read of a standby in memory, and what a failover does there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.client import AclBinding, AclOperation, AclPermission, ResourceType, TopicPartition
from mirror.cluster.acls import read_denial, write_denial
from mirror.config.load import load
from mirror.errors import FlowHeld
from mirror.exit_status import ATTENTION, DONE
from mirror.groups.commit_decision import Intent
from mirror.groups.intents import GroupTopicKey, encode_intents, encode_key
from mirror.groups.summary import GroupsSummary, HeldGroup
from mirror.relay.progress import status_values
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of, latch_topic_of, switch_topic_of
from mirror.relay.progress.latch import LatchCheck, Role, read_latch, set_latch
from mirror.relay.progress.status_topic import StatusWriter
from mirror.runtime.clock import SystemClock
from mirror.spark import holding
from mirror.spark.ledger.confirmation import Confirmed
from mirror.switch import acting
from mirror.switch.acting import Files
from mirror.switch.command import SwitchCommand
from mirror.switch.facts import FlowLatch
from mirror.switch.failover import standby
from mirror.switch.failover.assessment import rights_of
from mirror.switch.failover.deciding import FAILOVER
from mirror.switch.failover.site import FailoverSite
from mirror.switch.machine import LEASE_MS, TAKEOVER_MS, Act, Terms
from mirror.switch.operator import Operator
from mirror.switch.record import Command, State, begin
from mirror.wire.records import TRANSACTIONAL
from tests.fakes import errors
from tests.fakes.cluster import GroupOffset
from tests.fakes.record_batches import batch, build
from tests.relay.fake_pair import FLOW, FakePair

TP: Final = TopicPartition("t", 0)
TERMS: Final = Terms(name="s", quiet_ms=0, deadline_ms=1_000)
MOVED: Final = replace(begin((FLOW,), Command.FAILOVER), topics=("t",)).entered(State.MOVED, 1)


class Standby:
    """A flow that has copied ten records, of a source that has more."""

    def __init__(self, pair: FakePair, folder: Path) -> None:
        self.pair = pair
        pair.write(*(b"%d" % number for number in range(10)))
        for name in ("t", latch_topic_of(FLOW), group_topic_of(FLOW), switch_topic_of("s")):
            pair.target.add_topic(name)
        self.options = {"bootstrap.servers": pair.target.bootstrap}
        pair.copy_all([replace(pair.range_of(), target_topic="t")])
        pair.write(b"only there")
        file = self.file = folder / "mirror.toml"
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\nnaming = "identity"\n'
            f'[flows.{FLOW}.groups]\n[switches.s]\nflows = ["{FLOW}"]\n'
        )
        self.config = load(file)
        self.site = FailoverSite(self.config, self.config.switch("s"), TERMS, Files(file, None, folder), lambda _: None)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Standby]:
    monkeypatch.setattr(standby.StandbyReader, "source_away", lambda _: "paris does not answer")
    found = Standby(FakePair(monkeypatch), tmp_path)
    yield found
    found.site.close()


def test_the_divergence_is_read_of_the_standby_alone(there: Standby) -> None:
    planned = there.site.facts(begin((FLOW,), Command.FAILOVER))
    topic_id = str(there.pair.source.topics["t"].topic_id)
    assert (planned.progress, planned.topic_ids, planned.source_id) == ({"t": (10,)}, {"t": topic_id}, "paris")
    assert (planned.source_away, planned.latches) == (
        "paris does not answer",
        {FLOW: FlowLatch(is_held=False, generation=0, by="")},
    )
    moved = there.site.facts(MOVED)
    assert moved.target_ends == {"t": (there.pair.target.log("t", 0).end_offset,)}
    assert moved.open_transactions == {}


@pytest.mark.parametrize("way", ["transactions", "auto"])
def test_the_ids_of_all_copies_are_ended(there: Standby, way: str) -> None:
    """A batch of a copy has been on the way, and its transaction is open."""
    log = there.pair.target.log("t", 0)
    there.pair.copy_all([replace(there.pair.range_of(), target_topic="t", start=10)], exactly_once_by=way)
    last = [one for one in log.batches() if one.producer_id >= 0 and not one.is_control][-1]
    late = build(
        [b"late"],
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        base_sequence=last.base_sequence + last.last_offset_delta + 1,
        attributes=TRANSACTIONAL if way == "transactions" else 0,
    )
    assert not log.is_outdated(batch(late))
    assert there.site.act(Act.END_COPIES, MOVED, there.site.facts(MOVED)).ok
    end = log.end_offset
    assert (log.produce(bytes(late))[0], log.end_offset) == (errors.INVALID_PRODUCER_EPOCH, end)


def test_a_latch_of_another_switch_is_taken_over(there: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "SETTLED_MS", 0)
    monkeypatch.setattr(holding.Ending, "step", lambda _, __: "")
    set_latch(there.options, FLOW, Role.HELD, reason="cut over", by="switch other", now_ms=1)
    ready = replace(MOVED, state=State.READY, latches={FLOW: 2})
    call_ms: list[int] = []

    def held(*args: Any, **options: Any) -> holding.HoldOutcome:
        call_ms.append(options["call_ms"])
        return holding.hold(*args, **options)

    monkeypatch.setattr(acting, "hold", held)
    assert there.site.act(Act.HOLD, ready, there.site.facts(ready)).ok
    assert 2 * call_ms[0] + LEASE_MS <= TAKEOVER_MS, "or a latch is stored behind the wait of the next operator"
    latch = read_latch(there.options, FLOW)
    assert (latch.by, latch.generation, latch.is_held) == ("switch s", 2, True)


def test_a_standby_is_opened_without_its_source(there: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding.Ending, "step", lambda _, __: "")  # which waits for 12 s
    there.site.target.create_acls([write_denial("t")])
    there.site.prepare()
    operator = Operator(there.site, TERMS, "operator", SystemClock().unix_ms, FAILOVER)
    operator.claim((FLOW,), ("", "berlin"))
    said: list[str] = []
    outcome = SwitchCommand(operator, TERMS, said.append, str, pause=lambda _: None).run()
    assert (outcome.status, outcome.lines) == (DONE, ())
    record = there.site.read_record()
    assert record == outcome.record
    assert record is not None
    assert [step.state for step in record.steps] == [
        *(State.PLANNED, State.READY, State.MOVED, State.OPEN, State.REVERSED, State.DONE),
    ]
    assert (record.clusters, record.copied) == (("paris", "berlin"), {"t": (10,)})
    assert there.site.target.describe_acls() == ()
    with pytest.raises(FlowHeld, match=r"by switch s: fail over; mirror release flow lets it copy again"):
        LatchCheck(there.options, FLOW)()


def test_the_command_shows_the_steps_and_what_it_has_done(there: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["failover", "s", "--config", str(there.file), *arguments])

    monkeypatch.setattr(holding.Ending, "step", lambda _, __: "")
    shown = ask("--dry-run")
    assert (shown.exit_code, "holds flow, which takes 12 s or more" in shown.stdout) == (0, True), shown.output
    assert ask("--status").exit_code == 1, "it has not begun"
    page = there.file.parent / "record.html"
    done = ask("--json", "--html", str(page))
    assert (done.exit_code, json.loads(done.stdout)["state"]) == (DONE, "done"), done.output
    assert json.loads(done.stdout)["arrived"]["topics"] == {}
    assert "Copied when a failover opened" in page.read_text()
    assert "switch s: done, begun by mirror failover" in ask("--status").stdout
    monkeypatch.setattr(standby.StandbyReader, "source_away", lambda _: "")
    refused = ask("--assess", "--json")
    assert (refused.exit_code, refused.stderr.count("paris answers")) == (ATTENTION, 1)
    (held,) = json.loads(refused.stdout)["latches"].values()
    assert "by switch s: fail over" in held


def test_a_source_that_answers_is_refused_and_leaves_the_switch_to_a_cut_over(
    there: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby.StandbyReader, "source_away", lambda _: "")
    refused = CliRunner().invoke(app, ["failover", "s", "--config", str(there.file)])
    assert (refused.exit_code, "the source answers: mirror cutover" in refused.stderr) == (ATTENTION, True)
    record = there.site.read_record()
    assert record is not None
    assert not record.has_begun
    assert not read_latch(there.options, FLOW).is_held


def test_the_record_is_on_the_target_only(there: Standby) -> None:
    there.site.prepare()
    there.site.store(MOVED)
    assert there.site.read_record() == MOVED
    assert switch_topic_of("s") not in there.pair.source.topics


def test_an_assessment_says_by_when_all_was_copied_and_where_groups_are(there: Standby) -> None:
    writer = StatusWriter(there.options, FLOW)
    writer.put(status_values.CONFIRMED, Confirmed(since_ms=1_000))
    held = HeldGroup(group="audit", reasons=("unknown-offset",), detail="t-0", age_ms=5)
    writer.put(status_values.GROUPS, GroupsSummary(total=2, in_step=1, held=(held,), time_ms=2_000))
    assert writer.close(5_000) is None
    key = GroupTopicKey("g", "t")
    stored = KeyValue(encode_key(key), encode_intents({0: Intent(source=7, target=7)}, {0: 900}))
    assert not FlowTopic(there.options, group_topic_of(FLOW)).write({"g": stored}, 5_000)
    there.pair.target.groups["g"][TP] = GroupOffset(7, -1, "")
    admin = there.site.target
    allow = AclBinding(ResourceType.TOPIC, "t", "User:alice", AclOperation.WRITE, AclPermission.ALLOW)
    deny = AclBinding(ResourceType.TOPIC, "t", "User:bob", AclOperation.READ, AclPermission.DENY)
    admin.create_acls([allow, deny, write_denial("t"), read_denial("g"), read_denial("other")])
    found = there.site.standby.assess()
    (partition,), (group,), (rights,) = found.partitions, found.groups, found.rights or ()
    assert (partition.copied, partition.confirmed_ms, partition.copied_ms > 0) == (10, 1_000, True)
    assert (group.group, group.positions[0].target_offset, group.positions[0].stored_ms) == ("g", 7, 900)
    assert (rights.write, rights.read, rights.denied, found.lifted) == (
        *(("User:alice",), (), ("READ User:bob",), (str(write_denial("t")), str(read_denial("g")))),
    )
    assert not [*found.refusals()]
    lines = "\n".join(found.lines())
    assert "lost is at most what paris took after 1970-01-01 00:00:01 UTC" in lines
    assert "1 of 2 groups were in step as of 1970-01-01 00:00:02 UTC" in lines
    assert "not in step: audit: unknown-offset (t-0)" in lines
    assert "deletes on berlin: DENY WRITE on TOPIC 't' (LITERAL) for User:*" in lines


def test_without_a_confirmation_no_time_is_claimed(there: Standby) -> None:
    found = there.site.standby.assess()
    lines = "\n".join(found.lines())
    assert "by when all was copied is not known of partition t-0" in lines
    assert "at most" not in lines
    answers = replace(found, source_away="")
    assert ["paris answers" in line for line in answers.refusals()] == [True]


def test_grants_of_topics_are_listed_together() -> None:
    grants = [AclBinding(ResourceType.TOPIC, name, "User:alice", AclOperation.WRITE) for name in "ab"]
    (found,) = rights_of(["a", "b"], grants)
    assert (found.topics, found.write, found.read) == (("a", "b"), ("User:alice",), ())
