"""Groups of the target are translated back to the source. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import TopicPartition
from mirror.groups.way_back import BackPosition, WayBack
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.groups.sync_site import GROUP, SOURCE, TARGET, rules
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    """Ten records, of which each second one is copied to another offset than its own."""
    pair = FakePair(monkeypatch)
    for number in range(10):
        pair.source.log("t").append_values(b"%d" % number)
        pair.source.log("t").append_values(b"x", attributes=0x10, producer_id=7)
        pair.source.log("t").end_transaction(7, commit=False)
    pair.copy()
    return pair


@pytest.fixture
def way_back(pair: FakePair) -> Iterator[WayBack]:
    source, target = ({"bootstrap.servers": one.bootstrap} for one in (pair.source, pair.target))
    with WayBack(FLOW, source, target, CopyPolicy(), rules(), SystemClock()) as made:
        yield made


def test_positions_of_the_target_are_those_of_the_same_records_on_the_source(pair: FakePair, way_back: WayBack) -> None:
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    pair.target.groups["console-1"][TARGET] = GroupOffset(4, -1, "")
    pair.target.groups["others"][TopicPartition("u", 0)] = GroupOffset(4, -1, "")
    found = Translation(Place.RECORD, 12)
    (position,), problems = way_back.read()
    assert position == BackPosition(GROUP, TARGET, SOURCE, 4, None, found, "")
    assert not position.is_in_step
    assert problems == []
    pair.source.groups[GROUP][SOURCE] = GroupOffset(12, -1, "")
    assert way_back.read()[0][0].is_in_step
    assert not pair.source.calls(Api.OFFSET_COMMIT)


def test_what_is_unknown_or_cannot_be_read_is_said(pair: FakePair, way_back: WayBack) -> None:
    pair.target.groups[GROUP][TARGET._replace(partition=1)] = GroupOffset(4, -1, "")
    pair.target.groups["hidden"][TARGET] = GroupOffset(4, -1, "")
    refused = Action(errors={"hidden": errors.GROUP_AUTHORIZATION_FAILED})
    pair.target.control.on(Api.OFFSET_FETCH, refused, times=None)
    (position,), (problem,) = way_back.read()
    assert (position.translation, position.is_in_step) == (UNKNOWN, False)
    assert "there is no partition" in position.detail
    assert problem.startswith("hidden: ")
