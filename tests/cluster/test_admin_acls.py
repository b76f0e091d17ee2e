"""Admin on the fake cluster: permissions, and the log directories of brokers."""

from __future__ import annotations

import pytest

from mirror.client import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ReplicaLog,
    ResourceType,
    TopicPartition,
)
from mirror.errors import AuthorizationFailed, BrokerError, KafkaTimeout, ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.acls import AclDescription, CreateAclsResponse, DescribeAclsResource, DescribeAclsResponse
from mirror.wire.messages.admin import DescribedLogDir, DescribeLogDirsResponse
from mirror.wire.messages.metadata import DescribeClusterResponse
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.api_admin import LOG_DIR, SECURITY_DISABLED
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

READ = AclBinding(ResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
PREFIX = AclBinding(
    ResourceType.TOPIC, "ord", "User:bob", AclOperation.WRITE, AclPermission.DENY, PatternType.PREFIXED, "10.0.0.1"
)
GROUP = AclBinding(ResourceType.GROUP, "*", "User:*", AclOperation.ALL)
ALL = (READ, PREFIX, GROUP)


def _with_acls() -> tuple[FakeCluster, FakeAdmin]:
    cluster = FakeCluster(2)
    admin = FakeAdmin(cluster)
    admin.create_acls(ALL)
    return cluster, admin


def test_what_was_created_is_described() -> None:
    _, admin = _with_acls()
    assert set(admin.describe_acls()) == set(ALL)
    admin.create_acls([READ])
    assert len(admin.describe_acls()) == 3, "what is there already stays as it is"


def test_each_broker_says_which_acls_it_applies() -> None:
    cluster, admin = _with_acls()
    found = admin.describe_acls_by_broker(AclFilter(ResourceType.TOPIC))
    assert {node: set(acls) for node, acls in found.items()} == {1: {READ, PREFIX}, 2: {READ, PREFIX}}
    cluster.control.add(
        lambda call: Action(hold="before") if call.api is Api.DESCRIBE_ACLS and call.node == 2 else None
    )
    found = admin.describe_acls_by_broker(AclFilter(), partial=True, timeout_ms=2_000)
    assert (sorted(found), sorted(found.failed)) == ([1], [2])


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(ResourceType.GROUP), {GROUP}),
        (AclFilter(name="orders"), {READ}),
        (AclFilter(name="orders", pattern=PatternType.MATCH), {READ, PREFIX, GROUP}),
        (AclFilter(ResourceType.TOPIC, "orders", pattern=PatternType.MATCH), {READ, PREFIX}),
        (AclFilter(pattern=PatternType.PREFIXED), {PREFIX}),
        (AclFilter(principal="User:alice"), {READ}),
        (AclFilter(operation=AclOperation.WRITE), {PREFIX}),
        (AclFilter(permission=AclPermission.DENY), {PREFIX}),
        (AclFilter(host="10.0.0.1"), {PREFIX}),
        (AclFilter(host="10.0.0.2"), set()),
    ],
)
def test_a_filter_finds_what_it_says(wanted: AclFilter, found: set[AclBinding]) -> None:
    _, admin = _with_acls()
    assert set(admin.describe_acls(wanted)) == found


def test_deleting_reports_what_each_filter_deleted() -> None:
    _, admin = _with_acls()
    by_alice, nobody, groups = (
        AclFilter(principal="User:alice"),
        AclFilter(principal="User:nobody"),
        AclFilter(ResourceType.GROUP),
    )
    assert admin.delete_acls([by_alice, nobody, groups]) == {by_alice: (READ,), nobody: (), groups: (GROUP,)}
    assert admin.describe_acls() == (PREFIX,)


def test_one_acl_that_is_refused_stops_no_other() -> None:
    cluster = FakeCluster()
    odd = READ._replace(principal="alice")
    found = FakeAdmin(cluster).create_acls([odd, READ], partial=True)
    assert list(found) == [READ]
    assert "creating the ACL ALLOW READ on TOPIC 'orders' (LITERAL) for alice from *" in str(found.failed[odd])
    assert "Could not parse principal" in str(found.failed[odd])


def test_one_filter_that_is_refused_stops_no_other() -> None:
    cluster, admin = _with_acls()
    cluster.control.on(Api.DELETE_ACLS, Action(errors={"orders": 31}))
    orders, group = AclFilter(name="orders"), AclFilter(ResourceType.GROUP)
    found = admin.delete_acls([orders, group], partial=True)
    assert found == {group: (GROUP,)}
    assert isinstance(found.failed[orders], AuthorizationFailed)


def test_only_those_not_created_yet_are_sent_again() -> None:
    """Answers have places, no names: a retry with fewer of them has other places."""
    cluster = FakeCluster()
    refusals: dict[TopicPartition | str, int] = {"ord": errors.REQUEST_TIMED_OUT}
    cluster.control.on(Api.CREATE_ACLS, Action(errors=refusals), times=2)
    FakeAdmin(cluster).create_acls(ALL)
    asked = [sorted(one.resource_name for one in call.body.creations) for call in cluster.calls(Api.CREATE_ACLS)]
    assert asked == [["*", "ord", "orders"], ["ord"], ["ord"]]


def test_an_answer_with_too_few_places_is_refused() -> None:
    cluster = FakeCluster()
    cluster.control.on(Api.CREATE_ACLS, Action(rewrite=lambda body: CreateAclsResponse(body.results[1:])))
    with pytest.raises(ProtocolError, match="creating ACLs: asked for 3, answered 2"):
        FakeAdmin(cluster).create_acls(ALL)


def test_a_cluster_without_an_authorizer_says_so_at_once() -> None:
    cluster = FakeCluster()
    cluster.admin.acls = None
    admin = FakeAdmin(cluster)
    begun = admin.client.now
    for call in (admin.describe_acls, lambda: admin.create_acls(ALL), lambda: admin.delete_acls([AclFilter()])):
        with pytest.raises(BrokerError, match="SECURITY_DISABLED") as raised:
            call()
        assert raised.value.code == SECURITY_DISABLED
    assert admin.client.completed_ms - begun < 50


def test_a_permission_newer_than_this_client_is_unknown_not_an_error() -> None:
    cluster = FakeCluster()
    newer = DescribeAclsResource(99, "x", 98, (AclDescription("User:x", "*", 97, 96),))
    cluster.control.on(Api.DESCRIBE_ACLS, Action(rewrite=lambda _: DescribeAclsResponse(0, None, (newer,))))
    (result,) = FakeAdmin(cluster).describe_acls()
    assert (result.resource_type, result.pattern, result.operation, result.permission) == (
        ResourceType.UNKNOWN,
        PatternType.UNKNOWN,
        AclOperation.UNKNOWN,
        AclPermission.UNKNOWN,
    )


# --- what this client may do


def test_the_operations_on_the_cluster() -> None:
    cluster = FakeCluster()
    admin = FakeAdmin(cluster)
    may = cluster.admin.may
    assert AclOperation.ALTER in (admin.cluster_operations() or ())
    may[ResourceType.CLUSTER, ""] = frozenset({AclOperation.DESCRIBE})
    assert admin.cluster_operations() == frozenset({AclOperation.DESCRIBE})
    may[ResourceType.CLUSTER, ""] = frozenset({AclOperation.ALTER})
    assert admin.cluster_operations() == frozenset(), "brokers hide the others without Describe"


def test_a_broker_may_not_return_the_operations() -> None:
    cluster = FakeCluster()
    silent = DescribeClusterResponse(0, None, "berlin", ())
    cluster.control.on(Api.DESCRIBE_CLUSTER, Action(rewrite=lambda _: silent))
    assert FakeAdmin(cluster).cluster_operations() is None


# --- log directories


def _filled() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.add_topic("t", 2)
    cluster.log("t", 1).append_values(b"x" * 1_000)
    return cluster


def test_every_broker_reports_the_sizes_on_its_disks() -> None:
    cluster = _filled()
    found = FakeAdmin(cluster).describe_log_dirs()
    assert sorted(found) == [1, 2, 3]
    size = len(cluster.log("t", 1).data)
    for dirs in found.values():
        (result,) = dirs.values()
        assert result.logs == {
            TopicPartition("t", 0): ReplicaLog(0, 0, future=False),
            TopicPartition("t", 1): ReplicaLog(size, 0, future=False),
        }
        assert (result.error, result.total_bytes, result.usable_bytes) == (None, 1_000_000, 1_000_000 - size)
    assert sorted(call.node for call in cluster.calls(Api.DESCRIBE_LOG_DIRS)) == [1, 2, 3]


def test_brokers_before_3_3_do_not_report_their_volumes() -> None:
    cluster = _filled()
    cluster.versions[Api.DESCRIBE_LOG_DIRS] = (0, 3)
    result = FakeAdmin(cluster).describe_log_dirs([2])[2][LOG_DIR]
    assert (result.total_bytes, result.usable_bytes) == (None, None)


def test_a_broker_that_does_not_answer_fails_alone() -> None:
    cluster = _filled()
    cluster.control.on(Api.DESCRIBE_LOG_DIRS, Action(silent=True), times=None, node=2)
    found = FakeAdmin(cluster).describe_log_dirs(partial=True, timeout_ms=2_000)
    assert sorted(found) == [1, 3]
    assert isinstance(found.failed[2], KafkaTimeout)


def test_a_directory_that_is_offline_is_reported_as_such() -> None:
    cluster = _filled()
    offline = DescribedLogDir(56, "/broken", ())
    cluster.control.on(
        Api.DESCRIBE_LOG_DIRS, Action(rewrite=lambda body: DescribeLogDirsResponse((*body.results, offline)))
    )
    dirs = FakeAdmin(cluster).describe_log_dirs([1])[1]
    assert dirs[LOG_DIR].error is None
    assert "log directory /broken: KAFKA_STORAGE_ERROR" in str(dirs["/broken"].error)


def test_before_version_3_a_missing_permission_is_an_empty_answer() -> None:
    cluster = _filled()
    cluster.versions[Api.DESCRIBE_LOG_DIRS] = (0, 2)
    cluster.control.on(Api.DESCRIBE_LOG_DIRS, Action(rewrite=lambda _: DescribeLogDirsResponse(())))
    with pytest.raises(AuthorizationFailed, match=r"broker 1.*the permission Describe on the cluster is missing"):
        FakeAdmin(cluster).describe_log_dirs([1])
