"""Behaviour 25 (KIP-580) on the wire, for admin requests: intervals between retries as the proxy sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kio.schema.errors import ErrorCode

from mirror.client import (
    AclBinding,
    AclFilter,
    AclOperation,
    Admin,
    ConfigChange,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicPartition,
)
from mirror.errors import KafkaTimeout
from mirror.wire.api import Api
from tests.conformance.intervals import OPTIONS, attempts_in_bounds
from tests.conformance.topics import Topics
from tests.faults.changes import refused
from tests.faults.frames import Seen
from tests.faults.proxy import Change, Proxy
from tests.stalls import Stalls

pytestmark = pytest.mark.brokers

MISSING = "no-such-topic"
BUSY = ErrorCode.not_controller
LOADING = ErrorCode.coordinator_load_in_progress
LATE = ErrorCode.request_timed_out
ALLOWED = AclBinding(ResourceType.TOPIC, "t", "User:alice", AclOperation.READ)

Call = Callable[[Admin, TopicPartition], object]
CASES: dict[str, tuple[Api, Change, Call]] = {
    "create topics": (
        Api.CREATE_TOPICS,
        refused(BUSY, "topics"),
        # The broker knows this name already, and does nothing.
        lambda a, tp: a.create_topics([NewTopic(tp.topic, 1, 1)]),
    ),
    "create partitions": (
        Api.CREATE_PARTITIONS,
        refused(BUSY, "results"),
        lambda a, tp: a.create_partitions({tp.topic: 1}),
    ),
    "delete topics": (
        Api.DELETE_TOPICS,
        refused(BUSY, "responses"),
        lambda a, _: a.delete_topics([MISSING]),
    ),
    "describe topics": (
        Api.METADATA,
        refused(ErrorCode.leader_not_available, "topics"),
        lambda a, _: a.describe_topics([MISSING]),
    ),
    "describe configs": (
        Api.DESCRIBE_CONFIGS,
        refused(LATE, "results"),
        lambda a, _: a.describe_configs([ConfigResource.broker(1)]),
    ),
    "alter configs": (
        Api.INCREMENTAL_ALTER_CONFIGS,
        refused(BUSY, "responses"),
        lambda a, tp: a.incremental_alter_configs(
            {ConfigResource.topic(tp.topic): [ConfigChange("retention.ms", "-1")]}
        ),
    ),
    "describe log dirs": (
        Api.DESCRIBE_LOG_DIRS,
        refused(LATE),
        lambda a, _: a.describe_log_dirs(),
    ),
    "delete records": (
        Api.DELETE_RECORDS,
        refused(ErrorCode.not_leader_or_follower, "topics", "partitions"),
        lambda a, tp: a.delete_records({tp: 0}),
    ),
    "list groups": (Api.LIST_GROUPS, refused(LOADING), lambda a, _: a.list_groups()),
    "describe groups": (
        Api.DESCRIBE_GROUPS,
        refused(LOADING, "groups"),
        lambda a, _: a.describe_groups(["readers"]),
    ),
    "describe consumer groups": (
        Api.CONSUMER_GROUP_DESCRIBE,
        refused(LOADING, "groups"),
        lambda a, _: a.describe_groups(["readers"]),
    ),
    "delete groups": (
        Api.DELETE_GROUPS,
        refused(LOADING, "results"),
        lambda a, _: a.delete_groups(["readers"]),
    ),
    "delete group offsets": (
        Api.OFFSET_DELETE,
        refused(LOADING),
        lambda a, tp: a.delete_group_offsets("readers", [tp]),
    ),
    "describe acls": (Api.DESCRIBE_ACLS, refused(LATE), lambda a, _: a.describe_acls()),
    "create acls": (
        Api.CREATE_ACLS,
        refused(BUSY, "results"),
        lambda a, _: a.create_acls([ALLOWED]),
    ),
    "delete acls": (
        Api.DELETE_ACLS,
        refused(BUSY, "filter_results"),
        lambda a, _: a.delete_acls([AclFilter(name="t")]),
    ),
}


@pytest.fixture
def tp(topics: Topics) -> TopicPartition:
    (tp,) = topics.create()
    return tp


@pytest.fixture
def admin(proxy: Proxy) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": proxy.bootstrap_servers, **OPTIONS}) as admin:
        yield admin


@pytest.mark.parametrize("case", CASES)
def test_wire_intervals_for_admin_requests_in_bounds(
    case: str, proxy: Proxy, admin: Admin, tp: TopicPartition, all_stalls: Stalls
) -> None:
    api, change, call = CASES[case]
    # What a call needs to know first (leader, coordinator) is known.
    admin.list_offsets({tp: -1})
    admin.group_offsets("readers", [tp])
    proxy.change(api, change)
    since = proxy.now()

    def asked() -> list[Seen]:
        found = proxy.requests(api, since=since)
        if api is Api.METADATA:  # apart from the updates of what the client itself knows
            return [one for one in found if MISSING in {topic.name for topic in one.body().topics or ()}]
        return found

    with ThreadPoolExecutor(1) as other:
        outcome = attempts_in_bounds(
            asked, lambda: other.submit(call, admin, tp), lambda: proxy.change(api, None), all_stalls
        )
    # The broker's own answer may well be a refusal.
    assert not isinstance(outcome.exception(0), KafkaTimeout)
