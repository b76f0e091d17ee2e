"""Processes the responses to Produce: batches are acknowledged, retried, split or failed. No I/O."""

from __future__ import annotations

from typing import Final

from mirror.backoff import Backoff
from mirror.cluster.loop import ClusterLoop
from mirror.cluster.topic_state import Leader
from mirror.cluster.types import TopicPartition
from mirror.errors import (
    AcknowledgedRecordsLost,
    CorruptBatch,
    InvalidArgument,
    KafkaError,
    NotRetriable,
    UnsupportedVersion,
)
from mirror.producer.batch.accumulator import Accumulator
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.queue import PartitionQueue
from mirror.producer.settings import ProducerSettings
from mirror.producer.txn.coordinator_client import CONCURRENT_ATTEMPTS, CONCURRENT_BACKOFF_MS
from mirror.producer.txn.transactions import Transactions
from mirror.wire.error_codes import (
    CONCURRENT_TRANSACTIONS,
    CORRUPT_MESSAGE,
    MESSAGE_TOO_LARGE,
    NOT_ACKNOWLEDGED,
    NOT_ENOUGH_REPLICAS,
    OUT_OF_ORDER_SEQUENCE,
    REQUEST_TIMED_OUT,
    ErrorAction,
    broker_error,
    verdict,
)
from mirror.wire.messages.produce import ProduceResponse, ProduceResponsePartition

_FINAL: Final = {ErrorAction.FATAL, ErrorAction.FENCED, ErrorAction.ABORTABLE}


class ProduceResponseHandler:
    """Processes the responses to Produce, and requests that end without one."""

    def __init__(
        self, settings: ProducerSettings, loop: ClusterLoop, batches: Accumulator, transactions: Transactions | None
    ) -> None:
        self._retries = settings.retries
        self._metadata = loop.metadata
        self._backoff = Backoff(settings.cluster.retry_backoff_ms, settings.cluster.retry_backoff_max_ms, loop.rng)
        self._batches = batches
        self._transactions = transactions

    def on_failure(self, error: KafkaError, batches: list[ProducerBatch], now: int) -> None:
        """Process requests that ended without a response: each batch may have been written, or not."""
        self._metadata.request_update()
        for batch in batches:
            queue = self._awaiting_queue(batch, now)
            if queue is None:
                continue
            # A partition whose request timed out may do so again: others must not wait behind it.
            queue.slow = queue.slow or isinstance(error, TimeoutError)
            if isinstance(error, (UnsupportedVersion, InvalidArgument)):
                batch.refused()  # it was never sent
            if isinstance(error, NotRetriable):
                self._batches.give_up(batch, error)
            else:
                self._retry(queue, batch, error, now)

    def on_response(self, response: ProduceResponse, batches: list[ProducerBatch], now: int) -> None:
        """Process the response for each batch."""
        by_tp: dict[TopicPartition, ProduceResponsePartition] = {}
        for topic in response.responses:
            name = topic.name or (self._metadata.topic_name(topic.topic_id) if topic.topic_id else None) or ""
            for part in topic.partition_responses:
                by_tp[TopicPartition(name, part.index)] = part
        for batch in batches:
            queue = self._awaiting_queue(batch, now)
            if queue is None:
                continue
            answer = by_tp.get(batch.tp)
            if answer is None:
                self._retry(queue, batch, KafkaError(f"{batch.tp}: the broker's answer leaves it out"), now)
            else:
                self._on_answer(queue, batch, answer, response.throttle_time, now)

    def _awaiting_queue(self, batch: ProducerBatch, now: int) -> PartitionQueue | None:
        """Return the queue of ``batch``; None if the batch was abandoned."""
        batch.attempt_ended(now)
        queue = self._batches.queue(batch.tp)
        if batch in queue.in_flight:
            return queue
        self._batches.release_abandoned(batch)
        return None

    def _on_answer(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        answer: ProduceResponsePartition,
        throttle_ms: int,
        now: int,
    ) -> None:
        code = answer.error_code
        outcome = verdict(code)
        if outcome is ErrorAction.OK or outcome is ErrorAction.DUPLICATE:
            offset = answer.base_offset if outcome is ErrorAction.OK else -1
            if 0 <= offset < batch.log_end:
                # Before the transaction's end: a commit would leave the records behind a gap, where nothing mends it.
                self._batches.give_up(batch, _lost_before(batch, offset))
                return
            self._batches.acknowledged(batch, offset, throttle_ms, now)
            return
        error: KafkaError = broker_error(code, f"writing to {batch.tp}", _detail(answer), needs="Write")
        # A leader that wrote the batch, and then lost its leadership or its disk, returns the offset (DelayedProduce).
        if answer.base_offset < 0 and (code == NOT_ENOUGH_REPLICAS or code not in NOT_ACKNOWLEDGED):
            batch.refused()
        # Written, but not by all in-sync replicas in time: others must not wait behind another such request.
        queue.slow = queue.slow or code == REQUEST_TIMED_OUT
        if _is_final(code, outcome, queue, batch):
            if code == OUT_OF_ORDER_SEQUENCE:
                self._batches.fail_behind(batch, error)
            if code != MESSAGE_TOO_LARGE or not self._split(batch):
                self._batches.give_up(batch, self._final_error(batch, code, outcome, error, now))
            return
        if code == CONCURRENT_TRANSACTIONS and queue.concurrent_failures < CONCURRENT_ATTEMPTS:
            self._wait_for_markers(queue, batch, error, now)
            return
        # Retry first: that records the epoch of the leader that failed, and a newer leader needs no backoff.
        self._retry(queue, batch, error, now)
        if outcome is ErrorAction.REFRESH_METADATA:
            leader = answer.current_leader
            if leader is not None and leader.leader_id >= 0:
                self._metadata.use_leader(batch.tp, Leader(leader.leader_id, leader.leader_epoch))
            self._metadata.request_update((batch.tp.topic,))

    def _final_error(
        self, batch: ProducerBatch, code: int, outcome: ErrorAction, error: KafkaError, now: int
    ) -> KafkaError:
        if code == CORRUPT_MESSAGE:
            return CorruptBatch(
                f"{batch.tp}: a batch was damaged in memory before it was sent; check this host's memory"
            )
        if outcome is ErrorAction.FENCED and self._transactions is not None:
            return self._transactions.fenced(error, now)
        return error

    def _split(self, batch: ProducerBatch) -> bool:
        """Split a batch of single records that is too large in two halves; return False if that is impossible."""
        if batch.completed or batch.in_doubt or batch.open is None:
            return False
        halves = batch.open.split()
        if not halves:
            return False
        parts = [ProducerBatch(batch.tp, None, batch.created_ms, half.limit, open=half) for half in halves]
        batch.split_into(parts)
        self._batches.replace(batch, parts, transactional=self._transactions is not None)
        return True

    def _wait_for_markers(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, now: int) -> None:
        """Retry without counting a failure: the end of the last transaction is still being written."""
        batch.attempts -= 1
        failures = queue.failures
        self._retry(queue, batch, error, now)
        queue.failures = failures
        queue.concurrent_failures += 1
        queue.not_before_ms = now + CONCURRENT_BACKOFF_MS

    def _retry(self, queue: PartitionQueue, batch: ProducerBatch, error: KafkaError, now: int) -> None:
        batch.last_error = error
        failure = self._transactions.failure() if self._transactions is not None else None
        failure = failure or queue.broken_by(batch)
        if batch.completed or failure is not None or batch.attempts > self._retries:
            self._batches.give_up(batch, failure or error)
            return
        if queue.is_earliest(batch):
            queue.failures += 1
            queue.not_before_ms = now + self._backoff.after(queue.failures)
            leader = self._metadata.leader(batch.tp)
            queue.retry_epoch = leader.epoch if leader is not None else -1
        queue.requeue(batch)


def _is_final(code: int, outcome: ErrorAction, queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Return whether ``batch`` is not sent again as it is."""
    if code == CORRUPT_MESSAGE:
        return batch.is_damaged()
    # Behind a batch that is retried this error is expected; for the first batch it means that data was lost.
    expected = code == OUT_OF_ORDER_SEQUENCE and queue.expects_out_of_order_sequence(batch)
    return outcome in _FINAL and not expected


def _lost_before(batch: ProducerBatch, offset: int) -> AcknowledgedRecordsLost:
    text = f"{batch.tp}: a batch was acknowledged at offset {offset}, where the log had reached to {batch.log_end}"
    return AcknowledgedRecordsLost(text, offset, batch.log_end)


def _detail(answer: ProduceResponsePartition) -> str | None:
    texts = [e.batch_index_error_message for e in answer.record_errors if e.batch_index_error_message]
    return answer.error_message or (texts[0] if texts else None)
