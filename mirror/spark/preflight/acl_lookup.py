"""Asks both clusters what this client may do with what a flow uses; changes nothing, and needs no permission to ask.

A few requests for each flow, however many topics it has: topics tell it with their metadata, groups with their
description (KIP-430), transactional ids by being told of at all.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from mirror.client import Admin
from mirror.errors import AuthorizationFailed, KafkaError
from mirror.relay.progress.progress_topic import topic_of
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.obstacles import too_long
from mirror.spark.preflight.acl_check import NOTHING, Operations, Seen, Topic, groups_of, ids_of
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.client import AclOperation, Outcomes
    from mirror.config.models import FlowConfig, MirrorConfig

_WITHIN_MS: Final = 10_000
"""For all that is asked about a flow: who does not answer by then is found out by the copy."""


def ask(config: MirrorConfig, flow: FlowConfig, topics: Collection[str]) -> Seen:
    """What may be done, as far as it is told; ``topics`` are those of the source that ``flow`` copies.

    What cannot be had (old brokers, no answer in time) is left out. Raises KafkaError where a cluster cannot be
    reached at all.
    """
    timer = Timer(SystemClock(), _WITHIN_MS)
    source_options, target_options = (config.clusters[name].client_options() for name in (flow.source, flow.target))
    with Admin(source_options) as admin:
        source = _topics(admin, topics, timer)
    groups: Mapping[str, Operations] = {}
    ids: Mapping[str, Operations] = {}
    with Admin(target_options) as admin:
        impossible = too_long(flow, topics)
        names = [*(flow.target_topic(name) for name in topics if name not in impossible), topic_of(flow.name)]
        target = _topics(admin, names, timer)
        # In this order: a target that is new makes its topic of offsets when it is first asked about groups.
        if wanted := ids_of(flow, source):
            with contextlib.suppress(KafkaError):
                found = admin.transactional_id_operations(wanted, partial=True, timeout_ms=timer.remaining_ms())
                ids = _told(found)
        with contextlib.suppress(KafkaError):
            found = admin.group_operations(groups_of(flow, source), partial=True, timeout_ms=timer.remaining_ms())
            groups = _told(found)
    return Seen(source=source, target=target, groups=groups, ids=ids)


def _topics(admin: Admin, names: Collection[str], timer: Timer) -> dict[str, Topic | None]:
    """By name; None for one that is not there."""
    try:
        found = admin.describe_topics(
            names, include_authorized_operations=True, partial=True, timeout_ms=timer.remaining_ms()
        )
    except KafkaError:
        return {}
    told: dict[str, Topic | None] = {name: None for name in names if name not in found.failed}
    told |= {name: Topic(len(each.partitions), each.authorized_operations) for name, each in found.items()}
    told |= {name: Topic(0, NOTHING) for name, error in found.failed.items() if isinstance(error, AuthorizationFailed)}
    return told


def _told(found: Outcomes[str, frozenset[AclOperation]]) -> dict[str, Operations]:
    refused = [name for name, error in found.failed.items() if isinstance(error, AuthorizationFailed)]
    return {**found, **dict.fromkeys(refused, NOTHING)}
