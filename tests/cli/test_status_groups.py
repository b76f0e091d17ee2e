"""What ``mirror status`` says of consumer groups: the counts of the last round that a run has recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.alignment.sync_state import SyncState
from mirror.cli.commands import status as command
from mirror.cli.views import status_view
from mirror.groups.summary import GroupsSummary, HeldGroup
from mirror.relay.progress import status_values
from mirror.spark.status import status_reader
from tests.cli.test_status import StatusHarness
from tests.spark.flow_harness import configuration, use_fakes

if TYPE_CHECKING:
    from pathlib import Path

HELD = HeldGroup(group="billing", reasons=("not-copied-yet",), detail="orders-0", age_ms=185_000)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusHarness:
    use_fakes(monkeypatch)
    site = StatusHarness(tmp_path)
    site.use_topic(monkeypatch)
    monkeypatch.setattr(status_reader, "SystemClock", lambda: site)
    monkeypatch.setattr(command, "pause", site.pause)
    site.a.add_topic("orders", [10])
    site.commit(10)
    site.config.write_text(f"{configuration()}[flows.f.groups]\n")
    return site


def record(site: StatusHarness, **changes: Any) -> GroupsSummary:
    values = {"total": 9, "in_step": 2, "by_reason": {"not-copied-yet": 7}, "oldest_ms": 185_000, "held": (HELD,)}
    groups = GroupsSummary(**{**values, "time_ms": site.now_ms - 8_000, **changes})
    site.report_value(status_values.GROUPS, groups)
    return groups


def test_one_reading_has_the_counts_and_the_worst_groups(site: StatusHarness) -> None:
    record(site)
    counts = "consumer groups, 8 s ago: 2 of 9 are in step; not in step: 7 not-copied-yet, the longest for 3.1 min"
    assert site.status().stdout.splitlines()[-3:] == [
        counts,
        "  billing: not-copied-yet for 3 min 5 s (orders-0)",
        "  and 6 more: mirror groups --flow f shows all",
    ]


def test_a_round_that_failed_says_why(site: StatusHarness) -> None:
    record(site, problems=("broker 2 is silent",))
    assert "consumer groups: broker 2 is silent" in site.status().stdout.splitlines()


def test_one_reading_as_json_has_the_groups(site: StatusHarness) -> None:
    (without,) = json.loads(site.status("--json").stdout)["flows"]
    assert without["groups"] is None
    groups = record(site)
    (flow,) = json.loads(site.status("--json").stdout)["flows"]
    assert GroupsSummary.from_json(flow["groups"]) == groups


def test_watching_shows_the_counts_of_the_last_round(site: StatusHarness) -> None:
    site.looks = 3

    def later(looks: int) -> None:
        record(site, in_step=9 - looks, by_reason={"refused": looks})

    site.meanwhile = later
    lines = [line for line in site.status("--watch").stdout.splitlines() if line.startswith("consumer groups")]
    assert [line.split(": ", 1)[1].split(", the")[0] for line in lines] == [
        "8 of 9 are in step; not in step: 1 refused",
        "7 of 9 are in step; not in step: 2 refused",
    ]


def test_a_flow_without_groups_shows_none_of_an_earlier_run(site: StatusHarness) -> None:
    record(site)
    site.config.write_text(configuration())
    assert "consumer groups" not in site.status().stdout


def test_lines_about_groups_leave_room_for_fewer_partitions() -> None:
    assert status_view.rows_for(20, 1) - status_view.rows_for(20, 1, groups=True) == 2


def test_one_reading_says_what_else_is_in_step_and_what_is_left_out(site: StatusHarness) -> None:
    now = site.now_ms
    state = SyncState(not_local=1_234, aside=5).after("topics", {}, 0, now - 9_000).after("acls", {}, 0, now - 60_000)
    state = state.after("configs", {}, 0, now - 300_000).after("configs", {"refused": 2}, 1, now - 8_000)
    site.report_value(status_values.SYNC, state)
    assert site.status().stdout.splitlines()[-4:] == [
        "topics, acls in step, 60 s ago",
        "configs not in step, 8 s ago: 2 refused, 1 not-compared; last compared completely 5 min ago",
        "1,234 records left out as not local",
        "5 records went aside: mirror aside",
    ]
    (flow,) = json.loads(site.status("--json").stdout)["flows"]
    assert flow["sync"] == state.to_json()


def test_watching_shows_in_one_line_what_is_in_step_and_what_is_left_out(site: StatusHarness) -> None:
    """As it is after each round of the run; what is not in step comes first, since the line is cut off."""
    site.looks = 3

    def later(looks: int) -> None:
        state = SyncState(not_local=1_000 * looks).after("topics", {}, 0, site.now_ms - 9_000)
        site.report_value(status_values.SYNC, state.after("configs", {"refused": looks}, 0, site.now_ms - 8_000))

    site.meanwhile = later
    found = site.status("--watch").stdout.splitlines()
    lines = [line for line in found if line.startswith("configs not in step")]
    assert [line.replace("8 s", "N s").replace("9 s", "N s") for line in lines] == [
        "configs not in step, N s ago: 1 refused; topics in step, N s ago; 1,000 records left out as not local",
        "configs not in step, N s ago: 2 refused; topics in step, N s ago; 2,000 records left out as not local",
    ]
    assert not [line for line in site.status().stdout.splitlines() if "refused; topics" in line]
