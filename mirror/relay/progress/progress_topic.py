"""The progress topic: a compacted topic with the progress of each target partition.

It outlives ``offsets.retention.minutes``: brokers forget the offsets of a group without members. So a copy also writes
a record here from time to time, with its progress and the end of the target partition at that moment. A forgotten
offset is restored from that record only if the target still has that end: a record behind it was copied later, up to
an unknown source offset.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mirror.client import Admin, Fetched, TopicPartition
from mirror.consumer.fetched import without_aborted
from mirror.errors import KafkaError, OffsetOutOfRange
from mirror.relay.progress import anchors as anchored
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress import stored_record
from mirror.relay.progress.anchors import Anchor, AnchorKey
from mirror.relay.progress.committed import Progress, without_attempt
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, log_bounds, topic_of
from mirror.relay.progress.log_reading import read_log
from mirror.relay.progress.target_log import TargetMark, holds_append, is_committed
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decode import Record
from mirror.wire.integers import INT32_MAX

_log = logging.getLogger(__name__)

_MAX_OFFSETS_SEARCHED: Final = 100_000
"""How many offsets behind a mark's end are searched for the append of the mark."""


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """A record of the progress topic."""

    progress: Progress
    """As it was committed."""
    target_end: int
    """The target's offset after the last record and transaction marker of the copy up to ``progress``."""


class ProgressTopic:
    """A flow's progress topic. It may be used by several threads: each call opens and closes its own clients.

    These share the target's network thread with the other clients of the process.
    """

    def __init__(self, target_options: Mapping[str, object], flow: str) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._topic: Final = FlowTopic(target_options, topic_of(flow))

    # --- progress records

    def read(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ProgressRecord]:
        """Return the latest record of each of these target partitions that has one. Raises KafkaError.

        Takes at most ``timeout_ms``, by default ``default.api.timeout.ms``. If there is no progress topic, the result
        is empty. Records that cannot be parsed are skipped with a warning.
        """
        wanted = frozenset(tps)
        if not wanted:
            return {}
        return self._latest(self._topic.records(self._timer(timeout_ms)), wanted)

    def _timer(self, timeout_ms: int | None) -> Timer:
        default_ms = self._topic.settings.default_api_timeout_ms
        return Timer(SystemClock(), default_ms if timeout_ms is None else timeout_ms)

    def _latest(
        self, records: Iterable[Record], wanted: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ProgressRecord]:
        found: dict[TopicPartition, ProgressRecord] = {}
        invalid: list[int] = []
        for record in records:
            key = stored.parse_object(record.key)
            if anchored.parse_key(key) is not None:
                continue
            tp = _parse_key(key)
            if tp is not None and tp not in wanted:
                continue
            if tp is not None and record.value is None:
                found.pop(tp, None)
            elif tp is not None and (parsed := stored_record.decode(ProgressRecord, record.value)) is not None:
                found[tp] = _restorable(parsed)
            else:
                # An older record of the partition remains valid: it is compared with the target's log anyway.
                invalid.append(record.offset)
        if invalid:
            _log.warning(
                "%s: %d records are not understood and passed over, the first at offset %d; another program writes to"
                " this topic, or a newer version of this one did",
                self._topic.tp.topic,
                len(invalid),
                invalid[0],
            )
        return found

    def write(
        self,
        records: Mapping[TopicPartition, ProgressRecord],
        timeout_ms: int,
        anchors: Mapping[AnchorKey, Anchor] | None = None,
    ) -> dict[TopicPartition, KafkaError]:
        """Write these records within ``timeout_ms``. Return those that may *not* have been written; never raises.

        Best effort: without its record, forgotten progress can only be resolved by hand. ``anchors`` are written beside
        them; a missing one makes a search longer.
        """
        written: dict[TopicPartition | AnchorKey, KeyValue] = {
            tp: KeyValue(_key(tp), stored_record.encode(_restorable(record))) for tp, record in records.items()
        }
        errors = self._topic.write({**written, **_encoded(anchors or {})}, timeout_ms)
        return {tp: errors[tp] for tp in records if tp in errors}

    # --- anchors

    def read_anchors(self, tps: Collection[TopicPartition], timeout_ms: int) -> dict[TopicPartition, list[Anchor]]:
        """Return the anchors of these target partitions, within ``timeout_ms``. Raises KafkaError.

        What cannot be parsed is left out: it is no anchor that can be used.
        """
        wanted = frozenset(tps)
        found: dict[AnchorKey, Anchor | None] = {}
        for record in self._topic.records(self._timer(timeout_ms)):
            key = anchored.parse_key(stored.parse_object(record.key))
            if key is not None and key.tp in wanted:
                found[key] = stored_record.decode(Anchor, record.value)
        kept: dict[TopicPartition, list[Anchor]] = {tp: [] for tp in wanted}
        for key, anchor in found.items():
            if anchor is not None:
                kept[key.tp].append(anchor)
        return kept

    def write_anchors(self, anchors: Mapping[AnchorKey, Anchor | None], timeout_ms: int) -> dict[AnchorKey, KafkaError]:
        """Write these anchors within ``timeout_ms``; None deletes one. Return those that may *not* have been written.

        Never raises: a missing anchor makes a search longer.
        """
        return self._topic.write(_encoded(anchors), timeout_ms)

    # --- the target's log

    def holds_no_records(self, tp: TopicPartition, offset: int, timeout_ms: int) -> bool:
        """Whether ``tp`` holds no committed record from ``offset`` on: only markers and aborted batches, or nothing.

        False also if that cannot be shown: the log begins later, ends earlier (the target lost records), or was
        compacted there. Open transactions are waited for: until then their records, and all behind them, are undecided.
        Raises KafkaError, KafkaTimeout if ``timeout_ms`` is not enough.
        """
        timer = Timer(SystemClock(), timeout_ms)
        with Admin(self._topic.options) as admin, self._topic.consumer() as consumer:
            start, end = log_bounds(admin, tp, timer)
            if not start <= offset <= end:
                return False
            try:
                return _holds_no_records(read_log(consumer, tp, offset, end, timer), offset)
            except OffsetOutOfRange:
                return False  # retention or a truncation removed the offset after the bounds were read

    def truncated_at(self, tp: TopicPartition, mark: TargetMark, cut: int, timeout_ms: int) -> int | None:
        """Return the offset below the end of ``mark`` that the log of ``tp`` was truncated to; None if it was not.

        ``cut`` is where the log left the mark's leader epoch, -1 if that is not known. Records that retention has
        deleted are not missing. Raises KafkaError, KafkaTimeout if ``timeout_ms`` is not enough.
        """
        timer = Timer(SystemClock(), timeout_ms)
        # A transaction whose marker was lost, too, is open for ever: nothing behind it would be read as committed.
        with Admin(self._topic.options) as admin, self._topic.consumer("read_uncommitted") as consumer:
            start, end = log_bounds(admin, tp, timer)
            if start >= mark.end:
                return None
            at = max(start, mark.end - 1)
            lost = min(at if cut < 0 else max(cut, start), end)
            if end < mark.end or mark.producer_id < 0:
                return lost
            try:
                found = holds_append(read_log(consumer, tp, at, end, timer), mark, at, at + _MAX_OFFSETS_SEARCHED)
            except OffsetOutOfRange:
                return None  # retention removed the offset after the bounds were read
            return None if found else lost

    def is_committed(self, tp: TopicPartition, mark: TargetMark, timeout_ms: int) -> bool:
        """Whether the log of ``tp``, which extends to the end of ``mark``, has the marker of the transaction before it.

        Raises KafkaError, KafkaTimeout if ``timeout_ms`` is not enough.
        """
        if mark.producer_id < 0 or mark.end == 0:
            return True
        timer = Timer(SystemClock(), timeout_ms)
        with Admin(self._topic.options) as admin, self._topic.consumer("read_uncommitted") as consumer:
            _, end = log_bounds(admin, tp, timer)
            try:
                fetched = read_log(consumer, tp, mark.end - 1, end, timer)
                return is_committed(fetched, mark, mark.end + _MAX_OFFSETS_SEARCHED)
            except OffsetOutOfRange:
                return True  # retention has deleted the transaction


def _holds_no_records(fetches: Iterator[Fetched], start: int) -> bool:
    """Whether the batches from ``start`` on are markers and aborted ones, without a hole left by compaction."""
    expected = start
    for fetched in fetches:
        for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
            if batch.next_offset <= start:
                continue
            if batch.base_offset > expected or not (batch.is_control or aborted):
                return False
            expected = batch.next_offset
    return True


def _encoded(anchors: Mapping[AnchorKey, Anchor | None] | Mapping[AnchorKey, Anchor]) -> dict[AnchorKey, KeyValue]:
    return {
        key: KeyValue(anchored.encode_key(key), None if anchor is None else stored_record.encode(anchor))
        for key, anchor in anchors.items()
    }


def _key(tp: TopicPartition) -> bytes:
    """Return the key as JSON: as plain text, "a-1" with partition 1 would equal "a" with partition "1-1"."""
    return json.dumps({"topic": tp.topic, "partition": tp.partition}, separators=(",", ":")).encode()


def _parse_key(fields: Mapping[str, Any]) -> TopicPartition | None:
    """Parse :func:`_key`, as a JSON object; None for anything else."""
    topic, partition = stored.text(fields.get("topic")), stored.number(fields.get("partition"), INT32_MAX)
    return TopicPartition(topic, partition) if topic and partition is not None else None


def _restorable(record: ProgressRecord) -> ProgressRecord:
    return replace(record, progress=without_attempt(record.progress))
