"""The rounds of a flow's configurations in the driver. Real clients, brokers in memory."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from mirror.alignment.acls import AclAlignment
from mirror.alignment.inventory_records import CreatedTopic, Key, SourceTopic, Subject, record_of
from mirror.alignment.sync_state import ACLS, CONFIGS, DELETIONS
from mirror.alignment.topic_configs import ConfigAlignment
from mirror.alignment.topic_deletions import TopicDeletions
from mirror.client import TopicPartition
from mirror.config.load import load
from mirror.config.models import FlowConfig, MirrorConfig
from mirror.errors import Fenced, FlowError, KafkaError, KafkaTimeout, problem_of
from mirror.groups.positions import GroupsReport
from mirror.relay.progress.flow_topic import FlowTopic, group_topic_of, inventory_topic_of
from mirror.spark.clusters import open_sides
from mirror.spark.driver.rounds.group_checkpoints import CheckpointedRounds
from mirror.spark.driver.rounds.periodic_rounds import ROUND_SHARE, one_round
from mirror.spark.driver.rounds.reconciling import CreatedTopics, Reconciling, group_rounds, target_rounds
from mirror.spark.preflight import drift
from mirror.spark.preflight.flow_reconciler import KindReports
from tests.alignment.test_commands_on_fakes import LONG_ENOUGH
from tests.fakes.cluster import GroupOffset
from tests.relay.fake_pair import FLOW, FakePair


class Site:
    def __init__(self, pair: FakePair, file: Path) -> None:
        self.pair = pair
        self.file = file
        self.source, self.target = pair.source.topics["t"].configs, pair.target.topics["paris.t"].configs
        pair.target.add_topic(inventory_topic_of(FLOW))
        created = CreatedTopic(
            topic_id=str(pair.target.topics["paris.t"].topic_id),
            source=SourceTopic(name="t", topic_id=str(pair.source.topics["t"].topic_id), cluster_id="paris"),
        )
        inventory = FlowTopic({"bootstrap.servers": pair.target.bootstrap}, inventory_topic_of(FLOW))
        assert inventory.write({1: record_of(Key(Subject.CREATED, "paris.t"), created)}, 10_000) == {}
        self.write()

    def write(self, more: str = "") -> None:
        self.file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{self.pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{self.pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n{more}'
        )

    def load(self) -> tuple[MirrorConfig, FlowConfig]:
        config = load(self.file)
        return config, config.flows[FLOW]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch), tmp_path / "mirror.toml")


def test_what_a_preparation_has_created_is_the_flow_s_own_after_the_next_round(site: Site) -> None:
    created = CreatedTopics()
    site.source["retention.ms"] = site.target["retention.ms"] = "5"
    with Reconciling(*site.load(), created, beside_copies=True) as rounds:
        created.add(FLOW, {"paris.t": {"retention.ms": "5"}})
        created.add("another", {"x": {}})
        assert rounds.round()[CONFIGS].is_in_step
        assert (created.of(FLOW), created.of("another")) == ({}, {"x": {}})
        del site.source["retention.ms"]
        assert rounds.round()[CONFIGS].changed == 1
    assert site.target == {}


def test_topics_are_deleted_while_the_configuration_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 0)
    site.pair.source.add_topic("u")
    del site.pair.source.topics["t"]
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        for _ in range(3):
            assert DELETIONS not in rounds.round()
    site.write('on-topic-deleted = "delete"\n')
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        assert not rounds.round()[DELETIONS].is_in_step
        deleted = rounds.round()
    assert (deleted[DELETIONS].changed, deleted[DELETIONS].is_in_step) == (1, True)
    assert "paris.t" not in site.pair.target.topics
    assert list(target_rounds(site.load()[1], lambda _: None).problems(deleted)) == [
        "topic paris.t was deleted, as t on the source"
    ]


def fail_with(monkeypatch: pytest.MonkeyPatch, failing: type, error: Exception) -> None:
    """Have the rounds of this kind fail."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(failing, "plan", fail)


@pytest.mark.parametrize("error", [KafkaError("what"), KafkaTimeout("what"), FlowError("what"), ZeroDivisionError()])
@pytest.mark.parametrize(
    ("failing", "kinds"),
    [(TopicDeletions, {DELETIONS}), (ConfigAlignment, {CONFIGS, DELETIONS}), (AclAlignment, {ACLS})],
)
def test_what_keeps_one_kind_from_being_in_step_keeps_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch, failing: type, kinds: set[str], error: Exception
) -> None:
    """But for deletions, which share a limit with configurations."""
    site.write('on-topic-deleted = "delete"\nacls = {sync = true}\n')
    fail_with(monkeypatch, failing, error)
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        rounds.round()
        site.source["retention.ms"] = LONG_ENOUGH
        report = rounds.round()
    assert {name for name, one in report.items() if not one.is_in_step} == kinds
    assert (site.target == {"retention.ms": LONG_ENOUGH}) is (CONFIGS not in kinds)
    shown = target_rounds(site.load()[1], lambda _: None)
    problems = list(shown.problems(report))
    assert all(line.endswith(problem_of(error)) for line in problems)
    assert dict.fromkeys(problems, error) == shown.errors(report)


def test_no_topic_is_deleted_if_it_is_not_known_what_configurations_take(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both share ``max-deletions``."""
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 0)
    site.write('on-topic-deleted = "delete"\nmax-deletions = 1\n')
    site.pair.source.add_topic("u")
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        rounds.round()
        del site.pair.source.topics["t"]
        with monkeypatch.context() as without:
            fail_with(without, ConfigAlignment, KafkaError("what"))
            reports = [rounds.round() for _ in range(3)]
        assert "paris.t" in site.pair.target.topics
        assert reports[-1][DELETIONS].problems == ("no topic is deleted: what",)
        assert reports[-1][DELETIONS].time_ms == pytest.approx(time.time() * 1000, abs=60_000)
        rounds.round()
        assert rounds.round()[DELETIONS].changed == 1


@pytest.mark.parametrize("error", [KafkaTimeout("no answer"), Fenced("another one", 90), ZeroDivisionError()])
def test_what_was_done_is_reported_whatever_fails_after_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 0)
    site.write('on-topic-deleted = "delete"\nacls = {sync = true}\n')
    site.pair.source.add_topic("u")
    del site.pair.source.topics["t"]
    lines, reports = list[str](), list[KindReports]()
    kind = target_rounds(site.load()[1], reports.append)
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        one_round(lambda: nullcontext(rounds), kind, lambda _: None)
        fail_with(monkeypatch, AclAlignment, error)
        one_round(lambda: nullcontext(rounds), kind, lines.append)
    assert (reports[-1][DELETIONS].changed, reports[-1][ACLS].error) == (1, error)
    assert lines == [
        "topics and ACLs: topic paris.t was deleted, as t on the source",
        f"topics and ACLs: {problem_of(error)}",
    ]


def test_after_another_owner_has_begun_no_kind_fences_that_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write('on-topic-deleted = "delete"\nacls = {sync = true}\n')
    error = Fenced("another one", 90)
    fail_with(monkeypatch, ConfigAlignment, error)
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        with pytest.raises(Fenced):
            rounds.round()
        assert [one.error for one in rounds.fenced(error).values()] == [error] * 3


def test_a_failed_round_keeps_what_is_known_to_differ(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.source["retention.ms"], site.target["retention.ms"] = "5", "6"
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        last = rounds.round()
        fail_with(monkeypatch, ConfigAlignment, KafkaError("what"))
        assert rounds.round()[CONFIGS].by_reason() == {"differed-before": 1}
    report = target_rounds(site.load()[1], lambda _: None).failed(last, "no answer")
    assert (report[CONFIGS].by_reason(), report[CONFIGS].is_in_step) == ({"differed-before": 1}, False)
    assert list(target_rounds(site.load()[1], lambda _: None).problems(report)) == [
        "no answer",
        "1 configuration of target topics differed-before; mirror drift lists them",
    ]


def test_a_command_beside_a_stream_fences_no_positions_of_groups(site: Site) -> None:
    site.pair.target.add_topic(group_topic_of(FLOW))
    site.write("groups = {sync = true}\n")
    site.pair.source.log("t").append_values(b"a", b"b")
    site.pair.copy()
    config, flow = site.load()
    with CheckpointedRounds(config, flow, beside_copies=True) as stream:
        stream.round()
        with open_sides(config, flow) as sides:
            assert drift.apply(config, flow, sides).configs.compared == 1
        site.pair.source.groups["billing"][TopicPartition("t", 0)] = GroupOffset(1, 0, "")
        assert stream.round().written == 1


def test_a_round_of_all_groups_holds_up_those_of_changes_no_longer_than_they_do_each_other(site: Site) -> None:
    """The first one of a stream with 1,000 groups held up the next one for ten times as long as it had taken."""
    kind = group_rounds(site.load()[1], lambda _: None)
    assert kind.share(GroupsReport(is_watching=True)) == 2
    assert kind.share(GroupsReport()) == ROUND_SHARE
