"""Where groups of the target would continue on the source: their positions, translated back, and committed if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from mirror.client import AclOperation, OffsetAndMetadata, Outcomes, TopicPartition
from mirror.closing import Closing
from mirror.errors import KafkaError
from mirror.groups.back_positions import BackPosition, BackReason, back_reason
from mirror.groups.bundles import Committed
from mirror.groups.clusters import TIMEOUT_MS, FlowAccess, FlowClusters
from mirror.groups.commits import in_parts
from mirror.groups.coordinators import CoordinatorCalls
from mirror.groups.intents import ResumeKey, StoredIntents, encode_key, encode_resumed
from mirror.groups.positions import reason_of
from mirror.groups.routes import AlsoFed, CopyingFlow
from mirror.groups.rules import GroupRules
from mirror.groups.translation.back_logs import BackLogs
from mirror.groups.translation.both_directions import BothDirectionsLogs, BothDirectionsPartition
from mirror.groups.translation.logs import FlowLogs, PartitionLogs
from mirror.relay.offsets.copy_count import CopyCount
from mirror.relay.offsets.index import UNKNOWN, Place
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of
from mirror.relay.progress.latch import LatchCheck
from mirror.timing import Clock, Timer

_AT_ONCE: Final = 64
_PATIENCE_MS: Final = 10_000
_CALL_MS: Final = 8_000

BackKey = tuple[str, TopicPartition]
"""A group, and a partition of the source."""

FedBy = Callable[[str, str], CopyingFlow | None]
"""The flow that copies, to a topic of the source, a topic of the target; None if none does."""

Found = tuple[list[BackPosition], list[str]]
"""Positions, and lines about what could not be read or stored."""


# Invariant: On the way back by hand a position goes ahead only, skips nothing, and the flow goes on from there.
# Test: tests/groups/
#   test_way_back_on_fakes.py::test_positions_are_committed_on_the_source_with_their_metadata_and_the_flow_goes_on_there
# Test: tests/copying/test_way_back.py::test_a_consumer_fails_over_and_back_with_no_record_skipped
# Test: tests/groups/
#   test_both_directions_on_fakes.py::test_the_way_back_by_hand_skips_nothing_and_counts_what_is_read_again
class ReverseGroups(Closing):
    """Reads the groups of a flow's target. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        flow: FlowAccess,
        rules: GroupRules,
        clock: Clock,
        fed_by: FedBy = lambda _source, _target: None,
        also_fed: AlsoFed = lambda _flows, _source, _target: "",
    ) -> None:
        """Raises ConfigError, FlowError."""
        self._flow: Final = flow.name
        self._rules: Final = rules
        self._fed_by: Final = fed_by
        self._also_fed: Final = also_fed
        self._clock: Final = clock
        self._topic: Final = FlowTopic(flow.target_options, group_topic_of(flow.name))
        self._check_latch: Final = LatchCheck(flow.target_options, flow.name, flow.holder)
        self._clients: Final = ExitStack()
        self._clusters: Final = self._clients.enter_context(FlowClusters(flow, rules, clock))
        self._both_directions: Final[dict[str, BothDirectionsLogs]] = {}
        """By the name of the flow that feeds the source."""
        self.logs: Mapping[TopicPartition, PartitionLogs] = {}
        """What was read last of the partitions of groups, by those of the target."""
        self._commits: Final = CoordinatorCalls[tuple[str, int], Outcomes[TopicPartition, None]](
            clock, at_once=_AT_ONCE, patience_ms=_PATIENCE_MS
        )

    def close(self) -> None:
        self._clients.close()

    def read(self) -> Found:
        """Return the positions of the groups, and lines about those that could not be read. Raises KafkaError."""
        listed = self._clusters.of_target.list_groups()
        groups = sorted(name for name, one in listed.items() if self._rules.includes(name) and one.is_supported)
        at_target = self._clusters.of_target.offsets(groups)
        problems = [f"{name}: on the target: {error}" for name, error in _errors(at_target)]
        positions = self._translated(at_target)
        # Only now: translations may take minutes, and what a consumer commits meanwhile is not to be overwritten.
        self._clusters.of_source.list_groups()
        partitions: dict[str, list[TopicPartition]] = {}
        for one in positions:
            partitions.setdefault(one.group, []).append(one.source)
        at_source = self._clusters.of_source.stable_offsets(partitions)
        writable = self._writable(at_source)
        may_be_pending = not self._clusters.of_source.reports_pending_offsets()
        problems += self._clusters.of_target.problems("target")
        problems += self._clusters.of_source.problems("source")
        decided = (self._decided(one, at_source[one.group], writable) for one in positions)
        return [replace(one, may_be_pending=may_be_pending) for one in decided], problems

    def commit(self, *, resume: bool) -> Found:
        """Commit on the source what is due, and return all positions. Raises KafkaError if a cluster does not answer.

        Raises FlowHeld, LatchMoved if the flow is held, or was meanwhile: then nothing is committed.

        With ``resume`` the offsets on the target are the flow's own from then on: it continues them once the group has
        read on, on the source.
        """
        self._check_latch()
        positions, problems = self.read()
        due: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for one in positions:
            if one.is_due and one.translation.offset is not None:
                wanted = OffsetAndMetadata(one.translation.offset, None, one.metadata)
                due.setdefault(one.group, {})[one.source] = wanted
        self._check_latch()
        refused = self._committed(due)
        positions = [_after(one, refused.get((one.group, one.source))) if one.is_due else one for one in positions]
        if resume:
            problems += self._resume(one for one in positions if one.reason is None and one.is_in_step)
        return positions, problems

    # --- what there is

    def _translated(self, at_target: Mapping[str, Committed | KafkaError]) -> list[BackPosition]:
        partitions: dict[TopicPartition, TopicPartition] = {}
        for found in at_target.values():
            for target in () if isinstance(found, KafkaError) else found:
                topic = self._rules.source_topic(target.topic)
                if topic is not None:
                    partitions[TopicPartition(topic, target.partition)] = target
        self.logs = logs = self.open(partitions)
        sources = {target: source for source, target in partitions.items()}
        return [
            self._translated_one(group, target, committed, sources[target], logs[target])
            for group, found in sorted(at_target.items())
            for target, committed in sorted(found.items() if not isinstance(found, KafkaError) else ())
            if target in sources
        ]

    def open(self, partitions: Mapping[TopicPartition, TopicPartition]) -> dict[TopicPartition, PartitionLogs]:
        """Return what translates the offsets of the target, by its partitions. ``partitions``: by those of the source.

        Where a flow of the other direction feeds a topic under the same name, these are the indexes of both. Raises
        KafkaError.
        """
        fed: dict[str, tuple[CopyingFlow, dict[TopicPartition, TopicPartition]]] = {}
        others: dict[TopicPartition, TopicPartition] = {}
        for source, target in partitions.items():
            other = self._fed_by(source.topic, target.topic)
            if other is None:
                others[source] = target
            else:
                fed.setdefault(other.name, (other, {}))[1][target] = source
        opened = self._clusters.logs.open(others, {}, {}) if others else {}
        found = {others[source]: logs for source, logs in opened.items()}
        for other, by_target in fed.values():
            try:
                found |= self._both_directions_logs(other).open(by_target, {}, {})
            except KafkaError as error:
                problem = f"the index of flow {other.name}: {error}"
                found |= {target: PartitionLogs(problem=problem) for target in by_target}
        return found

    def _both_directions_logs(self, other: CopyingFlow) -> BothDirectionsLogs:
        """Return the logs as a round of ``other`` sees them, which goes from the target to the source."""
        if other.name not in self._both_directions:
            ends = self._clusters.target, self._clusters.source
            translator = self._clients.enter_context(other.access.open_translator())
            ahead = FlowLogs(*ends, translator, self._clock, TIMEOUT_MS)
            back = BackLogs(*ends, self._clusters.translator, self._clock, TIMEOUT_MS)
            self._both_directions[other.name] = BothDirectionsLogs(*ends, ahead, back, self._flow)
        return self._both_directions[other.name]

    def _translated_one(
        self,
        group: str,
        target: TopicPartition,
        committed: OffsetAndMetadata,
        source: TopicPartition,
        logs: PartitionLogs,
    ) -> BackPosition:
        position = BackPosition(
            group=group,
            target=target,
            source=source,
            target_offset=committed.offset,
            source_offset=None,
            translation=UNKNOWN,
            detail=logs.problem or self._also_fed_because(source, target),
            metadata=committed.metadata,
            active_on_target=self._clusters.of_target.is_active(group),
        )
        if position.detail or logs.offsets is None:
            return position
        if isinstance(logs, BothDirectionsPartition):
            return _lowest(position, logs)
        try:
            found = logs.offsets.translate_back(committed.offset)
            if found.offset is None:
                return replace(position, detail=logs.offsets.reason)
            again = logs.offsets.index.read_again(committed.offset, found.offset)
            passed = logs.offsets.passed_back(committed.offset, found)
            read_again = CopyCount(again, is_exact=True)
            position = replace(position, translation=found, read_again=read_again, passed=passed)
            if found.place is Place.RECORD:
                return position
            unmatched = logs.offsets.unmatched(committed.offset)
        except KafkaError as error:
            return replace(position, translation=UNKNOWN, detail=str(error))
        return replace(position, in_front=unmatched.in_front, behind=unmatched.behind)

    def _also_fed_because(self, source: TopicPartition, target: TopicPartition) -> str:
        other = self._fed_by(source.topic, target.topic)
        flows = frozenset((self._flow,) if other is None else (self._flow, other.name))
        return self._also_fed(flows, source.topic, target.topic)

    def _writable(self, groups: Iterable[str]) -> frozenset[str]:
        """Return the groups whose offsets this client may commit on the source, as far as that is known."""
        names = sorted(groups)
        try:
            found = self._clusters.source.group_operations(names, partial=True, timeout_ms=TIMEOUT_MS)
        except KafkaError:  # the commit fails with the reason
            return frozenset(names)
        return frozenset(name for name in names if name not in found or AclOperation.READ in found[name])

    def _decided(
        self, position: BackPosition, at_source: Committed | KafkaError, writable: frozenset[str]
    ) -> BackPosition:
        error = at_source if isinstance(at_source, KafkaError) else at_source.failed.get(position.source)
        if isinstance(at_source, KafkaError) or error is not None:
            return _after(position, error, "on the source: ")
        committed = at_source.get(position.source)
        position = replace(position, source_offset=None if committed is None else committed.offset)
        reason = back_reason(
            position.translation.offset,
            position.source_offset,
            active=self._clusters.of_source.is_active(position.group),
            may_write=position.group in writable,
        )
        return replace(position, reason=reason)

    # --- what is written

    def _committed(self, due: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> dict[BackKey, KafkaError]:
        """Commit these offsets; return why some could not be, by group and partition."""
        parts = {
            (group, number): part
            for group, offsets in due.items()
            for number, part in enumerate(in_parts(group, offsets))
        }
        work: dict[int, list[tuple[str, int]]] = {}
        for group, number in parts:
            work.setdefault(self._clusters.of_source.node_of(group), []).append((group, number))

        def begin(key: tuple[str, int]) -> Future[Outcomes[TopicPartition, None]]:
            return self._clusters.source.commit_group_offsets_async(key[0], parts[key], _CALL_MS)

        refused: dict[BackKey, KafkaError] = {}
        for key, found in self._commits.run(work, begin).items():
            failed = dict.fromkeys(parts[key], found) if isinstance(found, KafkaError) else found.failed
            refused.update({(key[0], source): error for source, error in failed.items()})
        return refused

    def _resume(self, positions: Iterable[BackPosition]) -> list[str]:
        """Take these offsets of the target for the flow's own; return lines about what could not be stored.

        Without its group topic the flow has brought no group over yet, and takes none of them for its own.
        """
        stored, topic = StoredIntents(self._rules.source_group), self._topic.tp.topic
        try:
            if topic not in self._clusters.target.describe_topics([topic], timeout_ms=TIMEOUT_MS):
                return []
            for record in self._topic.records(Timer(self._clock, TIMEOUT_MS)):
                stored.take(record.key, record.value, record.offset)
        except KafkaError as error:
            return [f"the flow does not continue the groups on the target: {error}; resume them with --resume"]
        resumed: dict[str, dict[str, dict[int, int]]] = {}
        for one in positions:
            topics = resumed.setdefault(one.group, stored.resumed_of(one.group))
            topics.setdefault(one.target.topic, {})[one.target.partition] = one.target_offset
        records = {
            group: KeyValue(encode_key(ResumeKey(group), self._rules.target_group), encode_resumed(topics))
            for group, topics in resumed.items()
        }
        return [
            f"{group}: the flow does not continue it on the target: {error}; resume it with --resume"
            for group, error in self._topic.write(records, TIMEOUT_MS).items()
        ]


def _lowest(position: BackPosition, logs: BothDirectionsPartition) -> BackPosition:
    """Return the position that skips nothing, where the source has the records in another order."""
    try:
        found, _ = logs.translate(position.target_offset)
        if found.offset is None:
            return replace(position, detail=logs.unknown_because)
        again = logs.read_again(position.target_offset, found.offset)
        passed = logs.passed(position.target_offset, found)
        return replace(position, translation=found, read_again=again, passed=passed)
    except KafkaError as error:
        return replace(position, detail=str(error))


def _errors(found: Mapping[str, Committed | KafkaError]) -> Iterable[tuple[str, KafkaError]]:
    for group, of_group in found.items():
        if isinstance(of_group, KafkaError):
            yield group, of_group
        else:
            yield from ((group, error) for error in of_group.failed.values())


def _after(position: BackPosition, error: KafkaError | None, side: str = "") -> BackPosition:
    if error is not None:
        return replace(position, reason=BackReason.of(reason_of(error)), detail=f"{side}{error}")
    return replace(position, source_offset=position.translation.offset, written=True)
