"""The calls by which a producer sends under an identity that a fence of the partition has given."""

from __future__ import annotations

from mirror.cluster.events import Event
from mirror.cluster.types import TopicPartition
from mirror.errors import InvalidArgument, WrongState
from mirror.producer.batch.queue import LAST_ADOPTABLE_EPOCH, ProducerId
from mirror.producer.events import AdoptEvent, ReleaseEvent
from mirror.runtime import arguments
from mirror.runtime.transactional import TransactionCalls


def _chain(chain: int) -> int:
    if type(chain) is not int:
        msg = f"chain must be an int, not {type(chain).__name__}"
        raise InvalidArgument(msg)
    return chain


class AdoptionCalls(TransactionCalls):
    """The part of a Producer that gives partitions the identity of a fence (`adopt`), and takes it away again.

    Every call raises WrongState for a producer with a ``transactional.id``, InvalidArgument, and ClientClosed.
    """

    def adopt(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        """Let batches of ``tp`` carry ``identity``, which a fence of that partition has given, with sequences from 0.

        A fence is a transaction with the partition (:meth:`add_partitions`), whose end writes a marker of this producer
        id and epoch there. From now on only batches of ``chain`` are sent to ``tp``, and after one of them is lost or
        refused (Fenced, OutOfOrderSequence, DeliveryTimeout), no later one: the epoch is never bumped. Whatever was
        queued or in flight before fails with ClientClosed, without a new attempt to send it. An identity cannot be
        adopted twice.

        Raises WrongState for a producer with a ``transactional.id``, InvalidArgument, ClientClosed.
        """
        tp = arguments.partition(tp)
        adopted = ProducerId(*arguments.producer_id(identity, LAST_ADOPTABLE_EPOCH))
        self._submit_adoption("adopt()", AdoptEvent(tp, adopted, _chain(chain)))

    def release(self, tp: TopicPartition) -> None:
        """Forget the identity that ``tp`` has adopted, if any; its batches without an outcome fail with ClientClosed.

        Later ones carry this producer's own identity, unless they are of a former chain. Raises as :meth:`adopt` does.
        """
        self._submit_adoption("release()", ReleaseEvent(arguments.partition(tp)))

    def _submit_adoption(self, call: str, event: Event) -> None:
        self.network_thread.check_process()
        self._check_open()
        if self._transactional_id is not None:
            msg = f"{call}: the producer of {self._transactional_id!r} sends under its own identity only"
            raise WrongState(msg)
        self.network_thread.submit(self.core, event)
