"""The status topic: what a flow's runs report of it, on its target, where any host can read it.

::

    tasks, driver, commands ──put──► StatusWriter ──► mirror-progress.<flow>.status.internal ──► StatusFollower ──► news

Losing the topic loses no record: what is copied is in the progress and in the target's log.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mirror.backoff import Backoff
from mirror.client import Admin
from mirror.errors import InvalidArgument, KafkaError, KafkaTimeout, RecordRejected
from mirror.relay.model.reports import PartitionReport, TaskState
from mirror.relay.progress import status_values as values
from mirror.relay.progress.flow_topic import FlowTopic, FlowTopicWriter, KeyValue, status_topic_of
from mirror.relay.progress.followed_topic import FollowedTopic
from mirror.relay.progress.status_values import StatusKey, StatusKind, StatusValue
from mirror.runtime.clock import SystemClock
from mirror.wire.decode import Record

_log: Final = logging.getLogger(__name__)

STATUS_MS: Final = 3_000
"""How long a run or a command waits for the topic before it goes on without it."""
_WRITE_MS: Final = 10_000
"""How long a write waits for the target."""
_AT_ONCE: Final = 500
"""So many records are written together."""
_REPEAT_S: Final = 5.0
"""A task's last sign of life is repeated after so long, for up to :data:`_STUCK_S`.

A task gives one every 3 s, but a turn of its loop in which thousands of partitions open may take longer.
"""
_STUCK_S: Final = 60.0
_BACKOFF_MS: Final = (1_000, 15_000)
"""The driver takes a task for lost that reports nothing for a minute after an outage."""


_REJECTED: Final = (RecordRejected, InvalidArgument)


def key_of(report: TaskState | PartitionReport) -> StatusKey:
    """Return the key of what a task reports."""
    if isinstance(report, TaskState):
        return values.task_key(report.task)
    return values.partition_key(StatusKind.PARTITION, report.target)


def _encoded(records: Mapping[StatusKey, object | None]) -> dict[StatusKey, KeyValue]:
    return {
        key: KeyValue(str(key).encode(), None if one is None else values.encode(one)) for key, one in records.items()
    }


class StatusWriter:
    """Writes records in a thread of its own, the newest of each key. No call waits or raises, but for :meth:`close`.

    What cannot be written waits for the target, however long: one record of each key at most. A record that the target
    rejects for what it holds is dropped, with a line in the log: it would be rejected again, and delay the others.
    """

    def __init__(self, target_options: Mapping[str, object], flow: str) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError."""
        self._topic: Final = FlowTopic(target_options, status_topic_of(flow))
        self._changed: Final = threading.Condition()
        self._pending: dict[StatusKey, object | None] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        self._writer: Final = FlowTopicWriter(self._topic)
        self._alive: TaskState | None = None
        """The last sign of life of a task that goes on."""
        self._alive_s = self._repeated_s = 0.0
        """When the task has given it, and when it was repeated."""
        self.error: KafkaError | None = None
        """Why the last write failed; None if it did not."""

    def send(self, report: TaskState | PartitionReport) -> None:
        """Have written what a task reports."""
        if isinstance(report, TaskState):
            with self._changed:
                self._alive = None if report.stopping else report
                self._alive_s = self._repeated_s = time.monotonic()
        self.put(key_of(report), report)

    def put(self, key: StatusKey, value: object | None) -> None:
        """Have a dataclass written, which must not change; None deletes what the key had."""
        with self._changed:
            if self._closing:
                return
            self._pending[key] = value  # in its place: what changes often would never be the first
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mirror-status", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout_ms: int) -> KafkaError | None:
        """Write what waits, within ``timeout_ms``, and accept nothing more. Return why not all of it was written."""
        with self._changed:
            self._closing, self._alive = True, None
            self._changed.notify_all()
        if self._thread is None:
            return None
        self._thread.join(timeout_ms / 1000)
        if not self._pending and not self._thread.is_alive():
            return None
        return self.error or KafkaTimeout(f"{self._topic.tp.topic} could not be written within {timeout_ms} ms")

    # --- the thread

    def _run(self) -> None:
        backoff, failures = Backoff(*_BACKOFF_MS, random.Random()), 0  # noqa: S311 - no cryptography
        while records := self._next():
            is_last = self._closing
            failed = self._write(records)
            failed = self._without_rejected(failed, records)
            with self._changed:
                for key in failed:
                    self._pending.setdefault(key, records[key])
                failures = failures + 1 if failed else 0
                if failed and is_last:
                    break
                if failed:
                    self._changed.wait_for(lambda: self._closing, backoff.after(failures) / 1000)
        self._writer.close()

    def _without_rejected(
        self, failed: Mapping[StatusKey, KafkaError], records: Mapping[StatusKey, object | None]
    ) -> Mapping[StatusKey, KafkaError]:
        """Write those of ``records`` that were rejected again, each alone; return those that failed for another reason.

        A broker rejects a batch for one of its records.
        """
        left = dict(failed)
        for key in [key for key, error in failed.items() if isinstance(error, _REJECTED)]:
            error = failed[key] if len(records) == 1 else self._write({key: records[key]}).get(key)
            if error is None or isinstance(error, _REJECTED):
                del left[key]
            if isinstance(error, _REJECTED):
                _log.warning("%s rejects the record %s, which is dropped: %s", self._topic.tp.topic, key, error)
        return left

    def _next(self) -> dict[StatusKey, object | None]:
        """Wait for records, and take the first ones; none at the end.

        Those of tasks precede all others: the driver takes a task for lost that reports nothing for 15 to 120 s.
        """
        with self._changed:
            self._repeat_alive()
            while not (self._pending or self._closing):
                self._changed.wait(None if self._alive is None else _REPEAT_S)
                self._repeat_alive()
            first = sorted(self._pending, key=lambda key: key.kind is not StatusKind.TASK)[:_AT_ONCE]
            return {key: self._pending.pop(key) for key in first}

    def _repeat_alive(self) -> None:
        """Have the task's last sign of life written again, if it is old and no newer one waits."""
        now_s = time.monotonic()
        if self._alive is None or now_s - self._repeated_s < _REPEAT_S or now_s - self._alive_s >= _STUCK_S:
            return
        again = replace(self._alive, seen_ms=self._alive.seen_ms + round((now_s - self._alive_s) * 1000))
        self._repeated_s = now_s
        self._pending.setdefault(key_of(again), again)

    def _write(self, records: Mapping[StatusKey, object | None]) -> Mapping[StatusKey, KafkaError]:
        """Write ``records``; return those that may not have been written, and why."""
        failed: Mapping[StatusKey, KafkaError]
        try:
            failed = self._writer.write(_encoded(records), _WRITE_MS)
        except Exception as error:  # noqa: BLE001 - the thread must not end: records wait, and close() reports it
            if not isinstance(error, KafkaError):
                _log.exception("the status topic %s cannot be written", self._topic.tp.topic)
            failed = dict.fromkeys(records, error if isinstance(error, KafkaError) else KafkaError(repr(error)))
        before, self.error = self.error, next(iter(failed.values()), None)
        if self.error is not None and before is None:
            _log.info("%d records wait for the status topic %s: %s", len(failed), self._topic.tp.topic, self.error)
        return failed


class StatusRecord(NamedTuple):
    """A record of the topic."""

    key: StatusKey
    value: StatusValue | None
    """None: the key has no value any more."""
    time_ms: int
    """When it was written (ms since 1970)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNews:
    """What is new in the topic, in order."""

    again: bool
    """Whether this is all that the topic has, and replaces all of earlier calls."""
    records: list[StatusRecord]
    error: KafkaError | None = None
    """Why there are more; the next call goes on behind them."""
    exists: bool = True
    """Whether there is such a topic."""
    not_understood: int = 0
    """How many records were passed over: another program, or a newer version, has written them."""

    @property
    def tasks(self) -> list[TaskState]:
        """What tasks have reported of themselves."""
        return [value for _, value, _ in self.records if isinstance(value, TaskState)]

    @property
    def partitions(self) -> list[PartitionReport]:
        """What tasks have reported of their partitions."""
        return [value for _, value, _ in self.records if isinstance(value, PartitionReport)]


class StatusFollower:
    """Reads a flow's status topic from its beginning, and then what is new.

    Its calls wait; use it in one thread, but for :meth:`wake`.
    """

    def __init__(self, target_options: Mapping[str, object], flow: str, wait_ms: int = 0) -> None:
        """``target_options`` are dotted keys, of which those of the cluster are used. Raises ConfigError.

        ``wait_ms``: how long :meth:`news` waits for something new, but for its first call.
        """
        self._flow: Final = flow
        self._followed: Final = FollowedTopic(FlowTopic(target_options, status_topic_of(flow)), wait_ms)
        self._clock: Final = SystemClock()

    def news(self, stall_ms: int = _WRITE_MS) -> StatusNews:
        """Return what is new since the last call; nothing if there is no such topic.

        If all is read again, only the last record of each key is returned: the log may have many more that are not
        compacted yet.

        ``stall_ms`` limits each request, and the time in which nothing arrives. Raises KafkaError.
        """
        found = self._followed.news(self._clock, stall_ms)
        records: list[StatusRecord] = []
        unknown = 0
        for record in _last_of_each_key(found.records) if found.again else found.records:
            key = values.parse_key(record.key)
            value = None if key is None or record.value is None else values.decode(key, record.value, self._flow)
            if key is None or (value is None and record.value is not None):
                unknown += 1
            else:
                records.append(StatusRecord(key, value, record.timestamp_ms))
        exists = self._followed.exists
        return StatusNews(again=found.again, records=records, error=found.error, exists=exists, not_understood=unknown)

    def wake(self) -> None:
        """End the wait of :meth:`news`, or of its next call."""
        self._followed.wake()

    def close(self) -> None:
        """Close the connections."""
        self._followed.close()


def _last_of_each_key(records: Sequence[Record]) -> list[Record]:
    """Return the last record of each key, in order."""
    newest: dict[bytes | None, Record] = {}
    for record in reversed(records):
        newest.setdefault(record.key, record)
    return list(reversed(newest.values()))


def write_status(
    target_options: Mapping[str, object],
    flow: str,
    records: Mapping[StatusKey, object | None],
    timeout_ms: int,
) -> KafkaError | None:
    """Write records of dataclasses within ``timeout_ms``; return why one may not have been written. Never raises.

    A missing topic, which the runs of the flow create, is not waited for.
    """
    try:
        topic = FlowTopic(target_options, status_topic_of(flow))
        with Admin(topic.options) as admin:
            if topic.tp.topic not in admin.describe_topics([topic.tp.topic], timeout_ms=timeout_ms):
                return KafkaError(f"topic {topic.tp.topic} does not exist: the next run of the flow creates it")
    except KafkaError as error:
        return error
    return next(iter(topic.write(_encoded(records), timeout_ms).values()), None)
