"""The rounds of a flow's configurations in the driver. Real clients, brokers in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.alignment.deletions.deletion_rounds import transactional_id
from mirror.alignment.deletions.records import CreatedTopic, SourceTopic, created_record
from mirror.config.load import load
from mirror.config.models import FlowConfig, MirrorConfig
from mirror.relay.progress.flow_topic import FlowTopic, inventory_topic_of
from mirror.spark.driver.rounds.alignment_rounds import AlignmentReports, AlignmentRounds, CreatedTopics
from mirror.wire.api import Api
from tests.alignment.test_commands_on_fakes import LONG_ENOUGH
from tests.fakes import errors
from tests.fakes.control import Action
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
        assert inventory.write({1: created_record("paris.t", created)}, 10_000) == {}
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
    with AlignmentRounds(*site.load(), created, beside_copies=True) as rounds:
        created.add(FLOW, {"paris.t": {"retention.ms": "5"}})
        created.add("another", {"x": {}})
        assert rounds.round().is_in_step
        assert (created.of(FLOW), created.of("another")) == ({}, {"x": {}})
        del site.source["retention.ms"]
        assert rounds.round().changed == 1
    assert site.target == {}


def test_topics_are_deleted_while_the_configuration_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.alignment.deletions.decision.CONFIRM_MS", 0)
    site.pair.source.add_topic("u")
    del site.pair.source.topics["t"]
    with AlignmentRounds(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        for _ in range(3):
            assert rounds.round().deletions.deletions == ()
    site.write('on-topic-deleted = "delete"\n')
    with AlignmentRounds(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        assert not rounds.round().is_in_step
        deleted = rounds.round()
    assert (deleted.deletions.deleted, deleted.is_in_step) == (1, True)
    assert "paris.t" not in site.pair.target.topics
    assert list(AlignmentReports().problems(deleted)) == ["topic paris.t was deleted, as t on the source"]


def test_what_keeps_topics_from_being_deleted_keeps_no_configuration_from_being_set(site: Site) -> None:
    site.write('on-topic-deleted = "delete"\n')
    refused = Action(errors={transactional_id(FLOW): errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    site.pair.target.control.add(lambda call: refused if call.api is Api.FIND_COORDINATOR else None)
    with AlignmentRounds(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        rounds.round()
        site.source["retention.ms"] = LONG_ENOUGH
        report = rounds.round()
    assert (report.changed, site.target, report.is_in_step) == (1, {"retention.ms": LONG_ENOUGH}, False)
    (problem,) = AlignmentReports().problems(report)
    assert problem.startswith("no topic is deleted: ")


def test_a_failed_round_keeps_what_is_known_to_differ(site: Site) -> None:
    site.source["retention.ms"], site.target["retention.ms"] = "5", "6"
    with AlignmentRounds(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        last = rounds.round()
    report = AlignmentReports().failed(last, "no answer")
    assert (report.by_reason(), report.is_in_step) == ({"differed-before": 1}, False)
    assert list(AlignmentReports().problems(report)) == [
        "no answer",
        "1 configuration of target topics differed-before; mirror drift lists them",
    ]
