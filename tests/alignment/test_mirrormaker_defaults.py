"""Every default of MirrorMaker 2 about configurations and ACLs, from its own classes, beside that of a flow.

What both make of them on real brokers: test_configs_beside_mirrormaker.py, permissions/test_beside_mirrormaker.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.alignment.acl_selection import AclRules, AclSides, wanted
from mirror.client import AclOperation
from mirror.config.topic_configs import CONFIGS_EXCLUDE
from tests.alignment.permissions.authorizer import topic
from tests.mirrormaker.kafkas_classes import KafkasClasses, kafkas_classes

pytestmark = [pytest.mark.brokers, pytest.mark.cluster]

_PROGRAM = Path(__file__).parent / "java" / "MirrorMakerDefaults.java"
CONFIGS = {
    "leader.replication.throttled.replicas": (False, False),
    "follower.replication.throttled.replicas": (False, False),
    "min.insync.replicas": (False, False),
    "unclean.leader.election.enable": (False, False),
    "message.timestamp.type": (False, False),
    "message.timestamp.difference.max.ms": (False, False),
    # MirrorMaker 2 lists these two under the names that brokers have for them.
    "log.message.timestamp.before.max.ms": (False, True),
    "log.message.timestamp.after.max.ms": (False, True),
    "message.timestamp.before.max.ms": (True, False),
    "message.timestamp.after.max.ms": (True, False),
    "message.format.version": (True, False),
    "remote.storage.enable": (True, False),
    "remote.log.copy.disable": (True, False),
    "remote.log.delete.on.disable": (True, False),
    "local.retention.bytes": (True, False),
    "local.retention.ms": (True, False),
}
"""Whether MirrorMaker 2 and a flow bring a key to the target. All keys of topics that are not here: both do."""

ALLOWED = {
    "READ": ("READ", {"READ"}),
    "DESCRIBE": ("DESCRIBE", {"DESCRIBE"}),
    "DESCRIBE_CONFIGS": ("DESCRIBE_CONFIGS", {"DESCRIBE_CONFIGS"}),
    "WRITE": (None, set[str]()),
    "CREATE": ("CREATE", set[str]()),
    "DELETE": ("DELETE", set[str]()),
    "ALTER": ("ALTER", set[str]()),
    "ALTER_CONFIGS": ("ALTER_CONFIGS", set[str]()),
    "ALL": ("READ", {"READ", "DESCRIBE_CONFIGS"}),
}
"""What the target's ACLs allow where the source's allows this: MirrorMaker 2's and a flow's."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasClasses]:
    with kafkas_classes(tmp_path_factory.mktemp("java"), _PROGRAM) as running:
        yield running


@pytest.fixture(scope="module")
def configs(kafka: KafkasClasses) -> dict[str, bool]:
    """Whether MirrorMaker 2 replicates a key: all keys of topics, those of its list, and those of older brokers."""
    found = kafka.ask(about="configs", keys=list(CONFIGS))
    return {str(key): bool(replicated) for key, replicated in found.items()}


def _copied(key: str) -> bool:
    return not any(re.fullmatch(pattern, key) for pattern in CONFIGS_EXCLUDE)


@pytest.mark.parametrize("key", CONFIGS)
def test_a_configuration_that_one_of_both_excludes(configs: dict[str, bool], key: str) -> None:
    assert (configs[key], _copied(key)) == CONFIGS[key]


def test_all_other_configurations_are_brought_by_both(configs: dict[str, bool]) -> None:
    others = configs.keys() - CONFIGS.keys()
    assert {"retention.ms", "cleanup.policy", "compression.type", "max.message.bytes"} <= others
    assert {key: (configs[key], _copied(key)) for key in others} == dict.fromkeys(others, (True, True))


@pytest.mark.parametrize("operation", ALLOWED)
def test_what_an_acl_that_allows_becomes(kafka: KafkasClasses, operation: str) -> None:
    theirs = kafka.ask(about="acl", operation=operation, permission="ALLOW")["operation"]
    assert (theirs, _operations(operation, deny=False)) == ALLOWED[operation]


@pytest.mark.parametrize("operation", ALLOWED)
def test_an_acl_that_denies_is_kept_by_both(kafka: KafkasClasses, operation: str) -> None:
    theirs = kafka.ask(about="acl", operation=operation, permission="DENY")["operation"]
    assert (theirs, _operations(operation, deny=True)) == (operation, {operation})


def _operations(operation: str, *, deny: bool) -> set[str]:
    """Return the operations of the ACLs that a flow creates for the copy."""
    given = topic("orders", AclOperation[operation], deny=deny)
    rules = AclRules("a.{}".format, lambda name: name.removeprefix("a."), "a.")
    sides = AclSides(source=[given], source_topics=["orders"], target_topics=["a.orders"], owned_topics=["a.orders"])
    found = wanted(rules, sides).acls
    assert {acl._replace(operation=given.operation) for acl in found} <= {given._replace(name="a.orders")}
    return {acl.operation.name for acl in found}
