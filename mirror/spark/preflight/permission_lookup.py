"""Look up which operations both clusters allow this client on what a flow uses. Needs no permission, changes nothing.

A few requests per flow are enough, whatever the number of its topics.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar

from mirror.client import AclOperation
from mirror.errors import AuthorizationFailed, KafkaError
from mirror.groups.own_groups import is_own_group
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.topic_obstacles import unnameable
from mirror.spark.preflight.permission_table import PERMISSIONS
from mirror.spark.preflight.permissions import NO_OPERATIONS, Allowed, FlowPermissions, Kind, Side
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.client import Admin, Outcomes
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Side as Observed
    from mirror.observation import Sides
    from mirror.spark.preflight.permissions import Operations

V = TypeVar("V")

_LOOKUP_TIMEOUT_MS: Final = 10_000
"""For all requests about a flow. The copy reports a cluster that does not answer by then."""
# Topics first: the names of others depend on them. Ids before groups: a new target creates its __consumer_offsets
# topic at the first request about groups.
_IN_ORDER: Final = (Kind.TOPIC, Kind.TRANSACTIONAL_ID, Kind.GROUP, Kind.CLUSTER, Kind.BROKERS)


def look_up_permissions(
    config: MirrorConfig, flow: FlowConfig, topics: Collection[str], sides: Sides
) -> FlowPermissions:
    """Return the operations that brokers allow; ``topics`` are the source topics that ``flow`` selects.

    Leaves out what cannot be read (old brokers, no answer in time).
    """
    timer = Timer(SystemClock(), _LOOKUP_TIMEOUT_MS)
    groups = _followed_groups(flow, sides.source)
    found = FlowPermissions(config=config, flow=flow, topics=topics, groups=groups)
    impossible = {flow.target_topic(name) for name in unnameable(flow, topics)}
    for kind in _IN_ORDER:
        for side, observed in ((Side.SOURCE, sides.source), (Side.TARGET, sides.target)):
            rows = [one for one in PERMISSIONS if one.place == (side, kind)]
            names = dict.fromkeys(name for one in rows for name in one.needing(found) if name not in impossible)
            if names:
                with contextlib.suppress(KafkaError):
                    found.allowed[side, kind] = _look_up(kind, list(names), observed, timer.remaining_ms())
    return found


def _followed_groups(flow: FlowConfig, source: Observed) -> list[str] | None:
    """Return the groups of the source that this client may describe and the flow follows; None: it follows none."""
    if not flow.follows_groups:
        return None
    try:
        listed = source.groups(_LOOKUP_TIMEOUT_MS)
    except KafkaError:
        return None
    return sorted(group for group in listed if flow.groups.includes(group) and not is_own_group(group))


def _look_up(kind: Kind, names: list[str], side: Observed, timeout_ms: int) -> dict[str, Allowed | None]:
    """Return what is allowed by name. Raises KafkaError."""
    admin = side.admin
    if kind is Kind.TOPIC:
        return _topics(admin, names, timeout_ms)
    if kind is Kind.TRANSACTIONAL_ID:
        return _each(admin.transactional_id_operations(names, partial=True, timeout_ms=timeout_ms))
    if kind is Kind.GROUP:
        return _each(admin.group_operations(names, partial=True, timeout_ms=timeout_ms))
    if kind is Kind.CLUSTER:
        return dict.fromkeys(names, Allowed(admin.cluster_operations(timeout_ms=timeout_ms)))
    return dict.fromkeys(names, Allowed(_on_brokers(side)))


def _topics(admin: Admin, names: list[str], timeout_ms: int) -> dict[str, Allowed | None]:
    found = admin.describe_topics(names, include_authorized_operations=True, partial=True, timeout_ms=timeout_ms)
    topics: dict[str, Allowed | None] = {name: None for name in names if name not in found.failed}
    topics |= {name: Allowed(one.authorized_operations, len(one.partitions)) for name, one in found.items()}
    return topics | dict.fromkeys(_denied(found), Allowed(NO_OPERATIONS))


def _each(found: Outcomes[str, Operations]) -> dict[str, Allowed | None]:
    allowed: dict[str, Allowed | None] = {name: Allowed(operations) for name, operations in found.items()}
    return allowed | dict.fromkeys(_denied(found), Allowed(NO_OPERATIONS))


def _denied(found: Outcomes[str, V]) -> list[str]:
    return [name for name, error in found.failed.items() if isinstance(error, AuthorizationFailed)]


def _on_brokers(side: Observed) -> Operations:
    """Return what is allowed on the configuration of one of the brokers: one permission is for all of them.

    A client without Describe on the cluster gets no answer about it, so this reads it.
    """
    with contextlib.suppress(AuthorizationFailed):
        side.broker_settings  # noqa: B018 - a fact that is read
        return frozenset({AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS})
    return frozenset({AclOperation.DESCRIBE})
