"""Searches that begin together read their targets with the same requests, and go on alone only where they have to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import Fetched
from mirror.errors import OffsetOutOfRange
from mirror.relay.partition.search import position_search
from mirror.relay.partition.search.position_search import LogSearch
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.relay.partition.search.search_site import Site
from tests.relay.searching import find_on

PARTITIONS = 20


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search goes on alone because this machine is slow."""
    monkeypatch.setattr(position_search, "_MARKER_PATIENCE_MS", 20_000)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(monkeypatch, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        site.pair.write(b"0", b"1", partition=partition)
    yield site
    site.search.close()


def read_together(site: Site) -> list[LogSearch]:
    """Return the searches, each of which was given back once."""
    searches = [site.search.begin(site.query(partition=partition)) for partition in range(PARTITIONS)]
    read: list[LogSearch] = []
    site.search.read_together(searches, read.append)
    assert len(read) == PARTITIONS
    assert set(read) == set(searches)
    return searches


@pytest.mark.usefixtures("patient")
def test_targets_of_many_searches_are_read_together(site: Site) -> None:
    for partition in range(PARTITIONS):
        site.fence(partition)
    searches = read_together(site)
    fetches = site.pair.target.calls(Api.FETCH)
    assert len(fetches) < PARTITIONS / 2
    assert all(search.settled for search in searches)
    assert [find_on(search).progress.searched for search in searches] == [(1, 0)] * PARTITIONS
    assert site.pair.target.calls(Api.FETCH) == fetches, "nothing is read again"


@pytest.mark.usefixtures("patient")
def test_what_was_appended_is_compared_alone(site: Site) -> None:
    for partition in range(PARTITIONS):
        if partition % 2:
            site.append(b"0", partition=partition)
        site.fence(partition)
    searches = read_together(site)
    assert [search.settled for search in searches] == [not partition % 2 for partition in range(PARTITIONS)]
    assert [find_on(search).progress.offset for search in searches] == [
        partition % 2 for partition in range(PARTITIONS)
    ]


def test_marker_that_is_late_is_awaited_alone(site: Site) -> None:
    late = read_together(site)[3]
    assert not late.settled
    site.append(b"0", partition=3)
    site.fence(3)
    assert find_on(late).progress.offset == 1


@pytest.mark.usefixtures("patient")
def test_search_meets_its_error_alone(site: Site) -> None:
    """Retention has removed the beginning of one log: only its search begins again behind it."""
    for partition in range(PARTITIONS):
        site.append(b"0", partition=partition)
        site.fence(partition)
    site.pair.log(5).delete_before(1)
    searches = read_together(site)
    assert [find_on(search).progress.offset for search in searches[:5]] == [1] * 5
    assert "the target's log begins at offset 1 now" in _error_of(searches[5])


def test_error_of_a_fetch_moves_no_search(site: Site) -> None:
    search = site.search.begin(site.query())
    begun = search.position
    failed = Fetched(tp=search.target, offset=0, next_offset=9, error=OffsetOutOfRange("out of range", 1))
    assert search.take_together(failed)
    assert search.position == begun


def _error_of(search: LogSearch) -> str:
    with pytest.raises(Exception, match=r"^position-unproved") as raised:
        find_on(search)
    return str(raised.value)


def test_searches_of_a_target_that_does_not_answer_are_given_back(site: Site) -> None:
    for partition in range(PARTITIONS):
        site.fence(partition)

    def hold(call: ServerCall) -> Action | None:
        return Action(hold="after") if call.api is Api.FETCH else None

    site.pair.target.control.add(hold)
    searches = read_together(site)
    site.pair.target.control.clear()
    assert not any(search.settled for search in searches)
    assert find_on(searches[0]).progress.searched == (1, 0)


def test_two_searches_of_one_target_do_not_share_what_is_read(site: Site) -> None:
    """The one of an attempt that has ended may still wait beside that of the next attempt."""
    site.append(b"0")
    site.fence()
    searches = [site.search.begin(site.query()) for _ in range(2)]
    read: list[LogSearch] = []
    site.search.read_together(searches, read.append)
    assert sorted(map(id, read)) == sorted(map(id, searches))
    assert [find_on(search).appended.records for search in searches] == [1, 1]
