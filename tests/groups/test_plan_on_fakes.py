"""``mirror plan`` shows what would be committed for consumer groups. Real clients, brokers in memory."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.errors import KafkaTimeout
from mirror.groups.sync import GroupSync
from mirror.relay.progress.flow_topic import group_topic_of
from tests.groups.sync_site import GROUP, SOURCE, TARGET
from tests.groups.test_command_on_fakes import Site
from tests.relay.fake_pair import FLOW, FakePair

IN_STEP, TO_DO = 0, 3
_ABOUT_GROUPS: Final = (*(f"on berlin: {sign} group" for sign in "+~-="), "warning: consumer groups")


class PlanSite(Site):
    """A copied topic whose configuration needs nothing else; a plan of it must not change anything."""

    def __init__(self, pair: FakePair, file: Path) -> None:
        super().__init__(pair, file)
        self.configure("", flow='configs = "create"')

    def configure(self, groups: str, *, flow: str = "") -> None:
        """Add lines to the table of the groups, which comes last, and to that of the flow."""
        text = self.file.read_text().replace('topics = ["t"]\n', f'topics = ["t"]\n{flow}\n')
        self.file.write_text(f"{text}{groups}\n")

    def plan(self, *arguments: str) -> tuple[int, str]:
        """The exit status, and what is printed."""
        before = self._kept()
        found = CliRunner().invoke(app, ["plan", "--config", str(self.file), *arguments])
        assert found.stderr == ""
        assert self._kept() == before, "to look changes nothing"
        return found.exit_code, found.stdout

    def planned(self) -> tuple[int, dict[str, Any]]:
        """The exit status, and the JSON of the flow."""
        status, text = self.plan("--json")
        (flow,) = json.loads(text)["flows"]
        return status, flow

    def lines(self) -> tuple[int, list[str]]:
        """The exit status, and the lines about groups."""
        status, text = self.plan()
        return status, [line for line in text.splitlines() if line.startswith(_ABOUT_GROUPS)]

    def _kept(self) -> tuple[Any, ...]:
        source, target = self.pair.source, self.pair.target
        topic = group_topic_of(FLOW)
        stored = target.log(topic, 0).end_offset if topic in target.topics else None
        groups = (
            copy.deepcopy({name: found for name, found in each.groups.items() if found}) for each in (source, target)
        )
        return *groups, set(target.topics), stored


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlanSite:
    return PlanSite(FakePair(monkeypatch), tmp_path / "mirror.toml")


def test_offsets_that_the_next_round_would_commit_are_shown_and_not_committed(site: PlanSite) -> None:
    assert site.lines() == (IN_STEP, [])
    site.commit(source=137)
    assert site.lines() == (TO_DO, ["on berlin: + group billing: 1 offset would be committed"])
    assert TARGET not in site.pair.target.groups[GROUP]
    site.round()
    assert site.lines() == (IN_STEP, [])
    site.commit(source=150)
    assert site.lines() == (TO_DO, ["on berlin: ~ group billing: 1 offset would be committed"])
    status, flow = site.planned()
    assert (status, flow["to_do"], flow["records"], flow["changes"]) == (TO_DO, True, 0, [])
    assert flow["groups"] == {
        "total": 1,
        "in_step": 0,
        "to_commit": 1,
        "to_delete": 0,
        "not_in_step": {},
        "groups": [{"group": GROUP, "to_commit": 1, "to_delete": 0, "reasons": [], "detail": ""}],
        "problems": [],
    }
    assert site.pair.target.groups[GROUP][TARGET].offset == 137


def test_a_group_that_is_left_as_it_is_has_its_reason_and_is_nothing_to_do(site: PlanSite) -> None:
    site.commit(source=137)
    site.round()
    site.commit(source=150, target=200)
    assert site.lines() == (IN_STEP, ["on berlin: = group billing: taken-over (t-0)"])
    status, flow = site.planned()
    assert (status, flow["to_do"], flow["groups"]["not_in_step"]) == (IN_STEP, False, {"taken-over": 1})


def test_a_position_that_is_not_copied_yet_goes_as_far_as_the_copy(site: PlanSite) -> None:
    site.pair.write(b"new", b"new")
    site.commit(source=252)
    status, lines = site.lines()
    assert status == TO_DO
    assert lines == ["on berlin: + group billing: 1 offset would be committed; not-copied-yet (t-0)"]


def test_before_the_first_run_groups_wait_for_the_topics(site: PlanSite) -> None:
    site.commit(source=137)
    for topic in (TARGET.topic, group_topic_of(FLOW)):
        del site.pair.target.topics[topic]
    status, lines = site.lines()
    line = "on berlin: = group billing: no-partition (t-0: there is no partition paris.t-0)"
    assert (status, lines) == (TO_DO, [line])


def test_offsets_that_would_be_deleted_are_shown_as_such(site: PlanSite) -> None:
    site.commit(source=137)
    site.round()
    del site.pair.source.groups[GROUP][SOURCE]
    assert site.lines() == (IN_STEP, ["on berlin: = group billing: deleted-on-source (t-0)"])
    site.configure('on-group-deleted = "delete"')
    assert site.lines() == (TO_DO, ["on berlin: - group billing: 1 offset would be deleted"])
    assert site.planned()[1]["groups"]["to_delete"] == 1


@pytest.mark.parametrize("groups", ["sync = false", "sync = false\n[flows.flow.mirrormaker]\ncheckpoints = true"])
def test_a_flow_that_commits_no_positions_shows_none(
    site: PlanSite, monkeypatch: pytest.MonkeyPatch, groups: str
) -> None:
    site.commit(source=137)
    site.configure(groups)
    monkeypatch.setattr(GroupSync, "round", lambda *_, **__: pytest.fail("groups are read"))
    assert site.lines()[1] == []
    assert site.planned()[1]["groups"] is None


def test_groups_that_cannot_be_read_are_a_warning_and_hide_nothing_else(
    site: PlanSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KafkaTimeout("no answer within 20000 ms")

    site.commit(source=137)
    monkeypatch.setattr(GroupSync, "round", fail)
    line = "consumer groups could not be compared: no answer within 20000 ms"
    assert site.lines() == (IN_STEP, [f"warning: {line}"])
    status, flow = site.planned()
    assert (status, flow["groups"]["problems"], flow["to_do"]) == (IN_STEP, [line], False)
    assert line in flow["warnings"]
    site.pair.write(b"new")
    assert site.planned()[0] == TO_DO
