"""Reads the logs of one partition that are to be compared, and compares them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from mirror.client import Admin, Consumer, OffsetAndMetadata, TopicPartition
from mirror.relay.batches.appended import digest_of
from mirror.relay.progress import stored_json as stored_ids
from mirror.relay.progress.log_reading import read_long_log
from mirror.takeover.continuation import (
    Continuation,
    Facts,
    Reading,
    SourceLog,
    TargetLog,
    examine,
    settle,
    without_anchor,
)
from mirror.takeover.matching import MAX_RECORDS, Match, Unsettled, match_tail
from mirror.takeover.stored_offsets import READING
from mirror.timing import Clock
from mirror.wire.decode import Record


class LogComparison:
    """Compares partitions, one after the other. Its calls wait for the clusters; use it in one thread."""

    def __init__(
        self,
        source_options: Mapping[str, object],
        target_options: Mapping[str, object],
        target: Admin,
        clock: Clock,
        stall_ms: int,
    ) -> None:
        """The options are those of the clusters. A call fails if nothing arrives for ``stall_ms``."""
        self._committed: Final = Consumer({**source_options, **READING})
        # MirrorMaker 2 copies what no transaction has committed yet, unless it is configured otherwise.
        self._uncommitted: Final = Consumer({**source_options, **READING, "isolation.level": "read_uncommitted"})
        self._target_log: Final = Consumer({**target_options, **READING})
        self._target: Final = target
        self._clock: Final = clock
        self._stall_ms: Final = stall_ms

    def close(self) -> None:
        """Close the connections."""
        for consumer in (self._committed, self._uncommitted, self._target_log):
            consumer.close(timeout_ms=0)

    def decide(self, facts: Facts) -> Continuation:
        """Return what becomes of a partition. Raises KafkaError."""
        reading = examine(facts)
        if isinstance(reading, Continuation):
            return reading
        for anchor in reading.anchors:
            source = self._source_records(facts.source, facts.source_log, anchor.source)
            target = self._target_records(facts, anchor.target)
            first, copy = next(source, None), next(target, None)
            if first is None or copy is None or (first.offset, copy.offset) != anchor:
                continue  # one of them was removed by compaction: an earlier pair may have both
            timestamps = not facts.append_time
            if digest_of(first, timestamps=timestamps) != digest_of(copy, timestamps=timestamps):
                break  # the offset syncs are those of another log
            return settle(facts, self._matched(facts, source, target, anchored=True), anchor)
        if reading.anchors:
            reading = without_anchor(facts)
        return settle(facts, self._match(facts, reading), None)

    def _match(self, facts: Facts, reading: Reading) -> Match | Unsettled:
        source = self._source_records(facts.source, facts.source_log, reading.source_start)
        target_start = reading.target_start
        if target_start is None:
            first = next(source, None)
            if first is None:
                target_start = _target_log(facts).end  # there is nothing to compare
            else:
                target_start = self._offset_at(facts, first.timestamp_ms)
                source = chain([first], source)
        target = self._target_records(facts, target_start)
        return self._matched(facts, source, target, anchored=reading.anchored)

    def _matched(
        self, facts: Facts, source: Iterator[Record], target: Iterator[Record], *, anchored: bool
    ) -> Match | Unsettled:
        return match_tail(
            source,
            target,
            stored=-1 if facts.stored is None else facts.stored,
            anchored=anchored,
            timestamps=not facts.append_time,
            compacted=facts.compacted,
        )

    def _offset_at(self, facts: Facts, timestamp_ms: int) -> int:
        """Return the target's first offset with this time or a later one: no copy is in front of it.

        Times that the target's brokers have set may be earlier than those of producers with a fast clock. So as much
        is read as may be compared at all.
        """
        log = _target_log(facts)
        if timestamp_ms < 0:
            return log.first  # the record has no time, and a request with a negative one asks for something else
        found = self._target.list_offsets({facts.target: timestamp_ms})[facts.target].offset
        start = log.end if found < 0 else max(found, log.first)
        return min(start, max(log.first, log.end - MAX_RECORDS)) if facts.append_time else start

    def _source_records(self, tp: TopicPartition, log: SourceLog, start: int) -> Iterator[Record]:
        """Yield the committed records up to the last stable offset, and all behind it."""
        topic_id = stored_ids.topic_id(log.topic_id)
        yield from self._read(self._committed, tp, OffsetAndMetadata(start, topic_id=topic_id), log.stable_end)
        beyond = max(start, log.stable_end)
        yield from self._read(self._uncommitted, tp, OffsetAndMetadata(beyond, topic_id=topic_id), log.end)

    def _target_records(self, facts: Facts, start: int) -> Iterator[Record]:
        log = _target_log(facts)
        seek = OffsetAndMetadata(start, topic_id=stored_ids.topic_id(log.topic_id))
        yield from self._read(self._target_log, facts.target, seek, log.end)

    def _read(self, consumer: Consumer, tp: TopicPartition, start: OffsetAndMetadata, end: int) -> Iterator[Record]:
        for fetched in read_long_log(consumer, tp, start, end, self._clock, self._stall_ms):
            yield from (record for record in fetched.records() if start.offset <= record.offset < end)


def _target_log(facts: Facts) -> TargetLog:
    assert facts.target_log is not None  # noqa: S101 - otherwise there is nothing to read
    return facts.target_log
