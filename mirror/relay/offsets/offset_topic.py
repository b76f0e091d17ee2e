"""The offset topic: a compacted topic on the target with the offset index of a flow's partitions."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from mirror.client import EARLIEST, Admin, TopicPartition
from mirror.closing import Closing
from mirror.errors import KafkaError
from mirror.relay.offsets.epoch_ends import EpochEndCalls, known
from mirror.relay.offsets.segments import (
    EpochEnds,
    Segment,
    SegmentKey,
    encode,
    encode_key,
    key_of,
    parse,
    parse_key,
    standing,
    tidied,
)
from mirror.relay.progress.flow_topic import FlowTopic, FlowTopicWriter, KeyValue, offset_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decode import Record

_log: Final = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 5_000
_TIDIED_EVERY: Final = 64
"""After one of so many writes, at random, what its partitions' segments lack is written, and they are made fewer.

A task may be too short to count them, and each time reads the whole topic."""


class OffsetTopic(Closing):
    """A flow's offset topic. It may be used by several threads: each call opens and closes its own clients."""

    def __init__(self, target_options: Mapping[str, object], flow: str, *, writes_often: bool = False) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError.

        If it ``writes_often``, its producer stays open until :meth:`close`, and one thread at a time may write.
        """
        self._topic: Final = FlowTopic(target_options, offset_topic_of(flow))
        self._writer: Final = FlowTopicWriter(self._topic) if writes_often else None

    def close(self) -> None:
        """Close what stays open."""
        if self._writer is not None:
            self._writer.close()

    def read(self, tps: Collection[TopicPartition], timeout_ms: int) -> dict[TopicPartition, list[Segment]]:
        """Return the segments of these target partitions, within ``timeout_ms``. Raises KafkaError.

        If there is no offset topic, there are none. What cannot be parsed is left out.
        """
        wanted = frozenset(tps)
        found: dict[SegmentKey, bytes | None] = {}
        for record in self._topic.records(Timer(SystemClock(), timeout_ms)):
            key = parse_key(record.key)
            if key is not None and key.tp in wanted:
                found[key] = record.value
        segments: dict[TopicPartition, list[Segment]] = {tp: [] for tp in wanted}
        for key, segment in _parsed(found):
            segments[key.tp].append(segment)
        return segments

    def write(
        self, segments: Mapping[SegmentKey, Segment] | Mapping[SegmentKey, None], timeout_ms: int
    ) -> dict[SegmentKey, KafkaError]:
        """Write these segments; None deletes one. Return those that may *not* have been written; never raises."""
        records = {
            key: KeyValue(encode_key(key), None if segment is None else encode(segment))
            for key, segment in segments.items()
        }
        return (self._writer or self._topic).write(records, timeout_ms)


class FollowedOffsetTopic:
    """Reads a flow's offset topic again and again: all of it once, and then what was appended since.

    It keeps the records of all partitions, as they are stored. Its calls wait for the target; use it in one thread.
    """

    def __init__(self, target_options: Mapping[str, object], flow: str) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._followed: Final = FollowedTopic(FlowTopic(target_options, offset_topic_of(flow)))
        self._values: Final[dict[TopicPartition, dict[SegmentKey, bytes]]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._followed.close()

    def read(self, tps: Collection[TopicPartition], timeout_ms: int) -> dict[TopicPartition, list[Segment]]:
        """Do what :meth:`OffsetTopic.read` does; ``timeout_ms`` limits the time in which nothing arrives."""
        self._followed.follow(SystemClock(), timeout_ms, clear=self._values.clear, take=self._take)
        return {tp: [segment for _, segment in _parsed(self._values.get(tp, {}))] for tp in tps}

    def _take(self, record: Record) -> None:
        key = parse_key(record.key)
        if key is not None and record.value is not None:
            self._values.setdefault(key.tp, {})[key] = bytes(record.value)
        elif key is not None:
            self._values.get(key.tp, {}).pop(key, None)


def _parsed(values: Mapping[SegmentKey, bytes | None]) -> Iterator[tuple[SegmentKey, Segment]]:
    for key, value in values.items():
        segment = parse(value)
        if segment is not None and key_of(key.tp, segment) == key:
            yield key, segment


Complete = Callable[[Mapping[TopicPartition, TopicPartition]], int]
"""Writes what the index lacks of these source partitions, whose values are their target partitions."""


# Invariant: The index is written lazily: a segment that was not written is found in both logs, from the beginning of
#   the copy on.
# Test: tests/relay/offsets/
#   test_lost_logs_on_fakes.py::test_index_begins_with_the_copy_although_its_first_segments_were_not_written
class OffsetKeeper:
    """Writes the segments of a task's copies, and keeps them few and complete, in a thread that may wait."""

    def __init__(
        self,
        source: Admin,
        target: Admin,
        topic: OffsetTopic,
        rng: random.Random,
        complete: Complete,
        *,
        often: int = 1,
    ) -> None:
        """``often``: how many writes there are in the time of one, so that they are tidied as seldom."""
        self._often: Final = often
        self._source: Final = source
        self._target: Final = target
        self._rng: Final = rng
        self._topic: Final = topic
        self._complete: Final = complete

    def write(self, segments: Mapping[SegmentKey, Segment], sources: Mapping[TopicPartition, TopicPartition]) -> bool:
        """Write ``segments``, and sometimes tidy those of their partitions; never raises. Return whether it did.

        Best effort: what is not written is found in the logs. ``sources`` are by target partition.
        """
        errors = self._topic.write(segments, _TIMEOUT_MS)
        if errors:
            first = next(iter(errors.values()))
            _log.info("%d segments could not be written to the offset topic: %s", len(errors), first)
            return False
        if segments and not self._rng.randrange(_TIDIED_EVERY * self._often):
            newest = {key.tp: segment for key, segment in segments.items()}
            self._complete_index({sources[tp]: tp for tp in newest})
            self._tidy(sources, newest)
        return True

    def _complete_index(self, partitions: Mapping[TopicPartition, TopicPartition]) -> None:
        try:
            count = self._complete(partitions)
        except Exception as error:  # noqa: BLE001 - of a transform, too: no copy depends on it
            _log.info("the offset index was not completed: %s", error)
        else:
            if count:
                _log.info("%d segments that were missing were written to the offset topic", count)

    def _tidy(self, sources: Mapping[TopicPartition, TopicPartition], newest: Mapping[TopicPartition, Segment]) -> None:
        sources = {tp: sources[tp] for tp in newest}
        try:
            starts = self._source.list_offsets(
                dict.fromkeys(sources.values(), EARLIEST), partial=True, timeout_ms=_TIMEOUT_MS
            )
            stored = self._topic.read(sources.keys(), _TIMEOUT_MS)
            # Those of an older series are void: the copy has started over. A newer one is that of a later copy.
            counted = {tp: [one for one in stored[tp] if one.end.series == newest[tp].end.series] for tp in sources}
            ends = self._epoch_ends(sources, counted)
        except KafkaError as error:
            _log.info("the offset topic was not tidied: %s", error)
            return
        merged: dict[SegmentKey, Segment] = {}
        deletions: dict[SegmentKey, None] = {}
        for tp, source in sources.items():
            last = newest[tp].end
            deletions.update((key_of(tp, one), None) for one in stored[tp] if one.end.series < last.series)
            if source not in starts:
                continue
            present = standing(
                counted[tp], last, ends[tp], target_topic_id=last.target.topic_id, exactly_once=last.exactly_once
            )
            written, deleted = tidied(counted[tp], present, source_start=starts[source].offset)
            deletions.update((key_of(tp, one), None) for one in deleted)
            merged.update((key_of(tp, one), one) for one in written)
        # What the others say is lost if they are deleted, and the merged ones cannot be written.
        if not self._topic.write(merged, _TIMEOUT_MS):
            self._topic.write(deletions, _TIMEOUT_MS)

    def _epoch_ends(
        self, sources: Mapping[TopicPartition, TopicPartition], segments: Mapping[TopicPartition, Sequence[Segment]]
    ) -> dict[TopicPartition, EpochEnds]:
        of_source = {sources[tp]: known(one.end.leader_epoch for one in found) for tp, found in segments.items()}
        of_target = {tp: known(one.end.target.leader_epoch for one in found) for tp, found in segments.items()}
        calls = (
            EpochEndCalls(self._source, of_source, _TIMEOUT_MS),
            EpochEndCalls(self._target, of_target, _TIMEOUT_MS),
        )
        source_ends, target_ends = (call.read() for call in calls)
        return {tp: EpochEnds(source_ends[source], target_ends[tp]) for tp, source in sources.items()}
