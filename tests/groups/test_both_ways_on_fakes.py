"""Two flows bring the same groups over, in both directions. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.routes import CopyingFlow, Partners
from mirror.groups.rules import GroupRules
from mirror.groups.sync import GroupSync
from mirror.relay.progress.flow_topic import group_topic_of, offset_topic_of
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.clock import FakeClock
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action
from tests.groups.sync_site import GROUP, SOURCE, TARGET, access_to, only, rules, turned
from tests.relay.fake_pair import FLOW, FakePair

BACK = "back"
SHIFT = 5
"""The target has each record this much later."""


class BothWays:
    """A copied topic of 300 records, and the rounds of the flow and of the one in the other direction."""

    def __init__(self, pair: FakePair) -> None:
        self.pair = pair
        pair.target.add_topic(group_topic_of(FLOW))
        pair.source.add_topic(group_topic_of(BACK))
        none = GroupRules(includes=rules().includes, target_topic=lambda _: None, source_topic=lambda _: None)
        ahead = access_to(pair)
        copying = CopyingFlow(access=ahead, rules=rules(), writes=True)
        self.ahead = GroupSync(ahead, rules(), SystemClock(), Partners(opposite=BACK))
        self.back = GroupSync(turned(ahead, BACK), none, SystemClock(), Partners(copying=(copying,)))

    def close(self) -> None:
        self.ahead.close()
        self.back.close()

    def rounds(self) -> tuple[Reason | None, Reason | None]:
        """Why the group is not in step, ahead and back, after a round of each."""
        return only(self.ahead.round()).reason, only(self.back.round()).reason

    def settled(self) -> None:
        assert [self.rounds() for _ in range(3)][1:] == [(None, None)] * 2

    @property
    def source(self) -> int | None:
        found = self.pair.source.groups[GROUP].get(SOURCE)
        return None if found is None else found.offset

    @source.setter
    def source(self, offset: int) -> None:
        self.pair.source.groups[GROUP][SOURCE] = GroupOffset(offset, -1, "here")

    @property
    def target(self) -> int | None:
        """As offsets of the source."""
        found = self.pair.target.groups[GROUP].get(TARGET)
        return None if found is None else found.offset - SHIFT

    @target.setter
    def target(self, offset: int) -> None:
        self.pair.target.groups[GROUP][TARGET] = GroupOffset(offset + SHIFT, -1, "there")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[BothWays]:
    pair = FakePair(monkeypatch)
    pair.log().append_values(*(b"before" for _ in range(SHIFT)))
    pair.write(*(b"%d" % number for number in range(300)))
    pair.copy(start_over=True)
    site = BothWays(pair)
    yield site
    site.close()


def test_a_group_moves_there_and_back_and_there_again_by_itself(site: BothWays) -> None:
    for turn in range(3):
        site.source = at = 100 * turn + 37
        site.settled()
        assert site.target == at
        for moved in (60, 80):
            site.target = 100 * turn + moved
            site.settled()
            assert site.source == 100 * turn + moved
    assert site.pair.source.groups[GROUP][SOURCE].metadata == "there"


def test_what_one_flow_has_written_the_other_one_leaves(site: BothWays) -> None:
    site.source = 137
    site.settled()
    assert not site.pair.source.calls(Api.OFFSET_COMMIT)
    site.target = 150
    site.settled()
    written = len(site.pair.target.calls(Api.OFFSET_COMMIT))
    for _ in range(7):
        site.settled()
    assert len(site.pair.target.calls(Api.OFFSET_COMMIT)) == written
    assert len(site.pair.source.calls(Api.OFFSET_COMMIT)) == 1
    assert (site.source, site.target) == (150, 150)


def test_commits_that_were_not_brought_over_before_a_failover_are_replaced_by_later_ones(site: BothWays) -> None:
    site.source = 100
    site.settled()
    site.source = 120  # and the source is lost
    site.target = 110
    assert site.rounds() == (Reason.TAKEN_OVER, Reason.BEHIND)
    assert site.source == 120
    site.target = 150
    site.settled()
    assert site.source == 150


def test_a_consumer_that_goes_on_at_both_ends_is_overwritten_at_neither(site: BothWays) -> None:
    site.source = 100
    site.settled()
    site.target = 150
    site.settled()
    site.source = 155
    site.target = 160
    assert site.rounds() == (Reason.BEHIND, Reason.TAKEN_OVER)
    assert (site.source, site.target) == (155, 160)


def test_a_position_behind_records_of_others_stays_on_the_target(site: BothWays) -> None:
    """It is that of the next record on the source, whose copy is behind the records that were not read."""
    site.source = 100
    site.settled()
    site.pair.log().append_values(b"theirs", b"unread")
    end = site.pair.log().end_offset
    site.pair.write(*(b"%d" % number for number in range(300, 320)))
    site.pair.copy()
    site.pair.target.groups[GROUP][TARGET] = GroupOffset(end - 1, -1, "there")
    site.settled()
    assert site.source == 300
    assert site.pair.target.groups[GROUP][TARGET].offset == end - 1


def test_a_group_whose_offsets_have_expired_on_the_target_gets_them_again(site: BothWays) -> None:
    site.source = 100
    site.settled()
    site.target = 150
    site.settled()
    del site.pair.target.groups[GROUP][TARGET]
    assert only(site.ahead.round()).reason is None
    assert site.target == 150


def test_a_group_with_members_on_the_source_is_not_brought_back(site: BothWays) -> None:
    site.source = 100
    site.settled()
    site.target = 150
    refused = Action(errors={SOURCE: errors.UNKNOWN_MEMBER_ID})
    site.pair.source.control.on(Api.OFFSET_COMMIT, refused)
    assert only(site.back.round()).reason is Reason.ACTIVE
    assert site.source == 100
    site.settled()
    assert site.source == 150


def test_what_cannot_be_read_of_the_other_flow_is_said_and_holds_only_what_needs_it(site: BothWays) -> None:
    site.source = 100
    site.settled()
    site.target = 150
    site.settled()
    site.source = 200
    hidden = Action(errors={group_topic_of(BACK): errors.TOPIC_AUTHORIZATION_FAILED})
    site.pair.source.control.on(Api.METADATA, hidden, times=None)
    report = site.ahead.round()
    assert only(report).reason is Reason.TAKEN_OVER
    assert f"what flow {BACK} has committed" in report.problems[0]
    assert site.target == 150


def test_partitions_without_a_copy_are_held(site: BothWays) -> None:
    other = TopicPartition("paris.t", 1)
    site.pair.target.groups[GROUP][other] = GroupOffset(3, -1, "")
    position = only(site.back.round())
    assert (position.reason, position.target) == (Reason.NO_PARTITION, TopicPartition("t", 1))


def test_beside_the_copy_its_end_is_not_read_in_the_logs_as_long_as_its_index_grows(
    site: BothWays, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(site.back, "_clock", clock)
    monkeypatch.setattr(site.back._translation, "_patience_ms", 10_000)
    site.target = 100
    assert only(site.back.round()).reason is None
    clock.advance(20_000)
    site.pair.write(*(b"%d" % number for number in range(10)))
    site.pair.copy()
    index = site.pair.target.topics.pop(offset_topic_of(FLOW))  # of the next part it is not written yet
    site.pair.write(*(b"%d" % number for number in range(10)))
    site.pair.copy()
    site.pair.target.topics[offset_topic_of(FLOW)] = index
    site.pair.target.groups[GROUP][TARGET] = GroupOffset(site.pair.log().end_offset - 5, -1, "there")
    for _ in range(2):
        assert only(site.back.round()).reason is Reason.NOT_COPIED
        clock.advance(5_000)
    assert only(site.back.round()).reason is None
    assert site.source == 316


def _fed_from(site: BothWays, topic: str) -> GroupSync:
    """Return the rounds of the flow, while another one copies its target's topic to ``topic`` of the source."""
    access = access_to(site.pair)
    fed = rules(
        target_topic=lambda name: topic if name == "paris.t" else None,
        source_topic=lambda name: "paris.t" if name == topic else None,
    )
    other = CopyingFlow(access=turned(access, BACK), rules=fed, writes=False)
    return GroupSync(access, rules(), SystemClock(), Partners(copying=(other,)))


def test_a_position_in_a_log_that_both_clusters_feed_needs_both_indexes(site: BothWays) -> None:
    """Records of the target may be behind the position on the source, and in front of its translation there."""
    site.source = 137
    with _fed_from(site, "t") as sync:
        for _ in range(2):
            position = only(sync.round())
            assert (position.reason, site.target) == (Reason.UNKNOWN, None)
            assert position.detail == f"flow {BACK} has no progress of t-0"


def test_topics_that_more_flows_feed_are_held(site: BothWays) -> None:
    site.source = 137
    asked = []

    def also_fed(flows: frozenset[str], source: str, target: str) -> str:
        asked.append((flows, source, target))
        return "flow third feeds both"

    partners = Partners(also_fed=also_fed)
    with GroupSync(access_to(site.pair), rules(), SystemClock(), partners) as sync:
        position = only(sync.round())
    assert (position.reason, position.detail, site.target) == (Reason.UNKNOWN, "flow third feeds both", None)
    assert asked == [(frozenset({FLOW}), "t", "paris.t")]


def test_a_topic_of_another_flow_that_the_group_does_not_read_changes_nothing(site: BothWays) -> None:
    with _fed_from(site, "back.t") as sync:
        for at in (137, 150):
            site.source = at
            assert [only(sync.round()).reason for _ in range(2)] == [None, None]
            assert site.target == at
