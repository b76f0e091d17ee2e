"""Brokers of Apache Kafka 3.0 and later have all requests about groups that are needed. Real clients, fake brokers.

Before 3.8 they do not list the kinds of groups.
"""

from __future__ import annotations

from typing import Final

import pytest

from mirror.groups.commit_decision import Reason
from mirror.wire.api import Api
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.groups.sync_site import GROUP, TARGET, Site, only
from tests.relay.fake_pair import FakePair

VERSIONS: Final[dict[str, dict[Api, int]]] = {
    "3.0": {
        Api.FETCH: 12,
        Api.LIST_OFFSETS: 7,
        Api.METADATA: 11,
        Api.OFFSET_COMMIT: 8,
        Api.OFFSET_FETCH: 8,
        Api.LIST_GROUPS: 4,
        Api.DESCRIBE_GROUPS: 5,
        Api.TXN_OFFSET_COMMIT: 3,
    },
    "3.9": {
        Api.FETCH: 17,
        Api.LIST_OFFSETS: 9,
        Api.METADATA: 12,
        Api.OFFSET_COMMIT: 9,
        Api.OFFSET_FETCH: 9,
        Api.LIST_GROUPS: 5,
        Api.DESCRIBE_GROUPS: 5,
        Api.TXN_OFFSET_COMMIT: 4,
    },
}
"""The last versions of requests that a release of Apache Kafka has."""


def _make(cluster: FakeCluster, release: str) -> None:
    for api, version in VERSIONS[release].items():
        low, high = cluster.versions[api]
        cluster.versions[api] = low, min(version, high)


@pytest.mark.parametrize("release", VERSIONS)
@pytest.mark.parametrize("side", ["source", "target"])
def test_positions_are_brought_over_with_brokers_of_earlier_releases(site: Site, release: str, side: str) -> None:
    cluster = site.pair.source if side == "source" else site.pair.target
    _make(cluster, release)
    sync = site.sync()
    for offset, expected in ((137, 111), (0, 0)):
        site.commit(offset, metadata=f"at {offset}")
        assert only(sync.round()).reason is None
        assert site.pair.target.groups[GROUP][TARGET] == GroupOffset(expected, 0, f"at {offset}")
    site.pair.target.admin.groups[GROUP] = FakeGroup(state="Stable", members=[FakeMember("m", [TARGET])])
    site.commit(200)
    assert only(sync.round()).reason is Reason.ACTIVE
    sent = {call.version for call in cluster.calls(Api.LIST_GROUPS)}
    assert sent == {min(VERSIONS[release][Api.LIST_GROUPS], Api.LIST_GROUPS.value.high)}


@pytest.mark.parametrize("again", [False, True])
def test_offsets_stay_where_the_source_s_topic_has_no_id(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """Brokers delete what groups have committed for a topic with the topic, and here it may be another one."""
    pair = FakePair(monkeypatch, source_release="2.1")
    pair.write(*(b"%d" % number for number in range(10)))
    pair.copy()
    site = Site(pair)
    try:
        site.commit(7)
        sync = site.sync(delete=True)
        assert only(sync.round()).reason is None
        if again:
            pair.source.add_topic("t")
        del pair.source.groups[GROUP]
        position = only(sync.round())
    finally:
        site.close()
    assert (position.reason, site.at_target()) == (Reason.DELETED, 7)
    assert position.detail.startswith("the source's brokers gave the topic no id")
