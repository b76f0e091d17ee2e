"""The section of a report about consumer groups."""

from __future__ import annotations

from dataclasses import replace

from mirror.alignment.sync_state import SyncState
from mirror.groups.commit_decision import Reason
from mirror.groups.summary import GroupsSummary
from mirror.telemetry.report.groups import MEANINGS
from tests.telemetry import runs
from tests.telemetry.test_report_page import document, words


def shown(groups: GroupsSummary | None) -> str:
    return words(document(runs.view([runs.healthy()], groups=groups)).text)


def test_a_report_has_the_groups_and_what_their_reasons_mean() -> None:
    text = shown(runs.groups())
    assert "Consumer groups 30 of 40 in step; not: not-copied-yet 10" in text
    assert "30 of 40 groups are in step" in text
    assert "; 10 are not, the longest for 3 min 5 s. The last round ended 2026-11-20 22:05:00 UTC." in text
    assert f"not-copied-yet 10 {MEANINGS[Reason.NOT_COPIED]}" in text
    assert "g0 not-copied-yet 3 min 5 s orders-0" in text
    assert "and 7 more: mirror groups --flow paris-berlin shows all" in text


def test_every_reason_has_a_meaning() -> None:
    assert MEANINGS.keys() == set(Reason)


def test_a_reason_of_another_version_is_shown_without_a_meaning() -> None:
    assert "new-reason 1 g0 " in shown(runs.groups(by_reason={"new-reason": 1})).replace(
        "Not in step the longest first ", ""
    )


def test_a_round_that_was_not_complete_says_why() -> None:
    assert "The last round was not complete broker 2 is silent" in shown(runs.groups(problems=("broker 2 is silent",)))


def test_groups_that_are_only_read_are_not_listed() -> None:
    text = shown(runs.groups(sync=False))
    assert "Sync is off: 40 groups read, and no position is committed on the target." in text
    assert "g0" not in text


def test_a_flow_without_groups_has_no_section() -> None:
    assert "onsumer groups" not in shown(None)


def test_a_report_has_what_else_is_in_step_and_what_is_left_out() -> None:
    state = SyncState().after("configs", {"refused": 2}, 0, runs.BEGAN_MS).after("acls", {}, 0, runs.BEGAN_MS)
    partition = replace(runs.healthy(), skipped={"not-local": 1_234, "control": 2})
    text = words(document(runs.view([partition], sync=state)).text)
    at = "last compared 2026-11-20 22:00:00 UTC"
    assert f"Configurations 2 not in step: refused 2; {at}" in text
    assert f"ACLs in step {at}" in text
    assert "Not local 1,234 records left out, which flows have written" in text


def test_a_report_has_the_size_of_the_offset_index_if_it_is_known() -> None:
    partitions = [runs.healthy()]
    assert "Offset index 4.7 kB on the target" in words(document(runs.view(partitions, index_bytes=4_700)).text)
    assert "Offset index" not in words(document(runs.view(partitions)).text)
