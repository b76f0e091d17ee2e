"""``mirror forget``: what a flow keeps on its target goes, and nothing else. Real clients, brokers in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.client import Admin, Outcomes, TopicPartition
from mirror.cluster.types import OffsetAndMetadata
from mirror.errors import KafkaTimeout
from mirror.relay.origin.records import REGISTRY_TOPIC, LogKey, whole_record
from mirror.relay.origin.registry import prepare_registries, read_registry, registry_topic, write_records
from mirror.relay.progress.flow_topic import (
    group_topic_of,
    inventory_topic_of,
    latch_topic_of,
    offset_topic_of,
    status_topic_of,
    topic_of,
)
from mirror.relay.progress.latch import Role, read_latch, set_latch
from mirror.spark.forgetting import _Removal
from mirror.spark.run_control import RunControlClient
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FLOW, FakePair

OWN_TOPICS = {
    topic_name(FLOW) for topic_name in (topic_of, status_topic_of, offset_topic_of, group_topic_of, inventory_topic_of)
}
OF_OTHERS = {"paris.t", "users", topic_of("other"), "paris.checkpoints.internal"}

_WITH_SHARED_TOPICS = f"""
origin = "local"
naming = "identity"
[flows.{FLOW}.mirrormaker]
heartbeats = true
checkpoints = true
[flows.{FLOW}.groups]
sync = false
[flows.{FLOW}.acls]
"""


class Site:
    """A flow that has copied something, a flow of another name, and a consumer group."""

    def __init__(self, pair: FakePair, file: Path, keys: str) -> None:
        self.pair, self.file = pair, file
        for name in OF_OTHERS | {group_topic_of(FLOW), inventory_topic_of(FLOW)} - {"paris.t"}:
            pair.target.add_topic(name)
        pair.write(b"a", b"b")
        pair.copy()
        self.options = {"bootstrap.servers": pair.target.bootstrap}
        with Admin(self.options) as target:
            self.run = RunControlClient(target, FLOW, "run")
            self.run.claim()
            self.run.want(ended=True)
            self.run.sync()
            for group in ("consumers", "mirror.other.3", f"mirror.{FLOW}.progress.7"):
                target.commit_group_offsets(group, {TopicPartition("paris.t", 0): OffsetAndMetadata(1)})
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n{keys}'
        )

    def groups(self) -> set[str]:
        return {group for group, offsets in self.pair.target.groups.items() if offsets}

    def forget(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["forget", FLOW, "--config", str(self.file), *arguments])

    def ask(self, *arguments: str) -> dict[str, Any]:
        result = self.forget("--json", *arguments)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def claim(self) -> None:
        with Admin(self.options) as target:
            RunControlClient(target, FLOW, "other run").claim()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    return Site(FakePair(monkeypatch), tmp_path / "mirror.toml", getattr(request, "param", ""))


def names(resources: list[dict[str, str]]) -> set[str]:
    return {one["name"] for one in resources}


def test_what_a_flow_keeps_is_removed_and_nothing_else(site: Site) -> None:
    before = site.groups()
    own = {group for group in before if group.startswith(f"mirror.{FLOW}.")}
    assert len(own) == 3, "of the progress, of the lazy progress, and of control"
    looked = site.ask("--dry-run")
    assert names(looked["removed"]) == OWN_TOPICS | own
    assert (site.groups(), site.pair.target.topics.keys() >= OWN_TOPICS) == (before, True)
    done = site.ask()
    assert done == looked | {"dry_run": False}
    assert site.groups() == {"consumers", "mirror.other.3"}
    assert site.pair.target.topics.keys() >= OF_OTHERS
    assert not site.pair.target.topics.keys() & OWN_TOPICS
    assert site.pair.values() == [b"a", b"b"]
    assert site.ask()["removed"] == []


def test_each_line_says_what_is_removed_or_kept_and_why(site: Site) -> None:
    lines = site.forget().stdout.splitlines()
    assert lines[0] == f"flow {FLOW}: forgotten"
    assert f"- topic {offset_topic_of(FLOW)} on berlin: its offset index" in lines
    assert f"- group mirror.{FLOW}.control on berlin: which run copies the flow" in lines
    assert "= positions of consumer groups on berlin: consumers go on from there" in lines


@pytest.mark.parametrize("refused", sorted(OWN_TOPICS))
def test_what_is_interrupted_is_completed_by_the_next_command(site: Site, refused: str) -> None:
    def refuse(call: Any) -> Action | None:
        return Action(errors={refused: errors.TOPIC_AUTHORIZATION_FAILED}) if call.api is Api.DELETE_TOPICS else None

    site.pair.target.control.add(refuse)
    result = site.forget()
    assert result.exit_code == 1
    assert f"! topic {refused} on berlin:" in result.stdout
    assert "(not removed: " in result.stdout
    assert site.pair.target.topics.keys() & OWN_TOPICS == {refused}
    assert site.groups() == {"consumers", "mirror.other.3"}
    site.pair.target.control.clear()
    assert names(site.ask()["removed"]) == {refused}


@pytest.mark.parametrize("whole", [True, False], ids=["of the call", "of each topic"])
def test_a_late_timeout_keeps_the_list_of_what_was_removed(
    site: Site, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    def delete_topics(_: Admin, topics: list[str], **__: object) -> Outcomes[str, None]:
        error = KafkaTimeout("no answer")
        if whole:
            raise error
        return Outcomes({}, dict.fromkeys(topics, error))

    with monkeypatch.context() as patched:
        patched.setattr(Admin, "delete_topics", delete_topics)
        result = site.forget("--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, names(found["failed"])) == (1, OWN_TOPICS)
    assert {one["error"] for one in found["failed"]} == {"no answer"}
    assert len(found["removed"]) == 3, "the groups"
    assert names(site.ask()["removed"]) == OWN_TOPICS


def test_a_flow_that_runs_is_not_forgotten_unless_it_is_forced(site: Site) -> None:
    site.claim()
    before = site.groups()
    refused = site.forget()
    assert (refused.exit_code, site.groups()) == (1, before)
    assert f"copies flow {FLOW}: end it first (mirror stop --flow {FLOW}), or give --force" in refused.stderr
    assert site.forget("--dry-run").exit_code == 0
    forced = site.forget("--force")
    assert forced.exit_code == 0
    assert "and writes some of this again" in forced.stderr
    assert site.groups() == {"consumers", "mirror.other.3"}


@pytest.mark.parametrize("site", [_WITH_SHARED_TOPICS], indirect=True, ids=["shared"])
def test_what_others_use_is_kept_and_a_later_flow_may_read_another_registry(site: Site) -> None:
    for cluster in (site.pair.source, site.pair.target):
        cluster.add_topic(REGISTRY_TOPIC, 1, **{"cleanup.policy": "compact"})
    source = {"bootstrap.servers": site.pair.source.bootstrap}
    prepare_registries(FLOW, source, site.options, only_local=True)
    on_source = registry_topic(source)
    write_records(on_source, [whole_record(flow, LogKey("t", 0), 5) for flow in (FLOW, "other")], 10_000)
    found = site.ask()
    assert names(found["kept"]) >= {REGISTRY_TOPIC, "heartbeats", "paris.checkpoints.internal"}
    assert "ACLs" in {one["kind"] for one in found["kept"]}
    assert "which registry of paris the flow reads" in names(found["removed"])
    registry = read_registry(registry_topic(site.options), 10_000)
    assert (registry.sources, registry.has_begun) == ({}, True)
    assert "what of paris the flow copies whole" in names(found["removed"])
    assert [read_registry(on_source, 10_000, flow).whole for flow in (FLOW, "other")] == [{}, {LogKey("t", 0): 5}]
    site.pair.source.add_topic(REGISTRY_TOPIC, 1, **{"cleanup.policy": "compact"})
    prepare_registries(FLOW, source, site.options, only_local=True)


@pytest.mark.parametrize("site", [f"[flows.{FLOW}.acls]\n"], indirect=True, ids=["acls"])
def test_the_acls_that_a_flow_has_created_stay(site: Site) -> None:
    assert [one["kind"] for one in site.ask()["kept"]].count("ACLs") == 1


def test_a_flow_that_is_not_configured_is_an_error(site: Site) -> None:
    result = CliRunner().invoke(app, ["forget", "flwo", "--config", str(site.file)])
    assert result.exit_code == 1
    assert "no such flow" in result.stderr


def test_the_flow_is_an_argument_and_no_option() -> None:
    found = CliRunner().invoke(app, ["forget", "--config", "mirror.toml", "--flow", "f"], prog_name="mirror")
    words = " ".join(found.stderr.replace("│", " ").split())
    assert (found.exit_code, "give its value as the argument: mirror forget FLOW" in words) == (2, True), words


def test_a_flow_that_is_held_meanwhile_stays_held(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pair.target.add_topic(latch_topic_of(FLOW))
    real = _Removal.remove

    def remove(self: _Removal, *arguments: Any) -> None:
        if read_latch(site.options, FLOW).generation == 0:
            set_latch(site.options, FLOW, Role.HELD, reason="loss", by="ada on h1", now_ms=1)
        real(self, *arguments)

    monkeypatch.setattr(_Removal, "remove", remove)
    assert site.forget().exit_code == 4
    assert read_latch(site.options, FLOW).is_held
    assert topic_of(FLOW) in site.pair.target.topics


def test_a_flow_that_was_released_is_forgotten_but_for_its_latch(site: Site) -> None:
    site.pair.target.add_topic(latch_topic_of(FLOW))
    for role in (Role.HELD, Role.ACTIVE):
        set_latch(site.options, FLOW, role, reason="", by="ada on h1", now_ms=1)
    done = site.forget()
    assert (done.exit_code, f"= topic {latch_topic_of(FLOW)} on berlin" in done.stdout) == (0, True), done.output
    assert read_latch(site.options, FLOW).generation == 2
