"""Copies by sequences whose producer epochs are almost used up."""

from __future__ import annotations

import time

import pytest

from mirror.client import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.partition.writers.fence import transactional_id
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import build
from tests.fakes.transactions import LAST_EPOCH
from tests.relay.fake_pair import FLOW, FakePair

TARGET = TopicPartition("paris.t", 0)
MARGIN = 100


def write(pair: FakePair, value: bytes) -> None:
    pair.source.log("t").append(build((value,), timestamp=int(time.time() * 1000)))


@pytest.mark.parametrize("level", [1, 2])
def test_attempt_in_the_last_epochs_fences_until_it_has_another_producer_id(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """Attempts that die before their markers are written use up epochs: a later fence must still have this id."""
    pair = FakePair(monkeypatch)
    pair.target.upgrade("transaction.version", level)
    write(pair, b"0")
    assert pair.copy(exactly_once_by="sequences").outcome is Outcome.COMPLETE
    pair.target.transactions.ids[transactional_id(FLOW, TARGET)].epoch = LAST_EPOCH - MARGIN // 2
    write(pair, b"1")
    result = pair.copy(exactly_once_by="sequences")
    assert (result.outcome, result.retries) == (Outcome.COMPLETE, 0), result.error
    assert pair.values() == [b"0", b"1"]
    first, second = (one for one in pair.log().batches() if not one.is_control)
    assert second.producer_id != first.producer_id
    assert second.producer_epoch < LAST_EPOCH - MARGIN


@pytest.mark.parametrize("level", [1, 2])
def test_what_is_appended_between_its_fences_is_found(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """Each fence is followed by a search of its own; the markers arrive late."""
    pair = FakePair(monkeypatch)
    pair.target.upgrade("transaction.version", level)
    write(pair, b"0")
    assert pair.copy(exactly_once_by="sequences").outcome is Outcome.COMPLETE
    transactions = pair.target.transactions.ids[transactional_id(FLOW, TARGET)]
    transactions.epoch = LAST_EPOCH - 3
    pair.target.marker_ms = 20
    now_ms = int(time.time() * 1000)
    pair.source.log("t").append(build((b"1",), base_offset=1, timestamp=now_ms))
    inits = list[ServerCall]()

    def append_before_the_second_fence(call: ServerCall) -> Action | None:
        if call.api is Api.INIT_PRODUCER_ID and call.body.transactional_id:
            inits.append(call)
            if len(inits) == 2:
                earlier = build(
                    (b"1",),
                    base_offset=pair.log().end_offset,
                    timestamp=now_ms,
                    producer_id=transactions.producer_id,
                    producer_epoch=transactions.epoch,
                )
                pair.log().append(earlier)
        return None

    pair.target.control.add(append_before_the_second_fence)
    result = pair.copy(exactly_once_by="sequences")
    assert result.outcome is Outcome.COMPLETE, result.error
    assert len(inits) >= 2
    assert pair.values() == [b"0", b"1"]
