"""The public producer: a thread-safe interface to the producer core on the network thread."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Final, Self

from mirror.cluster.events import as_kafka_error
from mirror.cluster.loop import JoinEvent, LeaveEvent
from mirror.cluster.settings import address_text
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
from mirror.producer.batch.queue import ProducerId
from mirror.producer.blocking import BlockBudget
from mirror.producer.core import ProducerCore
from mirror.producer.events import AdmitIdEvent, AwaitTopicEvent, FlushEvent, WakeEvent
from mirror.producer.id_gate import OnProducerId
from mirror.producer.settings import ProducerSettings
from mirror.runtime import arguments
from mirror.runtime.adoption import AdoptionCalls
from mirror.runtime.memory.buffer_memory import BufferMemory
from mirror.runtime.memory.send_claim import SendClaim, UnansweredSends
from mirror.runtime.pending_requests import PendingRequests
from mirror.runtime.thread import acquire, leave_and_release, release
from mirror.timing import FOREVER_MS, Timer, deadline, remaining
from mirror.wire.encode import BatchBuilder
from mirror.wire.header_names import Headers
from mirror.wire.records import Batch

_log = logging.getLogger(__name__)

_RecordHeaders = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
_Record = tuple[bytes | None, bytes | None, Headers, int]


class _Partition:
    """The state of a partition for application threads: that its metadata is known, and its open batch.

    ``lock`` is held while a batch is begun and handed over, so that batches are in the order of their records.
    """

    __slots__ = ("known", "lock", "open", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp: Final = tp
        self.known = False
        self.open: RecordAccumulation | None = None
        self.lock = threading.Lock()


class Producer(AdoptionCalls):
    """Sends records and encoded batches: idempotent, acks=all, in order within a partition.

    With a ``transactional.id`` it sends in transactions. Thread-safe. The end of a ``with`` closes it. If an exception
    leaves the ``with``, it drops what is not acknowledged, leaves a transaction to its coordinator, and logs both.
    """

    def __init__(
        self,
        options: Mapping[str, object] | ProducerSettings,
        *,
        memory: BufferMemory | None = None,
        on_producer_id: OnProducerId | None = None,
    ) -> None:
        """Create a producer from Kafka's dotted keys, or from parsed settings.

        With ``memory``, which producers may share, ``buffer.memory`` is not used. ``on_producer_id`` is called on the
        network thread with each producer id, and a function that admits it: no batch is sent under an id before that
        was called. Raises ConfigError, and InvalidArgument if ``memory`` is no BufferMemory.
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
        ask_id = None if on_producer_id is None else partial(self._ask_id, on_producer_id)
        core = ProducerCore(self._settings, thread.loop, self._memory.give_back, ask_id)
        super().__init__(thread, core, self._settings.transactional_id)
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._unanswered: Final = UnansweredSends()
        self._asked = PendingRequests("Producer")
        thread.submit(None, JoinEvent(core))

    def _ask_id(self, on_producer_id: OnProducerId, producer_id: int) -> None:
        def admit() -> None:
            with contextlib.suppress(ClientClosed, NetworkThreadDied):  # then nothing is sent any more
                self.network_thread.submit(self.core, AdmitIdEvent(producer_id))

        on_producer_id(producer_id, admit)

    def __repr__(self) -> str:
        cluster = self._settings.cluster
        servers = ",".join(map(address_text, cluster.bootstrap))
        name = f", transactional.id={self._transactional_id!r}" if self._transactional_id is not None else ""
        return f"Producer(bootstrap.servers={servers!r}, client.id={cluster.client_id!r}{name})"

    @property
    def producer_id(self) -> int:
        """The current producer id, -1 while there is none. Sends no request."""
        return self.core.producer_id

    @property
    def identity(self) -> ProducerId | None:
        """The producer id and epoch; None while there are none. Sends no request.

        Of a transactional producer, those after ``init_transactions()`` or the end of its last transaction: the ones in
        that transaction's markers (version 2 bumps the epoch at each end, KIP-890). They are set when the future of the
        call completes.
        """
        return self.core.identity

    @property
    def fences_in_doubt(self) -> int:
        """The number of fencing requests without a response, which may still fence this producer or its successor.

        Sends no request.
        """
        return self.core.fences_in_doubt

    @property
    def pending_step(self) -> tuple[str | None, KafkaError | None]:
        """What a transactional producer has not ended yet, None if it has nothing to do, and the last error of it.

        Sends no request.
        """
        return self.core.pending_step

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
        """Send a record, whose bytes are copied. ``timestamp_ms`` is since 1970, None for now.

        Waits for metadata of the partition the first time, and for memory, as ``max.block.ms`` and its related keys
        allow (KIP-912); raises KafkaTimeout after that. Raises InvalidArgument, RecordTooLarge for a record larger
        than ``buffer.memory``, WrongState outside a transaction if there is a ``transactional.id``, ClientClosed,
        NetworkThreadDied. The future completes with RecordMetadata, or fails with DeliveryTimeout or the broker's
        error; it cannot be cancelled. Its callbacks run on the network thread: calls that would wait raise
        WrongState there, and a callback that raises SystemExit ends the thread.
        """
        record = (
            arguments.payload("key", key),
            arguments.payload("value", value),
            arguments.headers(headers),
            self.network_thread.clock.unix_ms()
            if timestamp_ms is None
            else arguments.timestamp("timestamp_ms", timestamp_ms),
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
        """Append to the open batch, without an event or wake-up; return None if there is none, or no room."""
        batch = place.open
        if batch is None:
            return None
        future = batch.append(*record)
        if batch.full:
            batch.seal_early()  # compressed here, and not on the network thread
            if future is not None and self._settings.linger_ms > 0:
                self.network_thread.submit(self.core, WakeEvent())
        return future

    def _begin_batch(self, place: _Partition, record: _Record, waited_ms: int) -> Future[RecordMetadata]:
        key, value, headers, _ = record
        limit = max(self._settings.batch_size, BatchBuilder.upper_bound(key, value, headers))
        timer = Timer(self.network_thread.clock, self._budget.append_ms(waited_ms))
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
                    made = ProducerBatch(place.tp, None, self.network_thread.clock.now(), limit, open=batch)
                    handed = True
                    self._deliver(made, place)
            return future
        finally:
            if not handed:  # another thread has begun one meanwhile, or the call was interrupted
                self._memory.give_back(place.tp, limit)

    # --- encoded batches

    def send_batch(
        self,
        tp: TopicPartition,
        batch: Batch,
        *,
        created_ms: int | None = None,
        block: bool = True,
        chain: int | None = None,
    ) -> Future[RecordMetadata]:
        """Send ``batch`` to ``tp`` (or a plain tuple), behind everything sent there before.

        Its bytes must not change until the future is done; after an error they may still be being sent, and must not
        be reused. ``created_ms`` (ms since 1970) is when the batch was created, if that was elsewhere:
        ``delivery.timeout.ms`` starts then, and DeliveryTimeout is raised if it ends before memory is available.
        Waits and raises as :meth:`send` does; with ``block=False`` it raises KafkaTimeout at once if there is no
        memory, and does not wait for metadata, which ``delivery.timeout.ms`` bounds then.

        Batches of a partition with the same number ``chain`` form a chain: once one is lost, later ones of the chain
        are not sent. Another number begins a new chain, which continues behind the lost batch. A number is used for
        one chain of a partition only.
        """
        return self._send_batch(tp, batch, created_ms, chain, block=block).future

    def post_batch(
        self,
        tp: TopicPartition,
        batch: Batch,
        callback: Callback,
        *,
        chain: int | None = None,
        log_end: int = 0,
    ) -> None:
        """Send as :meth:`send_batch` with ``block=False``; ``callback`` is called with the outcome instead of a future.

        The log is known to reach to ``log_end``: if the batch is acknowledged below it, it fails with
        AcknowledgedRecordsLost, and so does the transaction, which a commit that waits for the batch would end.
        It is for callers with very many batches: a future costs more than the rest of this call. If this raises,
        ``callback`` may have been called, too.
        """
        self._send_batch(tp, batch, None, chain, block=False, callback=callback, log_end=log_end)

    def _send_batch(
        self,
        tp: TopicPartition,
        batch: Batch,
        created_ms: int | None,
        chain: int | None,
        *,
        block: bool,
        callback: Callback | None = None,
        log_end: int = 0,
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
            now = self.network_thread.clock.now()
            born_ms = now - remaining(
                self.network_thread.clock.unix_ms(), arguments.timestamp("created_ms", created_ms)
            )
            expires_ms = deadline(born_ms, self._settings.delivery_timeout_ms)
        self._reserve(place, batch, expires_ms, block=block)
        handed = False
        try:
            if born_ms is None:
                born_ms = self.network_thread.clock.now()
            made = ProducerBatch(tp, batch, born_ms, batch.size, chain=chain, callback=callback, log_end=log_end)
            with place.lock:
                if (before := place.open) is not None:
                    before.close()  # later records belong behind this batch
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
                left_ms = remaining(expires_ms, self.network_thread.clock.now())
                timer = Timer(self.network_thread.clock, min(self._budget.append_ms(waited_ms), left_ms))
            self._memory.take(place.tp, batch.size, timer, self._budget.append_limit(waited_ms))
        except KafkaTimeout as error:
            now = self.network_thread.clock.now()
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

    # --- shared by both

    def _await_topic(self, place: _Partition, expires_ms: int) -> int:
        """Wait for metadata of the partition; return how long that took, in ms."""
        began = self.network_thread.clock.now()
        timeout_ms = min(self._budget.metadata_ms(), remaining(expires_ms, began))
        event = AwaitTopicEvent(place.tp, deadline(began, timeout_ms), timeout_ms)
        try:
            with self._asked.waiting(event):
                self._check_open()
                self.network_thread.call(self.core, event)
        except KafkaTimeout:
            cause = event.last_error
            reason = f": {cause}" if cause is not None else ""
            msg = f"{place.tp}: no metadata of it within {self._budget.metadata_limit()}{reason}"
            raise KafkaTimeout(msg) from cause
        place.known = True
        return self.network_thread.clock.now() - began

    def _deliver(self, made: ProducerBatch, place: _Partition | None = None) -> None:
        """Hand a batch and its memory to the network thread, and track it until every record of it has its outcome.

        If that fails, or is interrupted by Ctrl-C, the network thread has either both or neither.
        """
        unanswered, key = self._unanswered, object()
        opened, event = made.open, SendClaim(made, self._memory)

        def on_completed() -> None:
            # Take no lock: the network thread may be dying while the holder of the lock waits for it. At worst, a batch
            # that begins at this moment is mistaken for the old one and is closed for more records.
            if place is not None and place.open is opened:
                place.open = None
            unanswered.answered(key)

        made.on_completed = on_completed
        try:
            unanswered.add(key)
            if place is not None:
                place.open = opened  # before it is handed over: its response may arrive at once, and closes it
            self.network_thread.submit(self.core, event)
        except BaseException as error:
            if event.claim():
                made.fail(as_kafka_error(error))  # other threads may have added records to it
                self._memory.give_back(made.tp, made.size)
            raise

    def _send_what_lingers(self) -> None:
        """Wake the network thread, as a caller waits for memory. Raises NetworkThreadDied."""
        self.network_thread.submit(self.core, FlushEvent())

    # --- the end

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until everything sent so far is acknowledged or failed, without lingering.

        The default of ``timeout_ms`` is ``delivery.timeout.ms`` + ``request.timeout.ms``, in which every batch gets its
        outcome. Raises KafkaTimeout; WrongState in a callback, on the network thread; NetworkThreadDied after a fork.
        """
        _, timeout = self._delivery_timer(timeout_ms)
        self.network_thread.check_process()
        self.network_thread.check_may_wait()
        unanswered = self._unanswered.now()
        if not unanswered:
            return
        with contextlib.suppress(
            ClientClosed, NetworkThreadDied
        ):  # then their callers have the outcome, or are about to
            self._send_what_lingers()
        pending = self._unanswered.wait(unanswered, timeout, self.network_thread.clock)
        if pending:
            msg = f"{pending} batches were not acknowledged within {timeout} ms"
            raise KafkaTimeout(msg)

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush for at most ``timeout_ms``, then fail the rest. May be called again, and after the thread has died.

        The default is that of :meth:`flush`.

        An open transaction is aborted instead; a pending commit or abort is waited for. Callers that wait in
        :meth:`send` get ClientClosed at once. With a timeout of 0 everything is dropped, as by :meth:`close_async`;
        so it is in a callback on the network thread, and after a fork, as the batches belong to the other process.
        """
        deadline_ms, timeout = self._delivery_timer(0 if self.network_thread.is_current else timeout_ms)
        if not self._stop_sending():
            return
        try:
            # LeaveEvent fails what is left.
            with contextlib.suppress(KafkaError):
                if timeout > 0:
                    self._end_transaction(deadline_ms)  # as long as there is one
                    self.flush(self._left_ms(deadline_ms))
        finally:
            leave = LeaveEvent(self.core, *self.network_thread.timer(None))
            leave_and_release(self.network_thread, leave, self._left_ms(deadline_ms))

    def _delivery_timer(self, timeout_ms: int | None) -> tuple[int, int]:
        """Return (deadline, timeout) in ms; by default one in which every batch gets its outcome."""
        outcome_ms = self._settings.delivery_timeout_ms + self._settings.cluster.request_timeout_ms
        wanted_ms = arguments.timeout(timeout_ms)
        return self.network_thread.timer(outcome_ms if wanted_ms is None else wanted_ms)

    def close_async(self) -> Future[None]:
        """Drop everything without waiting; the future completes, without an error, when that is done.

        Unacknowledged batches fail with ClientClosed. An open transaction is aborted by the next
        ``init_transactions()`` of its ``transactional.id``, in this process or another, otherwise by its coordinator
        after ``transaction.timeout.ms``.
        """
        left: Future[None] = Future()
        left.set_running_or_notify_cancel()
        if not self._stop_sending():
            left.set_result(None)
            return left
        thread = self.network_thread
        leave = LeaveEvent(self.core, *thread.timer(None))

        def gone(_: Future[None]) -> None:
            release(thread)  # on the network thread, which cannot wait for its own end
            left.set_result(None)

        leave.future.add_done_callback(gone)
        try:
            thread.submit(None, leave)
        except (ClientClosed, NetworkThreadDied) as error:
            leave.fail(error)
        return left

    def _stop_sending(self) -> bool:
        """Mark as closed and end all waits; return whether there is something to close: not after a fork, nor twice."""
        if self._closed or self.network_thread.left_behind:
            self._closed = True
            return False
        self._closed = True
        self._memory.close()
        self._asked.end(self.network_thread)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        # Do not wait after an error: its caller retries everything, if at all.
        batches, transaction = len(self._unanswered), "; its transaction is left open" if self._in_transaction else ""
        if batches or transaction:
            text = "%r is closed because of %s: %d batches without an acknowledgement are dropped%s"
            _log.warning(text, self, kind.__name__, batches, transaction)
        self.close(0)
