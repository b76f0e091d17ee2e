"""A position that passes over records which a log has deleted is not in step, and their number is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.config.load import load
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupPosition
from mirror.groups.summary import GroupsSummary, summary_of
from mirror.spark.preflight.flow_groups import open_sync
from mirror.telemetry.report.groups import group_texts
from tests.groups.sync_site import GROUP
from tests.rehearsal.command_site import Site
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    """A copied topic of 250 records, of which the target has deleted the first 150."""
    site = Site(FakePair(monkeypatch), tmp_path)
    site.pair.log().delete_before(150)
    return site


def _position(site: Site) -> GroupPosition:
    config = load(site.file)
    (flow,) = config.select()
    with open_sync(config, flow) as sync:
        sync.round()
        (position,) = sync.round().groups[GROUP].positions
    return position


def _run(site: Site, *arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, [*arguments, "--config", str(site.file)], env={"COLUMNS": "400"})
    return found.exit_code, found.stdout


@pytest.mark.parametrize(
    ("at", "there", "reason", "passed"),
    [
        (50, 150, Reason.PASSED, 100),
        (149, 150, Reason.PASSED, 1),
        (150, 150, None, 0),
        (200, 200, None, 0),
        (250, 250, None, 0),
    ],
)
def test_position_behind_deleted_records_is_not_in_step(
    site: Site, at: int, there: int, reason: Reason | None, passed: int
) -> None:
    site.commit(source=at)
    position = _position(site)
    assert (position.target_offset, position.reason, position.passed) == (there, reason, passed)
    assert ("deleted on the target" in position.detail) == bool(passed)


def test_commands_show_how_many_records_a_position_passes_over(site: Site) -> None:
    site.commit(source=50)
    site.round()
    status, text = _run(site, "groups", "--flow", FLOW)
    assert status == 3
    words = "passes-over-records: 100 records not read yet are deleted on the target"
    assert words in " ".join(text.split())
    _, text = _run(site, "groups", "--flow", FLOW, "--json")
    (position,) = json.loads(text)["groups"][0]["positions"]
    assert (position["reason"], position["passed"]) == ("passes-over-records", 100)
    _, text = _run(site, "offsets", "t", "0", "50", "200", "--flow", FLOW)
    assert "no record there: the next one; 100 records in front of it are deleted there" in text
    _, text = _run(site, "offsets", "t", "0", "50", "200", "--flow", FLOW, "--json")
    assert [one["passed"] for one in json.loads(text)["offsets"]] == [100, 0]
    status, move = site.move()
    assert (status, move["reason"], move["skipped"], move["passed"]) == (3, "skips-records", 100, 100)
    assert "its position is passes-over-records" in move["detail"]
    assert move["action"].startswith("berlin has deleted 100 records of them")


def test_summary_and_report_of_a_run_have_how_many_records_are_passed_over(site: Site) -> None:
    site.commit(source=50)
    site.commit(source=140, group="another")
    config = load(site.file)
    (flow,) = config.select()
    with open_sync(config, flow) as sync:
        found = summary_of(sync.round())
    assert (found.passed, found.to_json()["passed"]) == (110, 110)
    assert found.counts().endswith("; 110 records passed over")
    assert GroupsSummary.from_json(found.to_json()) == found
    assert "110 records that groups have not read yet are deleted on the target" in str(group_texts(found)["lead"])


def test_way_back_behind_records_that_the_source_has_deleted_is_not_in_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = Site(FakePair(monkeypatch), tmp_path)
    site.pair.source.log("t").delete_before(150)
    site.commit(source=150, target=50)
    status, text = _run(site, "groups", "--flow", FLOW, "--reverse", "--json")
    (position,) = json.loads(text)["positions"]
    assert (status, position["source_offset"], position["pending"], position["passed"]) == (3, 150, False, 100)
    _, text = _run(site, "groups", "--flow", FLOW, "--reverse")
    words = " ".join(text.replace("│", " ").split())
    assert "committed there; no record there: the next one" in words
    assert "100 records not read yet are" in words
    status, move = site.move("--reverse")
    assert (status, move["reason"], move["passed"]) == (3, "skips-records", 100)
    assert "100 records not read yet are deleted on the source" in move["detail"]
    assert move["action"].startswith("paris has deleted 100 records of them")
