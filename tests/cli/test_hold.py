"""``mirror hold`` and ``mirror release`` as they are typed, and what other commands say of a held flow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import hold as command
from mirror.client import Admin
from mirror.relay.progress.flow_topic import group_topic_of, inventory_topic_of, latch_topic_of
from mirror.relay.progress.latch import Role, set_latch
from mirror.runtime.clock import SystemClock
from mirror.spark import holding
from mirror.spark.preflight.flow_reconciler import owned_topics
from mirror.spark.run_control import RunControlClient
from tests.relay.fake_pair import FLOW, FakePair

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


class Site:
    def __init__(self, pair: FakePair, file: Path) -> None:
        self.pair, self.file = pair, file
        self.ahead_ms = 0
        """How far the clock is ahead by the pauses of commands, which take no time."""
        for topic in (group_topic_of(FLOW), inventory_topic_of(FLOW)):
            pair.target.add_topic(topic)
        pair.write(b"a", b"b")
        pair.copy()
        pair.write(b"c")
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n'
        )

    def unix_ms(self) -> int:
        return SystemClock().unix_ms() + self.ahead_ms

    def now(self) -> int:
        return SystemClock().now() + self.ahead_ms

    def pause(self, seconds: float) -> None:
        self.ahead_ms += round(seconds * 1000)

    def type(self, name: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, [name, *arguments, "--config", str(self.file)])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(FakePair(monkeypatch), tmp_path / "mirror.toml")
    monkeypatch.setattr(holding, "user", lambda: "ada on h1")
    monkeypatch.setattr(holding, "SystemClock", lambda: found)
    monkeypatch.setattr(command, "pause", found.pause)
    return found


def test_a_flow_is_held_and_released(site: Site) -> None:
    held = site.type("hold", FLOW, "--why", "the night's loss")
    assert (held.exit_code, held.stdout.count("\n")) == (0, 1), held.output
    assert held.stdout.startswith("flow: held since 2")
    assert held.stdout.endswith("Z by ada on h1: the night's loss\n")
    again = json.loads(site.type("hold", FLOW, "--why", "another reason", "--json").stdout)
    assert (again["role"], again["generation"], again["reason"]) == ("held", 1, "the night's loss")
    assert "flow: active since 2" in site.type("release", FLOW).stdout
    assert json.loads(site.type("release", FLOW, "--json").stdout)["generation"] == 2


def test_a_run_that_does_not_end_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "pause", lambda _: None)
    with Admin({"bootstrap.servers": site.pair.target.bootstrap}) as target:
        RunControlClient(target, FLOW, "run-1").claim()
    held = site.type("hold", FLOW, "--why", "loss", "--no-wait")
    assert held.exit_code == 3
    assert "flow flow is held, but run run-1 on" in held.stderr
    released = site.type("release", FLOW, "--timeout", "1")
    assert (released.exit_code, "is not released: run run-1 on" in released.stderr) == (1, True), released.output


def test_what_would_write_is_refused_and_what_reads_says_so(site: Site) -> None:
    assert site.type("hold", FLOW, "--why", "loss").exit_code == 0
    line = "by ada on h1: loss; mirror release flow lets it copy again"
    for name, *arguments in (["apply"], ["forget", FLOW], ["stop", "--resume"], ["takeover", "--flow", FLOW]):
        refused = site.type(name, *arguments)
        assert (refused.exit_code, line in refused.stderr) == (4, True), refused.output
    planned = site.type("plan")
    assert "warning: it is held since" in planned.stdout
    assert line + "; until then no run copies" in planned.stdout
    status = json.loads(site.type("status", "--json").stdout)
    assert status["flows"][0]["latch"]["role"] == "held"
    assert line in " ".join(site.type("status").stdout.split())
    site.type("release", FLOW)
    assert site.type("apply").exit_code == 0


def test_apply_changes_nothing_of_a_flow_that_is_held_meanwhile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    target = site.pair.target
    target.add_topic(latch_topic_of(FLOW))

    def hold_first(*arguments: Any) -> object:
        options = {"bootstrap.servers": target.bootstrap}
        set_latch(options, FLOW, Role.HELD, reason="loss", by="ada on h1", now_ms=1)
        return owned_topics(*arguments)

    monkeypatch.setattr("mirror.spark.preflight.drift.owned_topics", hold_first)
    before = set(target.topics)
    refused = site.type("apply")
    assert (refused.exit_code, "by ada on h1: loss" in refused.stderr) == (4, True), refused.output
    assert set(target.topics) == before
