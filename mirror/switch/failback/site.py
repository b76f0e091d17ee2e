"""The clusters of a failback: the old one, which has come back, and the standby, which clients use now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mirror.client import AclFilter, Admin, ConfigResource, ResourceType, TopicPartition
from mirror.closing import Closing
from mirror.cluster.acls import read_denial, write_denial
from mirror.config.patterns import matches
from mirror.errors import BrokerError, KafkaError, KafkaTimeout
from mirror.mirrormaker.names import HEARTBEATS
from mirror.observation import GROUP_KINDS
from mirror.relay.progress.latch import read_latch
from mirror.runtime.clock import SystemClock
from mirror.spark.holding import release
from mirror.spark.planning.range_planner import select_topics
from mirror.spark.preflight.flow_groups import rules_of
from mirror.switch.acl_fence import DENIALS, GROUP_DENIALS, denials, denied, exactly, why_not_fenced
from mirror.switch.failback.deciding import OldFacts, exported, grown, spans
from mirror.switch.failback.divergence import find_positions, skip_tails
from mirror.switch.failback.exporting import export_tails
from mirror.switch.failback.inspection import Inspection, Verdict
from mirror.switch.failback.old_cluster import inspect_cluster, progress_of
from mirror.switch.failback.rebuild_site import RebuildSite
from mirror.switch.failback.rebuilding import RebuildFacts
from mirror.switch.hooks import run_hook
from mirror.switch.machine import Act, StepResult, Terms
from mirror.switch.reading import ends_of
from mirror.switch.record_store import NoTopic, RecordStore
from mirror.switch.record_topic import CALL_MS, KafkaRecordTopic
from mirror.verify.log_reader import LogReader
from mirror.wire.error_codes import SECURITY_DISABLED
from mirror.wire.legacy import MessageSet

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.client import TopicDescription
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.config.switch_settings import SwitchConfig
    from mirror.switch.facts import Facts
    from mirror.switch.record import FailbackRecord, SwitchRecord

_APART: Final = ","
_SHORT_MS: Final = 5_000
"""An open transaction behind the fence is waited for no longer: then a record is there."""


class FailbackSite(Closing):
    """Both clusters, as :class:`mirror.switch.operator.Site` has them. Use it in one thread."""

    def __init__(
        self,
        config: MirrorConfig,
        switch: SwitchConfig,
        terms: Terms,
        on_progress: Callable[[str], None],
    ) -> None:
        """``on_progress`` is called with a line about what takes long. Raises ConfigError."""
        self._config: Final = config
        self._switch: Final = switch
        self._terms: Final = terms
        self._on_progress: Final = on_progress
        self.flows: Final = [config.flows[name] for name in switch.flows]
        first = self.flows[0]
        self._names: Final = first.source, first.target
        self._options: Final = [config.clusters[name].client_options() for name in self._names]
        self.source: Final = Admin(self._options[0])
        self.target: Final = Admin(self._options[1])
        self._rebuilds: Final = RebuildSite(config, switch, terms.by, self.source, self.target, on_progress)
        self._topic: Final = KafkaRecordTopic(self._options[1], switch.name)
        self._store: Final = RecordStore(self._topic, NoTopic())
        self._acts: Final[Mapping[Act, Callable[[SwitchRecord, Facts], StepResult]]] = {
            Act.FENCE: lambda record, _: self._fence(record),
            Act.UNFENCE: lambda record, _: self._unfence(record),
            Act.LOCATE: lambda record, _: self._locate(record),
            Act.EXPORT: self._export,
            Act.SKIP_TAIL: lambda record, _: self._skip(record),
            Act.RELEASE: lambda _, __: self._release(),
            Act.HOLD: lambda _, __: self._rebuilds.hold(),
            Act.DELETE: lambda record, facts: self._rebuilds.delete(record, _live_ids(facts)),
            Act.CREATE: lambda record, facts: self._rebuilds.create(record, _live_ids(facts)),
            Act.BEGIN: lambda record, _: self._rebuilds.begin(record),
            Act.REVERSE: lambda _, __: self._rebuilds.reverse(),
        }

    def close(self) -> None:
        """Close the clients."""
        self._topic.close()
        self.source.close()
        self.target.close()

    # --- the record, which the standby alone has

    def read_record(self) -> SwitchRecord | None:
        return self._store.read()

    def store(self, record: SwitchRecord) -> None:
        self._store.store(record)

    # --- what both clusters show

    def inspect(self, record: SwitchRecord) -> Inspection:
        """Return what became of the old cluster. Raises KafkaError."""
        listed = self.source.list_topics(timeout_ms=CALL_MS)
        return inspect_cluster(self._config, record, self._selected(listed), self.source, self.target, CALL_MS)

    def _selected(self, listed: Mapping[str, TopicDescription]) -> dict[str, TopicDescription]:
        """Return the topics that the flows select on the old cluster, but for heartbeats."""
        names = {name for flow in self.flows for name in select_topics(flow, listed)} - {HEARTBEATS}
        return {name: listed[name] for name in sorted(names)}

    def facts(self, record: SwitchRecord) -> OldFacts:
        """Return the facts for the next step. Raises KafkaError if the standby does not answer."""
        self.target.describe_cluster(timeout_ms=CALL_MS)
        try:
            return self._facts(record)
        except KafkaError as error:
            if isinstance(error, BrokerError) and error.code == SECURITY_DISABLED:
                return OldFacts(has_authorizer=False)
            return OldFacts(source_away=str(error))

    def _facts(self, record: SwitchRecord) -> OldFacts:
        back = record.failback
        listed = self.source.list_topics(timeout_ms=CALL_MS)
        selected = self._selected(listed) | {name: listed[name] for name in record.copied if name in listed}
        acls = self._switch.fence == "acl"
        topics, everywhere = self._denied(DENIALS) if acls else (None, None)
        groups, groups_everywhere = self._denied(GROUP_DENIALS) if acls else (frozenset[str](), frozenset[str]())
        fenced = {name: listed[name] for name in back.topics if name in listed}
        of_flows = () if back.fence_ms else self._groups(selected)
        found = OldFacts(
            # A topic that is missing is fenced, too: it may come back.
            topics=dict.fromkeys(record.copied, 0) | {name: len(one.partitions) for name, one in selected.items()},
            denied=topics,
            denied_everywhere=everywhere,
            groups=of_flows,
            read_denied=groups,
            read_denied_everywhere=groups_everywhere,
            ends=ends_of(self.source, fenced) if back.shown_ms and not back.released_ms else None,
            unguarded=self._unguarded(selected, of_flows) if acls and not back.fence_ms else "",
            appends=self._appends(back.starts),
            live_ids={name: str(one.topic_id or "") for name, one in fenced.items()},
            rebuild=self._rebuilds.facts(record, fenced) if back.located_ms else RebuildFacts(),
        )
        return replace(found, markers=self._markers(back, found))

    def _markers(self, back: FailbackRecord, facts: OldFacts) -> set[tuple[str, int, int]]:
        """Return the partitions that have grown behind the fence by markers of transactions alone."""
        later = {key: ends for key, ends in grown(back, facts).items() if 0 <= ends[0] < ends[1]} if facts.ends else {}
        if not later:
            return set()
        with LogReader(self._options[0], SystemClock(), _SHORT_MS) as reader:
            return {
                (topic, number, end)
                for (topic, number), (start, end) in later.items()
                if _has_only_markers(reader, TopicPartition(topic, number), start, end)
            }

    def _unguarded(self, topics: Collection[str], groups: Collection[str]) -> str:
        """Return the first topic or group that an ACL would not fence as it should, and why; empty without one."""
        for kind, names in ((ResourceType.TOPIC, topics), (ResourceType.GROUP, groups)):
            acls = self.source.describe_acls(AclFilter(kind), timeout_ms=CALL_MS) if names else ()
            for name, why in why_not_fenced(names, acls):
                return f"{kind.name.lower()} {name}: {why}"
        return ""

    def _denied(self, wanted: AclFilter) -> tuple[frozenset[str], frozenset[str]]:
        """Return what some broker of the old cluster denies, and what each one does."""
        each = [denied(acls) for acls in self.source.describe_acls_by_broker(wanted, timeout_ms=CALL_MS).values()]
        return frozenset[str]().union(*each), frozenset.intersection(*each) if each else frozenset[str]()

    def _groups(self, topics: Collection[str]) -> list[str]:
        """Return the groups of the flows with positions in these topics on the old cluster."""
        listed = self.source.list_groups(kinds=GROUP_KINDS, timeout_ms=CALL_MS)
        names = [
            name
            for name in sorted(listed)
            if any(flow.groups.sync and rules_of(flow).includes(name) for flow in self.flows)
        ]
        committed = self.source.offsets_of_groups_async(names, CALL_MS).result() if names else {}
        return [name for name in names if any(tp.topic in topics for tp in committed[name])]

    def _appends(self, topics: Collection[str]) -> frozenset[str]:
        """Return the topics whose tail the flow is to append: a compacted one would replace newer values."""
        wanted = [topic for topic in topics if matches(self._switch.append_tail, topic)]
        if not wanted:
            return frozenset()
        resources = {ConfigResource.topic(topic): topic for topic in wanted}
        found = self.target.describe_configs(resources, keys=["cleanup.policy"], timeout_ms=CALL_MS)
        compacted = {
            resources[one]
            for one, entries in found.items()
            if "cleanup.policy" in entries and "compact" in (entries["cleanup.policy"].value or "")
        }
        return frozenset(wanted) - compacted

    # --- what is done

    def act(self, act: Act, record: SwitchRecord, facts: Facts) -> StepResult:
        return self._acts[act](record, facts)

    def _fence(self, record: SwitchRecord) -> StepResult:
        if record.fence == "hook":
            return self._hook("fence", record)
        back = record.failback
        wanted = [*map(write_denial, back.denied), *map(read_denial, back.denied_groups)]
        self.source.create_acls(wanted, timeout_ms=CALL_MS)
        return StepResult(ok=True)

    def _unfence(self, record: SwitchRecord) -> StepResult:
        if record.fence == "hook":
            return self._hook("unfence", record)
        self.source.delete_acls([exactly(one) for one in denials(record)], timeout_ms=CALL_MS)
        return StepResult(ok=True)

    def _hook(self, step: str, record: SwitchRecord) -> StepResult:
        facts: dict[str, Any] = {
            "switch": self._switch.name,
            "step": step,
            "source": self._names[0],
            "target": self._names[1],
            "source_bootstrap": self._options[0].get("bootstrap.servers"),
            "target_bootstrap": self._options[1].get("bootstrap.servers"),
            "topics": record.failback.topics,
        }
        return run_hook(self._switch.hook_fence, facts, self._switch.hook_seconds)

    def _locate(self, record: SwitchRecord) -> StepResult:
        """Find where each tail begins: of topics that were made again, at their start."""
        found = self.inspect(record)
        for one in found.topics:
            unknown = [part for part in one.partitions if part.verdict is Verdict.UNKNOWN]
            if unknown or one.verdict is Verdict.UNKNOWN:
                why = unknown[0].why if unknown else one.why
                return StepResult(ok=False, why=f"topic {one.topic}: {why}", retry=True)
        starts = {
            TopicPartition(one.topic, partition.partition): max(partition.tail_start, 0)
            for one in found.topics
            for partition in one.partitions
        }
        sound = {
            TopicPartition(one.topic, partition.partition)
            for one in found.topics
            for partition in one.partitions
            if partition.verdict is Verdict.SAME and partition.divergence >= 0 and not partition.deleted
        }
        progress = progress_of(self._config, record, self.target)
        for flow in self.flows:
            # Without progress, and with none at the failover, nothing was copied: all of it is the tail.
            copied = {tp for tp in sound if tp in progress or record.copied[tp.topic][tp.partition] > 0}
            tps = sorted(tp for tp in copied if flow.includes(tp.topic))
            self._on_progress(f"flow {flow.name}: comparing the ends of {len(tps)} partitions")
            starts |= find_positions(self._config, flow, tps, CALL_MS)
        evidence = {"": " ".join(found.rebuilt)} if found.rebuilt else {}
        by_topic: dict[str, list[str]] = {}
        for tp in sorted(starts):
            by_topic.setdefault(tp.topic, []).append(str(starts[tp]))
        return StepResult(ok=True, evidence=evidence | {topic: _APART.join(of) for topic, of in by_topic.items()})

    def _export(self, record: SwitchRecord, facts: Facts) -> StepResult:
        assert isinstance(facts, OldFacts)  # noqa: S101 - of this site
        wanted, counts = exported(record.failback, facts.appends), dict[str, int]()
        for flow in self.flows:
            tails = {topic: spans(record.failback, topic) for topic in wanted if flow.includes(topic)}
            if tails:
                counts |= export_tails(
                    self._config,
                    flow,
                    self._switch.name,
                    tails,
                    cluster=record.clusters[0],
                    generation=self.generation(record, flow),
                    timeout_ms=CALL_MS,
                    on_line=self._on_progress,
                )
        return StepResult(ok=True, evidence={topic: str(count) for topic, count in counts.items()})

    @staticmethod
    def generation(record: SwitchRecord, flow: FlowConfig) -> int:
        """Return the generation in the names of the topics of tails: that of the latch at the failover."""
        return record.latches.get(flow.name, record.attempt)

    def _skip(self, record: SwitchRecord) -> StepResult:
        now_ms = SystemClock().unix_ms()
        for flow in self.flows:
            tails = {
                TopicPartition(topic, number): span
                for topic in record.failback.exported
                if flow.includes(topic)
                for number, span in enumerate(spans(record.failback, topic))
                if span.offsets
            }
            skip_tails(self._config, flow, tails, now_ms, CALL_MS)
        return StepResult(ok=True)

    def _release(self) -> StepResult:
        for flow in self.flows:
            latch = read_latch(self._options[1], flow.name, CALL_MS)
            if latch.is_held and latch.by == self._terms.by:
                release(self._config, flow, by=self._terms.by, expected=latch.generation)
            elif latch.is_held:
                return StepResult(ok=False, why=f"flow {flow.name} is {latch.held_line(flow.name)}", retry=True)
        return StepResult(ok=True)


def _live_ids(facts: Facts) -> Mapping[str, str]:
    assert isinstance(facts, OldFacts)  # noqa: S101 - of this site
    return facts.live_ids


def _has_only_markers(reader: LogReader, tp: TopicPartition, start: int, end: int) -> bool:
    try:
        for fetched in reader.read(tp, start, end):
            batches = [one for one in fetched.batches if one.next_offset > start and one.base_offset < end]
            if any(isinstance(one, MessageSet) or not one.is_control for one in batches):
                return False
    except KafkaTimeout:
        return False
    return True
