"""The queue of one partition: order, sequences and epochs (KIP-98, KIP-185, KIP-360). No I/O."""

from __future__ import annotations

import itertools
import operator
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mirror.cluster.connection.pools import Slot
from mirror.cluster.types import TopicPartition
from mirror.errors import ClientClosed, KafkaError, WrongState
from mirror.producer.batch.batches import ProducerBatch
from mirror.wire.integers import INT16_MAX

SEQUENCES: Final = 2**31
"""Sequence numbers wrap here (``DefaultRecordBatch.incrementSequence``)."""
_EXPIRES: Final = operator.attrgetter("expires_ms")
LAST_EPOCH: Final = INT16_MAX
LAST_ADOPTABLE_EPOCH: Final = LAST_EPOCH - 2
"""The last epoch that a partition may adopt. Coordinators end a producer id at the next one (``TransactionMetadata.
isEpochExhausted``): a fence after that has another id, and would not shut out the batches of this one."""
_REMEMBERED_FOR_MS: Final = 3_600_000
"""How long a broker is assumed to remember a producer id (the default of ``producer.id.expiration.ms`` is a day)."""

_MAX_BROKEN_CHAINS: Final = 8
"""Broken chains that a partition remembers: a caller that began so many later ones sends nothing more in the first."""


class ProducerId(NamedTuple):
    """The producer id and epoch that a broker identifies a producer by."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, with their sequences and producer epoch. Times in ms.

    Each partition has an epoch of its own, since brokers keep it by partition: a loss in one does not affect others.
    """

    tp: TopicPartition
    waiting: deque[ProducerBatch] = field(default_factory=deque)
    """In order; batches to be retried are first."""
    in_flight: list[ProducerBatch] = field(default_factory=list)
    """In the order of sending."""
    identity: ProducerId | None = None
    next_sequence: int = 0
    gaps: list[ProducerBatch] = field(default_factory=list)
    """Batches that were given up after they got their sequences, in order, and may not be in the log: the sequences of
    their successors may be too high. Nothing new is sent until either a later response shows that they were written, or
    the epoch is bumped and sequences restart at 0."""
    failures: int = 0
    concurrent_failures: int = 0
    """CONCURRENT_TRANSACTIONS responses in a row."""
    not_before_ms: int = 0
    retry_epoch: int = -1
    """The leader epoch in which the last attempt failed."""
    slot: Slot | None = None
    """The connection of the batches in flight."""
    slow: bool = False
    """Its last request timed out: other partitions must not wait behind it."""
    topic_id: uuid.UUID | None = None
    last_error: KafkaError | None = None
    last_ack_ms: int | None = None
    transaction: int = 0
    """The number of the transaction of its batches in flight."""
    joined_transaction: int = 0
    """The number of the last transaction in which a batch of it was acknowledged."""
    broken: dict[int, KafkaError] = field(default_factory=dict)
    """The last chains that lost a batch, with the error."""
    adopted: int | None = None
    """The only chain that sends here, under the identity that the partition has adopted; None: it has adopted none."""
    leader_epoch: int = -1
    """The leader epoch in which its last batch was sent."""
    last_adopted: ProducerId | None = None
    own_identity: ProducerId | None = None
    """The identity that it had from its own producer before it adopted another one."""
    used_up: bool = False
    """Its identity was used before, by sequences that are not known any more."""
    _known_to_broker: bool = False

    @property
    def gap(self) -> ProducerBatch | None:
        """The last gap."""
        return self.gaps[-1] if self.gaps else None

    def oldest_incomplete(self) -> ProducerBatch | None:
        """Return the batch that expires first of those whose callers wait.

        ``waiting`` is in order, and none is completed.
        """
        incomplete = [batch for batch in self.in_flight if not batch.completed]
        return min((*incomplete, *itertools.islice(self.waiting, 1)), key=_EXPIRES, default=None)

    def broken_by(self, batch: ProducerBatch) -> KafkaError | None:
        """Return the error of its chain, if that lost a batch."""
        return None if batch.chain is None else self.broken.get(batch.chain)

    def break_chain(self, chain: int, error: KafkaError) -> None:
        """Record that ``chain`` lost a batch by ``error``."""
        self.broken[chain] = error
        if len(self.broken) > _MAX_BROKEN_CHAINS:
            del self.broken[next(iter(self.broken))]

    # --- whose identity it has

    # Invariant: A partition that has adopted the identity of a fence never bumps its epoch: once a batch is lost or
    #   refused, its chain sends nothing more, because only the next fence can find out what was appended.
    # Test: tests/producer/test_adopted.py::test_a_refused_batch_ends_the_chain_and_never_bumps_the_epoch
    def adopting(self, identity: ProducerId, chain: int) -> PartitionQueue:
        """Return the queue that replaces this one, as the batches of ``chain`` carry ``identity`` from now on.

        A second adoption of the same identity breaks the chain: its sequences would be taken for repetitions.
        """
        queue = self._successor()
        last = self.last_adopted
        queue.adopted, queue.identity, queue.last_adopted = chain, identity, identity
        queue.own_identity = self.identity if self.adopted is None else self.own_identity
        if last is not None and last.producer_id == identity.producer_id and last.epoch >= identity.epoch:
            queue.last_adopted = last
            known = f"epoch {last.epoch} of producer id {last.producer_id}"
            error = WrongState(f"{self.tp} cannot adopt epoch {identity.epoch}: it has adopted {known} before")
            queue.break_chain(chain, error)
        return queue

    def released(self) -> PartitionQueue:
        """Return the queue that replaces this one, as its adopted identity is no longer used."""
        queue = self._successor()
        queue.last_adopted = self.last_adopted
        # Batches of its own may have been abandoned in doubt, so that their sequences cannot be continued.
        queue.identity, queue.used_up = self.own_identity, self.own_identity is not None
        return queue

    def _successor(self) -> PartitionQueue:
        return PartitionQueue(self.tp, broken=self.broken, slow=self.slow)

    def refusal(self, batch: ProducerBatch) -> KafkaError | None:
        """Return the error of a batch that must not be queued; None if it may."""
        if self.adopted is not None and batch.chain != self.adopted:
            return ClientClosed(f"{self.tp}: only chain {self.adopted} sends here, not {batch.chain}")
        return self.broken_by(batch)

    # --- what may be sent

    @property
    def has_acknowledgement(self) -> bool:
        """Whether any batch of it was ever acknowledged."""
        return self.last_ack_ms is not None

    def ready_in_ms(self, linger_ms: int, flushed_ms: int, now: int) -> int:
        """Return ms until the first waiting batch has lingered; 0 if it does not have to."""
        first = self.waiting[0]
        if first.complete or first.attempts or len(self.waiting) > 1 or first.created_ms <= flushed_ms:
            return 0
        return max(0, first.created_ms + linger_ms - now)

    # Invariant: The first batch that a leader receives from a producer id goes alone: a leader that does not know the
    #   id accepts any sequence.
    # Test: tests/producer/test_unresolved.py::test_the_first_batch_that_a_leader_gets_goes_alone
    def sendable(self, max_in_flight: int, now: int) -> bool:
        """Whether order allows to send the first waiting batch now.

        A retried batch is sent alone: those that were sent behind it are refused as out of order and follow it, and
        further ones could make the broker, which remembers five batches, forget that it was written. The first batch
        that a broker receives from a producer id is sent alone, too: otherwise it would accept its successor without
        it.
        """
        if not self.waiting:
            return False
        if not self.in_flight:
            return True
        # Only the first in flight can be a retried one, since that was sent alone.
        retried = self.waiting[0].attempts > 0 or self.in_flight[0].attempts > 1
        return len(self.in_flight) < max_in_flight and not self.gaps and not retried and self._remembered(now)

    def _remembered(self, now: int) -> bool:
        return self._known_to_broker and self.last_ack_ms is not None and now - self.last_ack_ms < _REMEMBERED_FOR_MS

    @property
    def is_joining(self) -> bool:
        """Whether its first batch in this transaction is in flight: the leader verifies, or adds, the partition."""
        return bool(self.in_flight) and self.joined_transaction != self.transaction

    def will_join(self, transaction: int) -> bool:
        """Whether it has a batch in flight or ready, and none acknowledged in ``transaction`` so far."""
        if self.joined_transaction == transaction:
            return False
        return bool(self.in_flight) or (bool(self.waiting) and self.waiting[0].complete)

    # Invariant: A batch in doubt keeps its sequence until it is answered or expires: under another one it could be
    #   written twice.
    # Test: tests/producer/test_unresolved.py::test_a_batch_in_doubt_behind_a_gap_keeps_its_sequence_until_it_expires
    @property
    def needs_new_epoch(self) -> bool:
        """Whether the first waiting batch cannot be sent with the current epoch and sequences.

        A batch in doubt keeps its sequence and is sent with it until a response, or until it expires: an attempt
        without a response may still reach the broker, and with another sequence the batch would be written twice. If
        the first batch is not in doubt, those behind it cannot have been written either.
        """
        stale = self.used_up or self.gap is not None
        return stale and not self.in_flight and not (self.waiting and self.waiting[0].in_doubt)

    @property
    def exhausted(self) -> bool:
        """Whether there is no next epoch, so that another producer id is needed."""
        return self.identity is not None and self.identity.epoch >= LAST_EPOCH

    def use_topic_id(self, topic_id: uuid.UUID | None) -> None:
        """Use the topic id of the metadata: another one means an empty log, which does not know this producer."""
        if topic_id is None or topic_id is self.topic_id or self.in_flight:
            return
        if self.topic_id is not None and topic_id != self.topic_id:
            self._known_to_broker = False
        self.topic_id = topic_id

    def is_recreated(self, topic_id: uuid.UUID | None) -> bool:
        """Whether ``topic_id`` of the metadata is another one than that of its batches."""
        return None not in (topic_id, self.topic_id) and topic_id != self.topic_id

    # Invariant: Nothing goes to a new leader while the former one owes a response, and the first batch to a leader goes
    #   alone, also to the same broker elected again.
    # Test: tests/producer/
    #   test_unready_leaders.py::test_nothing_goes_to_a_new_leader_while_an_older_batch_is_unanswered_at_the_old_one
    # Test: tests/producer/test_adopted.py::test_one_batch_goes_alone_to_a_new_leader
    def may_use_leader(self, leader_epoch: int) -> bool:
        """Return whether a batch may be sent to the leader of this epoch.

        The first one waits for those that were sent in another epoch, and is sent alone: this leader may lack what the
        former one acknowledged (an unclean election), and only its response shows whether it does.
        """
        if leader_epoch != self.leader_epoch:
            if self.in_flight:
                return False
            self.leader_epoch, self._known_to_broker = leader_epoch, False
        return True

    def restart(self, identity: ProducerId) -> None:
        """Continue under ``identity`` with sequences from 0. Nothing may be in flight."""
        if self.identity is not None and identity.producer_id != self.identity.producer_id:
            self._known_to_broker = False
        self.identity, self.next_sequence, self.gaps, self.used_up = identity, 0, [], False
        for batch in self.waiting:
            batch.sequence = None

    def bump(self) -> None:
        """Continue in the next epoch of the same producer id, as an idempotent producer may (KIP-360)."""
        assert self.identity is not None  # noqa: S101 - something has been sent under it
        self.restart(ProducerId(self.identity.producer_id, self.identity.epoch + 1))

    def drain(self, slot: Slot, now: int, *, transactional: bool) -> ProducerBatch:
        """Remove and return the first waiting batch, sealed, with its sequence, to be sent on ``slot``."""
        assert self.identity is not None  # noqa: S101 - obtained before anything is drained
        self.slot = slot
        batch = self.waiting.popleft()
        sealed = batch.seal()
        if batch.sequence is None:
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + sealed.count) % SEQUENCES
            sealed.patch(*self.identity, batch.sequence, transactional=transactional)
        batch.sent(now)
        self.in_flight.append(batch)
        return batch

    # --- what was answered

    def acknowledged(self, batch: ProducerBatch, now: int) -> None:
        """Record that ``batch``, and with it everything before it, is in the log."""
        self.in_flight.remove(batch)
        self.failures = self.concurrent_failures = self.not_before_ms = 0
        self.last_ack_ms, self._known_to_broker, self.slow = now, True, False
        self.joined_transaction = self.transaction
        self.gaps = [gap for gap in self.gaps if sequenced_before(batch, gap)]

    # Invariant: Batches of a partition are written once and in order, however many are in flight when one has to be
    #   retried.
    # Test: tests/producer/test_idempotence.py::test_multiple_inflight_retried_in_order
    def requeue(self, batch: ProducerBatch) -> None:
        """Move ``batch`` from in flight to waiting, before every batch that was sent after it."""
        self.in_flight.remove(batch)
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        index = 0
        for other in self.waiting:
            if other.sequence is None or not sequenced_before(other, batch):
                break
            index += 1
        self.waiting.insert(index, batch)

    # Invariant: Nothing new is sent behind a batch that was given up, before it is known to be written or the producer
    #   epoch is bumped.
    # Test: tests/producer/test_unresolved.py::test_nothing_new_is_sent_before_a_given_up_batch_is_resolved
    def leave_gap(self, batch: ProducerBatch) -> None:
        """Record that ``batch`` is not sent again: if it has a sequence, it leaves a gap."""
        if batch.sequence is not None and batch not in self.gaps:
            self.gaps.insert(sum(sequenced_before(gap, batch) for gap in self.gaps), batch)

    def is_earliest(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch of this partition is unacknowledged."""
        return not any(b.sequence is not None and sequenced_before(b, batch) for b in (*self.in_flight, *self.waiting))

    # Invariant: "Out of order" means that acknowledged data are lost only if no earlier batch is missing, unanswered or
    #   to be retried.
    # Test: tests/producer/test_idempotence.py::test_out_of_order_sequence_surfaces_as_data_loss
    def expects_out_of_order_sequence(self, batch: ProducerBatch) -> bool:
        """Whether OUT_OF_ORDER_SEQUENCE is expected for ``batch``, since one before it is not written (yet)."""
        return any(sequenced_before(gap, batch) for gap in self.gaps) or not self.is_earliest(batch)

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], *, transactional: bool) -> None:
        """Replace ``batch``, which is in flight, by ``parts`` with its sequences."""
        assert batch.sequence is not None and self.identity is not None  # noqa: S101, PT018 - it was sent
        self.in_flight.remove(batch)
        sequence = batch.sequence
        for part in parts:
            part.sequence = sequence
            sealed = part.seal()
            sealed.patch(*self.identity, sequence, transactional=transactional)
            sequence = (sequence + sealed.count) % SEQUENCES
            self._insert(part)


def sequenced_before(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether ``batch`` has an earlier sequence than ``other``, across the wrap."""
    assert batch.sequence is not None  # noqa: S101 - callers compare drained batches only
    assert other.sequence is not None  # noqa: S101 - as above
    distance = (other.sequence - batch.sequence) % SEQUENCES
    return 0 < distance < SEQUENCES // 2
