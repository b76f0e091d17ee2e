"""Whole takeovers, and the flow that continues behind them. Real clients, brokers in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mirror.client import TopicPartition
from mirror.errors import FlowHeld, KafkaError, KafkaTimeout
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.relay.offsets import offset_topic
from mirror.relay.offsets.index import Place
from mirror.relay.offsets.translator import OffsetTranslator
from mirror.relay.progress.flow_topic import inventory_topic_of, latch_topic_of
from mirror.relay.progress.latch import Role, set_latch
from mirror.takeover import sides
from mirror.takeover.continuation import Continuation, Facts, TakeoverOutcome
from mirror.takeover.logs import LogComparison
from mirror.takeover.matching import STORE_FIRST, Pair
from mirror.takeover.seeding import Seed, Seeding
from mirror.wire.api import Api
from mirror.wire.records import TRANSACTIONAL
from tests.fakes import errors
from tests.fakes.control import Action
from tests.fakes.record_batches import build, values_of
from tests.relay.fake_pair import FLOW, FakePair
from tests.takeover.fake_mirrormaker import FakeMirrorMaker, only

VALUES = [b"%d" % number for number in range(12)]
WAYS: dict[str, dict[str, str]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "sequences": {"exactly_once_by": "auto"},
    "at least once": {},
}


@pytest.fixture(autouse=True)
def no_random_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_topic, "_TIDIED_EVERY", 10**9)


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    """It has copied the first 9 of 12 records, and stored offset 5."""
    return _killed(monkeypatch)


def _killed(monkeypatch: pytest.MonkeyPatch, **pair: Any) -> FakeMirrorMaker:
    mm2 = FakeMirrorMaker(monkeypatch, **pair)
    mm2.write(*VALUES)
    mm2.copy(0, 9, synced=(0, 4))
    mm2.store(5)
    return mm2


def _copied(pair: FakePair, **policy: str) -> list[bytes]:
    result = pair.copy(**policy)
    assert result.outcome is CopyOutcome.COMPLETE, result.error
    return pair.values()


def _state(pair: FakePair) -> tuple[object, ...]:
    """What is on the clusters."""
    logs = {
        (name, number): bytes(log.data)
        for cluster in (pair.source, pair.target)
        for name, topic in cluster.topics.items()
        for number, log in enumerate(topic.partitions)
    }
    groups = {(group, tp): one for group, offsets in pair.target.groups.items() for tp, one in offsets.items()}
    return logs, repr(groups)


@pytest.mark.parametrize("way", WAYS)
def test_the_flow_continues_behind_what_was_copied_beyond_the_stored_offset(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    mm2 = _killed(monkeypatch, exactly_once=way != "at least once")
    decision = only(mm2.run())
    assert (decision.outcome, decision.stored, decision.next_offset) == (TakeoverOutcome.SETTLED, 5, 9)
    assert _copied(mm2.pair, **WAYS[way]) == VALUES


def test_records_that_it_had_copied_twice_stay_and_none_is_added(mm2: FakeMirrorMaker) -> None:
    mm2.copy(6, 8)  # killed, and begun again
    decision = only(mm2.run())
    assert decision.match is not None
    assert (decision.next_offset, decision.match.repeated) == (9, 2)
    assert _copied(mm2.pair) == [*VALUES[:9], *VALUES[6:8], *VALUES[9:]]


def test_a_dry_run_says_the_same_and_changes_nothing(mm2: FakeMirrorMaker) -> None:
    before = _state(mm2.pair)
    dry = mm2.run(dry_run=True)
    assert _state(mm2.pair) == before
    wet = mm2.run()
    assert [*dry.lines()][1:] == [*wet.lines()][1:]
    assert "dry run" in next(dry.lines())


def test_a_takeover_is_done_again_with_the_same_result(mm2: FakeMirrorMaker) -> None:
    first = mm2.run()
    assert mm2.run().to_json() == first.to_json()
    assert _copied(mm2.pair) == VALUES


@pytest.mark.parametrize("way", WAYS)
def test_what_the_flow_has_copied_is_left_alone(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    mm2 = _killed(monkeypatch, exactly_once=way != "at least once")
    mm2.run()
    _copied(mm2.pair, **WAYS[way])
    decision = only(mm2.run())
    assert (decision.outcome, decision.next_offset) == (TakeoverOutcome.COPIED_BY_FLOW, 12)
    mm2.write(b"more")
    assert _copied(mm2.pair, **WAYS[way]) == [*VALUES, b"more"]


def test_it_is_taken_over_again_if_it_has_copied_behind_the_flow(mm2: FakeMirrorMaker) -> None:
    mm2.run()
    _copied(mm2.pair)
    mm2.write(b"12", b"13", b"14")
    mm2.copy(12, 14)
    mm2.store(12)
    assert only(mm2.run()).next_offset == 14
    assert _copied(mm2.pair) == [*VALUES, b"12", b"13", b"14"]


def test_without_a_stored_offset_the_whole_logs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch, partitions=3)
    for partition in range(3):
        mm2.write(*VALUES, partition=partition)
    mm2.copy(0, 7)
    mm2.copy(0, 3, partition=1)
    mm2.store(2, partition=1)
    first, second, third = mm2.run().decisions
    assert (first.outcome, first.next_offset) == (TakeoverOutcome.SETTLED, 7)
    assert (second.outcome, second.next_offset) == (TakeoverOutcome.SETTLED, 3)
    assert third.outcome is TakeoverOutcome.NOTHING_COPIED
    results = mm2.pair.copy_all()
    assert {result.outcome for result in results} == {CopyOutcome.COMPLETE}
    assert [mm2.pair.values(partition) for partition in range(3)] == [VALUES] * 3


def test_partitions_that_only_the_target_has_stay_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = _killed(monkeypatch)
    mm2.pair.target.grow(mm2.pair.target.topics["paris.t"], 2)
    assert only(mm2.run()).next_offset == 9
    assert _copied(mm2.pair) == VALUES
    assert mm2.pair.values(1) == []


def test_a_partition_that_mirrormaker_has_not_made_yet_begins_with_its_first_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mm2 = _killed(monkeypatch)
    mm2.pair.partitions = 2
    mm2.pair.source.grow(mm2.pair.source.topics["t"], 2)
    mm2.write(b"new", partition=1)
    first, second = mm2.run().decisions
    assert (first.next_offset, second.outcome) == (9, TakeoverOutcome.NOTHING_COPIED)
    mm2.pair.target.grow(mm2.pair.target.topics["paris.t"], 2)  # as a run prepares it
    assert {result.outcome for result in mm2.pair.copy_all()} == {CopyOutcome.COMPLETE}
    assert [mm2.pair.values(partition) for partition in range(2)] == [VALUES, [b"new"]]


def test_a_partition_whose_copy_was_deleted_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target topic was made again with fewer partitions."""
    mm2 = FakeMirrorMaker(monkeypatch, partitions=2)
    for partition in range(2):
        mm2.write(*VALUES, partition=partition)
        mm2.copy(0, 7, partition=partition)
        mm2.store(6, partition=partition)
    mm2.pair.target.add_topic("paris.t", 1)
    mm2.copy(0, 7)
    first, second = mm2.run().decisions
    assert first.next_offset == 7
    assert second.outcome is TakeoverOutcome.UNSETTLED
    assert "has copied up to offset 6, and the target has no paris.t-1" in second.reason


def test_a_partition_that_cannot_be_settled_is_left_out_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch, partitions=2)
    for partition in range(2):
        mm2.write(*VALUES, partition=partition)
        mm2.copy(0, 7, partition=partition)
    mm2.store(40)
    mm2.store(6, partition=1)
    report = mm2.run()
    left_out, settled = report.decisions
    assert left_out.outcome is TakeoverOutcome.UNSETTLED
    assert "ends at offset 12, and MirrorMaker 2 has copied up to 40" in left_out.reason
    assert settled.next_offset == 7
    assert not report.is_complete
    assert (mm2.pair.committed(0), mm2.pair.committed(1)) == (None, 7)


def test_a_target_with_other_records_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.pair.log().append_values(b"of", b"others")
    mm2.store(5)
    assert "none of the target's last 2 records" in only(mm2.run()).reason


def test_copies_of_records_without_a_time_are_searched_for_in_the_whole_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """MirrorMaker 2 has given them the time of the copy, so that none of them is found for certain."""
    mm2 = FakeMirrorMaker(monkeypatch)
    for value in VALUES:
        mm2.pair.source.log("t").append(build([value], timestamp=-1))
    mm2.copy(0, 9)
    mm2.store(5)
    assert "none of the target's last 9 records" in only(mm2.run()).reason


def test_a_target_whose_configuration_cannot_be_read_is_left_out(mm2: FakeMirrorMaker) -> None:
    """It may be compacted, or have other timestamps: then the logs are compared otherwise."""
    refused = Action(errors={"paris.t": errors.TOPIC_AUTHORIZATION_FAILED})
    mm2.pair.target.control.add(lambda call: refused if call.api is Api.DESCRIBE_CONFIGS else None)
    decision = only(mm2.run())
    assert decision.outcome is TakeoverOutcome.UNSETTLED
    assert decision.reason.startswith("the configuration of the target's topic paris.t cannot be read: ")


def test_part_of_an_open_transaction_is_waited_for(mm2: FakeMirrorMaker) -> None:
    source = mm2.pair.source.log("t")
    source.append_values(b"open", attributes=TRANSACTIONAL, producer_id=7)
    mm2.copy(9, 13)
    decision = only(mm2.run())
    assert (decision.outcome, "a transaction is open in the source from 12" in decision.reason) == (
        TakeoverOutcome.UNSETTLED,
        True,
    )
    source.end_transaction(7, commit=True)
    assert only(mm2.run()).next_offset == 13


def test_an_open_transaction_of_others_in_the_target_is_waited_for(mm2: FakeMirrorMaker) -> None:
    pauses: list[float] = []
    mm2.pair.log().append_values(b"of others", attributes=TRANSACTIONAL, producer_id=7)
    decision = only(mm2.run(pause=pauses.append))
    assert decision.reason.startswith("a transaction is open in the target from offset 9 on")
    assert pauses == [0, 1, 1, 1, 1]
    report = mm2.run(pause=lambda _: mm2.pair.log().end_transaction(7, commit=True), while_it_writes=True)
    assert only(report).next_offset == 9


def test_an_aborted_transaction_that_it_had_copied_is_passed(mm2: FakeMirrorMaker) -> None:
    source = mm2.pair.source.log("t")
    source.append_values(b"aborted", attributes=TRANSACTIONAL, producer_id=7)
    source.end_transaction(7, commit=False)
    mm2.write(b"behind", b"not copied")
    mm2.copy(9, 15)
    decision = only(mm2.run())
    assert (decision.outcome, decision.next_offset) == (TakeoverOutcome.SETTLED, 15)
    assert _copied(mm2.pair) == [*VALUES, b"aborted", b"behind", b"not copied"]


def test_what_the_source_has_deleted_since_is_a_gap_and_the_rest_is_not_copied_again(mm2: FakeMirrorMaker) -> None:
    mm2.pair.source.log("t").delete_before(7)
    decision = only(mm2.run())
    assert (decision.outcome, decision.next_offset) == (TakeoverOutcome.SETTLED, 9)
    assert _copied(mm2.pair) == VALUES


def test_deleted_records_that_were_not_copied_are_named(mm2: FakeMirrorMaker) -> None:
    mm2.pair.source.log("t").delete_before(11)
    decision = only(mm2.run())
    assert decision.next_offset == 6
    assert decision.notes[0].startswith("the source has deleted offsets 6 to 10, which were not copied: on-gap decides")
    assert "gap" in (mm2.pair.copy().error or "")


def test_without_a_position_and_the_first_records_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.copy(0, 9)
    mm2.pair.log().delete_before(2)
    reason = only(mm2.run()).reason
    assert "stored no position, and the target's log begins at 2" in reason
    assert reason.endswith(STORE_FIRST)


def test_without_offset_syncs_the_stored_record_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.pair.log().append_values(b"of others")
    mm2.copy(0, 9)
    mm2.store(5)
    report = mm2.run()
    assert report.found.syncs_topic
    match = only(report).match
    assert match is not None
    assert (match.evidence, match.next_offset) == ("stored-record", 9)
    assert _copied(mm2.pair) == [b"of others", *VALUES]


def test_copies_with_earlier_times_of_the_targets_brokers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer's clock may be ahead of theirs."""
    mm2 = FakeMirrorMaker(monkeypatch)
    for value in VALUES:
        mm2.pair.source.log("t").append(build([value], timestamp=5_000_000))
    mm2.pair.target.topics["paris.t"].configs["message.timestamp.type"] = "LogAppendTime"
    for value in VALUES[:9]:
        mm2.pair.log().append(build([value], timestamp=1_000))
    mm2.store(5)
    decision = only(mm2.run())
    assert (decision.outcome, decision.next_offset) == (TakeoverOutcome.SETTLED, 9), decision.reason


def test_an_offset_sync_whose_record_was_compacted_away_gives_way_to_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES[:4])
    mm2.pair.source.log("t").end_offset += 1
    mm2.write(*VALUES[5:])
    mm2.copy(0, 4, synced=(0,))
    mm2.pair.log().append_values(VALUES[4])
    mm2.sync(4, 4)
    mm2.copy(5, 9)
    mm2.store(5)
    decision = only(mm2.run())
    assert (decision.next_offset, decision.anchor) == (9, Pair(0, 0))
    assert _copied(mm2.pair) == VALUES


def test_an_index_that_cannot_be_written_leaves_out_what_it_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    mm2 = FakeMirrorMaker(monkeypatch, partitions=2)
    for partition in range(2):
        mm2.write(*VALUES, partition=partition)
        mm2.copy(0, 7, partition=partition)
        mm2.store(6, partition=partition)
    write = Seeding.write_index

    def fail_one(self: Seeding, seeds: Mapping[TopicPartition, Seed]) -> dict[TopicPartition, KafkaError]:
        tp = TopicPartition("paris.t", 0)
        return {**write(self, {one: seed for one, seed in seeds.items() if one != tp}), tp: KafkaTimeout("too late")}

    monkeypatch.setattr(Seeding, "write_index", fail_one)
    left_out, settled = mm2.run().decisions
    assert left_out.reason == "its offset index could not be written: too late"
    assert (settled.outcome, mm2.pair.committed(0), mm2.pair.committed(1)) == (TakeoverOutcome.SETTLED, None, 7)


def test_a_target_that_grows_while_it_is_compared_is_left_out(
    mm2: FakeMirrorMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = LogComparison.decide

    def then_grow(self: LogComparison, facts: Facts) -> Continuation:
        decision = compare(self, facts)
        mm2.copy(9, 10)
        return decision

    monkeypatch.setattr(LogComparison, "decide", then_grow)
    assert "its log ended at 9, and now ends at 10" in only(mm2.run()).reason
    assert mm2.pair.committed() is None


# --- the index


@pytest.mark.parametrize("way", WAYS)
def test_offsets_are_translated_from_the_first_offset_sync_on(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    mm2 = FakeMirrorMaker(monkeypatch, exactly_once=way != "at least once")
    mm2.write(*VALUES)
    mm2.pair.log().append_values(b"of", b"others")
    mm2.copy(0, 3, synced=(0, 2))
    mm2.pair.log().append_values(b"of others")
    mm2.copy(3, 9, synced=(4,))
    mm2.store(5)
    mm2.run()
    _copied(mm2.pair, **WAYS[way])
    with _translator(mm2.pair) as translator:
        found = translator.open({TopicPartition("t", 0): TopicPartition("paris.t", 0)})[TopicPartition("t", 0)]
        places = [found.translate(offset) for offset in range(12)]
        assert [one.place for one in places] == [Place.RECORD] * 12, found.reason
        assert [found.translate_back(one.offset or 0).offset for one in places] == [*range(12)]
    target = _records(mm2.pair)
    assert [target[one.offset or 0] for one in places] == VALUES


def _records(pair: FakePair) -> dict[int, bytes]:
    return {
        one.base_offset + at: value
        for one in pair.log().batches()
        if not one.is_control
        for at, value in enumerate(values_of(one.view))
    }


def _translator(pair: FakePair) -> OffsetTranslator:
    return OffsetTranslator(
        FLOW,
        {"bootstrap.servers": pair.source.bootstrap},
        {"bootstrap.servers": pair.target.bootstrap},
        CopyPolicy(exactly_once=pair.exactly_once),
        timeout_ms=60_000,
    )


def test_a_wrong_offset_sync_is_not_used(mm2: FakeMirrorMaker) -> None:
    """That of a target that was made again: the record there is another one."""
    mm2.sync(5, 2)
    decision = only(mm2.run())
    assert (decision.next_offset, decision.anchor) == (9, None)
    assert _copied(mm2.pair) == VALUES


def test_a_takeover_of_a_flow_that_is_held_meanwhile_commits_nothing_more(
    mm2: FakeMirrorMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "_CHECK_EVERY_MS", 0)
    mm2.pair.target.add_topic(latch_topic_of(FLOW))
    mm2.pair.target.add_topic(inventory_topic_of(FLOW))
    real = Seeding.write_index

    def hold_then(self: Seeding, seeds: Any) -> Any:
        options = {"bootstrap.servers": mm2.pair.target.bootstrap}
        set_latch(options, FLOW, Role.HELD, reason="loss", by="ada on h1", now_ms=1)
        return real(self, seeds)

    monkeypatch.setattr(Seeding, "write_index", hold_then)
    with pytest.raises(FlowHeld, match="by ada on h1: loss"):
        mm2.run()
    assert mm2.pair.committed() is None
