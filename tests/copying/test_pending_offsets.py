"""Offsets that stay pending, since the transaction that committed them has ended without a marker in their partition.

Brokers do so: a coordinator skips the marker of a partition that has no leader, and completes the transaction. Here a
commit that no coordinator knows of has the same effect. Brokers accept it if they do not verify it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.cluster.types import ConfigChange, ConfigOperation, ConfigResource
from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.relay.partition.writers import sequence_writer
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import group_of, to_offset
from mirror.wire.api import Api
from mirror.wire.messages.transactions import TxnOffsetCommitPartition, TxnOffsetCommitRequest, TxnOffsetCommitTopic
from tests.benchmarks.side_by_side.links import Link
from tests.copying.pair import TwoClusters
from tests.copying.test_sequences import claim_of, copy, fill, ways

pytestmark = pytest.mark.brokers

VERIFICATION = "transaction.partition.verification.enable"
SHORT = {"delivery.timeout.ms": 5_000, "request.timeout.ms": 2_000}


@pytest.fixture
def unverified(pair: TwoClusters) -> Iterator[None]:
    """While the test runs, the target's brokers ask no coordinator whether a commit belongs to a transaction."""
    every = ConfigResource.broker()
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        admin.incremental_alter_configs({every: [ConfigChange(VERIFICATION, "false")]})
        try:
            yield
        finally:
            admin.incremental_alter_configs({every: [ConfigChange(VERIFICATION, operation=ConfigOperation.DELETE)]})


def leave_pending(pair: TwoClusters, topic: str, offset: int) -> None:
    """Leave a claim of ``offset`` pending, as one whose marker was skipped."""
    tp = TopicPartition(topic, 0)
    identity, group = transactional_id(pair.flow, tp), group_of(pair.flow, tp)
    with Admin({"bootstrap.servers": pair.target.address}) as admin:
        producer = admin.describe_transactions([identity])[identity]
    claim = to_offset(claim_of(pair, topic))
    committed = TxnOffsetCommitPartition(0, offset, -1, claim.metadata)
    request = TxnOffsetCommitRequest(
        identity, group, producer.producer_id, producer.producer_epoch, (TxnOffsetCommitTopic(topic, (committed,)),)
    )
    with Link.to(pair.target.address) as link:
        answer: Any = link.ask(Api.TXN_OFFSET_COMMIT, request, 4)
    assert [one.error_code for each in answer.topics for one in each.partitions] == [0]


@pytest.mark.usefixtures("unverified")
def test_claim_without_a_marker_is_aborted(pair: TwoClusters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_writer, "PENDING_MS", 500)
    topic = pair.topics()
    for first in (0, 1_000):
        fill(pair, topic, first, 1_000)
        copy(pair, topic)
    leave_pending(pair, topic, 1_000_000)
    fill(pair, topic, 2_000, 1_000)
    (result,) = copy(pair, topic, writing=SHORT)
    assert (result.end, result.records) == (3_000, 1_000)
    pair.equal(topic)
    assert claim_of(pair, topic).offset <= 3_000
    assert set(ways(pair, topic)) == {Way.SEQUENCES}


@pytest.mark.usefixtures("unverified")
def test_offsets_of_transactions_that_stay_pending_are_explained(pair: TwoClusters) -> None:
    """They may belong to data that was committed, so they are not aborted."""
    topic = pair.topics()
    fill(pair, topic, 0, 1_000)
    copy(pair, topic, "transactions")
    leave_pending(pair, topic, 1_000_000)
    fill(pair, topic, 1_000, 1_000)
    (result,) = pair.copy(topic, writing=SHORT, exactly_once_by="transactions")
    assert result.outcome is Outcome.EXPIRED
    assert "kafka-transactions.sh find-hanging" in str(result.error)
