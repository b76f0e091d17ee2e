"""Offsets that cannot be read, on either side. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.coordinators import spread
from mirror.wire.api import Api
from tests.fakes import connection, errors, server_codec
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action, ServerCall
from tests.groups.sync_site import GROUP, SOURCE, TARGET, Site, only

OTHER_SOURCE = TopicPartition("t", 1)


@pytest.mark.parametrize("before", [None, 80])
def test_an_offset_of_an_open_transaction_is_not_overwritten(site: Site, before: int | None) -> None:
    """The coordinator would discard it when the transaction ends."""
    sync = site.sync()
    if before is not None:
        site.commit(100)
        sync.round()
        assert site.at_target() == before
    site.pair.target.group_transactions[GROUP].pending[7] = {TARGET: GroupOffset(95, -1, "theirs")}
    site.commit(137)
    position = only(sync.round())
    assert (position.reason, site.at_target()) == (Reason.ACTIVE, before)
    assert "on the target: " in position.detail
    assert "a transaction has an offset of the partition" in position.detail
    site.pair.target.end_group_transaction(GROUP, 7, 0, commit=True)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    assert site.at_target() == 95


def test_an_offset_of_the_target_that_cannot_be_read_is_not_overwritten(site: Site) -> None:
    sync = site.sync()
    site.commit(137)
    site.commit_on_target(95)
    refused = Action(errors={TARGET: errors.TOPIC_AUTHORIZATION_FAILED})

    def rule(call: ServerCall) -> Action | None:
        is_read = call.api is Api.OFFSET_FETCH and any(one.group_id == GROUP for one in call.body.groups)
        return refused if is_read else None

    site.pair.target.control.add(rule)
    position = only(sync.round())
    assert (position.reason, site.at_target()) == (Reason.UNAUTHORIZED, 95)
    assert "Describe" in position.detail


def test_an_offset_of_the_source_that_cannot_be_read_is_not_deleted(site: Site) -> None:
    sync = site.sync(delete=True)
    for group in (GROUP, "other"):
        site.commit(137, group=group)
    sync.round()
    refused = Action(errors={SOURCE: errors.UNKNOWN_SERVER_ERROR})
    site.pair.source.control.on(Api.OFFSET_FETCH, refused, times=None)
    site.commit(137, group="new")
    report = sync.round()
    for group, at_target in ((GROUP, 111), ("new", None)):
        position = only(report, group)
        assert (position.reason, position.source_offset, site.at_target(group)) == (Reason.REFUSED, None, at_target)
        assert "on the source: " in position.detail
    site.pair.source.control.clear()
    assert only(sync.round()).reason is None


def test_a_group_whose_coordinator_cannot_be_found_delays_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is on the target yet, so all are read with the same request."""
    same = [name for number in range(1_000) if spread(name := f"group {number}") == spread(GROUP)][:20]
    for group in (GROUP, *same):
        site.commit(137, group=group)
    nowhere = Action(errors={GROUP: errors.COORDINATOR_NOT_AVAILABLE})
    site.pair.target.control.on(Api.FIND_COORDINATOR, nowhere, times=None)
    sync = site.sync()
    report = sync.round()
    assert {site.at_target(group) for group in same} == {111}
    assert (report.groups[GROUP].reason, site.at_target()) == (Reason.UNAVAILABLE, None)
    assert "on the target: " in report.groups[GROUP].detail
    # Nor does it delay later rounds: it is asked for again after a time.
    asked: set[str] = set()
    reads = sync._clusters.target.offsets_of_groups_async

    def read(groups: Collection[str], *arguments: Any, **options: Any) -> Any:
        asked.update(groups)
        return reads(groups, *arguments, **options)

    monkeypatch.setattr(sync._clusters.target, "offsets_of_groups_async", read)
    for group in same:
        site.commit(200, group=group)
    report = sync.round()
    assert {site.at_target(group) for group in same} == {160}
    assert report.groups[GROUP].reason is Reason.UNAVAILABLE
    assert asked == {*same}


def test_metadata_that_are_no_text_hold_their_own_group_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of Apache Kafka keep text only; others may keep any bytes."""
    encode = server_codec.encode_response
    monkeypatch.setattr(connection, "encode_response", lambda *of: encode(*of).replace(b"NO TEXT", b"\xff\xfe TEXT"))
    for group in ("well", "well too"):
        site.commit(100, group=group)
    site.commit(100, group="hostile", metadata="NO TEXT")
    clock = FakeClock()
    sync = site.sync(clock=clock)
    sync.round()
    report = sync.round()
    assert report.in_step == 2
    assert (report.groups["hostile"].reason, site.at_target("hostile")) == (Reason.UNAVAILABLE, None)
    assert "cannot be read" in report.groups["hostile"].detail
    site.commit(100, group="hostile", metadata="text")
    clock.advance(20_000)
    assert sync.round().in_step == 3
