"""``mirror drift``, ``mirror apply`` and ``mirror plan`` over two clusters. Real clients, brokers in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.client import Admin
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.preflight import drift
from mirror.spark.preflight.flow_checks import Findings, check_flows
from mirror.spark.run_control import RunControlClient
from mirror.wire.api import Api
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

_INVALID_CONFIG = 40
LONG_ENOUGH = str(2 * 24 * 60 * 60 * 1000)
"""What is shorter than a day deletes records that a user may not have missed yet."""


class Site:
    """A source topic of two partitions, which the target does not have, and a configuration."""

    def __init__(self, pair: FakePair, file: Path) -> None:
        self.pair = pair
        pair.source.add_topic("t", 2)
        del pair.target.topics["paris.t"]
        self.file = file
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n'
        )

    @property
    def source(self) -> dict[str, str]:
        return self.pair.source.topics["t"].configs

    @property
    def target(self) -> dict[str, str]:
        return self.pair.target.topics["paris.t"].configs

    def invoke(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [command, "--config", str(self.file), *arguments])

    def ask(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status and the flow's JSON."""
        result = self.invoke(command, "--json", *arguments)
        assert result.exit_code in {0, 3}, result.output
        (flow,) = json.loads(result.stdout)["flows"]
        return result.exit_code, flow


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch), tmp_path / "mirror.toml")


def test_a_missing_topic_is_drift_and_is_created_with_its_configuration(site: Site) -> None:
    site.source["retention.ms"] = "5"
    status, flow = site.ask("drift")
    assert (status, flow["in_step"]) == (3, False)
    created = "topic paris.t is created: partitions 2, replicas the cluster's default, retention.ms = 5"
    assert f"on berlin: {created}" in flow["changes"]
    assert "paris.t" not in site.pair.target.topics
    status, flow = site.ask("apply")
    assert (status, site.target) == (0, {"retention.ms": "5"})
    assert flow["done"] == [f"on berlin: topic {name} was created" for name in ("paris.t", inventory_topic_of(FLOW))]
    assert len(site.pair.target.topics["paris.t"].partitions) == 2
    assert site.ask("drift")[0] == 0
    del site.source["retention.ms"]
    assert site.ask("apply")[0] == 0
    assert site.target == {}, "the flow has created the topic, so it resets what it has set"


def test_differences_are_shown_as_a_diff_and_nothing_is_changed(site: Site) -> None:
    site.invoke("apply")
    site.source.update({"retention.ms": LONG_ENOUGH, "cleanup.policy": "compact", "preallocate": "true"})
    site.target["max.message.bytes"] = "9"
    site.pair.source.grow(site.pair.source.topics["t"], 3)
    said = site.invoke("drift")
    assert said.exit_code == 3
    told = "1 to delete, and the limit is 0: mirror apply --flow flow --max-deletions 1 makes the changes"
    for line in (
        f"flow {FLOW}: paris to berlin: not in step",
        "+ on berlin: topic paris.t gets 3 partitions (now 2)",
        "topic paris.t",
        f"  = cleanup.policy: the default, not compact (over-limit: {told})",
        "  = max.message.bytes: 9, not the default (only-on-target)",
        "  = preallocate: the default, not true (not-followed)",
        f"  + retention.ms: the default -> {LONG_ENOUGH}",
    ):
        assert line in said.stdout.splitlines()
    assert f"on berlin:   + retention.ms: the default -> {LONG_ENOUGH}" in site.invoke("plan").stdout
    assert site.target == {"max.message.bytes": "9"}


def test_registries_are_begun_by_name_of_their_cluster_and_only_once(site: Site) -> None:
    """What is produced on the source from then on is known to be local, also before a run begins."""
    with site.file.open("a") as file:
        file.write('naming = "identity"\norigin = "local"\n')
    begins = "mirror-producers.internal begins: flows copy back nothing that flows write from then on"
    created = "topic mirror-producers.internal is created: "
    for command in ("drift", "plan"):
        said = site.invoke(command).stdout
        for cluster in ("paris", "berlin"):
            assert f"on {cluster}: {begins}" in said
            assert f"on {cluster}: {created}" in said
    done = site.invoke("apply").stdout
    for cluster in ("paris", "berlin"):
        assert f"+ on {cluster}: mirror-producers.internal has begun" in done.splitlines()
        assert f"+ on {cluster}: topic mirror-producers.internal was created" in done.splitlines()
    status, flow = site.ask("drift")
    assert (status, flow["in_step"], flow["changes"]) == (0, True, [])
    assert site.ask("plan")[1]["changes"] == []
    assert site.ask("apply")[1]["done"] == []
    with Admin({"bootstrap.servers": site.pair.source.bootstrap}) as source:
        source.delete_topics(["mirror-producers.internal"])
    status, flow = site.ask("apply")
    assert (status, flow["in_step"]) == (3, False)
    assert "has another id" in flow["obstacles"]["mirror-producers.internal"]


def test_both_directions_are_brought_in_step_at_once_from_an_empty_cluster(site: Site) -> None:
    """The second flow copies the topics that the first one has just created, and has no warning about them."""
    text = site.file.read_text().split("[flows.")[0]
    for name, source, target in (("there", "paris", "berlin"), ("back", "berlin", "paris")):
        text += f'[flows.{name}]\nsource = "{source}"\ntarget = "{target}"\ntopics = ["t"]\n'
        text += 'naming = "identity"\norigin = "local"\n'
    site.file.write_text(text)
    assert "t" not in site.pair.target.topics
    done = site.invoke("apply")
    assert done.exit_code == 0, done.output
    for line in ("flow there: paris to berlin: in step", "flow back: berlin to paris: in step"):
        assert line in done.stdout.splitlines()
    assert "matches no topic" not in done.stderr
    assert "no topic that it copies" not in done.stderr
    assert site.invoke("drift").exit_code == 0


def test_a_plan_has_the_configurations_to_change(site: Site) -> None:
    site.invoke("apply")
    status, flow = site.ask("plan")
    assert flow["configs"]["in_step"]
    site.source["retention.ms"] = LONG_ENOUGH
    status, flow = site.ask("plan")
    (difference,) = flow["configs"]["differences"]
    assert (status, difference["key"], difference["change"]) == (3, "retention.ms", "set")


def test_drift_is_left_until_it_is_adopted(site: Site) -> None:
    site.pair.target.add_topic("paris.t", 2, **{"retention.ms": "5"})
    site.source["retention.ms"] = "7"
    for arguments, reason in (((), "not-owned"), (("--adopt", "--flow", FLOW, "paris.t"), "differed-before")):
        status, flow = site.ask("apply", *arguments)
        assert (status, flow["configs"]["differences"][0]["reason"]) == (3, reason)
        assert site.target == {"retention.ms": "5"}
        assert ("on berlin: topic paris.t was adopted" in flow["done"]) is bool(arguments)
    assert site.ask("apply", "--adopt")[0] == 0
    assert site.target == {"retention.ms": "7"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("paris.t",), 2, "topics are named to adopt them: add --adopt, or leave them out"),
        (("--adopt", "--flow", FLOW, "of-others"), 1, "cannot adopt of-others: it copies no topic of paris into"),
        (("--adopt", "of-others"), 1, "cannot adopt of-others: it copies no topic of paris into"),
        (("--adopt", "--flow", FLOW, "__consumer_offsets"), 1, "cannot adopt __consumer_offsets"),
        (
            ("--adopt", "--flow", FLOW, "paris.t"),
            1,
            "cannot adopt paris.t: berlin has no such topic: a run",
        ),
    ],
)
def test_only_copies_of_the_flow_are_adopted(site: Site, arguments: tuple[str, ...], status: int, words: str) -> None:
    site.pair.target.add_topic("of-others")
    result = site.invoke("apply", *arguments)
    assert result.exit_code == status
    assert words in " ".join(result.stderr.replace("│", " ").split())
    assert inventory_topic_of(FLOW) not in site.pair.target.topics


def test_a_topic_without_an_id_is_not_adopted(site: Site) -> None:
    site.pair.target.add_topic("paris.t", 2)
    site.pair.target.versions[Api.METADATA] = (0, 9)
    result = site.invoke("apply", "--adopt", "--flow", FLOW, "paris.t")
    assert result.exit_code == 1
    assert "cannot adopt paris.t: the brokers of berlin give topics no ids" in " ".join(result.stderr.split())
    assert inventory_topic_of(FLOW) not in site.pair.target.topics


def test_a_flow_that_sets_configurations_once_has_no_drift_of_them(site: Site) -> None:
    with site.file.open("a") as file:
        file.write('configs = "create"\n')
    site.source["retention.ms"] = "5"
    assert site.ask("apply")[0] == 0
    assert site.target == {"retention.ms": "5"}
    site.source["retention.ms"] = "7"
    assert site.ask("drift")[0] == 0
    assert inventory_topic_of(FLOW) not in site.pair.target.topics


def test_with_configs_off_topics_have_the_target_s_defaults(site: Site) -> None:
    with site.file.open("a") as file:
        file.write('configs = "off"\n')
    site.source["retention.ms"] = "5"
    assert site.ask("apply")[0] == 0
    assert site.target == {}


def test_a_topic_is_created_without_a_configuration_that_the_target_refuses(site: Site) -> None:
    site.source.update({"vendor.setting": "on", "retention.ms": "5"})
    with site.file.open("a") as file:
        file.write('configs-include = [".*"]\n')

    def refuse(call: Any) -> Action | None:
        if call.api is not Api.CREATE_TOPICS:
            return None
        refused = {topic.name: _INVALID_CONFIG for topic in call.body.topics if "vendor.setting" in _keys(topic)}
        return Action(errors=refused) if refused else None

    site.pair.target.control.add(refuse)
    result = site.invoke("apply")
    assert result.exit_code == 3
    assert "target topic paris.t is created without vendor.setting = on" in result.stderr
    assert "= vendor.setting: the default, not on (refused" in result.stdout
    assert site.target == {"retention.ms": "5"}


def _keys(topic: Any) -> set[str]:
    return {config.name for config in topic.configs}


def test_while_a_run_is_alive_what_its_copies_depend_on_waits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "CONFIRM_MS", 0)
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 0)
    site.invoke("apply")
    site.source["cleanup.policy"] = "compact"
    with Admin({"bootstrap.servers": site.pair.target.bootstrap}) as target:
        run = RunControlClient(target, FLOW, "run")
        run.claim()
        for options, reason in (((), "over-limit"), (("--max-deletions", "1"), "waits-for-restart")):
            status, flow = site.ask("apply", *options)
            assert (status, flow["configs"]["differences"][0]["reason"]) == (3, reason)
        run.want(ended=True)
        run.sync()
    assert site.ask("apply")[0] == 3, "a compaction deletes records"
    assert site.ask("apply", "--max-deletions", "1")[0] == 0
    assert site.target == {"cleanup.policy": "compact"}


def test_a_cluster_that_does_not_answer_is_status_1(site: Site) -> None:
    site.file.write_text(site.file.read_text().replace('topics = ["t"]', 'topics = ["nothing-.*"]'))
    assert site.invoke("drift").exit_code == 1


@pytest.mark.parametrize(("command", "listings"), [("plan", 1), ("drift", 1), ("rehearse", 2)])
def test_a_command_lists_the_topics_of_each_cluster_once(site: Site, command: str, listings: int) -> None:
    """Whatever it says is about one state: checks, comparisons and the plan are views of one observation.

    A rehearsal begins a new one after the groups, which may take minutes.
    """
    with site.file.open("a") as file:
        file.write(f'on-topic-deleted = "delete"\n[flows.{FLOW}.acls]\nsync = true\n[flows.{FLOW}.groups]\n')
    site.ask("apply")
    clusters = site.pair.source, site.pair.target
    before = [_listings(cluster) for cluster in clusters]
    site.ask(command)
    assert [_listings(cluster) - count for cluster, count in zip(clusters, before, strict=True)] == [listings] * 2


def test_a_flow_is_brought_in_step_with_what_earlier_flows_of_the_command_have_made(site: Site) -> None:
    """The second flow copies the topics that the first one creates, besides another one of the same cluster."""
    text = site.file.read_text().split("[flows.")[0]
    site.pair.target.add_topic("other")
    text += '[flows.a]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\nnaming = "identity"\n'
    text += '[flows.b]\nsource = "berlin"\ntarget = "paris"\ntopics = ["t", "other"]\n'
    site.file.write_text(text)
    done = site.invoke("apply")
    assert done.exit_code == 0, done.output
    assert {"berlin.t", "berlin.other"} <= site.pair.source.topics.keys()
    seen = site.invoke("drift")
    assert seen.exit_code == 0, seen.output


def test_a_topic_that_is_made_again_during_the_checks_is_adopted_with_its_new_id(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.pair.target.add_topic("paris.t", 2)

    def check(*arguments: Any) -> Findings:
        found = check_flows(*arguments)
        site.pair.target.add_topic("paris.t", 2)
        return found

    with monkeypatch.context() as patched:
        patched.setattr("mirror.cli.each_flow.check_flows", check)
        adopted = site.invoke("apply", "--flow", FLOW, "--adopt", "paris.t")
    assert "topic paris.t was adopted" in adopted.output
    site.source["retention.ms"] = LONG_ENOUGH
    assert site.ask("apply")[0] == 0
    assert site.target == {"retention.ms": LONG_ENOUGH}, "it is the flow's"


def _listings(cluster: FakeCluster) -> int:
    return sum(one.body.topics is None for one in cluster.calls(Api.METADATA))
