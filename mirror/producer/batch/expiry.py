"""The error of a batch that outlived ``delivery.timeout.ms``: in which phase, and for what cause (KIP-91). Pure.

:meth:`.accumulator.Accumulator.expire` decides when a batch expires.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mirror.cluster.metadata import Metadata
from mirror.cluster.requests import Network
from mirror.errors import BrokerError, ConnectionFailed, DeliveryCause, DeliveryPhase, DeliveryTimeout, KafkaError
from mirror.producer.batch.batches import ProducerBatch
from mirror.producer.batch.queue import PartitionQueue
from mirror.wire.error_codes import CONCURRENT_TRANSACTIONS, NOT_ACKNOWLEDGED, ErrorAction, verdict

_LEADERLESS: Final = {ErrorAction.REFRESH_METADATA}


@dataclass(frozen=True, slots=True)
class Expiry:
    """Builds the error from the state of the batch's partition.

    ``waits_for_coordinator`` returns the phase that the producer itself waits in (for its id, or for a partition to be
    added to the transaction) with the last error; None if it waits for nothing.
    """

    metadata: Metadata
    network: Network
    delivery_timeout_ms: int
    waits_for_coordinator: Callable[[PartitionQueue], tuple[DeliveryPhase, KafkaError | None] | None]

    def error(self, queue: PartitionQueue, batch: ProducerBatch, now: int) -> DeliveryTimeout:
        """Return the error of ``batch``, which is in ``queue``, waiting or in flight."""
        phase, cause, last = self._classify(queue, batch, now)
        age_ms, in_flight_ms = now - batch.created_ms, batch.time_in_flight_ms(now)
        error = DeliveryTimeout(
            f"{batch.tp}: a batch of {batch.count} records was not acknowledged within "
            f"{self.delivery_timeout_ms} ms (age {age_ms} ms, {in_flight_ms} ms of it in flight, "
            f"{batch.attempts} attempts; {phase.value}, {cause.value})"
            + (f": {last}" if last else "")
            + ("; it may have been written all the same" if batch.in_doubt else ""),
            topic=batch.tp.topic,
            partition=batch.tp.partition,
            record_count=batch.count,
            age_ms=age_ms,
            queued_ms=max(0, age_ms - in_flight_ms),
            in_flight_ms=in_flight_ms,
            attempts=batch.attempts,
            phase=phase,
            cause=cause,
            last_error=last,
            may_have_been_written=batch.in_doubt,
        )
        error.__cause__ = last
        return error

    def _classify(
        self, queue: PartitionQueue, batch: ProducerBatch, now: int
    ) -> tuple[DeliveryPhase, DeliveryCause, KafkaError | None]:
        if batch in queue.in_flight:
            return DeliveryPhase.IN_FLIGHT, _cause(batch.last_error) or DeliveryCause.NO_ANSWER, batch.last_error
        coordinator = self.waits_for_coordinator(queue)
        if coordinator is not None:
            phase, last = coordinator
            return phase, DeliveryCause.COORDINATOR, batch.last_error or last
        leader = self.metadata.leader(batch.tp)
        if leader is None:
            last = batch.last_error or self.metadata.why_unknown(batch.tp)
            return DeliveryPhase.METADATA, _cause(last) or DeliveryCause.NO_LEADER, last
        last_error = batch.last_error or self.network.trouble(leader.node)
        cause = _cause(last_error)
        if cause is not None:
            return DeliveryPhase.QUEUE, cause, last_error
        if self.network.throttled(leader.node, now):
            return DeliveryPhase.QUEUE, DeliveryCause.THROTTLED, None
        return DeliveryPhase.QUEUE, *self._blocked_by(queue, batch)

    @staticmethod
    def _blocked_by(queue: PartitionQueue, batch: ProducerBatch) -> tuple[DeliveryCause, KafkaError | None]:
        """The batches ahead delayed it: a backlog if they were acknowledged, otherwise their cause is its cause."""
        if queue.last_ack_ms is not None and queue.last_ack_ms > batch.created_ms:
            return DeliveryCause.BACKLOG, None
        # Including those that have just expired: the whole queue may expire at the same time.
        ahead_in_queue = itertools.takewhile(lambda other: other is not batch, queue.waiting)
        ahead = next((other for other in (*queue.in_flight, *ahead_in_queue, *queue.gaps) if other.attempts), None)
        if ahead is None:
            return DeliveryCause.BACKLOG, None
        return _cause(ahead.last_error) or DeliveryCause.NO_ANSWER, ahead.last_error


def _cause(error: KafkaError | None) -> DeliveryCause | None:
    """The cause that a partition's last error points to; None without an error."""
    if error is None:
        return None
    if isinstance(error, BrokerError):
        if error.code in NOT_ACKNOWLEDGED:
            return DeliveryCause.NOT_ENOUGH_REPLICAS
        if error.code == CONCURRENT_TRANSACTIONS:
            return DeliveryCause.COORDINATOR  # the control batches of the last transaction are not written yet
        return DeliveryCause.NO_LEADER if verdict(error.code) in _LEADERLESS else DeliveryCause.REFUSED
    return DeliveryCause.NO_ANSWER if isinstance(error, (ConnectionFailed, TimeoutError)) else DeliveryCause.REFUSED
