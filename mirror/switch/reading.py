"""Reads what both clusters show of a switch: in each state what its next step needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from mirror.client import EARLIEST, LATEST, Admin, TopicPartition
from mirror.config.patterns import matches
from mirror.errors import BrokerError, FlowError, KafkaError
from mirror.mirrormaker.names import HEARTBEATS
from mirror.observation import GROUP_KINDS
from mirror.relay.progress.committed import read_progress
from mirror.relay.progress.latch import read_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.status_table import read_reported
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight.flow_groups import rules_of
from mirror.spark.run_control import RunControlClient
from mirror.switch.acl_fence import DENIALS, GROUP_DENIALS, denied
from mirror.switch.facts import Ends, Facts, FlowLatch
from mirror.switch.pause import FlowPace
from mirror.switch.record import State, SwitchRecord
from mirror.wire.error_codes import SECURITY_DISABLED

if TYPE_CHECKING:
    from mirror.client import AclFilter, TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.config.switch_settings import SwitchConfig

_CALL_MS: Final = 10_000
_AT_REST: Final = frozenset({"Empty", "Dead"})
"""The states of a group without members."""


class FactReader:
    """Reads the facts of one switch. Its calls wait; use it in one thread."""

    def __init__(self, config: MirrorConfig, switch: SwitchConfig, source: Admin, target: Admin) -> None:
        self._config: Final = config
        self._switch: Final = switch
        self.source: Final = source
        self.target: Final = target
        self._flows: Final = [config.flows[name] for name in switch.flows]
        self._back: Final = [config.flows[name] for name in switch.back]

    def read(self, record: SwitchRecord) -> Facts:
        """Return the facts for the next step from ``record``.

        Raises KafkaError if the target does not answer, unless the source does and producers are fenced there.
        """
        if record.state in {State.PLANNED, State.ROLLED_BACK}:
            return Facts()
        if record.state.is_open:
            latches = self._latches(self._flows) if record.state is State.DONE else None
            return Facts(
                denied_on_target=self._on_target(DENIALS),
                read_denied_on_target=self._on_target(GROUP_DENIALS) if record.groups else (),
                latches=latches,
            )
        try:
            return self._of_both(record)
        except KafkaError as error:
            away = str(error)
        try:
            self.target.describe_cluster(timeout_ms=_CALL_MS)
        except KafkaError as error:
            if not record.fences:
                raise
            return self._with_fence(Facts(target_away=str(error)), record)
        return Facts(source_away=away)

    def _with_fence(self, known: Facts, record: SwitchRecord) -> Facts:
        if (record.fence or self._switch.fence) != "acl":
            return known
        each = [denied(acls) for acls in self.source.describe_acls_by_broker(DENIALS, timeout_ms=_CALL_MS).values()]
        everywhere = frozenset.intersection(*each) if each else frozenset[str]()
        known = replace(known, denied=frozenset[str]().union(*each), denied_everywhere=everywhere)
        if record.denied_groups or (self._switch.deny_read and not record.fence_ms):
            of_groups = self.source.describe_acls_by_broker(GROUP_DENIALS, timeout_ms=_CALL_MS).values()
            return replace(known, read_denied=frozenset[str]().union(*map(denied, of_groups)))
        return known

    def _of_both(self, record: SwitchRecord) -> Facts:
        """Return the facts that are needed before the switch is open. Raises KafkaError."""
        state = record.state
        known = Facts()
        if record.latches or state in {State.DRAINED, State.MOVED} or record.rollback:
            # Those of the way back are on the source.
            known = replace(known, latches=self._latches((*self._flows, *self._back)))
        known = self._with_fence(known, record)
        if record.rollback:
            return known
        topics = self.topics()
        known = replace(known, topics={name: len(one.partitions) for name, one in topics.items()})
        if state is State.READY and record.fence_ms:
            return known
        ends = ends_of(self.source, topics)
        known = replace(known, ends=ends)
        if state in {State.READY, State.FENCED}:
            tps = [TopicPartition(name, one.partition) for name, topic in topics.items() for one in topic.partitions]
            known = replace(
                known,
                progress=self._progress(tps),
                is_copying=all(is_alive(self.target, flow.name) for flow in self._flows),
            )
        if state is State.FENCED:
            known = replace(known, open_transactions=open_transactions(self.source, ends))
        if state in {State.PROVED, State.MOVED} or (state is State.READY and self._switch.deny_read):
            busy, positions = self._groups(topics)
            known = replace(known, busy_groups=busy, positions=positions)
        if state is State.MOVED:
            there = ends_of(self.target, self.target.describe_topics(topics, timeout_ms=_CALL_MS))
            known = replace(known, target_ends={name: tuple(one.high for one in ends) for name, ends in there.items()})
        return known

    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics that the flows select on the source, but for heartbeats, which the flow itself writes."""
        listed = self.source.list_topics(timeout_ms=_CALL_MS)
        names = {name for flow in self._flows for name in select_topics(flow, listed)} - {HEARTBEATS}
        return {name: listed[name] for name in sorted(names)}

    def groups(self, topics: Collection[str]) -> set[str]:
        """Return the groups that move: those of the flows with positions on ``topics``. Raises KafkaError."""
        return {*self._groups(topics)[1]}

    def clients(self, record: SwitchRecord) -> tuple[dict[str, tuple[int, ...]], set[str]]:
        """Return the ends of the target's logs, and the moved groups with members there. Raises KafkaError."""
        ends = ends_of(self.target, self.target.describe_topics(record.topics, partial=True, timeout_ms=_CALL_MS))
        listed = self.target.list_groups(kinds=GROUP_KINDS, timeout_ms=_CALL_MS) if record.groups else {}
        members = {name for name in record.groups if name in listed and listed[name].state not in _AT_REST}
        return {topic: tuple(one.high for one in of_topic) for topic, of_topic in ends.items()}, members

    def paces(self) -> list[FlowPace]:
        """Return how fast the flows copy. Raises KafkaError."""
        options = self._config.clusters[self._flows[0].target].client_options()
        rates = {flow.name: read_reported(options, flow.name)[0].rate for flow in self._flows}
        return [
            FlowPace(name, is_alive(self.target, name), None if rate is None else rate.bytes_per_second)
            for name, rate in rates.items()
        ]

    def _on_target(self, denials: AclFilter) -> Collection[str]:
        try:
            return denied(self.target.describe_acls(denials, timeout_ms=_CALL_MS))
        except BrokerError as error:
            if error.code == SECURITY_DISABLED:
                return frozenset()
            raise

    def _latches(self, flows: Iterable[FlowConfig]) -> dict[str, FlowLatch]:
        found = {}
        for flow in flows:
            options = self._config.clusters[flow.target].client_options()
            latch = read_latch(options, flow.name, _CALL_MS)
            found[flow.name] = FlowLatch(latch.is_held, latch.generation, latch.by)
        return found

    def _progress(self, tps: Collection[TopicPartition]) -> dict[str, tuple[int, ...]]:
        """Return up to where each partition is copied: to its first record, where nothing is."""
        copied: dict[TopicPartition, int] = {}
        for flow in self._flows:
            of_flow = {tp for tp in tps if flow.includes(tp.topic)}
            copied |= {tp: one.offset for tp, one in read_progress(self.target, flow.name, of_flow).items()}
        if without := [tp for tp in tps if tp not in copied]:
            firsts = self.source.list_offsets(dict.fromkeys(without, EARLIEST), timeout_ms=_CALL_MS)
            copied |= {tp: one.offset for tp, one in firsts.items()}
        found: dict[str, list[int]] = {}
        for tp in sorted(tps):
            found.setdefault(tp.topic, []).append(copied[tp])
        return {topic: tuple(offsets) for topic, offsets in found.items()}

    def _groups(self, topics: Collection[str]) -> tuple[set[str], dict[str, str]]:
        """Return the groups of the flows on the source that have members, and a hash of where each group is."""
        listed = self.source.list_groups(kinds=GROUP_KINDS, timeout_ms=_CALL_MS)
        names = [
            name
            for name in sorted(listed)
            if any(flow.groups.sync and rules_of(flow).includes(name) for flow in self._flows)
            and not matches(self._switch.waive, name)
        ]
        positions: dict[str, str] = {}
        committed = self.source.offsets_of_groups_async(names, _CALL_MS).result() if names else {}
        for name in names:
            offsets = sorted((tp, one.offset) for tp, one in committed[name].items() if tp.topic in topics)
            if offsets:
                text = ",".join(f"{tp}={offset}" for tp, offset in offsets)
                positions[name] = sha256(text.encode()).hexdigest()
        return {name for name in positions if listed[name].state not in _AT_REST}, positions


def is_alive(target: Admin, flow: str) -> bool:
    """Whether a run of the flow is alive, by its control record. Raises KafkaError."""
    control = RunControlClient(target, flow).read(_CALL_MS)
    return control is not None and not control.ended and not control.is_dead(SystemClock().unix_ms())


def ends_of(admin: Admin, topics: Mapping[str, TopicDescription]) -> dict[str, tuple[Ends, ...]]:
    """Return the ends of all partitions. Raises KafkaError if one cannot be read."""
    tps = [TopicPartition(name, one.partition) for name, topic in topics.items() for one in topic.partitions]
    latest = dict.fromkeys(tps, LATEST)
    stable = admin.list_offsets(latest, isolation="read_committed", timeout_ms=_CALL_MS)
    high = admin.list_offsets(latest, isolation="read_uncommitted", timeout_ms=_CALL_MS)
    found: dict[str, list[Ends]] = {name: [] for name in topics}
    for tp in sorted(tps):
        found[tp.topic].append(Ends(high[tp].offset, stable[tp].offset))
    return {topic: tuple(ends) for topic, ends in found.items()}


def open_transactions(admin: Admin, ends: Mapping[str, tuple[Ends, ...]]) -> dict[str, str]:
    """Return the transactional ids that have a transaction open, with a partition where they have."""
    tps = [
        TopicPartition(topic, number)
        for topic, of_topic in ends.items()
        for number, one in enumerate(of_topic)
        if one.stable < one.high
    ]
    if not tps:
        return {}
    at: dict[int, str] = {}
    for tp, producers in admin.describe_producers(tps, partial=True, timeout_ms=_CALL_MS).items():
        at |= {one.producer_id: str(tp) for one in producers if one.transaction_start is not None}
    listed = admin.list_transactions(at, partial=True, timeout_ms=_CALL_MS) if at else ()
    return {one.transactional_id: at[one.producer_id] for one in listed if one.producer_id in at}


def writers_of(admin: Admin, partitions: Collection[str]) -> str:
    """Return who has written to these partitions last, as far as their leaders remember it; never raises."""
    tps = [TopicPartition(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in partitions)]
    try:
        found = admin.describe_producers(tps, partial=True, timeout_ms=_CALL_MS)
        last = {max(of_tp, key=lambda one: one.last_timestamp_ms).producer_id for of_tp in found.values() if of_tp}
        named = {one.producer_id: one.transactional_id for one in admin.list_transactions(last, partial=True)}
    except (KafkaError, FlowError) as error:
        return f"which producers wrote cannot be read: {error}"
    if not last:
        return "by a producer without an id, so that brokers do not know it (enable.idempotence = false)"
    ids = ", ".join(f"{one}" + (f" ({named[one]})" if one in named else "") for one in sorted(last))
    return f"by producer id {ids}"
