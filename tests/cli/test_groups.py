"""``mirror groups`` as it is typed: statuses, the tables, hostile names."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING, Any, Self

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import groups as command
from mirror.client import TopicPartition
from mirror.errors import KafkaTimeout
from mirror.groups.back_positions import BackPosition, BackReason
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupPosition, GroupsReport, GroupState
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from mirror.spark.preflight import flow_groups
from tests.spark.flow_harness import FlowHarness, use_fakes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from typer.testing import Result

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("a.orders", 0)


def position(**changes: Any) -> GroupPosition:
    values = {"source": SOURCE, "target": TARGET, "source_offset": 7, "target_offset": 3, "reason": None}
    return GroupPosition(**{**values, **changes})


def back_position(**changes: Any) -> BackPosition:
    values = {"group": "billing", "target": TARGET, "source": SOURCE, "target_offset": 3, "source_offset": 7}
    return BackPosition(**{**values, "translation": UNKNOWN, **changes})


IN_STEP = GroupState("billing", (position(),))
HELD = GroupState("audit", (position(target_offset=None, reason=Reason.UNKNOWN, detail="it is gone"),))
SHARED = GroupState("\x1b[31mred", (), Reason.NOT_SUPPORTED, "a group of kind 'share'")


class Sync:
    """In place of both classes: finds what a test wants."""

    def __init__(self) -> None:
        self.report: GroupsReport | Exception = GroupsReport()
        self.meanwhile: list[GroupsReport | Exception] = []
        """What is found first, one in each reading."""
        self.includes: dict[str, bool] = {}
        self.resumed: list[str] = []

    def __call__(self, _: object, rules: Any, *__: object, **___: object) -> Self:
        self.includes = {name: rules.includes(name) for name in ("billing", "audit", "console-consumer-1")}
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def round(self, *, write: bool) -> GroupsReport:
        assert not write
        found = self.meanwhile.pop(0) if self.meanwhile else self.report
        if isinstance(found, Exception):
            raise found
        return found

    def resume(self, group: str) -> int:
        self.resumed.append(group)
        return 0 if group == "new" else 2

    def read(self) -> tuple[list[BackPosition], list[str]]:
        found = Translation(Place.RECORD, 7)
        return [
            back_position(translation=found),
            back_position(group="audit", detail="it is gone", reason=BackReason.UNKNOWN),
        ], []

    def commit(self, *, resume: bool) -> tuple[list[BackPosition], list[str]]:
        assert not resume, "the flow has no table of groups"
        found = Translation(Place.NEXT, 7)
        return [
            back_position(translation=found, written=True, behind=2),
            back_position(group="audit", translation=found, source_offset=3, reason=BackReason.UNAUTHORIZED),
        ], []


class Ends:
    """All logs end at 10."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def of_source(self, tps: Any) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(tps, 10)

    of_target = of_source


class GroupsSite(FlowHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sync = Sync()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GroupsSite:
    use_fakes(monkeypatch)
    site = GroupsSite(tmp_path)
    monkeypatch.setattr(flow_groups, "GroupSync", site.sync)
    monkeypatch.setattr(flow_groups, "ReverseGroups", site.sync)
    monkeypatch.setattr(command, "LogEnds", Ends)
    return site


def _run(site: GroupsSite, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["groups", "--config", str(site.config), "--flow", "f", *arguments])


def _found(*states: GroupState, problems: tuple[str, ...] = ()) -> GroupsReport:
    return GroupsReport({state.group: state for state in states}, problems)


def test_groups_that_are_all_in_step_have_status_0(site: GroupsSite) -> None:
    site.sync.report = _found(IN_STEP)
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
        "",
        "in step",
    ]


@pytest.mark.parametrize("report", [_found(IN_STEP, HELD), _found(IN_STEP, problems=("broker 2 is silent",))])
def test_what_is_not_in_step_or_not_known_has_status_3(site: GroupsSite, report: GroupsReport) -> None:
    site.sync.report = report
    assert _run(site).exit_code == 3


def test_numbers_of_both_sides_are_said_to_be_of_different_logs(site: GroupsSite) -> None:
    site.sync.report = _found(IN_STEP)
    words = " ".join(_run(site).stdout.split())
    assert "the offsets are those of two logs: a record may have another one on the other side" in words


def test_json_has_everything(site: GroupsSite) -> None:
    site.sync.report = _found(HELD, SHARED)
    document = json.loads(_run(site, "--json").stdout)
    shared, held = document["groups"]
    assert shared == {
        "group": "\x1b[31mred",
        "target_group": "\x1b[31mred",
        "reason": "not-supported",
        "detail": "a group of kind 'share'",
    } | {"positions": []}
    assert held["positions"] == [
        {
            "topic": "orders",
            "target_topic": "a.orders",
            "partition": 0,
            "source_offset": 7,
            "source_lag": 3,
            "target_offset": None,
            "target_lag": None,
            "age_seconds": None,
            "reason": "unknown-offset",
            "detail": "it is gone",
            "pending": False,
            "passed": 0,
            "read_again": 0,
            "read_again_is_exact": True,
        }
    ]


def test_the_age_of_a_position_is_shown(site: GroupsSite) -> None:
    state = GroupState("billing", (position(stored_ms=1_000),))
    site.sync.report = GroupsReport({"billing": state}, time_ms=91_000)
    assert " 90 s " in _run(site).stdout
    (billing,) = json.loads(_run(site, "--json").stdout)["groups"]
    assert billing["positions"][0]["age_seconds"] == 90


def test_a_hostile_name_does_not_control_the_terminal(site: GroupsSite) -> None:
    site.sync.report = _found(SHARED)
    assert "\x1b[31mred" not in _run(site).stdout


def test_only_named_groups_that_the_flow_includes_are_shown(site: GroupsSite) -> None:
    _run(site, "--group", "audit", "--group", "console-consumer-1")
    assert site.sync.includes == {"billing": False, "audit": True, "console-consumer-1": False}
    _run(site)
    assert site.sync.includes == {"billing": True, "audit": True, "console-consumer-1": False}


def test_a_group_is_resumed_before_it_is_shown(site: GroupsSite) -> None:
    found = _run(site, "--resume", "billing")
    assert (found.exit_code, site.sync.resumed) == (0, ["billing"])
    assert "group billing: 2 partitions are the flow's again" in found.stderr


def test_the_way_back_says_what_is_known(site: GroupsSite) -> None:
    found = _run(site, "--reverse")
    assert found.exit_code == 3
    assert "it is gone" in found.stdout
    back, unknown = json.loads(_run(site, "--reverse", "--json").stdout)["positions"]
    assert (back["source_offset"], back["place"]) == (7, "record")
    assert (unknown["source_offset"], unknown["place"]) == (None, "unknown")


def test_committing_on_the_source_says_what_was_written_and_what_not(site: GroupsSite) -> None:
    found = _run(site, "--reverse", "--commit")
    assert found.exit_code == 3
    assert "committed; no record there" in " ".join(found.stdout.split())
    assert "Read on group audit of cluster a is missing" in found.stderr
    written, held = json.loads(_run(site, "--reverse", "--commit", "--json").stdout)["positions"]
    assert (written["written"], written["reason"], written["not_on_source"]) == (
        True,
        None,
        {"in_front": 0, "behind": 2},
    )
    assert (held["written"], held["reason"], held["committed_source_offset"]) == (False, "unauthorized", 3)


@pytest.mark.parametrize("arguments", [["--commit"], ["--reverse", "--commit", "--watch"]])
def test_committing_without_a_direction_or_again_and_again_is_wrong_usage(
    site: GroupsSite, arguments: list[str]
) -> None:
    assert _run(site, *arguments).exit_code == 2


def test_a_cluster_that_does_not_answer_is_status_1(site: GroupsSite) -> None:
    site.sync.report = KafkaTimeout("too late")
    found = _run(site)
    assert found.exit_code == 1
    assert "too late" in found.stderr


def test_wrong_usage_is_status_2(site: GroupsSite) -> None:
    assert _run(site, "--nonsense").exit_code == 2
    both = _run(site, "--resume", "billing", "--reverse")
    assert (both.exit_code, site.sync.resumed) == (2, [])
    excluded = _run(site, "--resume", "console-consumer-1")
    assert (excluded.exit_code, site.sync.resumed) == (2, [])
    assert "does not include group console-consumer-1" in " ".join(excluded.stderr.replace("│", " ").split())


def test_a_flow_that_is_not_there_is_status_1(site: GroupsSite) -> None:
    found = CliRunner().invoke(app, ["groups", "--config", str(site.config), "--flow", "g"])
    assert found.exit_code == 1
    assert "no such flow" in found.stderr


def test_the_only_flow_needs_no_name_and_one_of_several_does(site: GroupsSite) -> None:
    command_line = ["groups", "--config", str(site.config)]
    assert CliRunner().invoke(app, command_line).exit_code == 0
    with site.config.open("a") as file:
        file.write('[flows.g]\nsource = "b"\ntarget = "a"\ntopics = ["invoices"]\n')
    several = CliRunner().invoke(app, command_line)
    words = " ".join(several.stderr.replace("│", " ").split())
    assert (several.exit_code, "is missing, and there are several flows: f, g" in words) == (2, True)


def test_a_group_without_offsets_cannot_be_resumed(site: GroupsSite) -> None:
    found = _run(site, "--resume", "new")
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == "mirror: group new has no offsets on the target that the flow could continue\n"


def test_a_named_group_that_is_not_there_is_status_3(site: GroupsSite) -> None:
    absent = _run(site, "--group", "audit")
    assert absent.exit_code == 3
    assert "cluster a has no group 'audit' with offsets of topics that flow f copies" in absent.stderr
    excluded = _run(site, "--group", "console-consumer-1")
    assert excluded.exit_code == 3
    assert "flow f does not include group 'console-consumer-1'" in excluded.stderr


def test_help_says_what_the_statuses_mean() -> None:
    text = " ".join(CliRunner().invoke(app, ["groups", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "0 all groups are in step" in text
    assert "3 some are not, 1 could not read, 2 wrong usage" in text


@pytest.mark.parametrize(
    ("lines", "state"), [("sync = true", "to be committed"), ("sync = false", "not committed, because sync is off")]
)
def test_what_is_not_committed_yet_says_whether_it_will_be(site: GroupsSite, lines: str, state: str) -> None:
    site.config.write_text(f"{site.config.read_text()}[flows.f.groups]\n{lines}\n")
    site.sync.report = _found(IN_STEP, GroupState("audit", (position(pending=True),)))
    found = _run(site)
    assert found.exit_code == 3
    assert found.stdout.splitlines()[0] == f"flow f: a to b; 1 of 2 groups in step, 1 {state}"
    assert f" {state} " in found.stdout.splitlines()[4]


def _looks(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """End the ``count``-th pause as Ctrl-C does."""
    left = iter([None] * (count - 1))

    def pause(_: float) -> None:
        if next(left, KeyboardInterrupt) is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "pause", pause)


def test_watching_as_json_prints_a_line_for_each_reading_and_continues_after_an_error(
    site: GroupsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _looks(monkeypatch, 3)
    site.sync.meanwhile = [_found(IN_STEP), KafkaTimeout("too late")]
    site.sync.report = _found(HELD)
    found = _run(site, "--watch", "--json")
    first, failed, last = [json.loads(line) for line in found.stdout.splitlines()]
    assert found.exit_code == 0
    assert ([one["group"] for one in first["groups"]], first["error"]) == (["billing"], None)
    assert failed == {"flow": "f", "error": "too late"}
    assert [one["group"] for one in last["groups"]] == ["audit"]


def test_watching_without_a_terminal_prints_one_reading_below_the_other(
    site: GroupsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _looks(monkeypatch, 3)
    site.sync.meanwhile = [_found(IN_STEP, HELD), KafkaTimeout("too late")]
    site.sync.report = _found(IN_STEP)
    found = _run(site, "--watch")
    assert found.exit_code == 0
    assert "\x1b" not in found.stdout
    heads = [line for line in found.stdout.splitlines() if "flow f" in line]
    assert [heads[0], heads[2]] == [
        "flow f: a to b; 1 of 2 groups in step, 1 unknown-offset",
        "flow f: a to b; 1 of 1 group in step",
    ]
    assert heads[1].endswith(" flow f: too late; retrying")


def test_on_a_terminal_each_reading_replaces_the_screen_and_an_error_keeps_the_last(
    site: GroupsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    _looks(monkeypatch, 2)
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=14, _environ={})
    monkeypatch.setattr(command, "Terminal", lambda: console)
    many = [GroupState(f"g{number:02}", (position(),)) for number in range(30)]
    others = GroupState("y", (position(pending=True),)), GroupState("z", (position(reason=Reason.REFUSED),))
    site.sync.meanwhile = [_found(*many, *others)]
    site.sync.report = KafkaTimeout("too late")
    assert _run(site, "--watch").exit_code == 0
    text = out.getvalue()
    assert (text.count("\x1b[?1049h"), text.count("\x1b[?1049l")) == (1, 1), "the screen is as before at the end"
    first, second = text.split("30 of 32 groups in step, 1 refused, 1 not committed")[1:]
    assert first.index(" z ") < first.index(" y ") < first.index(" g00 ") < first.index("28 more lines")
    assert " g02 " not in first
    assert "flow f: too late; retrying" in first, "the error is above the table that was read last"
    assert "28 more lines" in second
