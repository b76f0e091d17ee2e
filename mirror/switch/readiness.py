"""What keeps a switch from beginning. It reads both clusters, and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

from mirror.client import AclFilter, Admin, ResourceType, TopicPartition
from mirror.cluster.acls import read_denial, write_denial
from mirror.config.patterns import matches
from mirror.errors import BrokerError, FlowError, KafkaError, named
from mirror.groups.commit_decision import Reason
from mirror.rehearsal.coverage import Waivers
from mirror.relay.progress.flow_topic import switch_of
from mirror.relay.progress.latch import read_latch
from mirror.spark.clusters import open_sides
from mirror.spark.preflight.flow_groups import open_sync
from mirror.spark.rehearsing.couplings import couplings, described, outside, partitions_of, remembered, unknown
from mirror.spark.rehearsing.rehearse import Request, rehearse
from mirror.switch.acl_fence import denials, lacking, why_not_fenced
from mirror.switch.record_topic import KafkaRecordTopic
from mirror.wire.error_codes import SECURITY_DISABLED

if TYPE_CHECKING:
    from mirror.client import AclBinding
    from mirror.config.models import MirrorConfig
    from mirror.config.switch_settings import SwitchConfig
    from mirror.switch.reading import FactReader

_log: Final = logging.getLogger(__name__)
_INEXACT: Final = frozenset((Reason.BEHIND, Reason.NOT_COPIED_BACK, Reason.PASSED, Reason.TRUNCATED, Reason.DELETED))
"""Reasons that no copy removes, for which a rehearsed group is ready: it skips nothing, or nothing more."""


def blockers(config: MirrorConfig, switch: SwitchConfig, reader: FactReader) -> Iterator[str]:
    """Yield a line for each reason why the switch cannot begin now. Raises KafkaError, FlowError."""
    source, target, topics = reader.source, reader.target, reader.topics()
    if not topics:
        yield "the flows select no topic of the source"
    yield from held(config, switch)
    first = config.flows[switch.flows[0]]
    options = [config.clusters[name].client_options() for name in (first.target, first.source)]
    yield from _of_acls(switch, reader, topics, options)
    if switch.deny_read:
        for name, why in why_not_fenced(reader.groups(topics), _acls(source, ResourceType.GROUP) or ()):
            yield f"group {name}: {why}; create the ACLs of its clients first"
    yield from _of_replicas(target, topics)
    yield from _of_transactions(switch, source, topics)
    waivers = Waivers.parse([*switch.waive])
    for name in switch.flows:
        flow = config.flows[name]
        with open_sides(config, flow) as sides:
            found = rehearse(Request(config=config, flow=flow, waivers=waivers), sides)
        for one in found.blockers:
            if not matches(switch.waive, one.name):
                yield f"flow {name}: {one.kind.value} {one.name}: {one.reason}; {one.action}"
        for group in found.not_ready:
            if not matches(switch.waive, group.group):
                why = group.reason or next(move.reason for move in group.moves if not move.is_ready)
                yield f"flow {name}: group {group.group} is not ready ({why}): mirror rehearse --flow {name} says more"
    yield from inexact(config, switch)


# Invariant: A cut-over does not fence producers if it is certain that a group would not be moved exactly behind the
#   fence.
# Test: tests/switch/test_exact_groups.py::test_what_the_move_would_wait_for_is_said_before_the_fence
def inexact(config: MirrorConfig, switch: SwitchConfig) -> Iterator[str]:
    """Yield a line for each group that would not be in step once all is copied. Raises KafkaError, FlowError."""
    for name in switch.flows:
        flow = config.flows[name]
        if not flow.groups.sync:
            continue
        with open_sync(config, flow) as sync:
            groups = sync.round(write=False).groups
        for group, state in sorted(groups.items()):
            found = next((one for one in state.positions if one.reason in _INEXACT), None)
            if found is not None and not matches(switch.waive, group):
                why = f"{found.reason}: {found.detail}" if found.detail else f"{found.reason}: {found.target}"
                yield f"flow {name}: group {group} cannot be moved exactly ({why})"


def held(config: MirrorConfig, switch: SwitchConfig) -> Iterator[str]:
    """Yield a line for each flow that is held. Raises KafkaError."""
    # Also a flow of the way back: the switch releases only what it has held itself.
    for name in (*switch.flows, *switch.back):
        options = config.clusters[config.flows[name].target].client_options()
        latch = read_latch(options, name)
        if latch.is_held:
            yield f"flow {name} is {latch.held_line(name)}"


def denied_by_switches(options: Mapping[str, object], admin: Admin, on: str = "") -> set[AclBinding]:
    """Return the denials of switches, by the records on a cluster, in any direction. Raises KafkaError.

    ``on`` is the id of the cluster that has the denials; empty: any.
    """
    found: set[AclBinding] = set()
    for name in filter(None, map(switch_of, admin.list_topics())):
        with closing(KafkaRecordTopic(options, name)) as topic, suppress(FlowError):  # of another version
            record = topic.read()
            if record is not None and (not on or record.clusters[:1] == (on,)):
                found |= {*denials(record)}
    return found


def _of_acls(
    switch: SwitchConfig, reader: FactReader, topics: Collection[str], options: Sequence[Mapping[str, object]]
) -> Iterator[str]:
    """``options`` are those of the target, and of the source."""
    source, target = reader.source, reader.target
    on_source = _acls(source, ResourceType.TOPIC)
    on_target = _acls(target, ResourceType.TOPIC)
    if switch.fence == "acl":
        if on_source is None:
            yield 'the source has no authorizer: use fence = "hook"'
            return
        for topic, why in why_not_fenced(topics, on_source):
            yield f"topic {topic}: {why}; create the ACLs of its clients first"
    if on_target is not None:
        groups = reader.groups(topics)
        wanted = [*map(write_denial, sorted(topics)), *map(read_denial, sorted(groups))]
        # The record of a failover, and of its failback, is on the standby alone: the source of the way home.
        ours = denied_by_switches(options[0], target)
        ours |= denied_by_switches(options[1], source, target.describe_cluster().cluster_id)
        there = {*on_target, *(_acls(target, ResourceType.GROUP) or ())} - ours
        for acl in wanted:
            if acl in there and not matches(switch.waive, acl.name):
                kind = acl.resource_type.name.lower()
                yield (
                    f"{kind} {acl.name}: an ACL that no switch has created denies {acl.operation.name} on the target to"
                    f" everyone; delete it, or waive the {kind} to have the switch delete it"
                )
    if on_source is not None and on_target is not None:
        for topic, principals in lacking(topics, on_source, on_target).items():
            if not matches(switch.waive, topic):
                who = named("principal", principals)
                yield f"topic {topic}: the target does not allow WRITE to {who}; grant it, or waive the topic"


def _acls(admin: Admin, of: ResourceType) -> tuple[AclBinding, ...] | None:
    """Return the ACLs of topics or groups; None without an authorizer. Raises KafkaError."""
    try:
        return admin.describe_acls(AclFilter(of))
    except BrokerError as error:
        if error.code == SECURITY_DISABLED:
            return None
        raise


def _of_replicas(target: Admin, topics: Collection[str]) -> Iterator[str]:
    there = target.describe_topics(topics)
    for name in sorted(topics):
        if name not in there:
            yield f"topic {name} is missing on the target: run its flow"
            continue
        for one in there[name].partitions:
            if one.leader < 0:
                yield f"partition {name}-{one.partition} has no leader on the target"
            elif len(one.isr) < len(one.replicas):
                yield f"partition {name}-{one.partition}: {len(one.isr)} of {len(one.replicas)} replicas are in sync"


def _of_transactions(switch: SwitchConfig, source: Admin, topics: Collection[str]) -> Iterator[str]:
    listed = source.list_topics()
    others = {name for name in outside(listed) if not matches(switch.waive, name)}
    failed: dict[TopicPartition, KafkaError] = {}
    found = dict(couplings(remembered(source, partitions_of(listed, {*topics, *others}), failed), topics))
    if failed:
        _log.warning(unknown(failed))
    yield from described(source, found, "have a flow of the switch copy it, or waive the topic")
