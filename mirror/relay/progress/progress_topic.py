"""The compacted topic that outlives ``offsets.retention.minutes``: per target partition, how far it was copied.

Brokers forget the offsets of a group without members. So a copy also notes here, now and then, its progress and where
the target partition ended with it. A forgotten offset is restored from such a note, but only where the target still
ends so: a record behind that end was copied after the note was made, and nobody knows up to where in the source.
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
from mirror.relay.progress.target_log import TargetMark, holds_append, mark_of
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer
from mirror.wire.decode import Record

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_LOG_PARTITION: Final = 0
_FETCH_BYTES: Final = 1024 * 1024
_NEAR: Final = 100_000
"""So many offsets behind a mark's end are looked through for the append that it speaks of."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """A note: ``progress`` as it was committed, and ``target_end``, the target's offset after all that it stands for.

    That is the offset after the last record and transaction marker of the copy.
    """

    progress: Progress
    target_end: int


def topic_of(flow: str) -> str:
    """The topic on the target that keeps the flow's notes; one partition, compacted."""
    return f"mirror-progress.{flow}.internal"


class ProgressTopic:
    """A flow's notes on its target. Each call opens and closes its own clients; safe to use from several threads.

    It shares the target's network thread with the other clients of the process.
    """

    def __init__(self, target_options: Mapping[str, object], flow: str) -> None:
        """``target_options`` are dotted keys; those about the cluster are used. Raises ConfigError."""
        known = ClusterSettings.keys()
        self._options = {key: value for key, value in target_options.items() if key in known}
        self._settings = ClusterSettings.parse(self._options)
        self._log_tp = TopicPartition(topic_of(flow), _LOG_PARTITION)

    # --- the notes

    def read(
        self, tps: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ProgressRecord]:
        """The last note of each of these target partitions; absent where there is none, or no topic of notes.

        Takes ``timeout_ms`` at most, by default ``default.api.timeout.ms``. Notes that are not understood are passed
        over with a warning. Raises KafkaError.
        """
        wanted = frozenset(tps)
        timer = Timer(SystemClock(), self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms)
        if not wanted:
            return {}
        with Admin(self._options) as admin, self._consumer() as consumer:
            if self._log_tp.topic not in admin.describe_topics([self._log_tp.topic], timeout_ms=timer.remaining_ms()):
                return {}
            start, end = self._bounds(admin, self._log_tp, timer)
            fetched = _read(consumer, self._log_tp, start, end, timer)
            return self._latest((record for one in fetched for record in one.records()), wanted)

    def _latest(
        self, records: Iterator[Record], wanted: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ProgressRecord]:
        found: dict[TopicPartition, ProgressRecord] = {}
        strange: list[str] = []
        for record in records:
            try:
                tp = _tp(record.key)
                if tp not in wanted:
                    continue
                if record.value is None:
                    found.pop(tp, None)
                else:
                    found[tp] = _kept(record.value)
            except ValueError as error:
                # An older note of the same partition stands: whether it still holds is asked of the target anyway.
                strange.append(f"offset {record.offset}: {error}")
        if strange:
            _log.warning(
                "%s: %d records are not understood and passed over, the first at %s; another program writes to this"
                " topic, or a newer version of this one did",
                self._log_tp.topic,
                len(strange),
                strange[0],
            )
        return found

    def write(self, kept: Mapping[TopicPartition, ProgressRecord], timeout_ms: int) -> dict[TopicPartition, KafkaError]:
        """Note these, within ``timeout_ms``. Returns what may *not* have been kept, each with why; raises nothing.

        At its best effort: a note that is missing only makes a forgotten progress one that must be settled by hand.
        """
        if not kept:
            return {}
        timer = Timer(SystemClock(), timeout_ms)
        shortest_ms = self._settings.request_timeout_ms + self._settings.retry_backoff_ms
        options = {"max.block.ms": timeout_ms, "delivery.timeout.ms": max(timeout_ms, shortest_ms)}
        lost: dict[TopicPartition, KafkaError] = {}
        try:
            producer = Producer({**self._options, **options})
        except KafkaError as error:
            return dict.fromkeys(kept, error)
        try:
            sent = self._send(producer, kept, lost)
            wait(sent.values(), timeout=timer.remaining_ms() / 1000)
            for tp, future in sent.items():
                if not future.done():
                    lost[tp] = KafkaTimeout(f"{self._log_tp.topic} did not take a note within {timeout_ms} ms")
                elif isinstance(why := future.exception(), KafkaError):
                    lost[tp] = why
        finally:
            producer.close(timeout_ms=0)
        return lost

    def _send(
        self, producer: Producer, kept: Mapping[TopicPartition, ProgressRecord], lost: dict[TopicPartition, KafkaError]
    ) -> dict[TopicPartition, Future[RecordMetadata]]:
        sent: dict[TopicPartition, Future[RecordMetadata]] = {}
        for tp, one in kept.items():
            try:
                sent[tp] = producer.send(*self._log_tp, key=_key(tp), value=_value(one))
            except KafkaError as error:
                # One topic for all: who waited in vain once need not wait again for each of the others.
                lost.update(dict.fromkeys(kept.keys() - sent.keys(), error))
                break
        return sent

    # --- whether a note still holds

    def is_current(self, tp: TopicPartition, kept: ProgressRecord, timeout_ms: int) -> bool:
        """Whether nothing was copied into ``tp`` since the note was made.

        So it is where the target holds no committed record at or behind ``kept.target_end``: only markers and aborted
        ones, or nothing. False also where that cannot be told: the log begins later, ends earlier (the target lost
        records), or was compacted there. Open transactions are waited for: their records, and all behind them, are not
        decided yet. Raises KafkaError, KafkaTimeout where ``timeout_ms`` were not enough.
        """
        timer = Timer(SystemClock(), timeout_ms)
        with Admin(self._options) as admin, self._consumer() as consumer:
            start, end = self._bounds(admin, tp, timer)
            if not start <= kept.target_end <= end:
                return False
            try:
                return _holds_nothing(_read(consumer, tp, kept.target_end, end, timer), kept.target_end)
            except OffsetOutOfRange:
                return False  # retention, or a truncation, was quicker

    def truncated_at(self, tp: TopicPartition, mark: TargetMark, cut: int, timeout_ms: int) -> int | None:
        """The offset that the log of ``tp`` was cut back to, below the end of ``mark``; None where nothing is missing.

        ``cut`` is where the log left the mark's leader epoch, -1 where that is not known. What retention has deleted is
        not missing. Raises KafkaError, KafkaTimeout where ``timeout_ms`` were not enough.
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
                there = holds_append(_read(consumer, tp, at, min(end, at + _NEAR), timer), mark, at)
            except OffsetOutOfRange:
                return None  # retention was quicker
            return None if there else lost

    def _bounds(self, admin: Admin, tp: TopicPartition, timer: Timer) -> tuple[int, int]:
        """Where the log begins and ends, open transactions included."""
        found = [
            admin.list_offsets({tp: spec}, isolation="read_uncommitted", timeout_ms=timer.remaining_ms())[tp].offset
            for spec in (EARLIEST, LATEST)
        ]
        return found[0], found[1]

    def _consumer(self) -> Consumer:
        return Consumer(
            {**self._options, "auto.offset.reset": "none", "isolation.level": "read_committed"}
            | {"fetch.max.bytes": _FETCH_BYTES, "max.partition.fetch.bytes": _FETCH_BYTES}
        )


def _read(consumer: Consumer, tp: TopicPartition, start: int, end: int, timer: Timer) -> Iterator[Fetched]:
    """What ``tp`` holds from ``start`` until ``end`` is reached, at read_committed. Raises KafkaError."""
    at = start
    consumer.assign([tp])
    consumer.seek(tp, start)
    while at < end:
        answers = consumer.poll(timer.remaining_ms())
        for fetched in answers:
            if fetched.error is not None:
                raise fetched.error
            at = fetched.next_offset
            yield fetched
        if not answers and timer.expired():
            cause = consumer.last_error(tp)
            reason = f": {cause}" if cause is not None else "; a transaction may be open there"
            msg = f"{tp}: could be read up to offset {at} only, not to {end}, in the time there was{reason}"
            raise KafkaTimeout(msg) from cause


def _holds_nothing(answers: Iterator[Fetched], start: int) -> bool:
    """Whether the batches from ``start`` on are markers and aborted ones, without a hole: the rest may be compacted."""
    expected = start
    for fetched in answers:
        for batch, aborted in without_aborted(fetched.batches, fetched.aborted):
            if batch.next_offset <= start:
                continue
            if batch.base_offset > expected or not (batch.is_control or aborted):
                return False
            expected = batch.next_offset
    return True


def _key(tp: TopicPartition) -> bytes:
    """As JSON: "a-1" and 1 would make the same text as "a" and "1-1"."""
    return json.dumps({"topic": tp.topic, "partition": tp.partition}, separators=(",", ":")).encode()


def _tp(key: bytes | None) -> TopicPartition:
    """The inverse of :func:`_key`. Raises ValueError for anything else."""
    about = stored.parse_object(key)
    return TopicPartition(_text(about, "topic"), _number(about, "partition"))


def _value(kept: ProgressRecord) -> bytes:
    progress = kept.progress
    about = {
        "v": _VERSION,
        "offset": progress.offset,
        "epoch": progress.leader_epoch,
        "cluster": progress.source_cluster_id,
        "topic": progress.topic_id,
        "time": progress.time_ms,
        "end": kept.target_end,
        **({"target": progress.target.to_fields()} if progress.target is not None else {}),
    }
    return json.dumps(about, separators=(",", ":")).encode()


def _kept(value: bytes) -> ProgressRecord:
    """The inverse of :func:`_value`. Raises ValueError for anything else."""
    about = stored.parse_object(value)
    if _number(about, "v") != _VERSION:
        msg = f"version {about['v']}, this program knows {_VERSION}"
        raise ValueError(msg)
    progress = Progress(
        offset=_number(about, "offset"),
        leader_epoch=None if about.get("epoch") is None else _number(about, "epoch", _INT32_MAX),
        source_cluster_id=_text(about, "cluster"),
        topic_id=_text(about, "topic"),
        time_ms=_number(about, "time"),
        target=mark_of(about.get("target")),
    )
    return ProgressRecord(progress, _number(about, "end"))


def _text(about: Mapping[str, Any], name: str) -> str:
    value = about.get(name)
    if not isinstance(value, str) or stored.text(value) != value:
        msg = f"{name} is no text"
        raise ValueError(msg)
    return value


def _number(about: Mapping[str, Any], name: str, most: int = _INT64_MAX) -> int:
    value = stored.number(about.get(name), most)
    if value is None:
        msg = f"{name} is no number from 0 to {most}"
        raise ValueError(msg)
    return value
