"""Deletes and creates topics of the old cluster, and has the flows of both directions begin there again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from mirror.alignment.inventory_records import Inventory
from mirror.alignment.owned_topics import adopt
from mirror.client import EARLIEST, LATEST, Admin, BufferMemory, ConfigResource, NewTopic, TopicPartition
from mirror.config.flow_rules import target_options
from mirror.errors import BrokerError, KafkaError, named
from mirror.observation import own_values
from mirror.producer.settings import ProducerSettings
from mirror.relay.origin.records import LogKey, whole_record
from mirror.relay.origin.registry import registry_topic, write_records
from mirror.relay.partition.writers.fence import PartitionTransactions, transactional_id
from mirror.relay.progress.committed import Beginning, Progress, read_progress
from mirror.relay.progress.flow_topic import FlowTopic, cluster_options, inventory_topic_of
from mirror.relay.progress.latch import read_latch
from mirror.relay.progress.target_log import TargetMark
from mirror.runtime.clock import SystemClock
from mirror.spark.holding import hold, release
from mirror.spark.preflight.flow_reconciler import config_rules
from mirror.spark.preflight.refused_configs import without_refused
from mirror.switch.failback.rebuilding import RebuildFacts, doomed, missing, pending
from mirror.switch.machine import StepResult
from mirror.switch.record import Rebuild
from mirror.switch.record_topic import CALL_MS
from mirror.timing import Timer
from mirror.wire.error_codes import UNKNOWN_TOPIC_ID

if TYPE_CHECKING:
    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.config.switch_settings import SwitchConfig
    from mirror.relay.progress.latch import Latch
    from mirror.switch.record import SwitchRecord

_HOLD_S: Final = 90.0
_THREADS: Final = 8
_MEMORY: Final = 1024 * 1024
_THROTTLED: Final = ".throttled.replicas"
"""Configurations of a reassignment of partitions that are gone."""


class RebuildSite:
    """Both clusters of a failback, for its rebuilds. Its calls wait; use it in one thread."""

    def __init__(
        self,
        config: MirrorConfig,
        switch: SwitchConfig,
        by: str,
        source: Admin,
        target: Admin,
        on_progress: Callable[[str], None],
    ) -> None:
        """``source`` is the old cluster; ``by`` is who holds flows."""
        self._config: Final = config
        self._by: Final = by
        self._source: Final = source
        self._target: Final = target
        self._on_progress: Final = on_progress
        self._ahead: Final = [config.flows[name] for name in switch.flows]
        self._back: Final = [config.flows[name] for name in switch.back]
        self._names: Final = self._ahead[0].source, self._ahead[0].target

    # --- what both clusters show

    def facts(self, record: SwitchRecord, live: Mapping[str, TopicDescription]) -> RebuildFacts:
        """Return the facts of what cannot be continued; ``live`` are the fenced topics there. Raises KafkaError."""
        broken = record.failback.broken
        if not broken:
            return RebuildFacts()
        standby = self._target.describe_topics(broken, timeout_ms=CALL_MS)
        obstacles = {topic: why for topic in broken if (why := self._obstacle(topic, standby, live))}
        made = {
            topic: self._made(topic, record, standby[topic], live.get(topic))
            for topic in broken
            if topic not in obstacles
        }
        is_free = any(not self._latch(flow).is_held for flow in self._back)
        return RebuildFacts(made=made, obstacles=obstacles, back_is_free=is_free, begun=self._begun(record, live))

    def _latch(self, flow: FlowConfig) -> Latch:
        return read_latch(self._options_of(flow), flow.name, CALL_MS)

    def _obstacle(
        self, topic: str, standby: Mapping[str, TopicDescription], live: Mapping[str, TopicDescription]
    ) -> str:
        old, new = self._names
        if topic not in standby:
            return f"topic {topic} is missing on {new}, so that nothing of it can be copied back"
        if any(not one.topic_id for one in (*live.values(), standby[topic])):
            return (
                f"topic {topic}: brokers before 2.8 have no topic ids, which show what is deleted: rebuild it by hand"
            )
        if free := [one.name for one in self._ahead if not self._latch(one).is_held]:
            return f"{named('flow', free)} not held any more: mirror hold it, and run this again"
        back = _flow_of(self._back, topic)
        if back is None or back.target_topic(topic) != topic:
            return f"no flow of back copies topic {topic} to {old} under its name"
        names = {one.name for one in self._back}
        for other in self._config.flows.values():
            if other.target == old and other.name not in names and other.includes(topic):
                return f"flow {other.name} copies into topic {topic}, too, and could not go on: exclude the topic there"
        return ""

    def _made(
        self, topic: str, record: SwitchRecord, standby: TopicDescription, live: TopicDescription | None
    ) -> Rebuild:
        """Return how the topic is created: as it was, if it is the one that was copied; else as its copy is."""
        known = record.topic_ids.get(topic, "")
        if live is not None and known and str(live.topic_id or "") == known:
            configs = self._own_configs(self._source, topic)
            factor = max(len(one.replicas) for one in live.partitions)
        else:
            back = _flow_of(self._back, topic)
            assert back is not None  # noqa: S101 - otherwise it is an obstacle
            configs, factor = config_rules(back).wanted(self._own_configs(self._target, topic)), back.replication_factor
        kept = {key: value for key, value in configs.items() if not key.endswith(_THROTTLED)}
        return Rebuild(partitions=len(standby.partitions), replication_factor=factor, configs=kept)

    @staticmethod
    def _own_configs(admin: Admin, topic: str) -> dict[str, str]:
        resource = ConfigResource.topic(topic)
        return own_values(admin.describe_configs([resource], timeout_ms=CALL_MS)[resource])

    def _begun(self, record: SwitchRecord, live: Mapping[str, TopicDescription]) -> set[str]:
        """Return the created topics of which both flows have progress in each partition."""
        found = set[str]()
        for topic, plan in pending(record.failback).items():
            if not plan.created_id or topic not in live or str(live[topic].topic_id or "") != plan.created_id:
                continue
            tps = [TopicPartition(topic, number) for number in range(plan.partitions)]
            ahead, back = self._flows_of(topic)
            from_new = read_progress(self._target, ahead.name, tps)
            into_new = read_progress(self._source, back.name, tps)
            marks = [one.target for one in into_new.values() if one.target is not None]
            ids = [one.topic_id for one in from_new.values()] + [one.topic_id for one in marks]
            if len(ids) == 2 * len(tps) and {*ids} == {plan.created_id}:
                found.add(topic)
        return found

    def _flows_of(self, topic: str) -> tuple[FlowConfig, FlowConfig]:
        ahead, back = _flow_of(self._ahead, topic), _flow_of(self._back, topic)
        assert ahead is not None  # noqa: S101 - its topics are the failover's
        assert back is not None  # noqa: S101 - otherwise it is an obstacle
        return ahead, back

    # --- what is done

    def hold(self) -> StepResult:
        """Hold the flows of the way back, and wait for the end of what runs of them. Raises KafkaError, FlowError."""
        with ThreadPoolExecutor(max(1, len(self._back)), "hold") as pool:
            running = [why for why in pool.map(self._hold, self._back) if why]
        return StepResult(ok=not running, why="; ".join(running), retry=True)

    def _hold(self, flow: FlowConfig) -> str:
        latch = self._latch(flow)
        if latch.is_held and latch.by != self._by:
            return f"flow {flow.name} is {latch.held_line(flow.name)}"
        found = hold(
            self._config,
            flow,
            why="topics are rebuilt",
            by=self._by,
            expected=latch.generation,
            until_s=time.monotonic() + _HOLD_S,
            call_ms=CALL_MS,
        )
        return f"flow {flow.name}: {found.running}" if found.running else ""

    def delete(self, record: SwitchRecord, live: Mapping[str, str]) -> StepResult:
        """Delete the topics whose ids the record has; one that was created since stays. Raises KafkaError."""
        ids = {uuid.UUID(id_): topic for topic, id_ in doomed(record.failback, live).items()}
        for topic in sorted(ids.values()):
            self._on_progress(f"deleting topic {topic} on {self._names[0]}")
        for error in self._source.delete_topics_by_id(ids, partial=True, timeout_ms=CALL_MS).failed.values():
            if not (isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC_ID):
                raise error
        return StepResult(ok=True)

    def create(self, record: SwitchRecord, live: Mapping[str, str]) -> StepResult:
        """Create the topics that are missing."""
        created: dict[str, str] = {}
        errors: list[str] = []
        for topic, plan in missing(record.failback, live).items():
            wanted = NewTopic(topic, plan.partitions, plan.replication_factor, dict(plan.configs))
            found = self._create(wanted)
            if isinstance(found, KafkaError) and (accepted := without_refused(wanted, found, self._validated)):
                wanted, lines = accepted
                for line in lines:
                    self._on_progress(f"topic {line}")
                found = self._create(wanted)
            if isinstance(found, KafkaError):
                errors.append(f"topic {topic} on {self._names[0]} cannot be created: {found}")
            else:
                created[topic] = found
        return StepResult(ok=bool(created), why="; ".join(errors), evidence=created, retry=True)

    def _create(self, topic: NewTopic) -> str | KafkaError:
        found = self._source.create_topics([topic], partial=True, timeout_ms=CALL_MS)
        return found.failed[topic.name] if topic.name in found.failed else str(found[topic.name] or "")

    def _validated(self, topic: NewTopic) -> KafkaError | None:
        found = self._source.create_topics([topic], partial=True, validate_only=True, timeout_ms=CALL_MS)
        return found.failed.get(topic.name)

    def begin(self, record: SwitchRecord) -> StepResult:
        """Have the flows begin in the created topics: the one ahead first, whose progress names them.

        Raises KafkaError, FlowError: then it is repeated.
        """
        now_ms = SystemClock().unix_ms()
        for topic, plan in pending(record.failback).items():
            ahead, back = self._flows_of(topic)
            tps = [TopicPartition(topic, number) for number in range(plan.partitions)]
            old, new = _Logs.read(self._source, tps), _Logs.read(self._target, tps)
            if old.topic_id != plan.created_id or new.topic_id == "":
                return StepResult(ok=False, why=f"topic {topic} is not shown by all brokers yet", retry=True)
            if back.only_local:
                self._copy_whole(back, new, record.target_ends.get(topic))
            self._begin(ahead, {tp: _progress(tp, 0, old, new, now_ms) for tp in tps})
            if back.keeps_inventory and plan.found_id in self._claimed_ids(back, topic):
                adopt(self._options_of(back), back.name, self._source.describe_topics([topic], timeout_ms=CALL_MS))
            self._begin(back, {tp: _progress(tp, new.starts[tp], new, old, now_ms) for tp in tps})
            self._on_progress(f"topic {topic}: flow {back.name} copies it as a whole to {self._names[0]}")
        return StepResult(ok=True)

    def _copy_whole(self, back: FlowConfig, log: _Logs, opened: tuple[int, ...] | None) -> None:
        """Have the flow back copy all that was there when the standby opened; behind it, all is local."""
        ends = {
            tp: end if opened is None or tp.partition >= len(opened) else opened[tp.partition]
            for tp, end in log.ends.items()
        }
        topic = registry_topic(self._config.clusters[back.source].client_options())
        write_records(
            topic, [whole_record(back.name, LogKey.of(tp, log.topic_id), end) for tp, end in ends.items()], CALL_MS
        )

    def _begin(self, flow: FlowConfig, begun: Mapping[TopicPartition, Progress]) -> None:
        """Fence each partition with this progress, as an attempt to copy it does, whatever it was before."""
        options = cluster_options(target_options(self._config, flow))

        def one(tp: TopicPartition) -> None:
            settings = ProducerSettings.parse({**options, "transactional.id": transactional_id(flow.name, tp)})
            transactions = PartitionTransactions(flow.name, tp, settings, BufferMemory(_MEMORY))
            try:
                transactions.producer.init_transactions(CALL_MS)
                transactions.fence(begun[tp], CALL_MS).result()
            finally:
                transactions.close(CALL_MS).result()

        with ThreadPoolExecutor(_THREADS, "begin") as pool:
            list(pool.map(one, begun))

    def _claimed_ids(self, flow: FlowConfig, topic: str) -> frozenset[str]:
        inventory = Inventory()
        stored = FlowTopic(self._options_of(flow), inventory_topic_of(flow.name))
        for record in stored.records(Timer(SystemClock(), CALL_MS)):
            inventory.take(record.key, record.value)
        return inventory.claimed_ids(topic)

    def reverse(self) -> StepResult:
        """Release the flows of the way back that this failback holds. Raises KafkaError, FlowError."""
        for flow in self._back:
            latch = self._latch(flow)
            if latch.is_held and latch.by == self._by:
                release(self._config, flow, by=self._by, expected=latch.generation)
        return StepResult(ok=True)

    def _options_of(self, flow: FlowConfig) -> dict[str, object]:
        """Of the flow's target."""
        return {**self._config.clusters[flow.target].client_options()}


class _Logs:
    """The logs of one topic on one cluster."""

    def __init__(self, cluster_id: str, topic_id: str, starts: Mapping[TopicPartition, int]) -> None:
        self.cluster_id: Final = cluster_id
        self.topic_id: Final = topic_id
        self.starts: Final = starts
        self.ends: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int | None] = {}

    @classmethod
    def read(cls, admin: Admin, tps: list[TopicPartition]) -> _Logs:
        """Raises KafkaError."""
        topic = admin.describe_topics([tps[0].topic], timeout_ms=CALL_MS).get(tps[0].topic)
        starts = admin.list_offsets(dict.fromkeys(tps, EARLIEST), timeout_ms=CALL_MS)
        ends = admin.list_offsets(dict.fromkeys(tps, LATEST), isolation="read_uncommitted", timeout_ms=CALL_MS)
        cluster_id = admin.describe_cluster(timeout_ms=CALL_MS).cluster_id or ""
        topic_id = "" if topic is None else str(topic.topic_id or "")
        found = cls(cluster_id, topic_id, {tp: one.offset for tp, one in starts.items()})
        found.ends = {tp: one.offset for tp, one in ends.items()}
        found.epochs = {tp: one.leader_epoch if one.leader_epoch >= 0 else None for tp, one in ends.items()}
        return found

    def mark(self, tp: TopicPartition) -> TargetMark:
        """Return the mark of the log as a flow's target."""
        return TargetMark(topic_id=self.topic_id, end=self.ends[tp], leader_epoch=self.epochs[tp])


def _progress(tp: TopicPartition, offset: int, source: _Logs, target: _Logs, now_ms: int) -> Progress:
    """Return the progress of a copy that begins at ``offset``, and has copied nothing."""
    return Progress(
        offset=offset,
        leader_epoch=None,
        source_cluster_id=source.cluster_id,
        topic_id=source.topic_id,
        source_topic=tp.topic,
        time_ms=now_ms,
        target=target.mark(tp),
        generation=now_ms,
        series=now_ms,
        beginning=Beginning(offset, target.ends[tp]),
    )


def _flow_of(flows: Iterable[FlowConfig], topic: str) -> FlowConfig | None:
    return next((flow for flow in flows if flow.includes(topic)), None)
