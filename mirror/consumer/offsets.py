"""Finding positions, and finding out that one is no longer in the log (``OffsetsRequestManager``, KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mirror.cluster.calls import Call, Calls, ClusterView, Failures, LeaderCall, check, left_out
from mirror.cluster.events import as_kafka_error
from mirror.cluster.metadata import Metadata
from mirror.cluster.offset_calls import GroupOffsets, ListOffsets, by_topic
from mirror.cluster.requests import IDLE, Poll
from mirror.cluster.types import OffsetAndMetadata, OffsetResult, TopicPartition
from mirror.consumer.positions import Position, Positions
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ClientClosed, KafkaError, LogTruncated, NoPosition
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


class EpochEnds(LeaderCall[dict[TopicPartition, EpochEnd]]):
    """Where each partition's given leader epoch ended, as its present leader sees it."""

    api = Api.OFFSET_FOR_LEADER_EPOCH

    def __init__(self, epochs: Mapping[TopicPartition, int], deadline_ms: int, timeout_ms: int) -> None:
        super().__init__("validating positions", epochs.keys(), deadline_ms, timeout_ms)
        self._epochs = dict(epochs)
        self._found: dict[TopicPartition, EpochEnd] = {}

    def request(
        self, keys: Collection[TopicPartition], view: ClusterView, timeout_ms: int
    ) -> OffsetForLeaderEpochRequest:
        """With the leader epoch we believe in, so that a stale leader says so."""
        del timeout_ms
        topics = []
        for topic, partitions in by_topic(keys).items():
            asked = [self._partition(TopicPartition(topic, p), view) for p in partitions]
            topics.append(EpochTopic(topic, tuple(asked)))
        return OffsetForLeaderEpochRequest(tuple(topics))

    def _partition(self, tp: TopicPartition, view: ClusterView) -> EpochPartition:
        leader = view.metadata.leader(tp)
        return EpochPartition(tp.partition, self._epochs[tp], leader.epoch if leader else -1)

    def accept(self, keys: Collection[TopicPartition], response: OffsetForLeaderEpochResponse) -> Failures:
        """Per partition."""
        failures: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for told in topic.partitions:
                tp = TopicPartition(topic.topic, told.partition)
                error = check(told.error_code, f"validating the position of {tp}", needs="Describe")
                if error is not None:
                    failures[tp] = error
                else:
                    self._found[tp] = told
        return failures | left_out(keys, self._found, failures)

    def result(self) -> dict[TopicPartition, EpochEnd]:
        """By partition."""
        return self._found


@dataclass(slots=True)
class _OffsetLookup:
    """A call under way, for whom (tp -> generation), and what becomes of its result."""

    call: Call[Any, Any]
    use: Callable[[TopicPartition, Position, Any], None]
    generations: dict[TopicPartition, int]


class Offsets:
    """Gives every partition a position: the committed one, else by ``auto.offset.reset``.

    Validates it anew after each leader change. Works through calls without a deadline of their own: the application's
    calls have theirs.
    """

    def __init__(self, settings: ConsumerSettings, metadata: Metadata, positions: Positions, calls: Calls) -> None:
        self._settings = settings
        self._metadata = metadata
        self._positions = positions
        self._calls = calls
        self._under_way: list[_OffsetLookup] = []

    def close(self) -> None:
        """No position is left: end the look-ups under way."""
        self._settle()

    def last_error(self, tp: TopicPartition) -> KafkaError | None:
        """Why the call that finds its position, if one is under way, has found none so far."""
        errors = (look_up.call.last_error for look_up in self._under_way if tp in look_up.generations)
        return next((as_kafka_error(error) for error in errors if error is not None), None)

    def poll(self, now: int) -> Poll:
        """Begin the look-ups that are due; their requests come from :class:`Calls`."""
        del now
        self._settle()
        uncommitted: list[TopicPartition] = []
        resets: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        suspects: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, position in self._positions:
            if position.looking_up or position.stopped:
                continue
            if position.reset is not None:
                resets[tp.topic][tp] = position.reset
            elif position.fetch is None:
                if position.asked or not position.paused:  # who paused it may be about to seek
                    uncommitted.append(tp)
            elif self._must_validate(tp, position):
                suspects[tp.topic][tp] = position.epoch if position.epoch is not None else -1
        if uncommitted:
            self._look_up_committed(uncommitted)
        # A call per topic: a topic that may not be read must not hold up the others.
        for times in resets.values():
            self._look_up_times(times)
        for epochs in suspects.values():
            self._validate(epochs)
        return IDLE

    def _must_validate(self, tp: TopicPartition, position: Position) -> bool:
        """Not in another topic of this name: its epochs say nothing of the position."""
        leader, topic_id = self._metadata.leader(tp), self._metadata.topic_id(tp.topic)
        return leader is not None and position.must_validate(leader) and not position.is_outside(topic_id)

    def _start(
        self, tps: Collection[TopicPartition], call: Call[T, Any], use: Callable[[TopicPartition, Position, T], None]
    ) -> None:
        """Run ``call``; :meth:`_settle` has ``use`` take its result for each of ``tps`` not decided anew meanwhile."""
        generations: dict[TopicPartition, int] = {}
        for tp in tps:
            position = self._positions.get(tp)
            if position is not None:
                position.looking_up = True
                generations[tp] = position.generation
        self._under_way.append(_OffsetLookup(call, use, generations))
        self._calls.add(call)

    def _settle(self) -> None:
        """Use what has been found, and end the look-ups that nobody wants any more."""
        under_way, self._under_way = self._under_way, []
        for look_up in under_way:
            wanted = {tp: p for tp, g in look_up.generations.items() if (p := self._positions.get(tp, g)) is not None}
            if look_up.call.future.done():
                self._use(look_up, wanted)
            elif wanted:
                self._under_way.append(look_up)
            else:
                look_up.call.fail(ClientClosed("nobody waits for this look-up any more"))

    def _use(self, look_up: _OffsetLookup, wanted: Mapping[TopicPartition, Position]) -> None:
        error = look_up.call.future.exception()
        for tp, position in wanted.items():
            position.looking_up = False
            if error is None:
                look_up.use(tp, position, look_up.call.future.result())
            else:
                self._positions.stop(tp, as_kafka_error(error))

    def _look_up_committed(self, tps: list[TopicPartition]) -> None:
        if self._settings.group_id:
            call = GroupOffsets(self._settings.group_id, tps, FOREVER_MS, FOREVER_MS)
            self._start(tps, call, self._use_committed)
            return
        for tp in tps:
            self._begin_by_rule(tp)

    def _use_committed(
        self, tp: TopicPartition, position: Position, found: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        committed = found.get(tp)
        if committed is None:
            self._begin_by_rule(tp)
            return
        position.fetch = position.consumed = committed.offset
        position.epoch = committed.leader_epoch

    def _begin_by_rule(self, tp: TopicPartition) -> None:
        if self._settings.offset_reset is not None:
            self._positions.reset(tp, self._settings.offset_reset)
        else:
            self._positions.stop(tp, NoPosition(f"{tp} has no position: seek, or set auto.offset.reset"))

    def _look_up_times(self, times: Mapping[TopicPartition, int]) -> None:
        committed = self._settings.read_committed
        call = ListOffsets(times, read_committed=committed, deadline_ms=FOREVER_MS, timeout_ms=FOREVER_MS)
        self._start(times.keys(), call, self._use_time)

    @staticmethod
    def _use_time(tp: TopicPartition, position: Position, found: Mapping[TopicPartition, OffsetResult]) -> None:
        result = found[tp]
        position.reset = None
        position.fetch = position.consumed = result.offset
        position.epoch = result.leader_epoch if result.leader_epoch >= 0 else None
        position.validated = result.leader_epoch

    def _validate(self, epochs: Mapping[TopicPartition, int]) -> None:
        leaders = {tp: self._metadata.leader(tp) for tp in epochs}

        def use(tp: TopicPartition, position: Position, found: Mapping[TopicPartition, EpochEnd]) -> None:
            end = found[tp]
            unknown = end.end_offset < 0 or end.leader_epoch < 0
            if unknown and not position.by_leader:  # a log of a format before version 2 has no epochs at all
                text = f"{tp}: leader epoch {position.epoch} is not in its log any more"
                self._positions.stop(tp, LogTruncated(text))
            elif not unknown and position.fetch is not None and end.end_offset < position.fetch:
                text = f"{tp}: its log was truncated at offset {end.end_offset}, before the position {position.fetch}"
                self._positions.stop(tp, LogTruncated(text, end.end_offset))
            else:
                leader = leaders[tp]
                position.validated = leader.epoch if leader is not None else position.validated

        self._start(epochs.keys(), EpochEnds(epochs, FOREVER_MS, FOREVER_MS), use)
