"""Rounds over whole copies. Real clients, brokers in memory."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupPosition
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.wire.api import Api
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.clock import FakeClock
from tests.groups.sync_site import GROUP, SOURCE, TARGET, Site, only
from tests.relay.fake_pair import FLOW


def test_a_group_gets_the_position_of_the_same_record(site: Site) -> None:
    site.commit(137, metadata="done so far")
    report = site.sync().round()
    assert site.at_target() == 13 * 8 + 7
    assert site.pair.target.groups[GROUP][TARGET].metadata == "done so far"
    assert only(report) == GroupPosition(
        source=SOURCE, target=TARGET, source_offset=137, target_offset=111, reason=None, continued_at=137
    )
    assert report.written == report.in_step == 1


@pytest.mark.parametrize(("source", "target"), [(0, 0), (9, 8), (138, 112), (250, 200)])
def test_positions_at_the_start_in_a_gap_and_at_the_end_are_exact(site: Site, source: int, target: int) -> None:
    site.commit(source)
    assert only(site.sync().round()).target_offset == target == site.at_target()


def test_a_position_beyond_the_copy_is_where_the_copy_ends_until_it_is_copied(site: Site) -> None:
    site.pair.write(*(b"%d" % number for number in range(10)))
    site.commit(255)
    sync = site.sync()
    report = sync.round()
    assert (site.at_target(), only(report).reason) == (200, Reason.NOT_COPIED)
    assert not report.in_step
    site.pair.copy()
    report = sync.round()
    assert only(report).reason is None
    # Behind the 200 records is the marker of the first copy's transaction.
    assert site.at_target() == 206


def test_an_unchanged_group_is_not_written_again(site: Site) -> None:
    site.commit(137)
    sync = site.sync()
    sync.round()
    before = len(site.pair.target.calls(Api.OFFSET_COMMIT)), len(site.pair.target.calls(Api.OFFSET_FETCH))
    report = sync.round()
    assert report.written == 0
    assert report.in_step == 1
    assert (len(site.pair.target.calls(Api.OFFSET_COMMIT)), len(site.pair.target.calls(Api.OFFSET_FETCH))) == before


def test_a_reset_of_the_source_s_group_goes_back_on_the_target(site: Site) -> None:
    sync = site.sync()
    for offset in (137, 20):
        site.commit(offset)
        sync.round()
    assert site.at_target() == 16


def test_a_group_with_members_on_the_target_is_left_alone_until_they_leave(site: Site) -> None:
    site.commit(137)
    site.pair.target.admin.groups[GROUP] = FakeGroup(state="Stable", members=[FakeMember("m", [TARGET])])
    sync = site.sync()
    assert only(sync.round()).reason is Reason.ACTIVE
    assert site.at_target() is None
    del site.pair.target.admin.groups[GROUP]
    assert only(sync.round()).reason is None
    assert site.at_target() == 111


def test_a_group_that_gets_members_after_it_was_listed_is_refused_by_the_broker(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.commit(137)
    group = FakeGroup(state="Stable", members=[FakeMember("m", [TARGET])])
    site.pair.target.admin.groups[GROUP] = group
    sync = site.sync()
    monkeypatch.setattr(type(sync._of_target), "is_active", lambda *_: False)
    assert only(sync.round()).reason is Reason.ACTIVE
    assert site.at_target() is None


def test_an_offset_of_a_consumer_without_membership_is_kept_until_the_group_is_resumed(site: Site) -> None:
    site.commit(100)
    sync = site.sync()
    sync.round()
    site.commit_on_target(90)
    site.commit(137)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    assert site.at_target() == 90
    sync.resume(GROUP)
    assert only(sync.round()).reason is None
    assert site.at_target() == 111


def test_an_offset_that_a_consumer_commits_during_a_long_translation_is_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = site.sync()
    site.commit(100)
    sync.round()
    site.commit(200)
    opens = OffsetTranslator.open

    def slow(self: OffsetTranslator, *args: Any) -> Any:
        site.commit_on_target(95)
        return opens(self, *args)

    monkeypatch.setattr(OffsetTranslator, "open", slow)
    assert only(sync.round()).reason is Reason.TAKEN_OVER
    assert site.at_target() == 95


@pytest.mark.parametrize("runs", ["one run", "a run for each"])
def test_a_reset_on_the_target_to_what_this_flow_wrote_before_is_kept(site: Site, runs: str) -> None:
    stream = site.sync() if runs == "one run" else None
    for offset in (0, 100, 137):
        site.commit(offset)
        (stream or site.sync()).round()
    assert site.at_target() == 111
    site.commit_on_target(0)
    found = [only((stream or site.sync()).round()).reason for _ in range(6)]
    assert (found[-1], site.at_target()) == (Reason.TAKEN_OVER, 0)


def test_a_reset_to_what_the_last_commit_has_replaced_is_kept(site: Site) -> None:
    sync = site.sync()
    for offset in (0, 137):
        site.commit(offset)
        sync.round()
    site.commit_on_target(0)
    found = [only(sync.round()).reason for _ in range(6)]
    assert (found[-1], site.at_target()) == (Reason.TAKEN_OVER, 0)


def test_a_group_is_resumed_at_an_offset_only_once(site: Site) -> None:
    site.commit_on_target(0)
    site.commit(100)
    sync = site.sync()
    sync.resume(GROUP)
    for offset in (100, 110, 137):
        site.commit(offset)
        sync.round()
    assert site.at_target() == 111
    site.commit_on_target(0)
    assert only(site.sync().round()).reason is Reason.TAKEN_OVER
    assert site.at_target() == 0


def test_an_offset_that_was_there_before_the_first_round_is_kept(site: Site) -> None:
    site.commit(137)
    site.commit_on_target(3)
    assert only(site.sync().round()).reason is Reason.TAKEN_OVER
    assert site.at_target() == 3


def test_a_takeover_of_an_unchanged_group_is_found(site: Site) -> None:
    site.commit(137)
    sync = site.sync()
    sync.round()
    site.commit_on_target(150)
    found = [only(sync.round()).reason for _ in range(6)]
    assert found[-1] is Reason.TAKEN_OVER


def test_groups_that_are_not_included_or_read_other_topics_are_not_touched(site: Site) -> None:
    site.commit(137, group="console-1")
    site.commit(5, group="others", tp=TopicPartition("u", 0))
    report = site.sync().round()
    assert report.groups == {}
    assert site.at_target("console-1") is site.at_target("others") is None


@pytest.mark.parametrize("runs", ["one run", "a run for each"])
def test_the_group_without_a_name_is_brought_over(site: Site, runs: str) -> None:
    """Brokers before 2.2 let consumers without a group id commit."""
    stream = site.sync() if runs == "one run" else None
    for offset, target in ((100, 80), (137, 111)):
        site.commit(offset, group="")
        assert only((stream or site.sync()).round(), "").reason is None
        assert site.at_target("") == target


def test_groups_of_other_kinds_are_reported(site: Site) -> None:
    site.pair.source.admin.groups["shared"] = FakeGroup(kind="share")
    site.pair.source.admin.groups["topology"] = FakeGroup(kind="streams")
    site.pair.source.admin.groups["workers"] = FakeGroup(protocol_type="connect")
    site.pair.source.admin.groups["registry"] = FakeGroup(protocol_type="sr")
    report = site.sync().round()
    assert {name: (state.reason, state.detail) for name, state in report.groups.items()} == {
        "shared": (Reason.NOT_SUPPORTED, "a group of kind 'share'"),
        "topology": (Reason.NOT_SUPPORTED, "a group of kind 'streams'"),
        "workers": (Reason.NO_CONSUMERS, "a group of protocol type 'connect', which has no positions"),
        "registry": (Reason.NO_CONSUMERS, "a group of protocol type 'sr', which has no positions"),
    }
    assert {name for name, state in report.groups.items() if state.is_in_step} == {"registry", "workers"}
    assert report.by_reason() == {Reason.NOT_SUPPORTED: 2}


@pytest.mark.parametrize("delete", [False, True])
def test_a_deleted_group_is_reported_and_deleted_if_that_is_wanted(site: Site, delete: bool) -> None:
    site.commit(137)
    sync = site.sync(delete=delete)
    sync.round()
    del site.pair.source.groups[GROUP]
    report = sync.round()
    assert only(report).reason is Reason.DELETED if not delete else GROUP not in report.groups
    assert site.at_target() == (None if delete else 111)
    if delete:
        assert GROUP not in sync.round().groups
        assert sync._intents.partitions() == {}


def test_a_topic_that_was_made_again_on_the_source_keeps_the_offsets_of_its_groups_on_the_target(site: Site) -> None:
    """With the old topic, the source's brokers have deleted what groups had committed for it."""
    site.commit(137)
    sync = site.sync(delete=True)
    assert only(sync.round()).reason is None
    del site.pair.source.groups[GROUP]
    site.pair.source.add_topic("t")
    position = only(sync.round())
    assert (position.reason, site.at_target()) == (Reason.DELETED, 111)
    assert position.detail.startswith("t-0 is not the topic that was copied")


def test_a_topic_that_is_gone_from_the_source_keeps_its_offsets_on_the_target(site: Site) -> None:
    site.commit(137)
    sync = site.sync(delete=True)
    sync.round()
    del site.pair.source.topics["t"]
    del site.pair.source.groups[GROUP]
    assert only(sync.round()).reason is Reason.DELETED
    assert site.at_target() == 111


def test_a_partition_without_progress_is_not_copied_yet(site: Site) -> None:
    site.pair.source.add_topic("t", 2)
    site.pair.target.add_topic("paris.t", 2)
    site.pair.source.log("t", 1).append_values(*(b"x" for _ in range(9)))
    site.commit(5, tp=TopicPartition("t", 1))
    position = only(site.sync().round())
    assert position.reason is Reason.NOT_COPIED
    assert site.at_target() is None
    assert "no progress" in position.detail


def test_a_missing_target_topic_does_not_keep_other_groups_from_moving(site: Site) -> None:
    site.commit(137)
    site.commit(5, group="other", tp=TopicPartition("t", 1))
    report = site.sync().round()
    assert only(report, "other").reason is Reason.NO_PARTITION
    assert "no partition" in only(report, "other").detail
    assert site.at_target() == 111


def test_beside_a_copy_the_end_of_the_index_is_the_end_of_the_copy_until_it_stops_growing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    topic = site.pair.target.topics[offset_topic_of(FLOW)]
    site.pair.write(*(b"%d" % number for number in range(10)))
    del site.pair.target.topics[offset_topic_of(FLOW)]
    site.pair.copy()
    site.pair.target.topics[offset_topic_of(FLOW)] = topic
    site.commit(255)
    sync = site.sync(patience_ms=10_000)
    monkeypatch.setattr(sync, "_clock", clock)
    for _ in range(2):
        assert (only(sync.round()).reason, site.at_target()) == (Reason.NOT_COPIED, 200)
        clock.advance(5_000)
    assert only(sync.round()).reason is None
    assert site.at_target() == 206
    # What was read in the logs is no growth of the index: groups that come later wait no longer.
    for name in ("second", "third"):
        site.commit(256, group=name)
    report = sync.round()
    assert (report.in_step, site.at_target("second"), site.at_target("third")) == (3, 207, 207)
    site.commit(257)
    assert (only(sync.round()).reason, site.at_target()) == (None, 208)


def test_new_groups_are_found_between_rounds(site: Site) -> None:
    sync = site.sync()
    sync.round()
    assert not sync.asked.has_new_groups()
    site.commit(1, group="console-1")
    assert not sync.asked.has_new_groups()
    site.commit(137)
    assert sync.asked.has_new_groups()
    assert sync.round().in_step == 1
    assert not sync.asked.has_new_groups()


def test_groups_beyond_the_limit_are_left_out_and_named(site: Site) -> None:
    """Those that the flow has written before come first."""
    site.commit(137, group="g2")
    site.sync().round()
    for group in ("g1", "g3"):
        site.commit(137, group=group)
    report = site.sync(most=2).round()
    assert {group for group in ("g1", "g2", "g3") if site.at_target(group) is not None} == {"g1", "g2"}
    assert report.problems == ("max-groups is 2: group g3 left out; name fewer in include, or raise it",)


def test_groups_without_positions_in_copied_topics_do_not_count_for_the_limit(site: Site) -> None:
    for number in range(3):
        site.commit(1, group=f"a{number}", tp=TopicPartition("not-copied", 0))
    site.commit(137, group="g1")
    report = site.sync(most=1).round()
    assert (report.problems, list(report.groups), site.at_target("g1") is None) == ((), ["g1"], False)
