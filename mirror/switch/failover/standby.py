"""Reads the standby of a failover: what is known of the flows without their source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from mirror.client import AclFilter, Admin, ResourceType, TopicPartition
from mirror.cluster.acls import read_denial, write_denial
from mirror.errors import BrokerError, KafkaError
from mirror.groups.kept_positions import KeptGroup, read_kept
from mirror.groups.summary import GroupsSummary
from mirror.mirrormaker.names import HEARTBEATS
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import read_progress
from mirror.relay.progress.latch import read_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.ledger.status_table import read_reported
from mirror.switch.acl_fence import why_not_fenced
from mirror.switch.facts import Facts
from mirror.switch.failover.assessment import Assessment, PartitionState, rights_of
from mirror.switch.failover.source_probe import SourceProbe
from mirror.switch.reading import FactReader, ends_of, open_transactions
from mirror.switch.record import State
from mirror.wire.error_codes import SECURITY_DISABLED

if TYPE_CHECKING:
    from mirror.client import AclBinding
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.config.switch_settings import SwitchConfig
    from mirror.relay.progress.committed import Progress
    from mirror.switch.record import SwitchRecord

_READ_MS: Final = 20_000


class StandbyReader(FactReader):
    """Reads the facts of one failover. Its calls wait; use it in one thread."""

    def __init__(self, config: MirrorConfig, switch: SwitchConfig, source: Admin, target: Admin) -> None:
        super().__init__(config, switch, source, target)
        first = self._flows[0]
        self._names: Final = first.source, first.target
        self._probe: Final = SourceProbe(config.clusters[first.source].client_options())
        self._target_options: Final = config.clusters[first.target].client_options()

    def close(self) -> None:
        """End the probes of the source."""
        self._probe.close()

    def read(self, record: SwitchRecord) -> Facts:
        """Return the facts for the next step from ``record``. Raises KafkaError if the target does not answer."""
        if record.state is State.ROLLED_BACK or record.state.is_open:
            return super().read(record)
        known = Facts(latches=self._latches(self._flows), source_away=self.source_away())
        if not known.source_away:
            with suppress(KafkaError):  # a broken source may refuse them for ever: a failover does not wait for long
                fenced = self._with_fence(known, record)
                if fenced.denied is not None:
                    acls = self.source.describe_acls(AclFilter(ResourceType.TOPIC), timeout_ms=_READ_MS)
                    fenced = replace(fenced, unguarded={name for name, _ in why_not_fenced(record.topics, acls)})
                known = fenced
        if record.rollback or record.state not in {State.PLANNED, State.MOVED}:
            return known
        known = self._with_copies(known)
        return self._with_ends(known, record) if record.state is State.MOVED else known

    def source_away(self) -> str:
        """Return why no bootstrap address of the source answers; empty if one does, whatever it answers."""
        return self._probe.why_away()

    def targets_of(self, flow: FlowConfig) -> set[TopicPartition]:
        """Return the target's partitions that a flow may have copied into. Raises KafkaError."""
        listed = self.target.list_topics(timeout_ms=_READ_MS)
        return {
            TopicPartition(name, one.partition)
            for name, topic in listed.items()
            if name != HEARTBEATS and flow.source_topic(name) is not None
            for one in topic.partitions
        }

    # --- facts

    def _with_copies(self, known: Facts) -> Facts:
        copied: dict[str, dict[int, int]] = {}
        topic_ids: dict[str, str] = {}
        source_id = ""
        for flow in self._flows:
            progress = read_progress(self.target, flow.name, targets := self.targets_of(flow))
            for tp in targets:
                copied.setdefault(tp.topic, {})[tp.partition] = progress[tp].offset if tp in progress else 0
            topic_ids |= {tp.topic: one.topic_id for tp, one in progress.items()}
            source_id = next((one.source_cluster_id for one in progress.values()), source_id)
        return replace(
            known,
            progress={topic: tuple(of[number] for number in sorted(of)) for topic, of in copied.items()},
            topic_ids=topic_ids,
            source_id=source_id,
            positions={one.group: _hash(one) for one in self._kept_groups()},
        )

    def _with_ends(self, known: Facts, record: SwitchRecord) -> Facts:
        ends = ends_of(self.target, self.target.describe_topics(record.topics, timeout_ms=_READ_MS))
        own = {transactional_id(flow.name, tp) for flow in self._flows for tp in self.targets_of(flow)}
        pending = {one: at for one, at in open_transactions(self.target, ends).items() if one in own}
        there = {topic: tuple(one.high for one in of_topic) for topic, of_topic in ends.items()}
        return replace(known, target_ends=there, open_transactions=pending)

    def _kept_groups(self) -> Iterator[KeptGroup]:
        for flow in self._flows:
            yield from read_kept(self.target, self._target_options, flow.name)

    # --- the assessment

    def assess(self) -> Assessment:
        """Return what the standby shows. Raises KafkaError if it does not answer."""
        away = self.source_away()
        latches = {flow.name: read_latch(self._target_options, flow.name) for flow in self._flows}
        partitions: list[PartitionState] = []
        rounds: dict[str, GroupsSummary] = {}
        own: set[str] = set()
        for flow in self._flows:
            table, _ = read_reported(self._target_options, flow.name)
            targets = self.targets_of(flow)
            own |= {transactional_id(flow.name, tp) for tp in targets}
            progress = read_progress(self.target, flow.name, targets)
            for tp in sorted(targets):
                by_ms = 0 if table.confirmed is None else table.confirmed.of(tp)
                partitions.append(_state_of(flow.name, tp, progress.get(tp), by_ms))
            if table.groups is not None and table.groups.time_ms:
                rounds[flow.name] = table.groups
        topics = {one.topic for one in partitions}
        kept = tuple(self._kept_groups())
        lifted = {*map(write_denial, topics), *(read_denial(one.group) for one in kept)}
        acls = self._acls()
        pending = open_transactions(
            self.target, ends_of(self.target, self.target.describe_topics(topics, timeout_ms=_READ_MS))
        )
        return Assessment(
            switch=self._switch.name,
            source=self._names[0],
            target=self._names[1],
            time_ms=SystemClock().unix_ms(),
            source_away=away,
            latches={flow: one.line() for flow, one in latches.items() if one.is_held},
            partitions=tuple(partitions),
            groups=kept,
            rounds=rounds,
            open_transactions=pending,
            of_copies=tuple(sorted(own & pending.keys())),
            rights=None if acls is None else rights_of(topics, acls),
            lifted=tuple(str(acl) for acl in acls or () if acl in lifted),
        )

    def _acls(self) -> tuple[AclBinding, ...] | None:
        try:
            return tuple(
                acl
                for kind in (ResourceType.TOPIC, ResourceType.GROUP)
                for acl in self.target.describe_acls(AclFilter(kind), timeout_ms=_READ_MS)
            )
        except BrokerError as error:
            if error.code == SECURITY_DISABLED:
                return None
            raise


def _state_of(flow: str, tp: TopicPartition, progress: Progress | None, by_ms: int) -> PartitionState:
    return PartitionState(
        flow=flow,
        topic=tp.topic,
        partition=tp.partition,
        copied=None if progress is None else progress.offset,
        copied_ms=0 if progress is None else progress.time_ms,
        confirmed_ms=by_ms,
    )


def _hash(group: KeptGroup) -> str:
    text = ",".join(f"{one.topic}-{one.partition}={one.target_offset}" for one in group.positions)
    return sha256(text.encode()).hexdigest()
