"""The face of the producer core."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from mirror.cluster.events import as_kafka_error
from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.types import TopicPartition
from mirror.errors import (
    ClientClosed,
    DeliveryCause,
    DeliveryPhase,
    DeliveryTimeout,
    InvalidArgument,
    KafkaError,
    KafkaTimeout,
    NetworkThreadDied,
)
from mirror.producer.batch.batches import Callback, ProducerBatch, RecordAccumulation, RecordMetadata
from mirror.producer.blocking import BlockBudget
from mirror.producer.core import ProducerCore
from mirror.producer.events import AwaitTopicEvent, FlushEvent, WakeEvent
from mirror.producer.settings import ProducerSettings
from mirror.runtime import arguments
from mirror.runtime.memory.buffer_memory import BufferMemory
from mirror.runtime.memory.send_handoff import SendHandoff, UnansweredSends
from mirror.runtime.pending_requests import PendingRequests
from mirror.runtime.thread import acquire, leave_and_release, release
from mirror.runtime.transactional import TransactionCalls
from mirror.timing import FOREVER_MS, Timer, deadline, remaining
from mirror.wire.encode import BatchBuilder, Headers
from mirror.wire.records import Batch

_log = logging.getLogger(__name__)

_RecordHeaders = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
_Record = tuple[bytes | None, bytes | None, Headers, int]


class _Partition:
    """What application threads know of a partition: that it is there, and the batch that takes its records now.

    ``lock`` is held while a batch is begun and handed over, so that batches go in the order of their records.
    """

    __slots__ = ("known", "lock", "open", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp: Final = tp
        self.known = False
        self.open: RecordAccumulation | None = None
        self.lock = threading.Lock()


class Producer(TransactionCalls):
    """Writes records and ready-made batches: idempotent, acks=all, in order per partition.

    In transactions where it has a ``transactional.id``. Safe to use from several threads.
    """

    def __init__(self, options: Mapping[str, object] | ProducerSettings, *, memory: BufferMemory | None = None) -> None:
        """``options`` are Kafka's dotted keys, or settings parsed from them.

        With ``memory``, which other producers share, ``buffer.memory`` is not used.

        Raises ConfigError, and InvalidArgument for a ``memory`` that is none.
        """
        if memory is not None and not isinstance(memory, BufferMemory):
            msg = f"memory must be a BufferMemory, not {type(memory).__name__}"
            raise InvalidArgument(msg)
        self._settings = options if isinstance(options, ProducerSettings) else ProducerSettings.parse(options)
        for warning in self._settings.warnings:
            _log.warning("%s", warning)
        self._budget = BlockBudget(self._settings)
        thread = acquire(self._settings.cluster)
        memory = memory or BufferMemory(self._settings.buffer_memory)
        self._memory = memory.share(self._send_what_lingers, thread.check_may_wait)
        core = ProducerCore(self._settings, thread.loop, self._memory.give_back)
        super().__init__(thread, core, self._settings.transactional_id)
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._unanswered: Final = UnansweredSends()
        self._asked = PendingRequests("Producer")
        thread.submit(None, JoinEvent(core))

    def __repr__(self) -> str:
        cluster = self._settings.cluster
        servers = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in cluster.bootstrap)
        name = f", transactional.id={self._transactional_id!r}" if self._transactional_id is not None else ""
        return f"Producer(bootstrap.servers={servers!r}, client.id={cluster.client_id!r}{name})"

    @property
    def producer_id(self) -> int:
        """The id that batches go out under now, -1 while there is none. Asks nobody."""
        return self._core.producer_id

    @property
    def fences_in_doubt(self) -> int:
        """How many requests of ``init_transactions()`` have no answer, and may still fence this producer or the next.

        Asks nobody.
        """
        return self._core.fences_in_doubt

    # --- single records

    def send(
        self,
        topic: str,
        partition: int,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: _RecordHeaders = (),
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Deliver a record; ``timestamp_ms`` is since 1970, None for now. Its bytes are copied.

        Waits for metadata of the partition the first time, and for memory, for as long as ``max.block.ms`` and what
        belongs to it say (KIP-912): KafkaTimeout. Raises InvalidArgument, RecordTooLarge for a record larger than
        ``buffer.memory``, WrongState outside of a transaction where there is a ``transactional.id``, ClientClosed,
        NetworkThreadDied. The future ends with RecordMetadata, DeliveryTimeout, or what the broker refused it for; it
        cannot be cancelled. Its callbacks run on the network thread: there whatever would have to wait raises
        WrongState, and one that raises SystemExit ends the thread.
        """
        record = (
            arguments.payload("key", key),
            arguments.payload("value", value),
            arguments.headers(headers),
            self._thread.clock.unix_ms() if timestamp_ms is None else arguments.timestamp("timestamp_ms", timestamp_ms),
        )
        self._may_send()
        place = self._place(topic, partition)
        future = self._append(place, record)
        if future is not None:
            return future
        waited_ms = 0 if place.known else self._await_topic(place, FOREVER_MS)
        return self._begin_batch(place, record, waited_ms)

    def _place(self, topic: object, number: object) -> _Partition:
        found = self._partitions.get((topic, number)) if isinstance(topic, str) and isinstance(number, int) else None
        if found is None:
            tp = arguments.partition((topic, number))
            found = self._partitions.setdefault(tp, _Partition(tp))
        return found

    def _append(self, place: _Partition, record: _Record) -> Future[RecordMetadata] | None:
        """Into the batch that is there: no event, no wake-up. None where there is none, or no room."""
        batch = place.open
        if batch is None:
            return None
        future = batch.append(*record)
        if batch.full:
            batch.seal_early()  # compressed here, and not on the network thread
            if future is not None and self._settings.linger_ms > 0:
                self._thread.submit(self._core, WakeEvent())
        return future

    def _begin_batch(self, place: _Partition, record: _Record, waited_ms: int) -> Future[RecordMetadata]:
        key, value, headers, _ = record
        limit = max(self._settings.batch_size, BatchBuilder.upper_bound(key, value, headers))
        timer = Timer(self._thread.clock, self._budget.append_ms(waited_ms))
        self._memory.take(place.tp, limit, timer, self._budget.append_limit(waited_ms))
        handed = False
        try:
            if self._settings.linger_ms > 0:
                self._memory.lingers()
            with place.lock:
                future = self._append(place, record)
                if future is None:
                    builder = BatchBuilder(self._settings.compression, self._settings.batch_size)
                    batch = RecordAccumulation(place.tp, builder, limit, threading.Lock())
                    future = batch.append(*record)
                    assert future is not None  # noqa: S101 - the first record always fits
                    made = ProducerBatch(place.tp, None, self._thread.clock.now(), limit, open=batch)
                    handed = True
                    self._deliver(made, place)
            return future
        finally:
            if not handed:  # somebody else had begun one meanwhile, or it was cut short
                self._memory.give_back(place.tp, limit)

    # --- ready-made batches

    def send_batch(
        self,
        tp: TopicPartition,
        batch: Batch,
        *,
        created_ms: int | None = None,
        block: bool = True,
        chain: int | None = None,
    ) -> Future[RecordMetadata]:
        """Deliver ``batch`` to ``tp`` (a plain tuple will do), behind what was sent there before.

        Its bytes are this producer's until the future has its result; after an error they may still be on their way:
        leave them alone then. ``created_ms`` (ms since 1970) is when it came into being, where that was elsewhere: from
        then on ``delivery.timeout.ms`` runs, and DeliveryTimeout is raised where that ends before there is memory.
        Waits and raises as :meth:`send` does; with ``block=False`` it raises KafkaTimeout at once where there is no
        memory, and does not wait for metadata: ``delivery.timeout.ms`` does.

        Batches of a partition with the same number ``chain`` make a chain: once one is lost, none after it of that
        chain is sent. Another number begins a new one, which goes on behind the lost one. A number is used for one
        chain of a partition only.
        """
        return self._send_batch(tp, batch, created_ms, chain, block=block).future

    def post_batch(
        self,
        tp: TopicPartition,
        batch: Batch,
        callback: Callback,
        *,
        created_ms: int | None = None,
        chain: int | None = None,
    ) -> None:
        """As :meth:`send_batch` with ``block=False``; ``callback`` gets what the future would have ended with.

        For who sends very many: a future costs more than all the rest of this call. Where this raises, ``callback`` may
        have been told, too.
        """
        self._send_batch(tp, batch, created_ms, chain, block=False, callback=callback)

    def _send_batch(
        self,
        tp: TopicPartition,
        batch: Batch,
        created_ms: int | None,
        chain: int | None,
        *,
        block: bool,
        callback: Callback | None = None,
    ) -> ProducerBatch:
        if chain is not None and type(chain) is not int:
            msg = f"chain must be an int or None, not {type(chain).__name__}"
            raise InvalidArgument(msg)
        place = self._place(*(tp if type(tp) is TopicPartition else arguments.partition(tp)))
        tp = place.tp
        if not isinstance(batch, Batch):
            msg = f"{tp}: a batch must be a Batch, not {type(batch).__name__}"
            raise InvalidArgument(msg)
        self._may_send()
        born_ms, expires_ms = None, FOREVER_MS
        if created_ms is not None:
            now = self._thread.clock.now()
            born_ms = now - remaining(self._thread.clock.unix_ms(), arguments.timestamp("created_ms", created_ms))
            expires_ms = deadline(born_ms, self._settings.delivery_timeout_ms)
        self._reserve(place, batch, expires_ms, block=block)
        handed = False
        try:
            if born_ms is None:
                born_ms = self._thread.clock.now()
            made = ProducerBatch(tp, batch, born_ms, batch.size, chain=chain, callback=callback)
            with place.lock:
                if (before := place.open) is not None:
                    before.close()  # records that come later belong behind this batch
                handed = True
                self._deliver(made)
            return made
        finally:
            if not handed:
                self._memory.give_back(tp, batch.size)

    def _reserve(self, place: _Partition, batch: Batch, expires_ms: int, *, block: bool) -> None:
        """Wait for metadata and memory, until ``expires_ms`` at the latest."""
        phase, waited_ms, timer = DeliveryPhase.METADATA, 0, None
        try:
            if block and not place.known:
                waited_ms = self._await_topic(place, expires_ms)
            phase = DeliveryPhase.MEMORY
            if block:
                left_ms = remaining(expires_ms, self._thread.clock.now())
                timer = Timer(self._thread.clock, min(self._budget.append_ms(waited_ms), left_ms))
            self._memory.take(place.tp, batch.size, timer, self._budget.append_limit(waited_ms))
        except KafkaTimeout as error:
            now = self._thread.clock.now()
            if now < expires_ms:
                raise
            raise self._expired(place.tp, batch, now - expires_ms, phase, error) from error

    def _expired(
        self, tp: TopicPartition, batch: Batch, late_ms: int, phase: DeliveryPhase, error: KafkaTimeout
    ) -> DeliveryTimeout:
        age_ms = self._settings.delivery_timeout_ms + late_ms
        cause = DeliveryCause.NO_LEADER if phase is DeliveryPhase.METADATA else DeliveryCause.BACKLOG
        return DeliveryTimeout(
            f"{tp}: delivery.timeout.ms ({self._settings.delivery_timeout_ms}) of a batch of {batch.count} records "
            f"was over before it could be queued (age {age_ms} ms; {phase.value}, {cause.value}): {error}",
            topic=tp.topic,
            partition=tp.partition,
            record_count=int(batch.count),
            age_ms=age_ms,
            queued_ms=age_ms,
            phase=phase,
            cause=cause,
            last_error=error,
        )

    # --- what both share

    def _await_topic(self, place: _Partition, expires_ms: int) -> int:
        """Wait until the partition is known; the ms that this took."""
        began = self._thread.clock.now()
        timeout_ms = min(self._budget.metadata_ms(), remaining(expires_ms, began))
        event = AwaitTopicEvent(place.tp, deadline(began, timeout_ms), timeout_ms)
        try:
            with self._asked.waiting(event):
                self._check_open()
                self._thread.call(self._core, event)
        except KafkaTimeout:
            cause = event.last_error
            reason = f": {cause}" if cause is not None else ""
            msg = f"{place.tp}: no metadata of it within {self._budget.metadata_limit()}{reason}"
            raise KafkaTimeout(msg) from cause
        place.known = True
        return self._thread.clock.now() - began

    def _deliver(self, made: ProducerBatch, place: _Partition | None = None) -> None:
        """Hand a batch and its memory to the network thread; remembered until every record of it is answered for.

        Where that fails, and also where it is cut short by Ctrl-C, either the network thread has both, or nobody.
        """
        unanswered, key = self._unanswered, object()
        opened, event = made.open, SendHandoff(made, self._memory)

        def told() -> None:
            # No lock: the network thread may be dying, and whoever holds the lock wait for it. At worst a batch that
            # was begun at this moment is taken for the old one, and takes no more records.
            if place is not None and place.open is opened:
                place.open = None
            unanswered.answered(key)

        made.on_completed = told
        try:
            unanswered.add(key)
            if place is not None:
                place.open = opened  # before it is handed over: its answer may come at once, and closes it
            self._thread.submit(self._core, event)
        except BaseException as error:
            if event.claim():
                made.fail(as_kafka_error(error))  # others may have added records to it
                self._memory.give_back(made.tp, made.size)
            raise

    def _send_what_lingers(self) -> None:
        """Somebody has to wait for memory. Raises NetworkThreadDied."""
        self._thread.submit(self._core, FlushEvent())

    # --- the end

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until everything sent so far is acknowledged or failed, without lingering.

        Raises KafkaTimeout; WrongState in a callback, on the network thread; NetworkThreadDied after a fork.
        """
        _, timeout = self._timer(timeout_ms)
        self._thread.check_process()
        self._thread.check_may_wait()
        unanswered = self._unanswered.now()
        if not unanswered:
            return
        with contextlib.suppress(ClientClosed, NetworkThreadDied):  # then they have been told, or are about to be
            self._send_what_lingers()
        pending = self._unanswered.wait(unanswered, timeout, self._thread.clock)
        if pending:
            msg = f"{pending} batches were not acknowledged within {timeout} ms"
            raise KafkaTimeout(msg)

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush for at most ``timeout_ms``, then fail the rest; safe to call again, and with a dead thread.

        An open transaction is aborted instead; one that is being committed or aborted is waited for. Whoever waits in
        :meth:`send` gets ClientClosed at once. With 0 it drops everything, as :meth:`close_async`; so it does in a
        callback, on the network thread, and after a fork, where what was sent is the other process's.
        """
        deadline_ms, timeout = self._timer(0 if self._thread.is_current else timeout_ms)
        if not self._stop_sending():
            return
        try:
            # Whatever is left then is told by leaving.
            with contextlib.suppress(KafkaError):
                if timeout > 0:
                    self._end_transaction(deadline_ms)  # as long as there is one
                    self.flush(self._left_ms(deadline_ms))
        finally:
            leave = LeaveEvent(self._core, *self._thread.timer(None))
            leave_and_release(self._thread, leave, self._left_ms(deadline_ms))

    def close_async(self) -> Future[None]:
        """Drop everything, and wait for nothing; the future is done, without an error, once that is so.

        What is not acknowledged by then fails with ClientClosed. An open transaction is left to the next
        ``init_transactions()`` of its ``transactional.id``, in this process or another, which aborts it; without one
        its coordinator does after ``transaction.timeout.ms``.
        """
        left: Future[None] = Future()
        left.set_running_or_notify_cancel()
        if not self._stop_sending():
            left.set_result(None)
            return left
        leave = LeaveEvent(self._core, *self._thread.timer(None))

        def gone(_: Future[None]) -> None:
            release(self._thread)  # on the network thread, so that nobody waits for its end
            left.set_result(None)

        leave.future.add_done_callback(gone)
        try:
            self._thread.submit(None, leave)
        except (ClientClosed, NetworkThreadDied) as error:
            leave.fail(error)
        return left

    def _stop_sending(self) -> bool:
        """Whether there is anything to be closed: not after a fork, nor twice. Nobody waits in it any more."""
        if self._closed or self._thread.left_behind:
            self._closed = True
            return False
        self._closed = True
        self._memory.close()
        self._asked.end(self._thread)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error nothing is waited for: what was sent is retried by whoever retries the whole.
        self.close(None if kind is None else 0)
