"""Calls to brokers of old releases have the same results as to new ones, as far as those can know them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

import pytest

from mirror.client import EARLIEST, LATEST, AclFilter, ConfigResource, OffsetAndMetadata, TopicPartition
from mirror.cluster.acls import AclOperation
from mirror.errors import UnsupportedVersion
from mirror.wire.api import Api
from tests.fakes.admin import FakeAdmin
from tests.fakes.api_admin import FakeGroup, FakeMember
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.fakes.releases import RELEASES

V = TypeVar("V")

TP = TopicPartition("t", 0)
GROUPS = ("g", "h", "i")

_EVERY_RELEASE = pytest.mark.parametrize("release", RELEASES)


def _cluster(release: str) -> FakeCluster:
    cluster = FakeCluster(3, release=release)
    cluster.add_topic("t", 2, **{"cleanup.policy": "compact"})
    for _ in range(3):
        cluster.log("t").append_values(b"value")
    for number, group in enumerate(GROUPS):
        cluster.groups[group][TP] = GroupOffset(number, 0, group)
    return cluster


def _awaited(admin: FakeAdmin, future: Future[V]) -> V:
    admin.client.run_until(future.done)
    return future.result()


@_EVERY_RELEASE
def test_groups_and_their_offsets_are_found_at_their_coordinators(release: str) -> None:
    cluster = _cluster(release)
    admin = FakeAdmin(cluster)
    assert set(admin.list_groups()) == set(GROUPS)
    found = _awaited(admin, admin.offsets_of_groups_async([*GROUPS, "none"]))
    assert {group: dict(offsets) for group, offsets in found.items()} == {
        **{group: {TP: OffsetAndMetadata(number, 0, group)} for number, group in enumerate(GROUPS)},
        "none": {},
    }
    assert admin.group_offsets("h", [TP]) == {TP: OffsetAndMetadata(1, 0, "h")}


@_EVERY_RELEASE
def test_offsets_are_committed_and_groups_with_members_are_described(release: str) -> None:
    cluster = _cluster(release)
    admin = FakeAdmin(cluster)
    admin.commit_group_offsets("g", {TP: OffsetAndMetadata(2, None, "new")})
    assert cluster.groups["g"][TP].offset == 2
    cluster.admin.groups["h"] = FakeGroup(state="Stable", members=[FakeMember("m", [TP])])
    described = admin.describe_groups(["h"])["h"]
    assert (described.state, [member.assignment for member in described.members]) == ("Stable", [(TP,)])


@_EVERY_RELEASE
def test_topics_configurations_acls_and_offsets_are_read(release: str) -> None:
    cluster = _cluster(release)
    admin = FakeAdmin(cluster)
    topic = admin.describe_topics(["t"])["t"]
    assert (topic.topic_id is None, len(topic.partitions)) == (release in {"2.1", "2.4"}, 2)
    assert admin.topic_ids([TP]) == {TP: topic.topic_id}
    (configs,) = admin.describe_configs([ConfigResource.topic("t")]).values()
    assert configs["cleanup.policy"].value == "compact"
    assert admin.describe_acls(AclFilter()) == ()
    ends = {spec: admin.list_offsets({TP: spec})[TP].offset for spec in (EARLIEST, LATEST)}
    assert ends == {EARLIEST: 0, LATEST: 3}
    end = _awaited(admin, admin.epoch_ends_async({TP: 0}))[TP]
    assert end is not None
    assert end.end_offset == 3


@_EVERY_RELEASE
def test_permissions_on_the_cluster_come_with_metadata_before_2_8(release: str) -> None:
    cluster = _cluster(release)
    found = FakeAdmin(cluster).cluster_operations()
    assert found is None if release == "2.1" else AclOperation.ALTER in (found or ())


def test_groups_cannot_be_listed_by_state_where_brokers_do_not_name_it() -> None:
    with pytest.raises(UnsupportedVersion, match=r"listing the groups of broker \d: .* Apache Kafka 2\.6"):
        FakeAdmin(_cluster("2.4")).list_groups(states=["Stable"])


@_EVERY_RELEASE
def test_versions_are_described_broker_by_broker(release: str) -> None:
    cluster = _cluster(release)
    found = FakeAdmin(cluster).describe_versions([1, 3])
    assert set(found) == {1, 3}
    assert found[3].pick(Api.METADATA) == min(cluster.versions[Api.METADATA][1], Api.METADATA.value.high)
    assert (found[1].why_no_target() is None) == (release == "3.0")
