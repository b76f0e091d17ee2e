"""What cannot be sent is refused before anything is asked, in one line, and without showing a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mirror.client import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    ConfigChange,
    ConfigKind,
    ConfigOperation,
    ConfigResource,
    PatternType,
    ResourceType,
    TopicPartition,
)
from mirror.errors import InvalidArgument
from tests.fakes.admin import FakeAdmin
from tests.fakes.cluster import FakeCluster

LONG = "x" * 40_000
SECRET = "hunter2"
T = ConfigResource.topic("t")
ACL = AclBinding(ResourceType.TOPIC, "t", "User:a", AclOperation.READ)


def _change(change: object) -> Callable[[Any], object]:
    return lambda a: a.incremental_alter_configs({T: [change]})


CALLS: dict[str, Callable[[Any], object]] = {
    "delete_topics: one name": lambda a: a.delete_topics("t"),
    "delete_topics: no text": lambda a: a.delete_topics([5]),
    "delete_topics: empty": lambda a: a.delete_topics([""]),
    "describe_configs: a name": lambda a: a.describe_configs(["t"]),
    "describe_configs: one key": lambda a: a.describe_configs([T], keys="retention.ms"),
    "describe_configs: a pair": lambda a: a.describe_configs([(2, "t")]),
    "describe_configs: another kind": lambda a: a.describe_configs([ConfigResource(8, "1")]),  # type: ignore[arg-type]
    "describe_configs: no broker": lambda a: a.describe_configs([ConfigResource(ConfigKind.BROKER, "one")]),
    "describe_configs: a large broker": lambda a: a.describe_configs([ConfigResource.broker(2**31)]),
    "describe_configs: no topic": lambda a: a.describe_configs([ConfigResource.topic("")]),
    "alter: no mapping": lambda a: a.incremental_alter_configs([T]),
    "alter: a plain value": lambda a: a.incremental_alter_configs({T: {"retention.ms": SECRET}}),
    "alter: one change": lambda a: a.incremental_alter_configs({T: ConfigChange("x", SECRET)}),
    "alter: no change": _change(("x", SECRET)),
    "alter: no value": _change(ConfigChange("x")),
    "alter: bytes": _change(ConfigChange("x", SECRET.encode())),  # type: ignore[arg-type]
    "alter: a value to delete": _change(ConfigChange("x", SECRET, ConfigOperation.DELETE)),
    "alter: an operation by number": _change(ConfigChange("x", SECRET, 0)),  # type: ignore[arg-type]
    "alter: a long value": _change(ConfigChange("x", SECRET + LONG)),
    "alter: no UTF-8": _change(ConfigChange("x", SECRET + "\ud800")),
    "alter: a key of bytes": _change(ConfigChange(b"x", SECRET)),  # type: ignore[arg-type]
    "describe_log_dirs: text": lambda a: a.describe_log_dirs(["1"]),
    "describe_log_dirs: negative": lambda a: a.describe_log_dirs([-1]),
    "delete_records: text": lambda a: a.delete_records({("t", 0): "5"}),
    "delete_records: -2": lambda a: a.delete_records({("t", 0): -2}),
    "list_groups: one state": lambda a: a.list_groups(states="Stable"),
    "list_groups: kinds": lambda a: a.list_groups(kinds=[None]),
    "describe_groups: one": lambda a: a.describe_groups("g"),
    "describe_groups: long": lambda a: a.describe_groups([LONG]),
    "delete_groups: number": lambda a: a.delete_groups([5]),
    "delete_group_offsets: topic": lambda a: a.delete_group_offsets("g", ["t"]),
    "group_offsets: one": lambda a: a.group_offsets("g", TopicPartition("t", 0)),
    "describe_acls: a name": lambda a: a.describe_acls("t"),
    "describe_acls: number": lambda a: a.describe_acls(AclFilter(2)),  # type: ignore[arg-type]
    "create_acls: a filter": lambda a: a.create_acls([AclFilter()]),
    "create_acls: any": lambda a: a.create_acls([ACL._replace(operation=AclOperation.ANY)]),
    "create_acls: match": lambda a: a.create_acls([ACL._replace(pattern=PatternType.MATCH)]),
    "create_acls: unknown": lambda a: a.create_acls([ACL._replace(permission=AclPermission.UNKNOWN)]),
    "create_acls: no name": lambda a: a.create_acls([ACL._replace(name=None)]),  # type: ignore[arg-type]
    "create_acls: mixed up": lambda a: a.create_acls([ACL._replace(operation=PatternType.LITERAL)]),  # type: ignore[arg-type]
    "delete_acls: one": lambda a: a.delete_acls(AclFilter()),
    "delete_acls: a binding": lambda a: a.delete_acls([ACL]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_before_anything_is_asked(name: str) -> None:
    cluster = FakeCluster()
    with pytest.raises(InvalidArgument) as raised:
        CALLS[name](FakeAdmin(cluster))
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300
    assert cluster.received == []
