"""Whole copies by one way after another between clusters in memory. Which way a batch goes: tests/relay/batches."""

from __future__ import annotations

import time

import pytest

from mirror.client import OffsetAndMetadata, Producer, TopicPartition
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.wire.api import Api
from tests.fakes.control import Action
from tests.fakes.record_batches import build
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch, brokers=2)


def write(pair: FakePair, value: bytes, *, young: bool) -> None:
    made_ms = int(time.time() * 1000) if young else 1_700_000_000_000
    pair.source.log("t").append(build((value,), timestamp=made_ms))


def said(result: RangeResult) -> tuple[Outcome, str, str]:
    return result.outcome, result.way, result.way_reason


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_the_pending_claim_of_a_killed_attempt_is_not_waited_for(pair: FakePair, by: str) -> None:
    """A copy by sequences waited, before it fenced anyone, until the transaction expired or it did itself."""
    write(pair, b"1", young=True)
    assert pair.copy(exactly_once_by=by).outcome is Outcome.COMPLETE
    write(pair, b"2", young=True)
    tp = TopicPartition("paris.t", 0)
    options = {"bootstrap.servers": pair.target.bootstrap, "transactional.id": transactional_id(FLOW, tp)}
    killed = Producer(options)
    killed.init_transactions()
    killed.begin_transaction()
    killed.send_offsets_to_transaction({tp: OffsetAndMetadata(1)}, group_of(FLOW, tp))
    try:
        result = pair.copy(exactly_once_by=by)
    finally:
        killed.close(timeout_ms=0)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert pair.values() == [b"1", b"2"]


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_what_was_appended_behind_the_progress_is_not_repeated(pair: FakePair, by: str) -> None:
    write(pair, b"1", young=True)
    assert pair.copy(exactly_once_by="sequences").outcome is Outcome.COMPLETE
    write(pair, b"2", young=True)
    # The attempt is killed before its lazy progress arrives: only its claim is left.
    assert pair.copy(exactly_once_by="sequences").outcome is Outcome.COMPLETE
    del pair.target.groups[lazy_group_of(FLOW, TopicPartition("paris.t", 0))]
    write(pair, b"3", young=True)
    result = pair.copy(exactly_once_by=by)
    assert (result.outcome, result.records) == (Outcome.COMPLETE, 2), "it counts what it finds"
    assert pair.values() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("by", ["sequences", "transactions"])
def test_what_went_in_transactions_before_the_claim_is_not_found_again(pair: FakePair, by: str) -> None:
    """A transaction commits a mark before its data has offsets: its last batches may be behind the mark."""
    for value in (b"1", b"2"):
        write(pair, value, young=True)
        assert pair.copy(exactly_once_by="transactions").outcome is Outcome.COMPLETE
    write(pair, b"3", young=True)
    assert pair.copy(exactly_once_by="sequences").outcome is Outcome.COMPLETE
    del pair.target.groups[lazy_group_of(FLOW, TopicPartition("paris.t", 0))]
    write(pair, b"4", young=True)
    result = pair.copy(exactly_once_by=by)
    assert result.outcome is Outcome.COMPLETE, result.error
    assert pair.values() == [b"1", b"2", b"3", b"4"]


def test_at_least_once_has_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FakePair(monkeypatch, exactly_once=False)
    write(pair, b"young", young=True)
    assert said(pair.copy(exactly_once_by="auto")) == (Outcome.COMPLETE, "", "")


def test_forced_sequences_are_tried_again_if_the_rules_cannot_be_read_now(pair: FakePair) -> None:
    write(pair, b"young", young=True)
    pair.target.control.on(Api.DESCRIBE_CONFIGS, Action(hold="before"), times=None)
    result = pair.copy(exactly_once_by="sequences")
    assert result.outcome is Outcome.UNFINISHED
    assert "no broker answered within 9 s" in str(result.error)
    pair.target.control.clear()
    assert pair.copy(exactly_once_by="sequences").outcome is Outcome.COMPLETE
    assert pair.values() == [b"young"]
