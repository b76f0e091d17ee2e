"""The face of the producer core."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self

from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.topics import TopicPartition
from mirror.errors import ClientClosed, InvalidArgument, KafkaTimeout, RecordRejected
from mirror.producer.batches import ProducerBatch, RecordMetadata
from mirror.producer.core import ProducerCore, SendEvent
from mirror.producer.settings import ProducerSettings
from mirror.runtime import arguments
from mirror.runtime.thread import acquire, leave_and_release
from mirror.timing import Timer
from mirror.wire.records import Batch
from mirror.wire.verdicts import MESSAGE_TOO_LARGE

_log = logging.getLogger(__name__)


class BufferMemory:
    """``buffer.memory``: bytes of batches not yet acknowledged. ``take`` waits in the application's thread."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._changed = threading.Condition()
        self._closed = False

    def take(self, count: int, timer: Timer) -> None:
        """Wait for ``count`` bytes. Raises KafkaTimeout when the timer ends first, ClientClosed at the end."""
        with self._changed:
            while self._free < count and not self._closed:
                left = timer.remaining_ms()
                if left == 0:
                    msg = f"no {count} bytes of buffer.memory ({self.size}) became free within max.block.ms"
                    raise KafkaTimeout(msg)
                self._changed.wait(min(left / 1000, threading.TIMEOUT_MAX))
            if self._closed:
                msg = "this Producer is closed"
                raise ClientClosed(msg)
            self._free -= count

    def give_back(self, count: int) -> None:
        """Free ``count`` bytes; called by the network thread."""
        with self._changed:
            self._free += count
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all who wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Producer:
    """Writes ready-made batches: idempotent, acks=all, in order per partition. Safe to use from several threads."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """``options`` are Kafka's dotted keys. Raises ConfigError."""
        self._settings = ProducerSettings.parse(options)
        for warning in self._settings.warnings:
            _log.warning("%s", warning)
        self._memory = BufferMemory(self._settings.buffer_memory)
        self._thread = acquire(self._settings.cluster)
        self._core = ProducerCore(self._settings, self._thread.loop, self._memory.give_back)
        self._open: set[Future[RecordMetadata]] = set()
        self._closed = False
        self._thread.submit(None, JoinEvent(self._core))

    def send_batch(self, tp: TopicPartition, batch: Batch) -> Future[RecordMetadata]:
        """Deliver ``batch`` to ``tp``; its bytes are this producer's until the future is done.

        Waits up to ``max.block.ms`` for memory (KafkaTimeout). RecordRejected for a batch larger than
        ``buffer.memory``, InvalidArgument for a ``tp`` (a plain tuple will do) or a batch that is none. The future
        ends with RecordMetadata, DeliveryTimeout, or what the broker refused it for.
        """
        tp = arguments.partition(tp)
        if not isinstance(batch, Batch):
            msg = f"{tp}: a batch must be a Batch, not {type(batch).__name__}"
            raise InvalidArgument(msg)
        if batch.size > self._settings.buffer_memory:
            msg = f"{tp}: a batch of {batch.size} bytes does not fit buffer.memory ({self._settings.buffer_memory})"
            raise RecordRejected(msg, MESSAGE_TOO_LARGE)
        self._memory.take(batch.size, Timer(self._thread.clock, self._settings.max_block_ms))
        sent = ProducerBatch(tp, batch, self._thread.clock.now())
        self._open.add(sent.future)
        sent.future.add_done_callback(self._open.discard)
        try:
            self._thread.submit(self._core, SendEvent(sent))
        except BaseException:
            self._open.discard(sent.future)
            self._memory.give_back(batch.size)
            raise
        return sent.future

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until everything sent so far is acknowledged or failed. Raises KafkaTimeout."""
        _, timeout = self._thread.timer(arguments.timeout(timeout_ms))
        pending = wait(list(self._open), timeout=min(timeout / 1000, threading.TIMEOUT_MAX)).not_done
        if pending:
            msg = f"{len(pending)} batches were not acknowledged within {timeout} ms"
            raise KafkaTimeout(msg)

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush for at most ``timeout_ms``, then fail the rest; safe to call again, and with a dead thread."""
        _, timeout = self._thread.timer(arguments.timeout(timeout_ms))
        if self._closed:
            return
        self._closed = True
        try:
            # Those that are left then are told by leaving.
            with contextlib.suppress(KafkaTimeout):
                self.flush(timeout)
        finally:
            self._memory.close()
            leave_and_release(self._thread, LeaveEvent(self._core, *self._thread.timer(None)), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error nothing is waited for: what was sent is retried by whoever retries the whole.
        self.close(None if kind is None else 0)
