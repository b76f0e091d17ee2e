"""Looks up positions, and validates them after a change of leader (``OffsetsRequestManager``, KIP-320). No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mirror.cluster.calls.group_offset_calls import GroupOffsets
from mirror.cluster.calls.offset_calls import ListOffsets, by_topic
from mirror.cluster.calls.routed_calls import Call, Calls, ClusterView, Failures, LeaderCall, check, left_out
from mirror.cluster.events import as_kafka_error
from mirror.cluster.metadata import Metadata
from mirror.cluster.requests import IDLE, Poll
from mirror.cluster.types import OffsetAndMetadata, OffsetResult, TopicPartition
from mirror.consumer.positions import Position, Positions
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ClientClosed, KafkaError, LogTruncated, NoPosition, UnsupportedVersion
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from mirror.wire.messages.epochs import (
    EpochEnd,
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

T = TypeVar("T")


class EpochEnds(LeaderCall[dict[TopicPartition, EpochEnd | None]]):
    """OffsetForLeaderEpoch: the end offset of a leader epoch of each partition, by its current leader.

    None if the leader does not offer that API, as other implementations of the protocol.
    """

    api = Api.OFFSET_FOR_LEADER_EPOCH

    def __init__(self, epochs: Mapping[TopicPartition, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("validating positions", epochs.keys(), deadline_ms, timeout_ms)
        self._epochs = dict(epochs)
        self._found: dict[TopicPartition, EpochEnd | None] = {}

    def request(
        self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int
    ) -> OffsetForLeaderEpochRequest:
        """Build the request with the current leader epochs, so that a stale leader refuses it."""
        del timeout_ms
        topics = []
        for topic, partitions in by_topic(keys).items():
            partitions_of_topic = [self._partition(TopicPartition(topic, p), view) for p in partitions]
            topics.append(EpochTopic(topic, tuple(partitions_of_topic)))
        return OffsetForLeaderEpochRequest(tuple(topics))

    def _partition(self, tp: TopicPartition, view: ClusterView) -> EpochPartition:
        leader = view.metadata.leader(tp)
        return EpochPartition(tp.partition, self._epochs[tp], leader.epoch if leader else -1)

    def accept_absent_api(self, keys: Collection[TopicPartition], error: UnsupportedVersion) -> bool:
        """Let positions pass that cannot be validated."""
        del error
        self._found.update(dict.fromkeys(keys))
        return True

    def accept(self, keys: Collection[TopicPartition], response: OffsetForLeaderEpochResponse) -> Failures:
        """Keep the end offsets, and return the error of each other partition."""
        failures: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition)
                error = check(partition.error_code, f"validating the position of {tp}", needs="Describe")
                if error is not None:
                    failures[tp] = error
                else:
                    self._found[tp] = partition
        return failures | left_out(keys, self._found, failures)

    def result(self) -> dict[TopicPartition, EpochEnd | None]:
        """Return the end offsets by partition."""
        return self._found


@dataclass(slots=True)
class _OffsetLookup:
    """A pending call, the generations of the positions that it is for, and the function that applies its result."""

    call: Call[Any, Any]
    apply: Callable[[TopicPartition, Position, Any], None]
    generations: dict[TopicPartition, int]


class Offsets:
    """Gives every partition a position: the committed offset, otherwise by ``auto.offset.reset``.

    Validates it again after each change of leader. The lookups have no deadline of their own: the application's calls
    that wait for them have one.
    """

    def __init__(self, settings: ConsumerSettings, metadata: Metadata, positions: Positions, calls: Calls) -> None:
        self._settings = settings
        self._metadata = metadata
        self._positions = positions
        self._calls = calls
        self._lookups: list[_OffsetLookup] = []
        self._metadata_changes = -1

    @property
    def in_progress(self) -> bool:
        """Whether a lookup has not ended."""
        return bool(self._lookups)

    def close(self) -> None:
        """All positions are unassigned: end the pending lookups."""
        self._finish()

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """The last error of the pending lookup of ``tp``, if there is one."""
        errors = (lookup.call.last_error for lookup in self._lookups if tp in lookup.generations)
        return next((as_kafka_error(error) for error in errors if error is not None), None)

    def poll(self, now: int) -> Poll:
        """Start the lookups that are due; :class:`Calls` sends their requests."""
        del now
        self._finish()
        uncommitted: list[TopicPartition] = []
        resets: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        unvalidated: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        for tp in self._changed():
            position = self._positions.get(tp)
            if position is None or position.lookup_pending or position.stopped:
                continue
            if position.reset is not None:
                resets[tp.topic][tp] = position.reset
            elif position.fetch is None:
                if position.awaited or not position.paused:  # a paused partition may be about to be sought
                    uncommitted.append(tp)
            elif self._needs_validation(tp, position):
                unvalidated[tp.topic][tp] = position.epoch if position.epoch is not None else -1
        if uncommitted:
            self._lookup_committed(uncommitted)
        # One call for each topic: a topic without permission must not delay the others.
        for times in resets.values():
            self._lookup_times(times)
        for epochs in unvalidated.values():
            self._validate(epochs)
        return IDLE

    def _changed(self) -> Collection[TopicPartition]:
        """Return the partitions whose positions or metadata changed since the last call."""
        changed, self._positions.changed_for_lookups = self._positions.changed_for_lookups, set()
        if self._metadata.changes != self._metadata_changes:
            changed.update(self._positions.of_topics(self._metadata.changed_since(self._metadata_changes)))
            self._metadata_changes = self._metadata.changes
        return changed

    def _needs_validation(self, tp: TopicPartition, position: Position) -> bool:
        """Return whether to validate: not against a recreated topic, whose epochs say nothing about the position."""
        leader, topic_id = self._metadata.leader(tp), self._metadata.topic_id(tp.topic)
        return leader is not None and position.needs_validation(leader) and not position.is_of_other_topic(topic_id)

    def _start(
        self, tps: Collection[TopicPartition], call: Call[T, Any], apply: Callable[[TopicPartition, Position, T], None]
    ) -> None:
        """Run ``call``; :meth:`_finish` applies its result to each of ``tps`` whose generation is still the same."""
        generations: dict[TopicPartition, int] = {}
        for tp in tps:
            position = self._positions.get(tp)
            if position is not None:
                position.lookup_pending = True
                generations[tp] = position.generation
        self._lookups.append(_OffsetLookup(call, apply, generations))
        self._calls.add(call)

    def _finish(self) -> None:
        """Apply the results of finished lookups, and end those that no position waits for."""
        pending, self._lookups = self._lookups, []
        for lookup in pending:
            wanted = {tp: p for tp, g in lookup.generations.items() if (p := self._positions.get(tp, g)) is not None}
            if lookup.call.future.done():
                self._apply(lookup, wanted)
            elif wanted:
                self._lookups.append(lookup)
            else:
                lookup.call.fail(ClientClosed("no position waits for this lookup any more"))

    def _apply(self, lookup: _OffsetLookup, wanted: Mapping[TopicPartition, Position]) -> None:
        error = lookup.call.future.exception()
        for tp, position in wanted.items():
            position.lookup_pending = False
            self._positions.mark_changed(tp)
            if error is None:
                lookup.apply(tp, position, lookup.call.future.result())
            else:
                self._positions.stop(tp, as_kafka_error(error))

    def _lookup_committed(self, tps: list[TopicPartition]) -> None:
        if self._settings.group_id:
            call = GroupOffsets(self._settings.group_id, tps, FOREVER_MS, FOREVER_MS)
            self._start(tps, call, self._apply_committed)
            return
        for tp in tps:
            self._reset_by_policy(tp)

    def _apply_committed(
        self, tp: TopicPartition, position: Position, found: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        committed = found.get(tp)
        if committed is None:
            self._reset_by_policy(tp)
            return
        position.fetch = position.consumed = committed.offset
        position.epoch = committed.leader_epoch

    def _reset_by_policy(self, tp: TopicPartition) -> None:
        if self._settings.offset_reset is not None:
            self._positions.reset(tp, self._settings.offset_reset)
        else:
            self._positions.stop(tp, NoPosition(f"{tp} has no position: seek, or set auto.offset.reset"))

    def _lookup_times(self, times: Mapping[TopicPartition, int]) -> None:
        committed = self._settings.read_committed
        call = ListOffsets(times, read_committed=committed, deadline_ms=FOREVER_MS, timeout_ms=FOREVER_MS)
        self._start(times.keys(), call, self._apply_time)

    @staticmethod
    def _apply_time(tp: TopicPartition, position: Position, found: Mapping[TopicPartition, OffsetResult]) -> None:
        result = found[tp]
        position.reset = None
        position.fetch = position.consumed = result.offset
        position.epoch = result.leader_epoch if result.leader_epoch >= 0 else None
        position.validated_epoch = result.leader_epoch

    # Invariant: A log that was cut back below a position is reported, never skipped.
    # Test: tests/consumer/test_positions.py::test_a_log_cut_back_below_the_position_is_reported_never_skipped
    def _validate(self, epochs: Mapping[TopicPartition, int]) -> None:
        leaders = {tp: self._metadata.leader(tp) for tp in epochs}

        def apply(tp: TopicPartition, position: Position, found: Mapping[TopicPartition, EpochEnd | None]) -> None:
            end = found[tp]
            unknown = end is not None and (end.end_offset < 0 or end.leader_epoch < 0)
            if unknown and not position.epoch_from_leader:  # a log in a format before version 2 has no epochs
                why = "it was truncated, or the topic was deleted and made again"
                text = f"{tp}: leader epoch {position.epoch} is not in its log any more: {why}"
                self._positions.stop(tp, LogTruncated(text))
            elif end is not None and not unknown and position.fetch is not None and end.end_offset < position.fetch:
                text = f"{tp}: its log was truncated at offset {end.end_offset}, before the position {position.fetch}"
                self._positions.stop(tp, LogTruncated(text, end.end_offset))
            elif (leader := leaders[tp]) is not None:
                position.found_at(leader)

        self._start(epochs.keys(), EpochEnds(epochs, FOREVER_MS, FOREVER_MS), apply)
