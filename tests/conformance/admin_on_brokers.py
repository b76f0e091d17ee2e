"""What the tests of Admin on real brokers share: a broker that obeys ACLs, denials, members of groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import TopicPartition as OtherPartition

from mirror.client import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    Admin,
    ConfigChange,
    ConfigResource,
    ResourceType,
    TopicPartition,
)
from tests.polling import eventually

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
NOBODY = "User:ANONYMOUS"


@contextlib.contextmanager
def reading(servers: str, group: str, tp: TopicPartition, protocol: str) -> Iterator[Any]:
    """A member of the group that has got its partitions."""
    options = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, "client.id": "reader"}
    consumer = OtherConsumer({**options, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.subscribe([tp.topic])

        def assigned() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        eventually(assigned, within_s=60, what=f"an assignment for {group}")
        yield consumer
    finally:
        consumer.close()


def other(tp: TopicPartition, offset: int) -> OtherPartition:
    """The independent client's value for an offset of ``tp``."""
    return OtherPartition(tp.topic, tp.partition, offset)


@contextlib.contextmanager
def denied(admin: Admin, kind: ResourceType, name: str, *operations: AclOperation) -> Iterator[None]:
    """Everyone without a login may do all with ``name`` but ``operations``."""
    everything = AclBinding(kind, name, NOBODY, AclOperation.ALL)
    admin.create_acls([everything])
    eventually(lambda: admin.describe_acls(AclFilter(kind, name)), what="the first ACL: alone it forbids nothing")
    denials = [AclBinding(kind, name, NOBODY, one, AclPermission.DENY) for one in operations]
    admin.create_acls(denials)
    try:
        eventually(lambda: len(admin.describe_acls(AclFilter(kind, name))) == 1 + len(denials), what="the denials")
        yield
    finally:
        admin.delete_acls([AclFilter(kind, name, permission=AclPermission.DENY)])
        admin.delete_acls([AclFilter(kind, name)])
        eventually(lambda: not admin.describe_acls(AclFilter(kind, name)), what="no ACL")


def refused_calls(
    admin: Admin, tp: TopicPartition, group: str
) -> dict[str, tuple[ResourceType, str, AclOperation, Callable[[], object]]]:
    """Words of the refusal -> what is denied on what, and the call."""
    resource, topic = ConfigResource.topic(tp.topic), ResourceType.TOPIC
    cluster = (ResourceType.CLUSTER, "kafka-cluster")
    change = {resource: [ConfigChange("retention.ms", "9")]}
    return {
        f"deleting records of {tp}; Delete on the topic": (
            *(topic, tp.topic, AclOperation.DELETE),
            lambda: admin.delete_records({tp: 0}),
        ),
        f"adding partitions to '{tp.topic}'; Alter on the topic": (
            *(topic, tp.topic, AclOperation.ALTER),
            lambda: admin.create_partitions({tp.topic: 2}),
        ),
        f"the configuration of topic {tp.topic}; DescribeConfigs on the topic": (
            *(topic, tp.topic, AclOperation.DESCRIBE_CONFIGS),
            lambda: admin.describe_configs([resource]),
        ),
        f"changing retention.ms of topic {tp.topic}; AlterConfigs on the topic": (
            *(topic, tp.topic, AclOperation.ALTER_CONFIGS),
            lambda: admin.incremental_alter_configs(change),
        ),
        f"deleting offsets of group '{group}', {tp}; Read on the topic": (
            *(topic, tp.topic, AclOperation.READ),
            lambda: admin.delete_group_offsets(group, [tp]),
        ),
        f"deleting offsets of group '{group}', {tp}; Delete on the group": (
            *(ResourceType.GROUP, group, AclOperation.DELETE),
            lambda: admin.delete_group_offsets(group, [tp]),
        ),
        f"deleting group '{group}'; Delete on the group": (
            *(ResourceType.GROUP, group, AclOperation.DELETE),
            lambda: admin.delete_groups([group]),
        ),
        f"describing group '{group}'; Describe on the group": (
            *(ResourceType.GROUP, group, AclOperation.DESCRIBE),
            lambda: admin.describe_groups([group]),
        ),
        "changing background.threads of broker 1; AlterConfigs on the cluster": (
            *cluster,
            AclOperation.ALTER_CONFIGS,
            lambda: admin.incremental_alter_configs(
                {ConfigResource.broker(1): [ConfigChange("background.threads", "9")]}
            ),
        ),
    }
