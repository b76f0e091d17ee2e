"""Rounds after elections that lose records, on the source and on the target. Real clients, brokers in memory."""

from __future__ import annotations

from mirror.groups.clusters import FlowClusters
from mirror.groups.commit_decision import Reason
from mirror.runtime.clock import SystemClock
from mirror.wire.api import Api
from tests.fakes.cluster import GroupOffset
from tests.fakes.releases import versions_of
from tests.groups.sync_site import GROUP, SOURCE, TARGET, Site, only, rules


def test_a_group_that_has_read_lost_records_continues_with_the_first_one_that_is_there_now(site: Site) -> None:
    sync = site.sync()
    site.commit(250)
    sync.round()
    assert site.at_target() == 200
    site.pair.source.elect_uncleanly("t", 0, 1, end=220)
    site.pair.write(*(b"new %d" % number for number in range(60)))
    report = [sync.round() for _ in range(6)][-1]
    # The group continues on the source at the first record of the new epoch, which is not copied yet.
    assert (only(report).reason, only(report).source_offset, site.at_target()) == (Reason.TRUNCATED, 250, 176)
    assert only(report).detail == "the source has lost the records from offset 220 on"
    site.pair.copy(on_gap="skip")
    position = only(sync.round())
    assert position.reason is Reason.TRUNCATED
    assert site.pair.values()[-60:] == [b"new %d" % number for number in range(60)]
    # Behind the records is the marker of the copy's transaction.
    assert site.at_target() == site.pair.log().end_offset - 61
    site.pair.source.groups[GROUP][SOURCE] = GroupOffset(230, 1, "")
    assert only(sync.round()).reason is None
    assert site.at_target() == site.pair.log().end_offset - 51


def test_groups_at_one_offset_of_different_epochs_continue_at_different_records(site: Site) -> None:
    """What one of them continues at counts for those that have committed the same epoch only."""
    site.pair.source.elect_uncleanly("t", 0, 1, end=220)
    site.pair.write(*(b"new %d" % number for number in range(60)))
    site.pair.copy(on_gap="skip")
    epochs = {"before": 0, "behind": 1, "also before": 0}
    for group, epoch in epochs.items():
        site.pair.source.groups[group][SOURCE] = GroupOffset(230, epoch, "")
    report = site.sync().round()
    found = {group: (only(report, group).reason, only(report, group).continued_at) for group in epochs}
    assert found == {"before": (Reason.TRUNCATED, 220), "behind": (None, 230), "also before": (Reason.TRUNCATED, 220)}
    assert site.at_target("before") == site.at_target("also before") == site.pair.log().end_offset - 61
    assert site.at_target("behind") == site.pair.log().end_offset - 51


def test_a_group_in_front_of_the_loss_stays_where_it_is(site: Site) -> None:
    site.commit(137)
    site.pair.source.elect_uncleanly("t", 0, 1, end=220)
    position = only(site.sync().round())
    assert (position.reason, site.at_target()) == (None, 111)


def test_an_epoch_that_the_source_does_not_know_is_no_guess(site: Site) -> None:
    site.pair.source.groups[GROUP][SOURCE] = GroupOffset(137, 7, "")
    position = only(site.sync().round())
    assert (position.reason, site.at_target()) == (Reason.UNKNOWN, None)
    assert position.detail == "the source does not know leader epoch 7"


def test_a_source_that_does_not_say_where_epochs_end_has_a_group_continue_at_its_offset(site: Site) -> None:
    """Other clients than this one take leader epochs from its metadata, and commit them."""
    del site.pair.source.versions[Api.OFFSET_FOR_LEADER_EPOCH]
    site.commit(137)
    position = only(site.sync().round())
    assert (position.reason, position.detail, site.at_target()) == (None, "", 111)


def test_commits_have_a_leader_epoch_of_the_target_in_which_its_log_reached_them(site: Site) -> None:
    for node in (1, 1):
        site.pair.target.move("paris.t", 0, node)
    site.commit(137)
    site.sync().round()
    assert site.pair.target.groups[GROUP][TARGET] == GroupOffset(111, 0, "")


def test_an_election_without_a_loss_moves_no_resumed_group_back(site: Site) -> None:
    """The offset at which it was resumed is of a later epoch than that of the intent."""
    sync = site.sync()
    site.commit(50)
    sync.round()
    site.pair.target.move("paris.t", 0, 1)
    site.pair.write(*(b"later %d" % number for number in range(60)))
    site.pair.copy()
    site.commit_on_target(site.pair.log().end_offset - 10)
    sync.resume(GROUP)
    site.commit(100)
    position = only(sync.round())
    assert (position.reason, site.at_target()) == (Reason.BEHIND, site.pair.log().end_offset - 10)


def test_only_leader_epochs_that_exist_are_asked_for(site: Site) -> None:
    """Brokers before 2.4 have none that count: -1, which has no predecessor."""
    site.pair.target.versions = versions_of("2.1")
    site.commit(137)
    ends = {SOURCE: TARGET}
    with FlowClusters(site.access(), rules(), SystemClock()) as clusters:
        clusters.logs.open(ends, {}, {})
        clusters.logs.open(ends, {}, {TARGET: [0]})
    asked = [call.body for call in site.pair.target.calls(Api.OFFSET_FOR_LEADER_EPOCH)]
    assert {one.leader_epoch for body in asked for topic in body.topics for one in topic.partitions} == {0}
