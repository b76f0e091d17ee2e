"""The progress topic: a compacted topic with the progress of each target partition.

It outlives ``offsets.retention.minutes``: brokers forget the offsets of a group without members. So a copy also writes
a record here from time to time, with its progress and the end of the target partition at that moment. A forgotten
offset is restored from that record only if the target still has that end: a record behind it was copied later, and
nothing tells up to which source offset.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from mirror.client import EARLIEST, LATEST, Admin, Consumer, Fetched, Producer, RecordMetadata, TopicPartition
from mirror.cluster.settings import ClusterSettings
from mirror.consumer.fetched import without_aborted
from mirror.errors import KafkaError, KafkaTimeout, OffsetOutOfRange
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.log_reading import read_log
from mirror.relay.progress.target_log import TargetMark, holds_append, mark_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decode import Record

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_LOG_PARTITION: Final = 0
_FETCH_BYTES: Final = 1024 * 1024
_MAX_OFFSETS_SEARCHED: Final = 100_000
"""How many offsets behind a mark's end are searched for the append of the mark."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """A record of the progress topic."""

    progress: Progress
    """As it was committed."""
    target_end: int
    """The target's offset after the last record and transaction marker of the copy up to ``progress``."""


def topic_of(flow: str) -> str:
    """Return the progress topic of the flow, which is on the target; it is compacted and has one partition."""
    return f"mirror-progress.{flow}.internal"


class ProgressTopic:
    """A flow's progress topic. It may be used by several threads: each call opens and closes its own clients.

    These share the target's network thread with the other clients of the process.
    """

    def __init__(self, target_options: Mapping[str, object], flow: str) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        cluster_keys = ClusterSettings.keys()
        self._options = {key: value for key, value in target_options.items() if key in cluster_keys}
        self._settings = ClusterSettings.parse(self._options)
        self._log_tp = TopicPartition(topic_of(flow), _LOG_PARTITION)

    # --- records

    def read(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ProgressRecord]:
        """Return the latest record of each of these target partitions that has one. Raises KafkaError.

        Takes at most ``timeout_ms``, by default ``default.api.timeout.ms``. If there is no progress topic, the result
        is empty. Records that cannot be parsed are skipped with a warning.
        """
        wanted = frozenset(tps)
        timer = Timer(SystemClock(), self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        if not wanted:
            return {}
        with Admin(self._options) as admin, self._consumer() as consumer:
            if self._log_tp.topic not in admin.describe_topics([self._log_tp.topic], timeout_ms=timer.remaining_ms()):
                return {}
            start, end = self._bounds(admin, self._log_tp, timer)
            fetches = read_log(consumer, self._log_tp, start, end, timer)
            return self._latest((record for fetched in fetches for record in fetched.records()), wanted)

    def _latest(
        self, records: Iterator[Record], wanted: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ProgressRecord]:
        found: dict[TopicPartition, ProgressRecord] = {}
        invalid: list[str] = []
        for record in records:
            try:
                tp = _parse_key(record.key)
                if tp not in wanted:
                    continue
                if record.value is None:
                    found.pop(tp, None)
                else:
                    found[tp] = _parse_value(record.value)
            except ValueError as error:
                # An older record of the partition remains valid: it is compared with the target's log anyway.
                invalid.append(f"offset {record.offset}: {error}")
        if invalid:
            _log.warning(
                "%s: %d records are not understood and passed over, the first at %s; another program writes to this"
                " topic, or a newer version of this one did",
                self._log_tp.topic,
                len(invalid),
                invalid[0],
            )
        return found

    def write(
        self, records: Mapping[TopicPartition, ProgressRecord], timeout_ms: int
    ) -> dict[TopicPartition, KafkaError]:
        """Write these records within ``timeout_ms``. Return those that may *not* have been written; never raises.

        Best effort: without its record, forgotten progress can only be resolved by hand.
        """
        if not records:
            return {}
        timer = Timer(SystemClock(), timeout_ms)
        shortest_ms = self._settings.request_timeout_ms + self._settings.retry_backoff_ms
        options = {"max.block.ms": timeout_ms, "delivery.timeout.ms": max(timeout_ms, shortest_ms)}
        errors: dict[TopicPartition, KafkaError] = {}
        try:
            producer = Producer({**self._options, **options})
        except KafkaError as error:
            return dict.fromkeys(records, error)
        try:
            sent = self._send(producer, records, errors)
            wait(sent.values(), timeout=timer.remaining_ms() / 1000)
            for tp, future in sent.items():
                if not future.done():
                    errors[tp] = KafkaTimeout(f"{self._log_tp.topic} did not take a note within {timeout_ms} ms")
                elif isinstance(failure := future.exception(), KafkaError):
                    errors[tp] = failure
        finally:
            producer.close(timeout_ms=0)
        return errors

    def _send(
        self,
        producer: Producer,
        records: Mapping[TopicPartition, ProgressRecord],
        errors: dict[TopicPartition, KafkaError],
    ) -> dict[TopicPartition, Future[RecordMetadata]]:
        sent: dict[TopicPartition, Future[RecordMetadata]] = {}
        for tp, record in records.items():
            try:
                sent[tp] = producer.send(*self._log_tp, key=_key(tp), value=_value(record))
            except KafkaError as error:
                # All records go to the same partition: after one timeout the others need not wait, too.
                errors.update(dict.fromkeys(records.keys() - sent.keys(), error))
                break
        return sent

    # --- the target's log

    def is_current(self, tp: TopicPartition, record: ProgressRecord, timeout_ms: int) -> bool:
        """Whether nothing was copied into ``tp`` since ``record`` was written; see :meth:`holds_no_records`."""
        return self.holds_no_records(tp, record.target_end, timeout_ms)

    def holds_no_records(self, tp: TopicPartition, offset: int, timeout_ms: int) -> bool:
        """Whether ``tp`` holds no committed record from ``offset`` on: only markers and aborted batches, or nothing.

        False also if that cannot be shown: the log begins later, ends earlier (the target lost records), or was
        compacted there. Open transactions are waited for: until then their records, and all behind them, are undecided.
        Raises KafkaError, KafkaTimeout if ``timeout_ms`` is not enough.
        """
        timer = Timer(SystemClock(), timeout_ms)
        with Admin(self._options) as admin, self._consumer() as consumer:
            start, end = self._bounds(admin, tp, timer)
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
        with Admin(self._options) as admin, self._consumer() as consumer:
            start, end = self._bounds(admin, tp, timer)
            if start >= mark.end:
                return None
            at = max(start, mark.end - 1)
            lost = min(at if cut < 0 else max(cut, start), end)
            if end < mark.end or mark.producer_id < 0:
                return lost
            try:
                found = holds_append(read_log(consumer, tp, at, min(end, at + _MAX_OFFSETS_SEARCHED), timer), mark, at)
            except OffsetOutOfRange:
                return None  # retention removed the offset after the bounds were read
            return None if found else lost

    def _bounds(self, admin: Admin, tp: TopicPartition, timer: Timer) -> tuple[int, int]:
        """Return the first offset and the end of the log, open transactions included."""
        first, end = (
            admin.list_offsets({tp: spec}, isolation="read_uncommitted", timeout_ms=timer.remaining_ms())[tp].offset
            for spec in (EARLIEST, LATEST)
        )
        return first, end

    def _consumer(self) -> Consumer:
        return Consumer(
            {**self._options, "auto.offset.reset": "none", "isolation.level": "read_committed"}
            | {"fetch.max.bytes": _FETCH_BYTES, "max.partition.fetch.bytes": _FETCH_BYTES}
        )


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


def _key(tp: TopicPartition) -> bytes:
    """Return the key as JSON: as plain text, "a-1" with partition 1 would equal "a" with partition "1-1"."""
    return json.dumps({"topic": tp.topic, "partition": tp.partition}, separators=(",", ":")).encode()


def _parse_key(key: bytes | None) -> TopicPartition:
    """Parse :func:`_key`. Raises ValueError for anything else."""
    fields = stored.parse_object(key)
    return TopicPartition(_text(fields, "topic"), _number(fields, "partition"))


def _value(record: ProgressRecord) -> bytes:
    progress = record.progress
    fields = {
        "v": _VERSION,
        "offset": progress.offset,
        "epoch": progress.leader_epoch,
        "cluster": progress.source_cluster_id,
        "topic": progress.topic_id,
        "time": progress.time_ms,
        "end": record.target_end,
        **({"target": progress.target.to_fields()} if progress.target is not None else {}),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _parse_value(value: bytes) -> ProgressRecord:
    """Parse :func:`_value`. Raises ValueError for anything else."""
    fields = stored.parse_object(value)
    if _number(fields, "v") != _VERSION:
        msg = f"version {fields['v']}, this program knows {_VERSION}"
        raise ValueError(msg)
    progress = Progress(
        offset=_number(fields, "offset"),
        leader_epoch=None if fields.get("epoch") is None else _number(fields, "epoch", _INT32_MAX),
        source_cluster_id=_text(fields, "cluster"),
        topic_id=_text(fields, "topic"),
        time_ms=_number(fields, "time"),
        target=mark_of(fields.get("target")),
    )
    return ProgressRecord(progress, _number(fields, "end"))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or stored.text(value) != value:
        msg = f"{name} is no text"
        raise ValueError(msg)
    return value


def _number(fields: Mapping[str, Any], name: str, maximum: int = _INT64_MAX) -> int:
    value = stored.number(fields.get(name), maximum)
    if value is None:
        msg = f"{name} is no number from 0 to {maximum}"
        raise ValueError(msg)
    return value
