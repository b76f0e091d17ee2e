"""Offsets that the source has not any more are deleted on the target. Real clients, brokers in memory."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.groups.commit_decision import Reason
from mirror.groups.sync import GroupSync
from mirror.wire.api import Api
from tests.fakes.api_admin import GROUP_SUBSCRIBED_TO_TOPIC, NON_EMPTY_GROUP
from tests.fakes.control import Action
from tests.groups.sync_site import GROUP, TARGET, Site, only
from tests.relay.fake_pair import FakePair

SICK, WELL = [f"sick {number}" for number in range(10)], [f"well {number}" for number in range(10)]


@pytest.fixture
def two_brokers(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    pair = FakePair(monkeypatch, brokers=2)
    pair.write(*(b"%d" % number for number in range(100)))
    pair.copy()
    return pair


def _deleted(site: Site, groups: list[str]) -> GroupSync:
    """Groups that the target has, and the source has not any more."""
    sync = site.sync(delete=True)
    for group in groups:
        site.commit(50, group=group)
    sync.round()
    assert None not in {site.at_target(group) for group in groups}
    for group in groups:
        del site.pair.source.groups[group]
    return sync


def test_a_coordinator_that_does_not_answer_a_deletion_delays_its_own_groups_only(two_brokers: FakePair) -> None:
    target = two_brokers.target
    target.coordinators |= dict.fromkeys(SICK, 1) | dict.fromkeys(WELL, 2)
    site = Site(two_brokers)
    sync = _deleted(site, SICK + WELL)
    held = target.control.on(Api.OFFSET_DELETE, Action(hold="before"), times=None, node=1)
    report = sync.round()
    assert {site.at_target(group) for group in WELL} == {None}
    assert {site.at_target(group) for group in SICK} == {50}
    assert {only(report, group).reason for group in SICK} == {Reason.UNAVAILABLE}
    sent = {call.body.group_id: call.received_ms for call in target.calls(Api.OFFSET_DELETE)}
    assert max(sent.values()) - min(sent.values()) < 1_500, "they do not wait for each other"
    held.release()
    assert not sync.round().groups.keys() & {*SICK, *WELL}
    site.close()


@pytest.mark.parametrize(
    ("key", "code", "detail"),
    [
        (GROUP, NON_EMPTY_GROUP, "the group has members"),
        (TARGET, GROUP_SUBSCRIBED_TO_TOPIC, "a member of the group reads the topic"),
    ],
)
def test_a_group_that_consumers_use_keeps_its_offsets_and_the_row_says_why(
    site: Site, key: str | TopicPartition, code: int, detail: str
) -> None:
    sync = _deleted(site, [GROUP])
    site.pair.target.control.on(Api.OFFSET_DELETE, Action(errors={key: code}))
    position = only(sync.round())
    assert (position.reason, site.at_target()) == (Reason.ACTIVE, 40)
    assert detail in position.detail
    assert GROUP not in sync.round().groups


def test_group_that_has_moved_keeps_its_position_in_a_quiet_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets on the source expire after a failover, while its consumers on the target are being restarted."""
    pair = FakePair(monkeypatch, partitions=2)
    for partition in range(2):
        pair.write(*(b"%d" % number for number in range(100)), partition=partition)
    pair.copy_all()
    site, quiet = Site(pair), TopicPartition("paris.t", 1)
    sync = site.sync(delete=True)
    for partition in range(2):
        site.commit(50, tp=TopicPartition("t", partition))
    sync.round()
    site.commit_on_target(70)  # of partition 0; in the other one nothing came
    del pair.source.groups[GROUP]
    report = sync.round()
    assert (site.at_target(), pair.target.groups[GROUP][quiet].offset) == (70, 50)
    assert {one.reason for one in report.groups[GROUP].positions} == {Reason.TAKEN_OVER}
    site.close()
