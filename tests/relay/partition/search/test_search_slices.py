"""How much the search for the exact position reads at a time, with which clients; real network threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mirror.client import Consumer
from mirror.errors import ClientClosed
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.partition.search import consumer_pool, patient_reading, position_search
from mirror.relay.partition.search.position_search import LogPositionSearch
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.relay.partition.search.search_site import FOREIGN, Site
from tests.relay.searching import find, find_on


def test_both_logs_are_read_in_portions(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fetch of each side ends long before the other's."""
    monkeypatch.setattr(consumer_pool, "_FETCH_BYTES", 1)
    search = LogPositionSearch(
        {"bootstrap.servers": site.pair.source.bootstrap},
        {"bootstrap.servers": site.pair.target.bootstrap},
        CopyPolicy(),
    )
    values = [b"%d" % n for n in range(30)]
    for first in range(0, 30, 2):
        site.pair.write(*values[first : first + 2])
    for first in range(0, 21, 3):
        site.append(*values[first : first + 3])
        site.append(b"x", producer_id=FOREIGN)
    site.fence()
    with search:
        assert find(search, site.query(), 20_000).progress.offset == 21


def test_many_searches_share_few_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, partitions=40)
    made: list[Consumer] = []

    def new_consumer(*own: Any) -> Consumer:
        made.append(Consumer(*own))
        return made[-1]

    monkeypatch.setattr(consumer_pool, "Consumer", new_consumer)
    for partition in range(40):
        site.pair.write(b"0", b"1", b"2", partition=partition)
        site.append(*[b"0", b"1"][: partition % 3], partition=partition) if partition % 3 else None
        site.fence(partition)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda partition: site.find(partition=partition).progress.offset, range(40)))
    assert found == [partition % 3 for partition in range(40)]
    assert len(made) <= 8, "four of each cluster at most"
    assert not any(consumer.assignment() for consumer in made)
    site.search.close()
    for consumer in made:
        with pytest.raises(ClientClosed):
            consumer.poll(0)


def test_next_search_does_not_wait_for_the_last_fetch_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, partitions=20)
    for partition in range(20):
        site.fence(partition)
    site.find()
    began_ms = site.pair.target.clock.now()
    for partition in range(20):
        site.find(partition=partition)
    # The fake brokers' clock advances by up to 20 ms while nothing happens.
    assert site.pair.target.clock.now() - began_ms < 20 * 200
    site.search.close()


def test_slice_ends_when_nothing_more_comes_and_the_next_one_reads_on(site: Site) -> None:
    site.pair.write(b"0", b"1", b"2")
    site.append(b"0", b"1")
    fetched = list[int]()

    def see(call: ServerCall) -> None:
        if call.api is Api.FETCH:
            fetched.extend(part.fetch_offset for topic in call.body.topics for part in topic.partitions)

    site.pair.target.control.add(see)
    run = site.search.begin(site.query())
    while run.awaited_offset != 2:
        assert run.advance() is None
    fetched.clear()
    assert run.advance() is None
    assert set(fetched) <= {2}
    site.append(b"2")
    site.fence()
    found = find_on(run)
    assert (found.progress.offset, found.appended.records) == (3, 3)
    assert run.awaited_offset is None


def test_search_advances_only_by_what_no_slice_before_has_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a source that does not answer would keep an attempt waiting forever."""
    for module in (position_search, patient_reading):
        monkeypatch.setattr(module, "MIN_PATIENCE_MS", 200)
    for value in (b"0", b"1", b"2"):
        site.pair.write(value)
        site.append(value)
    site.fence()
    # The source is read as far as its second batch, again and again.
    held = Action(hold="before")
    unanswered = list[int]()

    def hold(call: ServerCall) -> Action | None:
        if call.api is not Api.FETCH:
            return None
        wanted = [part.fetch_offset for topic in call.body.topics for part in topic.partitions]
        if max(wanted, default=0) == 0:
            return None
        unanswered.extend(wanted)
        return held

    monkeypatch.setattr(consumer_pool, "_FETCH_BYTES", 1)
    site.pair.source.control.add(hold)
    source, target = ({"bootstrap.servers": side.bootstrap} for side in (site.pair.source, site.pair.target))
    with LogPositionSearch(source, target, CopyPolicy()) as search:
        run = search.begin(site.query())
        while run.awaited_offset is not None or not unanswered:
            assert run.advance() is None
        advanced_ms = run.advanced_ms
        for _ in range(2):
            assert run.advance() is None
        assert run.advanced_ms == advanced_ms
        assert "was not compared in time" in str(run.timeout_error())
        held.release()
        assert find_on(run).progress.offset == 3


def test_slices_that_wait_in_vain_keep_their_client_and_wait_longer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader may need longer for a response than the first slice waits."""
    made = list[Consumer]()

    def new_consumer(*own: Any) -> Consumer:
        made.append(Consumer(*own))
        return made[-1]

    monkeypatch.setattr(consumer_pool, "Consumer", new_consumer)
    monkeypatch.setattr(position_search, "_MARKER_PATIENCE_MS", 1)
    site.pair.write(b"0")
    site.append(b"0")
    site.fence()
    slow = Action(stall_ms=150)
    site.pair.target.control.add(lambda call: slow if call.api is Api.FETCH else None)
    assert site.find().progress.offset == 1
    assert len(made) == 2, "one of each cluster"


def test_search_stops_soon(site: Site) -> None:
    run = site.search.begin(site.query())
    with ThreadPoolExecutor(1) as pool:
        slices = pool.submit(lambda: [run.advance() for _ in range(1_000)])
        run.stop()
        with pytest.raises(ClientClosed):
            slices.result(20)


def test_search_in_progress_ends_when_its_clients_are_closed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, made = threading.Event(), list[Consumer]()

    def new_consumer(*own: Any) -> Consumer:
        made.append(Consumer(*own))
        reading.set()
        return made[-1]

    monkeypatch.setattr(consumer_pool, "Consumer", new_consumer)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(site.find)
        assert reading.wait(20)
        site.search.close()
        with pytest.raises(ClientClosed):
            found.result(20)
    with pytest.raises(ClientClosed):
        made[0].poll(0)
