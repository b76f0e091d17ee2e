"""``mirror groups`` over whole copies. Real clients, brokers in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import groups as command
from mirror.config.load import load
from mirror.errors import FlowHeld, KafkaTimeout
from mirror.relay.progress.flow_topic import inventory_topic_of, latch_topic_of
from mirror.relay.progress.latch import Role, set_latch
from mirror.spark.preflight.flow_groups import open_sync
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import GROUP, SOURCE, TARGET
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch), tmp_path / "mirror.toml")


class Site:
    """A copied topic of 250 records, and a configuration."""

    def __init__(self, pair: FakePair, file: Path) -> None:
        self.pair = pair
        self.file = file
        pair.write(*(b"%d" % number for number in range(250)))
        pair.copy()
        pair.target.add_topic(f"mirror-groups.{FLOW}.internal")
        file.write_text(
            f'[clusters.paris]\n"bootstrap.servers" = "{pair.source.bootstrap}"\n'
            f'[clusters.berlin]\n"bootstrap.servers" = "{pair.target.bootstrap}"\n'
            f'[flows.{FLOW}]\nsource = "paris"\ntarget = "berlin"\ntopics = ["t"]\n[flows.{FLOW}.groups]\n'
        )

    def ask(self, *arguments: str) -> tuple[int, Any]:
        """The exit status and the JSON."""
        options = ["--config", str(self.file), "--flow", FLOW, "--json"]
        found = CliRunner().invoke(app, ["groups", *options, *arguments])
        assert found.exit_code in {0, 3}, found.output
        return found.exit_code, json.loads(found.stdout)

    def position(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        status, found = self.ask(*arguments)
        ((position,),) = [group["positions"] for group in found["groups"] if group["group"] == GROUP]
        return status, position

    def round(self, holder: str = "") -> None:
        config = load(self.file)
        (flow,) = config.select()
        with open_sync(config, flow, holder=holder) as sync:
            sync.round()

    def commit(self, source: int | None = None, target: int | None = None) -> None:
        if source is not None:
            self.pair.source.groups[GROUP][SOURCE] = GroupOffset(source, -1, "")
        if target is not None:
            self.pair.target.groups[GROUP][TARGET] = GroupOffset(target, -1, "")


def test_both_sides_are_shown_with_their_lags(site: Site) -> None:
    site.commit(source=137)
    status, position = site.position()
    assert (status, position["pending"], position["target_offset"]) == (3, True, None)
    assert (position["source_offset"], position["source_lag"]) == (137, 113)
    site.round()
    status, position = site.position("--group", GROUP)
    # The target ends with the marker of the copy's transaction.
    assert (status, position["target_offset"], position["target_lag"], position["reason"]) == (0, 137, 114, None)
    assert site.ask("--group", "another")[1]["groups"] == []


def test_without_the_source_the_positions_on_the_target_are_shown(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.commit(source=137)
    site.round()
    away = KafkaTimeout("cluster paris does not answer")
    monkeypatch.setattr(command, "contact", lambda *_: {"paris": away})
    options = ["groups", "--config", str(site.file), "--flow", FLOW]
    found = CliRunner().invoke(app, [*options, "--json"])
    ((position,),) = [group["positions"] for group in json.loads(found.stdout)["groups"]]
    assert (found.exit_code, found.stderr) == (1, "mirror: cluster paris does not answer\n")
    assert (position["source_offset"], position["target_offset"], position["target_lag"]) == (137, 137, 114)
    assert position["age_seconds"] is not None
    text = CliRunner().invoke(app, [*options, "--group", "another"]).stdout
    assert "as berlin knows them: 0 groups" in text
    refused = CliRunner().invoke(app, [*options, "--resume", GROUP])
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_a_group_that_was_taken_over_is_shown_and_resumed(site: Site) -> None:
    site.commit(source=137)
    site.round()
    site.commit(source=150, target=200)
    assert site.position()[1]["reason"] == "taken-over"
    status, position = site.position("--resume", GROUP)
    assert (status, position["reason"]) == (3, "behind-target")
    site.commit(source=220)
    site.round()
    assert site.position()[0] == 0
    assert site.pair.target.groups[GROUP][TARGET].offset == 220


@pytest.mark.parametrize("changes", [["--resume", GROUP], ["--reverse", "--commit"]])
def test_a_group_of_a_held_flow_is_neither_resumed_nor_brought_back(site: Site, changes: list[str]) -> None:
    site.commit(source=150, target=200)
    site.pair.target.add_topic(latch_topic_of(FLOW))
    site.pair.target.add_topic(inventory_topic_of(FLOW))
    options = {"bootstrap.servers": site.pair.target.bootstrap}
    set_latch(options, FLOW, Role.HELD, reason="loss", by="ada on h1", now_ms=1)
    refused = CliRunner().invoke(app, ["groups", "--config", str(site.file), "--flow", FLOW, *changes])
    assert (refused.exit_code, "by ada on h1: loss" in refused.stderr) == (4, True), refused.output
    assert site.position()[1]["reason"] == "taken-over"


def test_the_switch_that_holds_a_flow_moves_its_groups(site: Site) -> None:
    site.pair.target.add_topic(latch_topic_of(FLOW))
    site.commit(source=137)
    options = {"bootstrap.servers": site.pair.target.bootstrap}
    set_latch(options, FLOW, Role.HELD, reason="cut over", by="switch s", now_ms=1)
    for other in ("", "switch t"):
        with pytest.raises(FlowHeld):
            site.round(other)
    site.round("switch s")
    assert site.pair.target.groups[GROUP][TARGET].offset == 137


def test_the_way_back_is_shown(site: Site) -> None:
    site.commit(source=137, target=200)
    status, found = site.ask("--reverse")
    (back,) = [one for one in found["positions"] if one["group"] == GROUP]
    assert (status, back["source_offset"], back["place"], back["committed_source_offset"]) == (3, 200, "record", 137)
    site.commit(source=200)
    assert site.ask("--reverse")[0] == 0
