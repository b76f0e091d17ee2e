"""The name of a copy that a rule gives to another source topic: nothing of that topic touches it.

Real clients and commands, brokers in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import Admin, TopicPartition
from mirror.config.load import load
from mirror.config.models import FlowConfig
from mirror.errors import FlowError
from mirror.relay.model.ranges import Outcome, Range, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.offsets.target_index import open_on_target
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.flow_reconciler import creation_recorder, owned_topics
from mirror.spark.preflight.target_topics import prepare_topics
from tests.alignment.permissions.authorizer import topic
from tests.fakes.record_batches import build, values_of
from tests.relay.fake_pair import FLOW, FakePair
from tests.spark.observed import sides_of

DAY_MS = 24 * 60 * 60 * 1000


class Site:
    """Topics ``a`` and ``b``, of which ``a`` is copied to ``x`` and ``b`` to ``z``, until the rule is edited."""

    def __init__(self, pair: FakePair, file: Path) -> None:
        self.pair, self.file, self.more = pair, file, ""
        for name, count in (("a", 3), ("b", 7)):
            pair.source.add_topic(name)
            self.write(name, *(b"%s%d" % (name.encode(), n) for n in range(count)))
        pair.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(DAY_MS)}
        del pair.source.topics["t"], pair.target.topics["paris.t"]
        pair.target.add_topic(inventory_topic_of(FLOW))
        self.source, self.target = (Admin({"bootstrap.servers": each.bootstrap}) for each in (pair.source, pair.target))
        self.name(a="x", b="z")

    def write(self, name: str, *values: bytes) -> None:
        """Young records, so that they may be copied by sequences."""
        for value in values:
            self.pair.source.log(name).append(build([value], timestamp=int(time.time() * 1000)))

    def name(self, **names: str) -> None:
        table = ", ".join(f'"{topic}" = "{name}"' for topic, name in names.items())
        self.file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{self.pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{self.pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["a", "b"]\nnames = {{ {table} }}\n'
            f'on-topic-deleted = "delete"\n{self.more}\n[flows.{FLOW}.acls]\n'
        )

    @property
    def flow(self) -> FlowConfig:
        return load(self.file).flows[FLOW]

    def prepare(self) -> TargetTopics:
        config, flow = load(self.file), self.flow
        recorder = creation_recorder(config, flow)
        means: Any = {"recorder": recorder, "owned": owned_topics(config, flow)}
        return prepare_topics(flow, sides_of(self.source, self.target), **means).targets

    def copy(self, name: str, to: str, **policy: Any) -> RangeResult:
        """As planned for the ranges of a run, whatever its preparation has found."""
        log = self.pair.source.log(name)
        copied = Range(
            flow=FLOW,
            topic=name,
            target_topic=to,
            partition=0,
            start=0,
            end=log.end_offset,
            source_cluster_id="paris",
            topic_id=str(self.pair.source.topics[name].topic_id) if self.pair.source.has_topic_ids else "",
            first=0,
        )
        (result,) = self.pair.copy_all([copied], **policy)
        return result

    def invoke(self, command: str, *arguments: str) -> str:
        result = CliRunner().invoke(app, [command, "--config", str(self.file), *arguments])
        assert result.exit_code in {0, 3}, result.output
        return " ".join(result.output.split())

    def values(self, name: str) -> list[bytes]:
        return [
            value for one in self.pair.target.log(name).batches() if not one.is_control for value in values_of(one.view)
        ]


@pytest.fixture(params=[None, "2.4"], ids=["ids", "without ids"])
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    pair = FakePair(monkeypatch, source_release=request.param)
    made = Site(pair, tmp_path / "mirror.toml")
    yield made
    made.source.close()
    made.target.close()


def begun(site: Site) -> None:
    """Both are copied, and their configurations and ACLs are in step."""
    assert not site.prepare().obstacles
    for name, to in (("a", "x"), ("b", "z")):
        assert site.copy(name, to).error is None
    site.invoke("apply")


def test_nothing_of_another_topic_touches_the_copy(site: Site) -> None:
    begun(site)
    before = site.values("x"), dict(site.pair.target.topics["x"].configs)
    site.name(b="x", a="y")
    site.source.create_acls([topic("b")])
    site.pair.source.topics["b"].configs["retention.ms"] = str(9 * DAY_MS)
    targets = site.prepare()
    reason = targets.obstacles["b"].reason
    assert "target topic x is the copy of source topic a, and its name is now that of source topic b" in reason
    assert "give b another name in names, or a its name back; or delete x" in reason
    assert targets.obstacles.keys() == {"b"}
    assert (targets.copyable["a"], targets.copyable["b"]) == (1, 0)
    plan = make_plan(PlanRequest(flow=site.flow, now_ms=0, targets=targets), sides_of(site.source, site.target))
    assert [(one.topic, one.target_topic, one.start) for one in plan.ranges] == [("a", "y", 0)]
    assert {(one.topic, one.error) for one in plan.results_without_task} == {("b", reason)}

    assert "is the copy of source topic a" in site.invoke("plan")
    for _ in range(2):
        site.invoke("apply", "--max-deletions", "9")
    failed = site.copy("b", "x")
    assert failed.outcome is Outcome.FAILED
    assert "is the copy of source topic a" in str(failed.error)
    assert (site.values("x"), site.pair.target.topics["x"].configs) == before
    assert {acl.name for acl in site.target.describe_acls()} == set()
    assert site.copy("a", "y").outcome is Outcome.COMPLETE
    assert site.values("y") == [b"a0", b"a1", b"a2"]

    del site.pair.source.topics["b"]
    site.invoke("apply", "--max-deletions", "9")
    assert "x" in site.pair.target.topics, "nor is it deleted with that topic"


def test_positions_of_the_other_topic_are_not_translated(site: Site) -> None:
    begun(site)
    site.name(b="x", a="y")
    source, target = ({"bootstrap.servers": each.bootstrap} for each in (site.pair.source, site.pair.target))
    tps = {TopicPartition("b", 0): TopicPartition("x", 0)}
    with OffsetTranslator(FLOW, source, target, site.flow.copy_policy()) as translator:
        (found,) = translator.open(tps).values()
    words = "x-0 is a copy of source topic a, not of b"
    assert (found.is_of_copied_topic, found.reason) == (False, words)
    with pytest.raises(FlowError, match=words):
        open_on_target(FLOW, target, site.flow.copy_policy(), "b", TopicPartition("x", 0), 5_000)


def test_two_copies_whose_names_are_swapped_are_both_kept(site: Site) -> None:
    begun(site)
    site.name(a="z", b="x")
    assert site.prepare().obstacles.keys() == {"a", "b"}
    for name, to in (("a", "z"), ("b", "x")):
        assert site.copy(name, to).outcome is Outcome.FAILED
    site.invoke("apply", "--max-deletions", "9")
    assert (len(site.values("x")), len(site.values("z"))) == (3, 7)
    site.name(a="x", b="z")
    assert not site.prepare().obstacles, "with the old rules it goes on"
    assert site.copy("a", "x").outcome is Outcome.COMPLETE


@pytest.mark.parametrize("way", Way)
def test_start_over_copies_behind_what_is_there(site: Site, way: Way) -> None:
    begun(site)
    site.more = "start-over = true"
    site.name(b="x", a="y")
    targets = site.prepare()
    assert not targets.obstacles
    plan = make_plan(PlanRequest(flow=site.flow, now_ms=0, targets=targets), sides_of(site.source, site.target))
    assert ("b", "x", 0) in [(one.topic, one.target_topic, one.start) for one in plan.ranges]
    assert site.copy("b", "x", start_over=True, exactly_once_by=way).error is None
    assert site.values("x") == [b"a0", b"a1", b"a2", *(b"b%d" % n for n in range(7))]
    site.more = ""
    site.name(b="x", a="y")
    assert not site.prepare().obstacles, "it is the copy of b from now on"
    site.write("b", b"b7")
    assert site.copy("b", "x", exactly_once_by=way).outcome is Outcome.COMPLETE
    assert site.values("x")[-1] == b"b7"
    assert site.copy("a", "x").outcome is Outcome.FAILED


def test_a_copy_that_a_person_has_deleted_begins_as_one_of_the_other_topic(site: Site) -> None:
    begun(site)
    site.name(b="x", a="y")
    del site.pair.target.topics["x"]
    for offsets in site.pair.target.groups.values():  # as brokers do
        for tp in [tp for tp in offsets if tp.topic == "x"]:
            del offsets[tp]
    assert not site.prepare().obstacles
    assert site.copy("b", "x").error is None
    assert len(site.values("x")) == 7
