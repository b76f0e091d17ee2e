"""``mirror drift``, ``mirror apply``, ``mirror plan`` and the driver's rounds. Real clients, brokers in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mirror.alignment.sync_state import ACLS
from mirror.cli.app import app
from mirror.client import AclBinding, AclOperation, Admin, ResourceType, TopicPartition
from mirror.config.load import load
from mirror.config.models import FlowConfig, MirrorConfig
from mirror.relay.progress.flow_topic import group_topic_of, inventory_topic_of
from mirror.spark.driver.rounds.periodic_rounds import RoundKind
from mirror.spark.driver.rounds.reconciling import CreatedTopics, Reconciling, target_rounds
from mirror.spark.preflight.flow_reconciler import KindReports
from mirror.wire.api import Api
from tests.alignment.permissions.authorizer import group, topic
from tests.alignment.permissions.kept_groups import keep_positions
from tests.fakes import errors
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair


class Site:
    """Topic ``t`` on the source, and a flow that brings ACLs to the target."""

    def __init__(self, pair: FakePair, file: Path) -> None:
        self.pair, self.file = pair, file
        del pair.target.topics["paris.t"]
        self.source = Admin({"bootstrap.servers": pair.source.bootstrap})
        self.write("[flows.flow.acls]")

    def write(self, table: str, topics: str = "t") -> None:
        self.file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{self.pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{self.pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["{topics}"]\nconfigs = "create"\n{table}\n'
        )

    def load(self) -> tuple[MirrorConfig, FlowConfig]:
        config = load(self.file)
        return config, config.flows[FLOW]

    def invoke(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [command, "--config", str(self.file), *arguments])

    def ask(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The exit status and the flow's part about ACLs."""
        result = self.invoke(command, "--json", *arguments)
        assert result.exit_code in {0, 3}, result.output
        (found,) = json.loads(result.stdout)["flows"]
        return result.exit_code, found["acls"]

    def at_target(self) -> set[AclBinding]:
        with Admin({"bootstrap.servers": self.pair.target.bootstrap}) as admin:
            return set(admin.describe_acls())


def shown(flow: FlowConfig) -> RoundKind[KindReports]:
    """How reports are shown, of which nothing was printed before."""
    return target_rounds(flow, lambda _: None)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    made = Site(FakePair(monkeypatch), tmp_path / "mirror.toml")
    yield made
    made.source.close()


def test_a_difference_is_shown_and_brought_in_step(site: Site) -> None:
    site.invoke("apply")
    site.source.create_acls([topic("t"), topic("t-", prefixed=True), group("g")])
    status, found = site.ask("drift")
    assert (status, [one["change"] for one in found["differences"]]) == (3, ["create"])
    assert "+ ACL of topic paris.t: ALLOW READ for User:alice" in site.invoke("drift").stdout
    assert "on berlin: + ACL of topic paris.t: ALLOW READ for User:alice" in site.invoke("plan").stdout
    assert site.ask("plan")[1]["differences"] == found["differences"]
    assert site.at_target() == set()
    status, found = site.ask("apply")
    assert (status, found["created"], site.at_target()) == (0, 1, {topic("paris.t")})
    status, found = site.ask("drift")
    assert (status, found["compared"], found["in_step"], found["differences"]) == (0, 1, True, [])
    site.pair.target.admin.acls = []
    assert (site.ask("apply")[0], site.ask("apply", "--adopt")[0], site.at_target()) == (3, 0, {topic("paris.t")})


def test_a_group_topic_that_a_broker_does_not_show_yet_costs_no_acl(site: Site) -> None:
    site.source.create_acls([group("g")])
    site.write("[flows.flow.groups]\n[flows.flow.acls]\ngroups = true")
    assert site.ask("drift")[1]["created"] == 0, "a first look needs no such topic"
    site.pair.target.add_topic(inventory_topic_of(FLOW))
    site.pair.target.add_topic(group_topic_of(FLOW))
    keep_positions(site.pair.target.bootstrap, FLOW, "paris.t", "g")
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        assert rounds.round()[ACLS].counts["created"] == 1
        hidden = site.pair.target.topics.pop(group_topic_of(FLOW))
        (problem,) = rounds.round()[ACLS].problems
        assert problem.startswith(f"there is no topic {group_topic_of(FLOW)} on the target, so it is not known")
        site.pair.target.topics[group_topic_of(FLOW)] = hidden
        assert rounds.round()[ACLS].is_in_step
    assert site.at_target() == {group("g")}


def test_a_group_that_reads_topics_of_the_target_s_own_gets_no_acl_unless_it_has_some(site: Site) -> None:
    """The source has given it a position while it was empty, which does not make it the flow's."""
    site.source.create_acls([group("ledger"), group("books")])
    site.write("[flows.flow.groups]\n[flows.flow.acls]\ngroups = true")
    site.invoke("apply")
    keep_positions(site.pair.target.bootstrap, FLOW, "paris.t", "ledger", "books")
    for name, topics in (("ledger", ("paris.t", "payroll")), ("books", ("paris.t",))):
        site.pair.target.groups[name] |= {TopicPartition(each, 0): GroupOffset(1, 0, "") for each in topics}
    assert (site.ask("apply")[0], site.at_target()) == (0, {group("books")})
    site.pair.target.groups["books"][TopicPartition("payroll", 0)] = GroupOffset(1, 0, "")
    assert (site.ask("apply")[0], site.at_target()) == (0, {group("books")}), "it has switched, and reads more"
    del site.pair.target.groups["ledger"][TopicPartition("payroll", 0)]
    assert (site.ask("apply")[0], site.at_target()) == (0, {group("books"), group("ledger")})


def test_the_flow_s_keys_say_what_is_brought(site: Site) -> None:
    site.source.create_acls([topic("t"), topic("x-", prefixed=True), group("g"), group("mirror.flow.1")])
    site.write("[flows.flow.groups]\n[flows.flow.acls]\ngroups = true\nwrite = true", topics=".*")
    site.pair.target.add_topic(group_topic_of(FLOW))
    keep_positions(site.pair.target.bootstrap, FLOW, "paris.t", "g", "mirror.flow.1")
    site.ask("apply")
    assert site.at_target() == {topic("paris.t"), topic("paris.x-", prefixed=True), group("g")}
    site.write("[flows.flow.acls]\ngroups = true", topics=".*")
    assert (
        "acls.groups has no effect: only groups get ACLs whose positions the flow keeps" in site.invoke("apply").stderr
    )
    assert site.at_target() == {topic("paris.t"), topic("paris.x-", prefixed=True)}
    site.write('naming = "identity"\n[flows.flow.acls]', topics=".*")
    site.ask("apply")
    assert site.at_target() == {topic("t")}, "what the flow has created before is not wanted any more"


def test_without_the_table_nothing_is_done(site: Site) -> None:
    site.write("")
    site.source.create_acls([topic("t")])
    assert (site.ask("apply")[0], site.ask("drift")[0], site.at_target()) == (0, 0, set())
    assert site.pair.source.calls(Api.DESCRIBE_ACLS) == []
    assert inventory_topic_of(FLOW) not in site.pair.target.topics


def test_without_an_authorizer_the_sides_are_in_step(site: Site) -> None:
    site.pair.source.admin.acls = None
    status, found = site.ask("apply")
    line = "cluster paris has no authorizer, so no ACLs are brought in step"
    assert (status, found["off"]) == (0, line)
    assert f"= {line}" in site.invoke("drift").stdout


def test_that_there_is_no_authorizer_is_said_once(site: Site) -> None:
    site.pair.source.admin.acls = None
    site.pair.target.add_topic(inventory_topic_of(FLOW))
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        first, second = rounds.round(), rounds.round()
    _, flow = site.load()
    assert list(shown(flow).problems(first)) == [first[ACLS].off]
    assert list(target_rounds(flow, lambda _: None, [first[ACLS].off]).problems(second)) == []


def test_acls_that_cannot_be_read_are_drift(site: Site) -> None:
    denied = Action(errors={"acls": errors.CLUSTER_AUTHORIZATION_FAILED})
    site.pair.target.control.on(Api.DESCRIBE_ACLS, denied, times=None)
    status, found = site.ask("drift")
    line = "the ACLs of cluster berlin cannot be read: the permission Describe on the cluster is missing"
    assert (status, found["problems"]) == (3, [line])
    assert f"warning: {line}" in site.invoke("plan").stdout


def test_missing_permissions_are_named_beforehand(site: Site) -> None:
    site.pair.source.admin.may[ResourceType.CLUSTER, ""] = frozenset({AclOperation.ALTER})
    site.pair.target.admin.may[ResourceType.CLUSTER, ""] = frozenset({AclOperation.DESCRIBE})
    for command in ("plan", "drift", "apply"):
        said = " ".join((site.invoke(command).stderr + site.invoke(command).stdout).split())
        assert "the permission Describe on the ACLs of cluster paris is missing: ACLs are not brought in step" in said
        assert "the permission Alter on the ACLs of cluster berlin is missing: ACLs are not brought in step" in said


def test_an_inventory_that_may_not_be_described_hides_no_other_finding(site: Site) -> None:
    """The plan names all permissions that are missing, with the commands that grant them."""
    inventory = inventory_topic_of(FLOW)
    site.pair.target.add_topic(inventory)
    denied: dict[TopicPartition | str, int] = {inventory: errors.TOPIC_AUTHORIZATION_FAILED}
    site.pair.target.control.on(Api.METADATA, Action(errors=denied), times=None)
    status, found = site.ask("drift")
    (line,) = found["problems"]
    assert (status, inventory in line, found["in_step"]) == (3, True, False)
    assert line in " ".join(site.invoke("plan").stdout.split())


def test_a_failed_round_keeps_what_is_known_to_differ(site: Site) -> None:
    site.invoke("apply")
    site.source.create_acls([topic("t")])
    site.ask("apply")
    site.pair.target.admin.acls = []
    with Reconciling(*site.load(), CreatedTopics(), beside_copies=True) as rounds:
        last = rounds.round()
    reports = shown(site.load()[1])
    report = reports.failed(last, "no answer")
    assert (report[ACLS].by_reason(), report[ACLS].is_in_step) == ({"removed-on-target": 1}, False)
    assert list(reports.problems(report)) == ["no answer", "1 ACL removed-on-target; mirror drift lists them"]
