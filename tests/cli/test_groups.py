"""``mirror groups`` as it is typed: statuses, the tables, hostile names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytest
from typer.testing import CliRunner

from mirror.cli import groups as command
from mirror.cli.app import app
from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.groups.decision import Reason
from mirror.groups.positions import GroupPosition, GroupsReport, GroupState
from mirror.groups.way_back import BackPosition
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from tests.spark.flow_harness import FlowHarness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from typer.testing import Result

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("a.orders", 0)


def position(**changes: Any) -> GroupPosition:
    values = {"source": SOURCE, "target": TARGET, "source_offset": 7, "target_offset": 3, "reason": None}
    return GroupPosition(**{**values, **changes})


IN_STEP = GroupState("billing", (position(),))
HELD = GroupState("audit", (position(target_offset=None, reason=Reason.UNKNOWN, detail="it is gone"),))
SHARED = GroupState("\x1b[31mred", (), Reason.NOT_SUPPORTED, "a group of kind 'share'")


class Sync:
    """Finds what a test wants."""

    report: ClassVar[GroupsReport | Exception] = GroupsReport()
    includes: ClassVar[dict[str, bool]] = {}
    resumed: ClassVar[list[str]] = []

    def __init__(self, *arguments: Any) -> None:
        rules = arguments[4]
        Sync.includes = {name: rules.includes(name) for name in ("billing", "audit", "console-consumer-1")}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def round(self, *, write: bool) -> GroupsReport:
        assert not write
        if isinstance(Sync.report, Exception):
            raise Sync.report
        return Sync.report

    def resume(self, group: str) -> int:
        Sync.resumed.append(group)
        return 2

    def read(self) -> tuple[list[BackPosition], list[str]]:
        found = Translation(Place.RECORD, 7)
        return [
            BackPosition("billing", TARGET, SOURCE, 3, 7, found, ""),
            BackPosition("audit", TARGET, SOURCE, 4, 7, UNKNOWN, "it is gone"),
        ], []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FlowHarness:
    def ends(_config: object, _cluster: str, tps: Any) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(tps, 10)

    monkeypatch.setattr(command, "GroupSync", Sync)
    monkeypatch.setattr(command, "WayBack", Sync)
    monkeypatch.setattr(command, "_ends", ends)
    monkeypatch.setattr(Sync, "report", GroupsReport())
    monkeypatch.setattr(Sync, "resumed", [])
    return FlowHarness(tmp_path)


def _run(site: FlowHarness, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["groups", "--config", str(site.config), "--flow", "f", *arguments])


def _found(*states: GroupState, problems: tuple[str, ...] = ()) -> GroupsReport:
    return GroupsReport({state.group: state for state in states}, problems)


def test_groups_that_are_all_in_step_have_status_0(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sync, "report", _found(IN_STEP))
    found = _run(site)
    assert found.exit_code == 0
    assert [cell.strip() for cell in found.stdout.splitlines()[4].split("\N{BOX DRAWINGS LIGHT VERTICAL}")[1:-1]] == [
        "billing",
        "orders",
        "0",
        "7",
        "3",
        "3",
        "7",
        "in step",
    ]


@pytest.mark.parametrize("report", [_found(IN_STEP, HELD), _found(IN_STEP, problems=("broker 2 is silent",))])
def test_what_is_not_in_step_or_not_known_has_status_3(
    site: FlowHarness, monkeypatch: pytest.MonkeyPatch, report: GroupsReport
) -> None:
    monkeypatch.setattr(Sync, "report", report)
    assert _run(site).exit_code == 3


def test_json_has_everything(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sync, "report", _found(HELD, SHARED))
    document = json.loads(_run(site, "--json").stdout)
    shared, held = document["groups"]
    assert shared == {"group": "\x1b[31mred", "reason": "not-supported", "detail": "a group of kind 'share'"} | {
        "positions": []
    }
    assert held["positions"] == [
        {
            "topic": "orders",
            "target_topic": "a.orders",
            "partition": 0,
            "source_offset": 7,
            "source_lag": 3,
            "target_offset": None,
            "target_lag": None,
            "reason": "unknown-offset",
            "detail": "it is gone",
            "pending": False,
        }
    ]


def test_a_hostile_name_does_not_control_the_terminal(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sync, "report", _found(SHARED))
    assert "\x1b[31mred" not in _run(site).stdout


def test_only_named_groups_that_the_flow_includes_are_shown(site: FlowHarness) -> None:
    _run(site, "--group", "audit", "--group", "console-consumer-1")
    assert Sync.includes == {"billing": False, "audit": True, "console-consumer-1": False}
    _run(site)
    assert Sync.includes == {"billing": True, "audit": True, "console-consumer-1": False}


def test_a_group_is_resumed_before_it_is_shown(site: FlowHarness) -> None:
    found = _run(site, "--resume", "billing")
    assert (found.exit_code, Sync.resumed) == (0, ["billing"])
    assert "group billing: 2 partitions are the flow's again" in found.stderr


def test_the_way_back_says_what_is_known(site: FlowHarness) -> None:
    found = _run(site, "--reverse")
    assert found.exit_code == 3
    assert "unknown: it is gone" in " ".join(found.stdout.split())
    back, unknown = json.loads(_run(site, "--reverse", "--json").stdout)["positions"]
    assert (back["source_offset"], back["place"]) == (7, "record")
    assert (unknown["source_offset"], unknown["place"]) == (None, "unknown")


def test_a_cluster_that_does_not_answer_is_status_1(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sync, "report", KafkaTimeout("too late"))
    found = _run(site)
    assert found.exit_code == 1
    assert "too late" in found.stderr


def test_watching_reads_again_until_ctrl_c(site: FlowHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = iter([None, KeyboardInterrupt()])

    def pause(_: float) -> None:
        if (next_ := next(pauses)) is not None:
            raise next_

    monkeypatch.setattr(command, "pause", pause)
    found = _run(site, "--watch", "--json")
    assert (found.exit_code, len(found.stdout.splitlines())) == (0, 2)
