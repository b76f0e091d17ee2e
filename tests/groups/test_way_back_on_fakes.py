"""Groups of the target are translated back to the source. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowHeld
from mirror.groups.back_positions import BackPosition, BackReason
from mirror.groups.commit_decision import Reason
from mirror.groups.reader import GroupReader
from mirror.groups.reverse import Found, ReverseGroups
from mirror.relay.offsets.index import UNKNOWN, Place, Translation
from mirror.relay.progress.flow_topic import group_topic_of, latch_topic_of
from mirror.relay.progress.latch import Role, set_latch
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.groups.sync_site import GROUP, SOURCE, TARGET, Site, access_to, only, rules
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def release() -> str | None:
    """That of the source."""
    return None


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, release: str | None) -> FakePair:
    """Ten records, of which each second one is copied to another offset than its own."""
    pair = FakePair(monkeypatch, source_release=release)
    for number in range(10):
        pair.source.log("t").append_values(b"%d" % number)
        pair.source.log("t").append_values(b"x", attributes=0x10, producer_id=7)
        pair.source.log("t").end_transaction(7, commit=False)
    pair.copy()
    return pair


@pytest.fixture
def way_back(pair: FakePair) -> Iterator[ReverseGroups]:
    with ReverseGroups(access_to(pair), rules(), SystemClock()) as made:
        yield made


def test_positions_of_the_target_are_those_of_the_same_records_on_the_source(
    pair: FakePair, way_back: ReverseGroups
) -> None:
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    pair.target.groups["console-1"][TARGET] = GroupOffset(4, -1, "")
    pair.target.groups["others"][TopicPartition("u", 0)] = GroupOffset(4, -1, "")
    found = Translation(Place.RECORD, 12)
    (position,), problems = way_back.read()
    assert position == BackPosition(
        group=GROUP, target=TARGET, source=SOURCE, target_offset=4, source_offset=None, translation=found
    )
    assert not position.is_in_step
    assert problems == []
    pair.source.groups[GROUP][SOURCE] = GroupOffset(12, -1, "")
    assert way_back.read()[0][0].is_in_step
    assert not pair.source.calls(Api.OFFSET_COMMIT)


def test_what_is_unknown_or_cannot_be_read_is_said(pair: FakePair, way_back: ReverseGroups) -> None:
    pair.target.groups[GROUP][TARGET._replace(partition=1)] = GroupOffset(4, -1, "")
    pair.target.groups["hidden"][TARGET] = GroupOffset(4, -1, "")
    refused = Action(errors={"hidden": errors.GROUP_AUTHORIZATION_FAILED})
    pair.target.control.on(Api.OFFSET_FETCH, refused, times=None)
    (position,), (problem,) = way_back.read()
    assert (position.translation, position.is_in_step) == (UNKNOWN, False)
    assert "there is no partition" in position.detail
    assert problem.startswith("hidden: ")


def _committed_on_source(pair: FakePair, offset: int) -> None:
    pair.source.groups[GROUP][SOURCE] = GroupOffset(offset, -1, "")


def test_positions_are_committed_on_the_source_with_their_metadata_and_the_flow_goes_on_there(
    pair: FakePair, way_back: ReverseGroups
) -> None:
    site = Site(pair)
    sync = site.sync()
    _committed_on_source(pair, 3)
    assert only(sync.round()).reason is None
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "mine")
    _committed_on_source(pair, 6)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    (position,), problems = way_back.commit(resume=True)
    assert (position.written, position.is_in_step, problems) == (True, True, [])
    assert pair.source.groups[GROUP][SOURCE] == GroupOffset(12, -1, "mine")
    assert only(sync.round()).reason is None
    assert site.at_target() == 4
    _committed_on_source(pair, 18)
    assert only(sync.round()).reason is None
    assert site.at_target() == 6
    site.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_nothing_is_committed_on_the_source_while_the_flow_is_held(
    pair: FakePair, way_back: ReverseGroups, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    options = {"bootstrap.servers": pair.target.bootstrap}
    pair.target.add_topic(latch_topic_of(FLOW))
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    read = way_back.read

    def read_and_hold() -> Found:
        found = read()
        set_latch(options, FLOW, Role.HELD, reason="loss", by="ada on h1", now_ms=1)
        return found

    if when == "before":
        set_latch(options, FLOW, Role.HELD, reason="loss", by="ada on h1", now_ms=1)
    else:
        monkeypatch.setattr(way_back, "read", read_and_hold)
    with pytest.raises(FlowHeld, match="ada on h1"):
        way_back.commit(resume=True)
    assert not pair.source.calls(Api.OFFSET_COMMIT)


def test_without_resuming_the_flow_leaves_the_target_alone(pair: FakePair, way_back: ReverseGroups) -> None:
    site = Site(pair)
    sync = site.sync()
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    assert way_back.commit(resume=False)[0][0].written
    _committed_on_source(pair, 18)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    site.close()


def test_a_position_that_is_further_on_the_source_is_kept(pair: FakePair, way_back: ReverseGroups) -> None:
    _committed_on_source(pair, 15)
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    (position,), _ = way_back.commit(resume=True)
    assert (position.reason, position.written) == (BackReason.BEHIND, False)
    assert pair.source.groups[GROUP][SOURCE].offset == 15
    assert not pair.target.topics.get(group_topic_of(FLOW)), "nothing to resume"


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "joined since"])
def test_a_group_with_members_on_the_source_is_left_alone(
    pair: FakePair, way_back: ReverseGroups, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    _committed_on_source(pair, 3)
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    pair.source.admin.groups[GROUP] = FakeGroup(state="Stable", members=[FakeMember("m", [SOURCE])])
    if not listed:
        monkeypatch.setattr(GroupReader, "is_active", lambda *_: False)
    (position,), _ = way_back.commit(resume=True)
    assert (position.reason, position.written) == (BackReason.ACTIVE, False)
    assert pair.source.groups[GROUP][SOURCE].offset == 3
    assert bool(pair.source.calls(Api.OFFSET_COMMIT)) is not listed


def test_records_that_others_wrote_to_the_target_are_counted(pair: FakePair, way_back: ReverseGroups) -> None:
    end = pair.log().end_offset
    pair.log().append_values(b"theirs", b"too", b"unread")
    pair.target.groups[GROUP][TARGET] = GroupOffset(end + 2, -1, "")
    (position,), _ = way_back.commit(resume=False)
    assert position.translation == Translation(Place.END, 30)
    assert (position.in_front, position.behind, position.written) == (2, 1, True)
    for value in (b"next", b"last"):
        pair.write(value)
        pair.copy()
    (position,), _ = way_back.read()
    assert position.translation == Translation(Place.NEXT, 30)
    assert (position.in_front, position.behind, position.is_in_step) == (2, 1, True)


def test_a_position_in_a_log_that_a_third_flow_feeds_is_not_committed(pair: FakePair) -> None:
    """The source has copies of records that the group has not read, in front of the translation."""
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")

    def also_fed(flows: frozenset[str], *topics: str) -> str:
        return "flow third copies it, too" if (flows, *topics) == (frozenset({FLOW}), "t", "paris.t") else ""

    with ReverseGroups(access_to(pair), rules(), SystemClock(), also_fed=also_fed) as way_back:
        (position,), _ = way_back.commit(resume=False)
    assert position.reason is BackReason.UNKNOWN
    assert position.detail == "flow third copies it, too"
    assert not pair.source.calls(Api.OFFSET_COMMIT)


@pytest.mark.parametrize(("release", "said"), [("2.4", True), ("2.8", False)])
def test_a_source_that_does_not_show_open_transactions_is_said_with_what_is_to_be_committed(
    pair: FakePair, way_back: ReverseGroups, said: bool
) -> None:
    pair.target.groups[GROUP][TARGET] = GroupOffset(4, -1, "")
    (position,), _ = way_back.commit(resume=False)
    assert position.written
    assert any("do not show offsets in open transactions" in line for line in position.remarks) is said
    (position,), _ = way_back.read()
    assert position.remarks == []
