"""Lists what only the old cluster has, and what it costs; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mirror.client import LATEST, Admin, TopicPartition
from mirror.config.flow_rules import target_options
from mirror.observation import GROUP_KINDS
from mirror.runtime.clock import SystemClock
from mirror.spark.preflight.flow_groups import rules_of
from mirror.switch.failback.tail import Span, TailCount, WrittenSince
from mirror.switch.failback.tail_log import STALL_MS, TailLog
from mirror.verify.log_reader import LogReader

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.switch.record import SwitchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTail:
    """The tail of one topic. The field names are keys of ``--json``."""

    topic: str
    partitions: tuple[TailCount, ...]
    written_since: int | None
    """How many keys of the tail the standby has written again since it opened; None: the tail has no keys."""
    written_since_is_exact: bool
    """Otherwise it is an estimate, as the tail has very many keys."""

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.partitions)

    @property
    def times(self) -> tuple[int, int] | None:
        """The first and the last timestamp, ms since 1970; None without records."""
        first = [one.first_ms for one in self.partitions if one.first_ms is not None]
        last = [one.last_ms for one in self.partitions if one.last_ms is not None]
        return (min(first), max(last)) if first and last else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCost:
    """What a group reads if it goes on at the divergence of each partition. The field names are keys of ``--json``."""

    group: str
    tail: int
    """Records of tails that are not exported, of its topics: it has not read them."""
    again: int
    """Offsets that it has read on the standby since that opened: it reads these records again."""


class TailLister:
    """Reads the tails of one flow's topics. For one thread; its calls wait."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig, timeout_ms: int) -> None:
        self._config: Final = config
        self._flow: Final = flow
        self._timeout_ms: Final = timeout_ms

    def list(
        self, tails: Mapping[str, Sequence[Span]], record: SwitchRecord, source: Admin, target: Admin
    ) -> list[TopicTail]:
        """Return what is in these tails. Raises KafkaError, FlowError."""
        described = source.describe_topics(tails, timeout_ms=self._timeout_ms)
        ids = {name: str(one.topic_id or "") for name, one in described.items()}
        options = target_options(self._config, self._flow)
        with (
            TailLog(self._config, self._flow, ids, self._timeout_ms) as log,
            LogReader(options, SystemClock(), STALL_MS) as standby,
        ):
            return [self._one(topic, spans, record, log, standby, target) for topic, spans in tails.items()]

    def _one(
        self,
        topic: str,
        spans: Sequence[Span],
        record: SwitchRecord,
        log: TailLog,
        standby: LogReader,
        target: Admin,
    ) -> TopicTail:
        keys, counts = WrittenSince(), list[TailCount]()
        for partition, span in enumerate(spans):
            count = TailCount(partition=partition, start=span.start, end=span.end)
            for one in log.records(TopicPartition(topic, partition), span):
                count.add(one)
                keys.add(one.key)
            counts.append(count)
        if keys.has_keys:
            opened = record.target_ends.get(topic, ())
            tps = {TopicPartition(topic, number): start for number, start in enumerate(opened)}
            ends = target.list_offsets(dict.fromkeys(tps, LATEST), timeout_ms=self._timeout_ms)
            for tp, start in tps.items():
                for fetched in standby.read(tp, start, ends[tp].offset):
                    for new in fetched.records():
                        if new.offset >= start:
                            keys.see(new.key)
        return TopicTail(
            topic=topic,
            partitions=tuple(counts),
            written_since=keys.count if keys.has_keys else None,
            written_since_is_exact=keys.is_exact,
        )


def costs_of_groups(
    flows: Sequence[FlowConfig],
    tails: Sequence[TopicTail],
    record: SwitchRecord,
    target: Admin,
    timeout_ms: int,
) -> list[GroupCost]:
    """Return what each group of the flows on the standby reads if it goes on in front of the tail."""
    listed = target.list_groups(kinds=GROUP_KINDS, timeout_ms=timeout_ms)
    names = [name for name in sorted(listed) if any(one.groups.sync and rules_of(one).includes(name) for one in flows)]
    committed = target.offsets_of_groups_async(names, timeout_ms).result() if names else {}
    records = {one.topic: one.records for one in tails if one.topic not in record.failback.exported}
    found = []
    for name in names:
        offsets = {tp: one.offset for tp, one in committed[name].items() if tp.topic in record.target_ends}
        if not offsets:
            continue
        opened = {tp: [*record.target_ends[tp.topic][tp.partition : tp.partition + 1]] or [0] for tp in offsets}
        again = sum(max(0, offset - opened[tp][0]) for tp, offset in offsets.items())
        tail = sum(records.get(topic, 0) for topic in {tp.topic for tp in offsets})
        found.append(GroupCost(group=name, tail=tail, again=again))
    return found
