"""Real clusters that have ACLs, as confluent-kafka shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from confluent_kafka.admin import AclBindingFilter, AdminClient
from confluent_kafka.admin import AclOperation as Operation
from confluent_kafka.admin import AclPermissionType as Permission
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Resource

from mirror.client import AclBinding, AclFilter, Admin, NewTopic
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.polling import eventually
from tests.topic_creation import create_topics

USERS: Final = ("mirror", "alice", "bob", "carol")
"""Who may log in at the listener LOGIN; the password is the name."""
LOGIN: Final = "LOGIN"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        f"{_MODULE} required {' '.join(f'user_{name}={name}' for name in USERS)};"
    ),
}

Acl = tuple[str, str, str, str, str, str]
"""The type, pattern and name of a resource, then the principal, operation and permission; all hosts."""


@contextlib.contextmanager
def guarded(brokers: int = 1, properties: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Brokers that have an authorizer. A client without a login may do all."""
    own = {**PROPERTIES, **(properties or {})}
    with Cluster(brokers, properties=own, listeners={LOGIN: "SASL_PLAINTEXT"}, heap=jvm.BROKER) as cluster:
        yield cluster


def login(cluster: Cluster, user: str) -> dict[str, str]:
    """The keys with which a client is ``user``."""
    return {
        "bootstrap.servers": cluster.bootstrap(LOGIN),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
    }


@pytest.fixture(scope="module")
def one() -> Iterator[Cluster]:
    """A cluster."""
    with guarded() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def other() -> Iterator[Cluster]:
    """Another one."""
    with guarded() as cluster:
        yield cluster


def acls(cluster: Cluster, beginning: str = "") -> set[Acl]:
    """The ACLs of resources whose names begin with ``beginning``."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    anything: Any = None
    every = AclBindingFilter(Resource.ANY, anything, Pattern.ANY, anything, anything, Operation.ANY, Permission.ANY)
    found = admin.describe_acls(every).result(30)
    return {
        (
            acl.restype.name,
            acl.resource_pattern_type.name,
            acl.name,
            acl.principal,
            acl.operation.name,
            acl.permission_type.name,
        )
        for acl in found
        if acl.name.startswith(beginning)
    }


def shows(cluster: Cluster, expected: set[Acl], beginning: str = "") -> None:
    """Wait until the brokers show exactly these: they follow the controller, which answers first."""
    eventually(lambda: acls(cluster, beginning) == expected, what=f"{expected}", every_s=0.1)


def create(admin: Admin, bindings: list[AclBinding]) -> None:
    """Create ACLs, and wait until the brokers show them."""
    admin.create_acls(bindings)
    eventually(lambda: set(bindings) <= set(admin.describe_acls()), what="the ACLs", every_s=0.1)


def delete(admin: Admin, *filters: AclFilter) -> None:
    """Delete ACLs, and wait until the brokers do not show them any more."""
    admin.delete_acls(filters)
    eventually(lambda: not any(admin.describe_acls(one) for one in filters), what="their end", every_s=0.1)


def add_topic(admin: Admin, name: str) -> None:
    """Create a topic, and wait until the brokers show it."""
    create_topics(admin, [NewTopic(name, 1)])
