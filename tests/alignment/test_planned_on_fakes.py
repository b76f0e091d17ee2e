"""``mirror plan --out`` and ``mirror apply FILE`` over two clusters. Real clients, brokers in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mirror.client import Admin
from mirror.config.load import load
from mirror.relay.origin.records import REGISTRY_TOPIC
from mirror.relay.progress.flow_topic import inventory_topic_of
from mirror.spark.preflight import drift
from mirror.spark.preflight.plan_file import FlowPlan, configuration_hash
from mirror.wire.api import Api
from tests.alignment.permissions.authorizer import topic as reading
from tests.alignment.test_commands_on_fakes import LONG_ENOUGH, Site
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

SHORTER = str(int(LONG_ENOUGH) - 1)


class Planning(Site):
    """A site whose plans are files."""

    @property
    def plan(self) -> Path:
        return self.file.with_name("plan.json")

    def write(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Make a plan; return its items by what they change."""
        found = self.invoke("plan", "--out", str(self.plan), *arguments)
        assert found.exit_code in {0, 3}, found.output
        return {one["what"]: one for one in json.loads(self.plan.read_bytes())["flows"][FLOW]["items"]}

    def make(self) -> tuple[int, str]:
        """Apply the plan; return the exit status and what is said, as one line."""
        done = self.invoke("apply", str(self.plan))
        return done.exit_code, " ".join(done.output.split())

    def add(self, lines: str) -> None:
        """Add lines to the flow's table."""
        self.file.write_text(f"{self.file.read_text()}{lines}\n")

    def between(self, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
        """Have ``change`` happen once a plan was checked, before anything is changed."""
        check = drift.check_plan

        def checked(*arguments: Any) -> FlowPlan:
            found = check(*arguments)
            change()
            return found

        monkeypatch.setattr(drift, "check_plan", checked)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planning:
    monkeypatch.setattr(drift, "CONFIRM_MS", 0)
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 0)
    return Planning(FakePair(monkeypatch), tmp_path / "mirror.toml")


def test_a_plan_is_made_once(site: Planning) -> None:
    site.source["retention.ms"] = LONG_ENOUGH
    items = site.write()
    assert items["topic paris.t"]["facts"] == {
        "partitions": 2,
        "replicas": None,
        "configs": {"retention.ms": LONG_ENOUGH},
        "source": "t",
        "source_id": str(site.pair.source.topics["t"].topic_id),
    }
    assert f"topic {inventory_topic_of(FLOW)}" in items
    assert "paris.t" not in site.pair.target.topics
    status, said = site.make()
    assert (status, site.target) == (0, {"retention.ms": LONG_ENOUGH}), said
    assert "+ on berlin: topic paris.t was created" in said
    status, said = site.make()
    assert status == 1
    assert "create topic paris.t on berlin: nothing is to be done about it any more" in said
    assert site.write() == {}
    assert site.make()[0] == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda site: site.source.update({"retention.ms": SHORTER}), f"wanted was {LONG_ENOUGH} and is {SHORTER}"),
        (lambda site: site.target.update({"retention.ms": "7"}), "it would not be made now (changed-on-target)"),
        (lambda site: site.pair.target.add_topic("paris.t", 2), "it would not be made now (not-owned)"),
        (lambda site: site.source.clear(), "nothing is to be done about it any more"),
        (lambda site: setattr(site.pair.target, "cluster_id", "new"), "cluster berlin had the id"),
        (lambda site: site.add('configs-exclude = ["x"]'), "the configuration has changed since"),
    ],
)
def test_a_plan_is_refused_if_what_it_rests_on_has_changed(
    site: Planning, change: Callable[[Planning], object], words: str
) -> None:
    site.invoke("apply")
    site.source.update({"retention.ms": LONG_ENOUGH, "max.message.bytes": "9999999"})
    assert {"retention.ms of topic paris.t", "max.message.bytes of topic paris.t"} == site.write().keys()
    change(site)
    before = dict(site.target)
    status, said = site.make()
    assert (status, site.target) == (1, before)
    assert words in said


def test_what_the_plan_does_not_have_stays_as_it_is(site: Planning) -> None:
    site.invoke("apply")
    site.file.write_text(site.file.read_text().replace('topics = ["t"]', 'topics = ["t", "u"]'))
    site.source["retention.ms"] = LONG_ENOUGH
    assert site.write().keys() == {"retention.ms of topic paris.t"}
    site.source["max.message.bytes"] = "9999999"
    site.pair.source.grow(site.pair.source.topics["t"], 3)
    site.pair.source.add_topic("u", 1)
    status, said = site.make()
    assert (status, site.target) == (3, {"retention.ms": LONG_ENOUGH})
    assert "paris.u" not in site.pair.target.topics
    assert len(site.pair.target.topics["paris.t"].partitions) == 2
    assert "= max.message.bytes: the default, not 9999999 (not-in-plan)" in said
    for name in ("paris.t", "paris.u"):
        assert f"target topic {name} is not prepared: the plan does not have it so" in said
    assert site.ask("apply")[0] == 0, "without a plan all of it is made"


def test_what_changes_between_the_check_and_the_round_is_not_made(
    site: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.invoke("apply")
    site.source["retention.ms"] = LONG_ENOUGH
    site.write()
    site.between(monkeypatch, lambda: site.source.update({"retention.ms": SHORTER}))
    status, said = site.make()
    assert (status, site.target) == (3, {})
    assert f"= retention.ms: the default, not {SHORTER} (not-in-plan)" in said


@pytest.mark.parametrize(
    "change",
    [
        lambda site: site.pair.source.add_topic("t", 2, **{"retention.ms": LONG_ENOUGH}),
        lambda site: site.source.update({"retention.ms": SHORTER}),
        lambda site: site.source.update({"max.message.bytes": "9999999"}),
        lambda site: site.pair.source.grow(site.pair.source.topics["t"], 3),
    ],
    ids=["made again", "another value", "one more configuration", "grown"],
)
def test_a_topic_is_created_from_the_facts_of_its_plan_alone(
    site: Planning, monkeypatch: pytest.MonkeyPatch, change: Callable[[Planning], object]
) -> None:
    site.source["retention.ms"] = LONG_ENOUGH
    site.write()
    site.between(monkeypatch, lambda: change(site))
    status, said = site.make()
    assert (status, "paris.t" in site.pair.target.topics) == (3, False)
    assert "target topic paris.t is not prepared: the plan does not have it so" in said


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_is_extended_from_the_facts_of_its_plan_alone(
    site: Planning, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    site.invoke("apply")
    site.pair.source.grow(site.pair.source.topics["t"], 4)
    assert site.write().keys() == {"topic paris.t"}
    changes: dict[str, Callable[[], object]] = {
        "source": lambda: site.pair.source.add_topic("t", 4),
        "target": lambda: site.pair.target.grow(site.pair.target.topics["paris.t"], 3),
    }
    site.between(monkeypatch, changes[side])
    before = {"source": 2, "target": 3}[side]
    status, said = site.make()
    assert (status, len(site.pair.target.topics["paris.t"].partitions)) == (3, before)
    assert "target topic paris.t is not prepared: the plan does not have it so" in said


@pytest.mark.parametrize("side", ["source", "target"])
def test_another_cluster_after_the_check_is_left_as_it_is(
    site: Planning, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    site.write()
    site.between(monkeypatch, lambda: setattr(getattr(site.pair, side), "cluster_id", "new"))
    status, said = site.make()
    assert (status, "paris.t" in site.pair.target.topics) == (1, False)
    assert "the plan does not hold any more: cluster" in said


def test_a_topic_is_created_without_what_the_target_refuses(site: Planning) -> None:
    def refuse(call: Any) -> Action | None:
        if call.api is not Api.CREATE_TOPICS:
            return None
        refused = {one.name: 40 for one in call.body.topics if "vendor.setting" in {own.name for own in one.configs}}
        return Action(errors=refused) if refused else None

    site.source.update({"retention.ms": LONG_ENOUGH, "vendor.setting": "on"})
    site.add('configs-include = [".*"]')
    site.pair.target.control.add(refuse)
    assert site.write()["topic paris.t"]["facts"]["configs"] == {"retention.ms": LONG_ENOUGH}
    status, said = site.make()
    assert (status, site.target) == (3, {"retention.ms": LONG_ENOUGH}), said
    assert "target topic paris.t is created without vendor.setting = on" in said


def test_what_others_make_after_the_check_is_said(site: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    site.invoke("apply")
    site.source["retention.ms"] = LONG_ENOUGH
    site.write()
    site.between(monkeypatch, lambda: site.target.update({"retention.ms": LONG_ENOUGH}))
    status, said = site.make()
    assert status == 0
    assert "set retention.ms of topic paris.t on berlin: nothing was to be done about it any more" in said


def test_a_topic_is_deleted_by_a_plan_of_its_id_alone(site: Planning) -> None:
    site.add('on-topic-deleted = "delete"')
    site.pair.source.add_topic("stays", 1)
    site.invoke("apply")
    copy = site.pair.target.topics["paris.t"]
    with Admin({"bootstrap.servers": site.pair.source.bootstrap}) as source:
        source.delete_topics(["t"])
    site.file.write_text(site.file.read_text().replace('topics = ["t"]', 'topics = ["t", "stays"]'))
    items = site.write()
    assert items["topic paris.t"]["facts"]["topic_id"] == str(copy.topic_id)
    assert items["topic paris.t"]["change"] == "delete"
    status, said = site.make()
    assert status == 0, said
    assert "- topic paris.t was deleted" in said
    assert "paris.t" not in site.pair.target.topics


def test_what_deletes_records_is_made_by_the_limit_of_the_plan(site: Planning) -> None:
    site.invoke("apply")
    site.source["cleanup.policy"] = "compact"
    assert site.write() == {}, "over the limit"
    items = site.write("--max-deletions", "1")
    assert items["cleanup.policy of topic paris.t"]["change"] == "set", "after two rounds"
    status, said = site.make()
    assert (status, site.target) == (0, {"cleanup.policy": "compact"}), said


def test_what_others_have_set_is_replaced_by_a_plan_that_adopts(site: Planning) -> None:
    site.source["retention.ms"] = LONG_ENOUGH
    site.invoke("apply")
    site.target["retention.ms"] = "7"
    assert site.write() == {}
    assert site.write("--adopt")["retention.ms of topic paris.t"]["facts"]["target"] == "7"
    assert site.make()[0] == 0
    assert site.target == {"retention.ms": LONG_ENOUGH}


def test_a_plan_has_the_permissions_of_topics_that_it_creates(site: Planning) -> None:
    site.add(f'naming = "identity"\n[flows.{FLOW}.acls]')
    with Admin({"bootstrap.servers": site.pair.source.bootstrap}) as source:
        source.create_acls([reading("t")])
    assert "ACL of topic t: ALLOW READ for User:alice" in site.write()
    status, said = site.make()
    assert status == 0, said
    assert "+ ACL of topic t: ALLOW READ for User:alice" in said
    assert site.ask("drift")[0] == 0


def test_no_secret_counts_for_a_plan(site: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    site.file.write_text(site.file.read_text().replace("[flows", '"sasl.username" = "u"\n[flows', 1))
    monkeypatch.setenv("MIRROR_CLUSTERS__BERLIN__SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    monkeypatch.setenv("MIRROR_CLUSTERS__BERLIN__SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("MIRROR_CLUSTERS__BERLIN__SASL_PASSWORD", "first-secret")
    before = configuration_hash(load(site.file))
    monkeypatch.setenv("MIRROR_CLUSTERS__BERLIN__SASL_PASSWORD", "second-secret")
    assert configuration_hash(load(site.file)) == before
    monkeypatch.setenv("MIRROR_CLUSTERS__BERLIN__SASL_USERNAME", "v")
    assert configuration_hash(load(site.file)) != before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is no file of mirror plan --out"),
        ("", "is no plan that this version has written"),
        ("[]", "is no plan that this version has written"),
        ('{"format": 2, "configuration": "", "flows": {}}', "is no plan that this version has written"),
        ('{"format": 1, "configuration": "", "flows": {"f": {}}}', "is no plan that this version has written"),
        ("[" * 100_000, "is no plan that this version has written"),
    ],
    ids=["no file", "empty", "list", "format", "keys", "depth"],
)
def test_what_is_no_plan_is_refused(site: Planning, content: str | None, words: str) -> None:
    if content is not None:
        site.plan.write_text(content)
    done = site.invoke("apply", str(site.plan))
    assert done.exit_code == (2 if content is None else 1)
    assert words in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("configuration", 1),
        ("adopt", "no"),
        ("max_deletions", "7"),
        ("max_deletions", True),
        ("source_id", None),
        ("items", {}),
        ("on", 1),
        ("what", ["topic paris.t"]),
        ("change", None),
        ("facts", []),
    ],
)
def test_a_plan_with_a_value_of_another_type_is_refused(site: Planning, key: str, value: object) -> None:
    site.write()
    plan = json.loads(site.plan.read_bytes())
    flow = plan["flows"][FLOW]
    (holder,) = (one for one in (plan, flow, flow["items"][0]) if key in one)
    holder[key] = value
    site.plan.write_text(json.dumps(plan))
    status, said = site.make()
    assert (status, "paris.t" in site.pair.target.topics) == (1, False)
    assert f"{site.plan.name} is no plan that this version has written" in said


def test_a_plan_is_not_written_into_a_folder_that_is_missing(site: Planning) -> None:
    done = site.invoke("plan", "--out", str(site.plan.parent / "typo" / "plan.json"))
    assert (done.exit_code, (site.plan.parent / "typo").exists()) == (2, False)
    assert "does not exist" in " ".join(done.stderr.replace("│", " ").split())


def test_a_topic_that_two_flows_write_themselves_is_made_once(site: Planning) -> None:
    """Both plan it; the one that comes second is not warned of it."""
    site.pair.source.add_topic("u", 1)
    local = 'naming = "identity"\norigin = "local"\n'
    site.add(f'{local}[flows.other]\nsource = "paris"\ntarget = "berlin"\ntopics = ["u"]\n{local}')
    site.write()
    flows = json.loads(site.plan.read_bytes())["flows"]
    assert all(f"topic {REGISTRY_TOPIC}" in {one["what"] for one in flow["items"]} for flow in flows.values())
    status, said = site.make()
    assert (status, {"t", "u", REGISTRY_TOPIC} <= site.pair.target.topics.keys()) == (0, True), said
    assert "nothing was to be done" not in said


def test_options_belong_to_the_plan(site: Planning) -> None:
    site.write()
    assert site.invoke("apply", str(site.plan), "--flow", FLOW).exit_code == 2
    assert site.invoke("plan", "--out", str(site.plan), "--flow", FLOW).exit_code == 3


def test_a_plan_that_lacks_a_flow_is_not_written(site: Planning) -> None:
    site.add('[flows.other]\nsource = "paris"\ntarget = "berlin"\ntopics = ["nothing"]')
    done = site.invoke("plan", "--out", str(site.plan))
    assert (done.exit_code, site.plan.exists()) == (1, False)
    assert f"{site.plan} is not written: other could not be planned" in done.stderr


def test_a_plan_of_a_held_flow_changes_nothing(site: Planning) -> None:
    site.write()
    site.invoke("hold", FLOW, "--why", "a loss", "--no-wait")
    status, said = site.make()
    assert (status, "paris.t" in site.pair.target.topics) == (4, False)
    assert "nothing was changed" in said
