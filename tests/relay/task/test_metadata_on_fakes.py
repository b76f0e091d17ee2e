"""A target that keeps the offset of a commit and drops its metadata, as Tansu does, or cuts it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.way import Way
from mirror.wire.messages.transactions import TxnOffsetCommitPartition
from tests.fakes.cluster import GroupOffset
from tests.fakes.record_batches import build
from tests.relay.fake_pair import FakePair


class YoungPair(FakePair):
    """Young records, so that they may be copied by sequences."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}

    def write(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.source.log("t", partition).append(build([value], timestamp=int(time.time() * 1000)))

    def error_of(self, by: str) -> str:
        """The error of a copy that fails."""
        result = self.copy(exactly_once_by=by)
        assert result.outcome is Outcome.FAILED
        return result.error or ""

    def copied(self, way: Way) -> RangeResult:
        result = self.copy(exactly_once_by=way)
        assert result.outcome is Outcome.COMPLETE, result.error
        return result


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> YoungPair:
    return YoungPair(monkeypatch)


@pytest.mark.parametrize("by", [Way.SEQUENCES, "auto"])
def test_nothing_is_sent_by_sequences_without_metadata(pair: YoungPair, by: str) -> None:
    pair.target.keeps_metadata = False
    pair.write(b"0", b"1")
    assert pair.error_of(by).startswith("metadata-not-kept: ")
    assert pair.values() == []


def test_metadata_that_was_cut_is_not_kept(pair: YoungPair, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = pair.target.committed

    def cut(part: TxnOffsetCommitPartition) -> GroupOffset:
        kept = keep(part)
        return replace(kept, metadata=(kept.metadata or "")[:64])

    monkeypatch.setattr(pair.target, "committed", cut)
    pair.write(b"0")
    assert "metadata-not-kept" in pair.error_of(Way.SEQUENCES)
    assert pair.values() == []


def test_way_that_the_error_advises_copies_each_record_once(pair: YoungPair) -> None:
    pair.target.keeps_metadata = False
    pair.write(b"0", b"1")
    assert "metadata-not-kept" in pair.error_of(Way.SEQUENCES)
    pair.copied(Way.TRANSACTIONS)
    pair.write(b"2")
    pair.copied(Way.TRANSACTIONS)
    assert pair.values() == [b"0", b"1", b"2"]
    assert "metadata-not-kept" in pair.error_of(Way.SEQUENCES), "also behind transactions"


def test_at_least_once_needs_no_metadata(pair: YoungPair) -> None:
    pair.target.keeps_metadata = pair.exactly_once = False
    for value in (b"0", b"1"):
        pair.write(value)
        assert pair.copy().outcome is Outcome.COMPLETE
    assert pair.values() == [b"0", b"1"]
