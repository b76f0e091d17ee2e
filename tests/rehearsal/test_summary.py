"""The line, the limits, the JSON and the page of a rehearsal."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest

from mirror.cli.views.amounts import duration
from mirror.client import TopicPartition
from mirror.rehearsal.limits import over_limits
from mirror.rehearsal.summary import headline, recovery_line, to_json
from mirror.rehearsal.values import (
    Backlog,
    Blocker,
    GroupMove,
    GroupRehearsal,
    Kind,
    Limits,
    RecoveryTime,
    Rehearsal,
)
from mirror.telemetry.report.rehearsal_page import render
from mirror.telemetry.report.tables_page import MAX_ROWS

NOW_MS = 1_700_000_100_000
OLD, NEW = TopicPartition("orders", 0), TopicPartition("paris.orders", 0)


def move(**changes: Any) -> GroupMove:
    values = {"old_offset": 7, "new_offset": 3, "begins_at": 3, "read_again": 4, "skipped": 0}
    return GroupMove(old=OLD, new=NEW, **{**values, **changes})


def backlog(**changes: Any) -> Backlog:
    return Backlog(**{"old": OLD, "new": NEW, "records": 1_200, "bytes": 5_000, "oldest_ms": NOW_MS - 8_000, **changes})


def rehearsal(**changes: Any) -> Rehearsal:
    values = {"groups": (GroupRehearsal(group="billing", moves=(move(),)),), "backlogs": (backlog(),), "partitions": 3}
    return Rehearsal(flow="f", old="paris", new="berlin", time_ms=NOW_MS, **{**values, **changes})


HELD = GroupRehearsal(group="audit", moves=(move(reason="no-position", action="run the flow"),))
SKIPS = GroupRehearsal(group="red", moves=(move(skipped=12, reason="skips-records"),))
MISSING = Blocker(kind=Kind.TOPIC, name="orders", reason="it is missing", action="mirror apply")


def test_the_line_says_what_it_would_cost() -> None:
    assert headline(rehearsal(), duration) == "READY: 1 group, 1,200 records (8.0 s) not arrived, 4 records read again"
    assert headline(rehearsal(groups=(HELD,), blockers=(MISSING,)), duration) == (
        "NOT READY: 1 of 1 group, 1 topic, 1,200 records (8.0 s) not arrived, 4 records read again"
    )
    assert headline(rehearsal(groups=(SKIPS, HELD), backlogs=()), duration) == (
        "NOT READY: 12 records would be skipped, 2 of 2 groups, 0 records not arrived, 8 records read again"
    )


def test_an_age_that_is_not_known_is_not_guessed() -> None:
    assert "(age unknown)" in headline(rehearsal(backlogs=(backlog(oldest_ms=None),)), duration)
    assert "(at least 8.0 s)" in headline(rehearsal(ages_are_complete=False), duration)


def test_the_recovery_point_is_that_of_the_oldest_record() -> None:
    found = rehearsal(backlogs=(backlog(), backlog(records=5, oldest_ms=NOW_MS - 60_000), backlog(records=None)))
    assert (found.records, found.seconds, found.bytes) == (1_205, 60, 10_000)
    assert rehearsal(backlogs=()).seconds == 0
    assert rehearsal(backlogs=(backlog(bytes=None),)).bytes is None


def test_the_recovery_time_is_measured_or_unknown() -> None:
    assert recovery_line(rehearsal(), duration).startswith("recovery time: unknown (no earlier run")
    measured = RecoveryTime(seconds=20, bytes_per_second=5_000, start_seconds=12)
    assert recovery_line(rehearsal(recovery=measured), duration) == (
        "recovery time: 20 s at the rate of earlier runs, of which 12 s to start a run"
    )
    assert recovery_line(rehearsal(backlogs=()), duration) == "recovery time: nothing is left to copy"


@pytest.mark.parametrize(
    ("limits", "over"),
    [
        (Limits(), []),
        (Limits(max_records=1_200, max_seconds=8), []),
        (Limits(max_records=1_199), ["--max-records"]),
        (Limits(max_seconds=7.9), ["--max-seconds"]),
    ],
)
def test_limits_are_for_what_has_not_arrived(limits: Limits, over: list[str]) -> None:
    found = over_limits(rehearsal(limits=limits))
    assert [one.name for one in found.blockers] == over
    assert found.is_ready == (not over)


@pytest.mark.parametrize(
    "changes",
    [
        {"backlogs": (backlog(), backlog(records=None))},
        {"ages_are_complete": False},
        {"backlogs": (backlog(oldest_ms=None),)},
    ],
)
def test_what_is_not_known_is_over_a_limit(changes: dict[str, Any]) -> None:
    assert not over_limits(rehearsal(limits=Limits(max_seconds=1_000), **changes)).is_ready
    assert over_limits(rehearsal(limits=Limits(max_records=10_000))).is_ready
    unknown = {"backlogs": (backlog(records=None),)}
    assert not over_limits(rehearsal(limits=Limits(max_records=10_000), **unknown)).is_ready


def test_json_has_everything() -> None:
    document = json.loads(json.dumps(to_json(rehearsal(groups=(SKIPS, HELD), blockers=(MISSING,)))))
    assert (document["ready"], document["groups_not_ready"], document["skipped"], document["read_again"]) == (
        False,
        2,
        12,
        8,
    )
    assert document["recovery_point"] == {
        "records": 1_200,
        "records_are_upper_bound": True,
        "bytes": 5_000,
        "bytes_are_estimated": True,
        "seconds": 8.0,
        "seconds_are_lower_bound": False,
        "unknown_partitions": 0,
    }
    assert document["recovery_time"]["seconds"] is None
    (partition,) = document["groups"][0]["partitions"]
    assert (partition["from"], partition["to"]) == (
        {"topic": "orders", "offset": 7},
        {"topic": "paris.orders", "offset": 3, "begins_at": 3},
    )
    assert document["blockers"] == [
        {"kind": "topic", "name": "orders", "reason": "it is missing", "action": "mirror apply"}
    ]


def test_the_page_has_what_is_not_ready_and_runs_no_script_of_a_name() -> None:
    hostile = GroupRehearsal(group="<script>alert(1)</script>", moves=(move(skipped=1, reason="skips-records"),))
    page = render([rehearsal(groups=(hostile,), blockers=(MISSING,), notes=("so far",))], NOW_MS)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    for text in ("not ready", "skips-records", "it is missing", "mirror apply", "so far", "1,200"):
        assert text in page
    assert "default-src 'none'" in html.unescape(page)


def test_a_large_page_is_bounded() -> None:
    many = tuple(backlog(old=TopicPartition("t", number)) for number in range(MAX_ROWS + 3))
    page = render([rehearsal(backlogs=many)], NOW_MS)
    assert page.count("<tr>") == MAX_ROWS + 3, "two headings, one group"
    assert "and 3 more" in page
