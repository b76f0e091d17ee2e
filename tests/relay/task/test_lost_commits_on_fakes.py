"""A partition of the target's ``__consumer_offsets`` loses its last commits; the data's partitions lose nothing."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mirror.relay.model.ranges import Outcome
from mirror.relay.model.way import Way
from mirror.relay.offsets import offset_topic
from mirror.wire.api import Api
from tests.fakes.log import PartitionLog
from tests.fakes.record_batches import batches_in, build
from tests.relay.fake_pair import FakePair

BOTH = pytest.mark.parametrize("way", [Way.SEQUENCES, Way.TRANSACTIONS])
COPIED = [b"0", b"1", b"2", b"3"]


class LosingPair(FakePair):
    """Young records, so that they may be copied by sequences."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool = True) -> None:
        super().__init__(monkeypatch, exactly_once=exactly_once)
        monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 10**9)  # a random merge asks where logs end
        self.target.admin.broker_configs[""] = {"producer.id.expiration.ms": str(86_400_000)}

    def write(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.source.log("t", partition).append(build([value], timestamp=int(time.time() * 1000)))

    @contextmanager
    def commits_are_lost(self) -> Iterator[None]:
        kept = copy.deepcopy(self.target.groups)
        yield
        self.target.groups.clear()
        self.target.groups.update(kept)

    def copy_and_lose(self, way: Way) -> None:
        """The commit of the last two of four records is lost."""
        self.write(b"0", b"1")
        assert self.copy(exactly_once_by=way).outcome is Outcome.COMPLETE
        with self.commits_are_lost():
            self.write(b"2", b"3")
            assert self.copy(exactly_once_by=way).outcome is Outcome.COMPLETE
        assert self.values() == COPIED


def clean(log: PartitionLog, number: int, value: bytes, delta: int) -> None:
    """The log cleaner keeps one record of the batch of this number."""
    at, end = log.index[number][2], log.index[number + 1][2]
    (one,) = batches_in(log.data[at:end])
    kept = build(
        (value,),
        deltas=(delta,),
        last_offset_delta=one.last_offset_delta,
        base_offset=one.base_offset,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        base_sequence=one.base_sequence,
        attributes=one.attributes,
        timestamp=one.base_timestamp,
    )
    log.data[at:end] = kept
    log.index[number + 1 :] = [
        (base, then, place + len(kept) - end + at) for base, then, place in log.index[number + 1 :]
    ]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> LosingPair:
    return LosingPair(monkeypatch)


@BOTH
@pytest.mark.parametrize("then", [Way.SEQUENCES, Way.TRANSACTIONS])
def test_nothing_is_doubled_whichever_way_the_next_attempt_goes(pair: LosingPair, way: Way, then: Way) -> None:
    pair.copy_and_lose(way)
    pair.write(b"4")
    result = pair.copy(exactly_once_by=then)
    assert (result.outcome, result.start, result.records) == (Outcome.COMPLETE, 2, 3), "what was found is counted"
    assert pair.values() == [*COPIED, b"4"]
    pair.write(b"5")
    assert pair.copy(exactly_once_by=then).outcome is Outcome.COMPLETE
    assert pair.values() == [*COPIED, b"4", b"5"]


def test_change_of_the_way_that_is_lost_doubles_nothing(pair: LosingPair) -> None:
    pair.write(b"0", b"1")
    pair.copy(exactly_once_by=Way.SEQUENCES)
    with pair.commits_are_lost():
        for number, way in enumerate((Way.TRANSACTIONS, Way.SEQUENCES, Way.TRANSACTIONS), 2):
            pair.write(b"%d" % number)
            assert pair.copy(exactly_once_by=way).outcome is Outcome.COMPLETE
    pair.write(b"5")
    assert pair.copy(exactly_once_by=Way.TRANSACTIONS).outcome is Outcome.COMPLETE
    assert pair.values() == [b"%d" % number for number in range(6)]


@BOTH
def test_records_of_others_are_passed_and_nothing_is_doubled(pair: LosingPair, way: Way) -> None:
    pair.write(b"0", b"1")
    pair.copy(exactly_once_by=way)
    pair.log().append_values(b"2", b"others")
    with pair.commits_are_lost():
        pair.write(b"2", b"3")
        pair.copy(exactly_once_by=way)
        pair.log().append_values(b"more of them")
    pair.write(b"4")
    assert pair.copy(exactly_once_by=way).outcome is Outcome.COMPLETE
    assert pair.values() == [b"0", b"1", b"2", b"others", b"2", b"3", b"more of them", b"4"]


@BOTH
def test_records_that_the_source_has_deleted_since_are_no_gap(pair: LosingPair, way: Way) -> None:
    """They are in the target. What is left of the source shows where the copy goes on."""
    pair.copy_and_lose(way)
    pair.source.log("t").delete_before(3)
    pair.write(b"4")
    result = pair.copy(exactly_once_by=way)
    assert (result.outcome, result.gaps) == (Outcome.COMPLETE, {}), result.error
    assert pair.values() == [*COPIED, b"4"]


@BOTH
def test_commits_of_what_the_source_has_not_any_more_are_a_named_error(pair: LosingPair, way: Way) -> None:
    pair.copy_and_lose(way)
    pair.source.log("t").delete_before(4)
    pair.write(b"4")
    result = pair.copy(exactly_once_by=way)
    assert (result.outcome, (result.error or "").split(":")[0]) == (Outcome.FAILED, "position-unproved")
    assert pair.values() == COPIED


def test_target_that_was_compacted_since_is_a_named_error(pair: LosingPair) -> None:
    """Of the lost commits' records, the log cleaner has removed the first one."""
    pair.target.topics["paris.t"].configs["cleanup.policy"] = "compact"
    pair.copy_and_lose(Way.TRANSACTIONS)
    clean(pair.log(), 2, b"3", delta=1)
    pair.write(b"4")
    result = pair.copy(exactly_once_by=Way.TRANSACTIONS)
    assert (result.outcome, (result.error or "").split(":")[0]) == (Outcome.FAILED, "position-unproved")
    assert '"way"' not in pair.metadata(), "the fence's claim is one of transactions again: nothing plain follows it"


def test_log_that_ends_with_the_progress_costs_no_fence_and_no_request(pair: LosingPair) -> None:
    """The end is in the answer that says whether the target has lost records."""

    def compared() -> int:
        return len(pair.target.calls(Api.LIST_OFFSETS)) + len(pair.target.calls(Api.OFFSET_FOR_LEADER_EPOCH))

    pair.write(b"0")
    pair.copy(exactly_once_by=Way.TRANSACTIONS)
    before = compared()
    pair.write(b"1")
    pair.copy(exactly_once_by=Way.TRANSACTIONS)
    markers = [one for one in pair.log().batches() if one.is_control]
    assert len(markers) == 2, "one behind each record"
    assert compared() == before + 1


def test_copy_that_has_nothing_to_send_writes_nothing_to_a_target_of_others(pair: LosingPair) -> None:
    pair.write(b"0")
    pair.copy(exactly_once_by=Way.TRANSACTIONS)
    pair.log().append_values(b"others", b"others")
    end = pair.log().end_offset
    pair.source.log("t").end_transaction(99, commit=True)  # an offset without anything to copy
    assert pair.copy(exactly_once_by=Way.TRANSACTIONS).outcome is Outcome.COMPLETE
    assert (pair.committed(), pair.log().end_offset) == (2, end)
    assert pair.copy(exactly_once_by=Way.TRANSACTIONS).outcome is Outcome.COMPLETE
    assert pair.log().end_offset == end


def test_transaction_that_may_have_stored_the_progress_counts_at_the_progress_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention has deleted what could show which one it is, and the source has an equal record further on.

    No commit was lost: the mark is that of the first of the two commits with which a copy stores its progress, as if
    it had been killed before the second one.
    """
    pair = FakePair(monkeypatch)
    pair.write(b"0")
    assert pair.copy().outcome is Outcome.COMPLETE
    for _ in range(5):
        pair.log().append_values(b"x", producer_id=99)
    pair.write(b"on")
    assert pair.copy().outcome is Outcome.COMPLETE
    metadata = json.loads(pair.metadata())
    metadata["target"].update(end=2, since=1)
    pair.set_metadata(json.dumps(metadata))
    pair.log().append_values(b"x", producer_id=99)
    for value in (b"b", b"c", b"on", b"d"):
        pair.write(value)
    own = [one for one in pair.log().batches() if one.producer_id not in {-1, 99} and not one.is_control]
    pair.log().delete_before(own[-1].base_offset)
    result = pair.copy()
    assert (result.outcome, (result.error or "").split(":")[0]) == (Outcome.FAILED, "position-unproved")
    assert pair.committed() == 2, "b and c have not been copied"


def test_at_least_once_repeats_what_has_lost_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = LosingPair(monkeypatch, exactly_once=False)
    pair.copy_and_lose(Way.TRANSACTIONS)
    pair.write(b"4")
    assert pair.copy().outcome is Outcome.COMPLETE
    assert pair.values() == [*COPIED, b"2", b"3", b"4"]
