"""Groups with positions in partitions that hold no records, which a run does not commit any progress of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import TopicPartition
from tests.fakes.cluster import GroupOffset
from tests.groups.sync_site import GROUP
from tests.rehearsal.command_site import Site
from tests.relay.fake_pair import FLOW, FakePair

if TYPE_CHECKING:
    from pathlib import Path

EMPTY, EMPTY_COPY = TopicPartition("t", 1), TopicPartition("paris.t", 1)
DELETED = 20


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(FakePair(monkeypatch, partitions=2), tmp_path)


def status_of_groups(site: Site) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["groups", "--config", str(site.file), "--flow", FLOW], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout


def move_of(site: Site) -> tuple[int, dict[str, Any]]:
    status, found = site.ask()
    (one,) = [one for one in found["groups"] if one["group"] == GROUP]
    (move,) = [move for move in one["partitions"] if move["partition"] == 1]
    return status, move


def delete_all(site: Site) -> None:
    site.pair.source.log("t", 1).append_values(*(b"x" for _ in range(DELETED)))
    site.pair.source.log("t", 1).delete_before(DELETED)


@pytest.mark.parametrize(
    ("deleted", "offset"), [(False, 0), (True, DELETED), (True, 5)], ids=["never written", "at the end", "in front"]
)
def test_a_position_in_an_empty_partition_is_brought_over(site: Site, offset: int, *, deleted: bool) -> None:
    if deleted:
        delete_all(site)
    site.pair.source.groups[GROUP][EMPTY] = GroupOffset(offset, -1, "")
    status, move = move_of(site)
    assert (status, move["ready"], move["reason"]) == (3, False, "no-position")
    site.round()
    assert site.pair.target.groups[GROUP][EMPTY_COPY].offset == 0
    assert status_of_groups(site)[0] == 0
    status, move = move_of(site)
    assert (status, move["ready"], move["read_again"], move["skipped"]) == (0, True, 0, 0)


def test_a_position_behind_what_others_have_written_is_the_end_of_their_records(site: Site) -> None:
    site.pair.source.groups[GROUP][EMPTY] = GroupOffset(0, -1, "")
    site.pair.target.log("paris.t", 1).append_values(b"theirs", b"theirs")
    site.round()
    assert site.pair.target.groups[GROUP][EMPTY_COPY].offset == 2


def test_a_partition_with_records_that_are_not_copied_is_not_empty(site: Site) -> None:
    site.pair.source.log("t", 1).append_values(b"x")
    site.pair.source.groups[GROUP][EMPTY] = GroupOffset(1, -1, "")
    site.round()
    assert EMPTY_COPY not in site.pair.target.groups[GROUP]
    status, printed = status_of_groups(site)
    assert status == 3
    assert "not-copied-yet" in printed


def test_the_position_is_that_of_the_first_record_once_there_is_one(site: Site) -> None:
    site.pair.source.groups[GROUP][EMPTY] = GroupOffset(0, -1, "")
    site.round()
    site.pair.source.log("t", 1).append_values(b"x", b"y")
    site.round()
    assert site.pair.target.groups[GROUP][EMPTY_COPY].offset == 0
