"""The lines about missing permissions: what is missing, on what, what it prevents, and what grants it. Pure."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mirror.client import AclOperation
from mirror.errors import MAX_NAMES_SHOWN, named

_OPERATION_NAMES: Final = {
    AclOperation.READ: "Read",
    AclOperation.WRITE: "Write",
    AclOperation.CREATE: "Create",
    AclOperation.DELETE: "Delete",
    AclOperation.ALTER: "Alter",
    AclOperation.DESCRIBE: "Describe",
    AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs",
    AclOperation.ALTER_CONFIGS: "AlterConfigs",
}

TARGET_TOPIC_OPERATIONS: Final = (
    AclOperation.WRITE,
    AclOperation.READ,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CREATE,  # without Describe, brokers hide whether a topic exists, so it may have to be created
)

Operations = frozenset[AclOperation]
NO_OPERATIONS: Final[Operations] = frozenset()
"""For a resource without the permission Describe: brokers return no other operation of it."""


@dataclass(frozen=True, slots=True)
class TopicPermissions:
    """The number of partitions of a topic, and the operations that are allowed on it."""

    partitions: int
    operations: Operations | None
    """None if the broker did not return them."""


def absent_of(allowed: Operations, needed: Collection[AclOperation]) -> list[AclOperation]:
    """Return the ``needed`` operations that are not ``allowed``; only Describe if that is absent: it hides the rest."""
    if AclOperation.DESCRIBE not in allowed:
        return [AclOperation.DESCRIBE]
    return [operation for operation in needed if operation not in allowed]


def topics_lacking(
    topics: Mapping[str, TopicPermissions | None], *needed: AclOperation
) -> dict[str, list[AclOperation]]:
    """Return the absent operations by topic. A topic that does not exist, or with unknown operations, lacks none."""
    found = {
        name: absent_of(topic.operations, needed)
        for name, topic in topics.items()
        if topic is not None and topic.operations is not None
    }
    return {name: absent for name, absent in found.items() if absent}


def is_all(lacking: Collection[str], topics: Collection[str]) -> bool:
    """Return whether all ``topics`` lack something."""
    return bool(topics) and len(lacking) == len(topics)


def topic_lines(
    cluster: str,
    lacking: Mapping[str, Iterable[AclOperation]],
    why: str,
    also_needed: Collection[AclOperation] = (AclOperation.READ,),
) -> list[str]:
    """Return one line for all topics that lack the same operations."""
    by_operations: dict[tuple[AclOperation, ...], list[str]] = defaultdict(list)
    for name, operations in sorted(lacking.items()):
        by_operations[tuple(operations)].append(name)
    return [
        line_about(operations, named("topic", names), cluster, why, flags("--topic", names), also_needed=also_needed)
        for operations, names in by_operations.items()
    ]


def line_about(
    operations: Iterable[AclOperation],
    resource: str,
    cluster: str,
    why: str,
    grant: str,
    *,
    also_needed: Collection[AclOperation],
) -> str:
    """Return the line about ``operations`` that are missing on ``resource``.

    Where Describe is missing, the advice also grants ``also_needed``: brokers do not show whether these are missing.
    """
    missing = list(operations)
    names = [_OPERATION_NAMES[operation] for operation in missing]
    wanted = dict.fromkeys([*missing, *also_needed] if AclOperation.DESCRIBE in missing else missing)
    flags = " ".join(f"--operation {_OPERATION_NAMES[operation]}" for operation in wanted)
    verb = "are" if len(names) > 1 else "is"
    return (
        f"the permission{'s' if len(names) > 1 else ''} {' and '.join(names)} on {resource} of cluster {cluster} {verb}"
        f" missing: {why}; grant to this client's user: kafka-acls --add --allow-principal User:... {flags} {grant}"
    )


def flow_writer_lines(
    cluster: str, topic: Mapping[str, TopicPermissions | None], ids: Mapping[str, Operations], why: str
) -> list[str]:
    """Return the lines about a topic that a flow writes in transactions, and the transactional id of these."""
    lacking = topics_lacking(topic, AclOperation.WRITE, AclOperation.READ)
    lines = topic_lines(cluster, lacking, why, also_needed=TARGET_TOPIC_OPERATIONS)
    lines += [
        line_about(
            [AclOperation.DESCRIBE],
            f"transactional id {name}",
            cluster,
            why,
            f"--transactional-id {name}",
            also_needed=[AclOperation.WRITE],
        )
        for name, allowed in ids.items()
        if AclOperation.DESCRIBE not in allowed
    ]
    return lines


def flags(flag: str, names: list[str]) -> str:
    """Return the first of ``names``, quoted for a shell, as options of ``kafka-acls``: users paste the command."""
    shown = " ".join(f"{flag} {shlex.quote(name)}" for name in names[:MAX_NAMES_SHOWN])
    return f"{shown} ..." if len(names) > MAX_NAMES_SHOWN else shown
