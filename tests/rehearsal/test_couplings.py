"""Topics that stay behind although transactions couple them to topics that move."""

from __future__ import annotations

from mirror.client import ProducerState, TopicPartition
from mirror.spark.rehearsing.couplings import Coupling, couplings, transactional


def state(producer_id: int, coordinator_epoch: int = 3, transaction_start: int | None = None) -> ProducerState:
    """A producer of transactions, as a leader remembers it."""
    return ProducerState(producer_id, 0, 1_000, coordinator_epoch, transaction_start)


def found(**producers: ProducerState) -> dict[str, Coupling]:
    """What couples topics to ``t`` and ``v``, each with one producer."""
    return dict(
        couplings(((TopicPartition(topic, 0), transactional([one])) for topic, one in producers.items()), ["t", "v"])
    )


def test_topics_that_a_transaction_spans_are_coupled() -> None:
    assert found(t=state(1), u=state(1), v=state(1)) == {"u": Coupling({"t", "v"}, {1})}
    assert found(t=state(1), u=state(2)) == {}
    assert found(u=state(1), w=state(1)) == {}
    open_ = state(1, coordinator_epoch=-1, transaction_start=0)
    assert found(t=open_, u=open_) == {"u": Coupling({"t"}, {1})}
    idempotent = state(1, coordinator_epoch=-1)
    assert found(t=idempotent, u=idempotent) == {}
