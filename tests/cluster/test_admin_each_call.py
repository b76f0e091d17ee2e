"""What holds for every call of Admin: retried with backoff until the deadline, refused in words that help."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import pytest

from mirror.client import (
    LATEST,
    AclBinding,
    AclFilter,
    AclOperation,
    ConfigChange,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicPartition,
)
from mirror.errors import AuthorizationFailed, BrokerError, KafkaTimeout, UnsupportedVersion
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.api_admin import CLUSTER_AUTHORIZATION_FAILED, CONSUMER, FakeGroup
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.fakes.control import Action

NOT_CONTROLLER = 41
TOPIC, GROUP, CLUSTER = (
    errors.TOPIC_AUTHORIZATION_FAILED,
    errors.GROUP_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED,
)
TP = TopicPartition("t", 0)
T, BROKER = ConfigResource.topic("t"), ConfigResource.broker(1)
ALLOWED = AclBinding(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)


CHANGES = ("creating", "adding", "deleting", "changing")
"""How the errors of calls begin that change something. A commit is not among them: to repeat it does no harm."""


@dataclass(frozen=True)
class Case:
    """``key`` is what a fake broker's ``Action.errors`` calls the thing; ``lacking`` what a refusal has to name."""

    api: Api
    call: Callable[..., Any]
    key: Any
    again: int
    refused: int
    lacking: tuple[str, ...]


CASES = {
    "create_topics": Case(
        Api.CREATE_TOPICS,
        lambda a, **o: a.create_topics([NewTopic("new", 1)], **o),
        "new",
        NOT_CONTROLLER,
        TOPIC,
        ("creating topic 'new'", "the permission Create on the topic"),
    ),
    "create_partitions": Case(
        Api.CREATE_PARTITIONS,
        lambda a, **o: a.create_partitions({"t": 5}, **o),
        "t",
        NOT_CONTROLLER,
        TOPIC,
        ("adding partitions to 't'", "the permission Alter on the topic"),
    ),
    "delete_topics": Case(
        Api.DELETE_TOPICS,
        lambda a, **o: a.delete_topics(["t"], **o),
        "t",
        NOT_CONTROLLER,
        TOPIC,
        ("deleting topic 't'", "the permission Delete on the topic"),
    ),
    "describe_topics": Case(
        Api.METADATA,
        lambda a, **o: a.describe_topics(["t"], **o),
        "t",
        errors.LEADER_NOT_AVAILABLE,
        TOPIC,
        ("describing topic 't'", "the permission Describe on the topic"),
    ),
    "describe_configs": Case(
        Api.DESCRIBE_CONFIGS,
        lambda a, **o: a.describe_configs([BROKER], **o),
        "1",
        errors.REQUEST_TIMED_OUT,
        CLUSTER,
        ("configuration of broker 1", "the permission DescribeConfigs on the cluster"),
    ),
    "incremental_alter_configs": Case(
        Api.INCREMENTAL_ALTER_CONFIGS,
        lambda a, **o: a.incremental_alter_configs({T: [ConfigChange("retention.ms", "5")]}, **o),
        "t",
        NOT_CONTROLLER,
        TOPIC,
        ("changing retention.ms of topic t", "the permission AlterConfigs on the topic"),
    ),
    "describe_log_dirs": Case(
        Api.DESCRIBE_LOG_DIRS,
        lambda a, **o: a.describe_log_dirs([1], **o),
        "1",
        errors.REQUEST_TIMED_OUT,
        CLUSTER,
        ("log directories of broker 1", "the permission Describe on the cluster"),
    ),
    "list_offsets": Case(
        Api.LIST_OFFSETS,
        lambda a, **o: a.list_offsets({TP: LATEST}, **o),
        TP,
        errors.NOT_LEADER,
        TOPIC,
        ("offsets of t-0", "the permission Describe on the topic"),
    ),
    "delete_records": Case(
        Api.DELETE_RECORDS,
        lambda a, **o: a.delete_records({TP: -1}, **o),
        TP,
        errors.NOT_LEADER,
        TOPIC,
        ("deleting records of t-0", "the permission Delete on the topic"),
    ),
    "list_groups": Case(
        Api.LIST_GROUPS,
        lambda a, **o: a.list_groups(**o),
        "1",
        errors.COORDINATOR_LOADING,
        CLUSTER,
        ("groups of broker 1", "the permission Describe on the cluster"),
    ),
    "describe_groups": Case(
        Api.DESCRIBE_GROUPS,
        lambda a, **o: a.describe_groups(["g"], **o),
        "g",
        errors.COORDINATOR_LOADING,
        GROUP,
        ("describing group 'g'", "the permission Describe on the group"),
    ),
    "describe_groups, new protocol": Case(
        Api.CONSUMER_GROUP_DESCRIBE,
        lambda a, **o: a.describe_groups(["new-g"], **o),
        "new-g",
        errors.NOT_COORDINATOR,
        GROUP,
        ("describing group 'new-g'", "the permission Describe on the group"),
    ),
    "group_operations": Case(
        Api.DESCRIBE_GROUPS,
        lambda a, **o: a.group_operations(["g"], **o),
        "g",
        errors.COORDINATOR_LOADING,
        GROUP,
        ("permissions on group 'g'", "the permission Describe on the group"),
    ),
    "delete_groups": Case(
        Api.DELETE_GROUPS,
        lambda a, **o: a.delete_groups(["g"], **o),
        "g",
        errors.COORDINATOR_LOADING,
        GROUP,
        ("deleting group 'g'", "the permission Delete on the group"),
    ),
    "group_offsets": Case(
        Api.OFFSET_FETCH,
        lambda a, **o: a.group_offsets("g", **{"tps": None, **o}),
        "g",
        errors.COORDINATOR_LOADING,
        GROUP,
        ("offsets of group 'g'", "the permission Describe on the group"),
    ),
    "delete_group_offsets": Case(
        Api.OFFSET_DELETE,
        lambda a, **o: a.delete_group_offsets("g", [TP], **o),
        "g",
        errors.COORDINATOR_LOADING,
        GROUP,
        ("offsets of group 'g', t-0", "the permission Delete on the group"),
    ),
    "delete_group_offsets, topic": Case(
        Api.OFFSET_DELETE,
        lambda a, **o: a.delete_group_offsets("g", [TP], **o),
        TP,
        errors.COORDINATOR_LOADING,
        TOPIC,
        ("offsets of group 'g', t-0", "the permission Read on the topic"),
    ),
    "describe_acls": Case(
        Api.DESCRIBE_ACLS,
        lambda a, **o: a.describe_acls(**o),
        "acls",
        errors.REQUEST_TIMED_OUT,
        CLUSTER,
        ("describing ACLs", "the permission Describe on the cluster"),
    ),
    "cluster_operations": Case(
        Api.DESCRIBE_CLUSTER,
        lambda a, **o: a.cluster_operations(**o),
        "cluster",
        errors.REQUEST_TIMED_OUT,
        CLUSTER,
        ("describing the permissions on the cluster",),
    ),
    "controller_time": Case(
        Api.DESCRIBE_QUORUM,
        lambda a, **o: a.controller_time(**o),
        "quorum",
        errors.REQUEST_TIMED_OUT,
        CLUSTER,
        ("reading the controller's clock", "the permission Describe on the cluster"),
    ),
    "client_quotas": Case(
        Api.DESCRIBE_CLIENT_QUOTAS,
        lambda a, **o: a.client_quotas(**o),
        "quotas",
        errors.REQUEST_TIMED_OUT,
        CLUSTER,
        ("describing quotas", "the permission DescribeConfigs on the cluster"),
    ),
    "create_acls": Case(
        Api.CREATE_ACLS,
        lambda a, **o: a.create_acls([ALLOWED], **o),
        "t",
        NOT_CONTROLLER,
        CLUSTER,
        ("READ on TOPIC 't'", "the permission Alter on the cluster"),
    ),
    "delete_acls": Case(
        Api.DELETE_ACLS,
        lambda a, **o: a.delete_acls([AclFilter(name="t")], **o),
        "t",
        NOT_CONTROLLER,
        CLUSTER,
        ("ANY on ANY 't'", "the permission Alter on the cluster"),
    ),
}
CHAINS = {"list_groups", "describe_groups, new protocol"}
"""Two requests, one after the other's answer."""
NOT_REPEATABLE = {"create_topics", "create_partitions"}
"""What is there after a lost answer may be another's: an error, see test_admin_topics.py."""


def every_call(*, but: Container[str] = ()) -> pytest.MarkDecorator:
    cases = {name: case for name, case in CASES.items() if name not in but}
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


@pytest.fixture
def cluster() -> FakeCluster:
    """One broker; a topic with three records, a group with an offset, and one of the new protocol."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    cluster.log("t").append_values(b"1", b"2", b"3")
    cluster.groups["g"][TP] = GroupOffset(2, 0, "")
    cluster.admin.groups["new-g"] = FakeGroup(CONSUMER)
    return cluster


@pytest.fixture
def admin(cluster: FakeCluster) -> FakeAdmin:
    """One that has already asked something, so that leaders and coordinators are known."""
    admin = FakeAdmin(cluster)
    admin.list_offsets({TP: LATEST})
    admin.describe_groups(["g", "new-g"])
    return admin


@every_call()
def test_retries_until_deadline_then_timeout(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    cluster.control.on(case.api, Action(errors={case.key: case.again}), times=None)
    begun = admin.client.now
    with pytest.raises(KafkaTimeout, match=r"did not succeed within 10000 ms: .*\(error \d+\)") as late:
        case.call(admin, timeout_ms=10_000)
    assert admin.client.completed_ms - begun == 10_000
    assert isinstance(late.value.__cause__, BrokerError)
    assert late.value.__cause__.code == case.again


# What the client itself asks goes out as Metadata too: the proxy's test tells them apart.
@every_call(but={"describe_topics"})
def test_intervals_between_retries_are_kip_580s(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    cluster.control.on(case.api, Action(errors={case.key: case.again}), times=None)
    before = len(cluster.calls(case.api))
    with pytest.raises(KafkaTimeout):
        case.call(admin, timeout_ms=10_000)
    asked = [call.received_ms for call in cluster.calls(case.api)[before:]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert len(gaps) >= 8
    for number, gap in enumerate(gaps):
        assert 80 * min(10, 2**number) <= gap <= min(1_000, 120 * 2**number) + 20, gaps


@every_call()
def test_a_retry_that_succeeds_is_a_success(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    cluster.control.on(case.api, Action(errors={case.key: case.again}), times=2)
    begun = admin.client.now
    case.call(admin)
    assert 150 <= admin.client.completed_ms - begun <= 1_000


@every_call()
def test_silence_ends_at_the_deadline(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    cluster.control.on(case.api, Action(silent=True), times=None)
    begun = admin.client.now
    with pytest.raises(KafkaTimeout, match="within 3000 ms"):
        case.call(admin, timeout_ms=3_000)
    assert admin.client.completed_ms - begun == 3_000


@every_call()
def test_nothing_is_retried_after_the_deadline(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    """However late the network thread is: the call fails, and then it must not be done."""
    cluster.control.on(case.api, Action(errors={case.key: case.again}))
    admin.client.suspend(10_000, lambda: any(call.resting for call in admin.client.loop.calls._due))
    before = len(cluster.calls(case.api))
    with pytest.raises(KafkaTimeout, match="within 1000 ms"):
        case.call(admin, timeout_ms=1_000)
    admin.client.run_for(5_000)
    again = [call for call in cluster.calls(case.api)[before + 1 :] if case.api is not Api.METADATA]
    assert again == []


@every_call()
def test_a_timeout_without_an_answer_says_that_a_change_may_have_been_done(
    case: Case, cluster: FakeCluster, admin: FakeAdmin
) -> None:
    cluster.control.on(case.api, Action(silent=True), times=None)
    with pytest.raises(KafkaTimeout) as late:
        case.call(admin, timeout_ms=1_000)
    assert ("; it may have been done" in str(late.value)) is str(late.value).startswith(CHANGES)


@every_call(but=NOT_REPEATABLE)
def test_an_answer_that_was_lost_costs_a_retry_only(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    """Also where the first attempt has done it: a deletion finds nothing there, which is what was wanted."""
    cluster.control.on(case.api, Action(close="after"))
    case.call(admin)


@every_call()
def test_a_refusal_names_the_permission_and_the_resource(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    cluster.control.on(case.api, Action(errors={case.key: case.refused}), times=None)
    begun = admin.client.now
    with pytest.raises(AuthorizationFailed) as raised:
        case.call(admin)
    assert [part for part in case.lacking if part not in str(raised.value)] == [], raised.value
    assert raised.value.code == case.refused
    assert admin.client.completed_ms - begun < 50


# Without these: no group is of the new protocol (test_admin_groups.py), or another call does it (test_old_brokers.py).
@every_call(but={"describe_groups, new protocol", "cluster_operations"})
def test_a_broker_too_old_is_reported_at_once(case: Case, cluster: FakeCluster) -> None:
    cluster.versions[case.api] = (0, case.api.value.low - 1) if case.api.value.low else (1, 0)
    admin = FakeAdmin(cluster)
    with pytest.raises(UnsupportedVersion, match=case.api.label):
        case.call(admin)


@every_call(but=CHAINS | {"describe_topics"})
def test_one_network_poll_before_reaping(case: Case, cluster: FakeCluster, admin: FakeAdmin) -> None:
    """A call with a timeout of 0 is still attempted once, and only once."""
    before = len(cluster.calls(case.api))
    cluster.control.on(case.api, Action(delay_ms=50), times=None)
    with pytest.raises(KafkaTimeout, match="within 0 ms"):
        case.call(admin, timeout_ms=0)
    admin.client.run_for(5_000)
    assert len(cluster.calls(case.api)) == before + 1


STEPS: dict[str, tuple[Api, Api, Callable[..., Any]]] = {
    "describe_log_dirs": (Api.METADATA, Api.DESCRIBE_LOG_DIRS, lambda a, **o: a.describe_log_dirs(**o)),
    "describe_topics_by_broker": (
        Api.METADATA,
        Api.METADATA,
        lambda a, **o: a.describe_topics_by_broker(["t"], **o),
    ),
    "describe_acls_by_broker": (
        Api.METADATA,
        Api.DESCRIBE_ACLS,
        lambda a, **o: a.describe_acls_by_broker(AclFilter(), **o),
    ),
    "list_transactions": (Api.METADATA, Api.LIST_TRANSACTIONS, lambda a, **o: a.list_transactions([1], **o)),
    "list_groups": (Api.METADATA, Api.LIST_GROUPS, lambda a, **o: a.list_groups(**o)),
    "describe_groups": (
        Api.DESCRIBE_GROUPS,
        Api.CONSUMER_GROUP_DESCRIBE,
        lambda a, **o: a.describe_groups(["new-g"], **o),
    ),
}
"""Calls of two steps: the requests of both."""


@pytest.mark.parametrize("answered", [True, False], ids=["first answered", "first silent"])
@pytest.mark.parametrize("name", STEPS)
def test_all_steps_of_a_call_share_its_timeout(
    name: str, answered: bool, cluster: FakeCluster, admin: FakeAdmin
) -> None:
    first, second, call = STEPS[name]
    cluster.control.on(first, Action(delay_ms=600, silent=not answered))
    cluster.control.on(second, Action(silent=True), times=None)
    begun, before = admin.client.now, len(cluster.calls(second))
    with pytest.raises(KafkaTimeout, match="within 1000 ms"):
        call(admin, timeout_ms=1_000)
    assert admin.client.completed_ms - begun == 1_000
    assert len(cluster.calls(second)) > before or not answered, "the second step has begun"


def test_the_step_for_old_brokers_shares_the_timeout_too(cluster: FakeCluster) -> None:
    cluster.versions[Api.DESCRIBE_CLUSTER] = (1, 0)
    cluster.control.on(Api.API_VERSIONS, Action(delay_ms=600))
    cluster.control.on(Api.METADATA, Action(silent=True), times=None)
    admin = FakeAdmin(cluster)
    begun = admin.client.now
    with pytest.raises(KafkaTimeout, match="within 1000 ms"):
        admin.cluster_operations(timeout_ms=1_000)
    assert admin.client.completed_ms - begun == 1_000
