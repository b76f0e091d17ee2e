"""Flows that are handed back: where MirrorMaker 2 continues. Real clients, brokers in memory."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from mirror.client import Admin, TopicPartition
from mirror.errors import FlowError, KafkaError
from mirror.mirrormaker.source_offsets import parse_offset, partition_of
from mirror.relay.model.ranges import Outcome as CopyOutcome
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.fence import transactional_id
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.target_log import TargetMark
from mirror.spark.run_control import RunControlClient
from mirror.takeover.continuation import Facts, SourceLog, TargetLog
from mirror.takeover.hand_back_decision import HandBackReport, Return, ReturnDecision, decide
from mirror.wire.api import Api
from mirror.wire.decode import Record, records_of
from mirror.wire.records import TRANSACTIONAL
from tests.fakes import errors
from tests.fakes.control import Action
from tests.fakes.record_batches import batch, build
from tests.relay.fake_pair import FLOW
from tests.takeover.fake_mirrormaker import POSITIONS, FakeMirrorMaker

VALUES = [b"%d" % number for number in range(12)]
WAYS: dict[str, dict[str, Any]] = {
    "transactions": {"exactly_once_by": "transactions"},
    "sequences": {"exactly_once_by": "auto"},
    "at least once": {},
}
TARGET = TopicPartition("paris.t", 0)
KEY = b'["MirrorSourceConnector",{"cluster":"paris","partition":0,"topic":"t"}]'


@pytest.fixture
def mm2(monkeypatch: pytest.MonkeyPatch) -> FakeMirrorMaker:
    """It was taken over after 9 of 12 records, and the flow has copied the rest."""
    return _taken_over(monkeypatch)


def _taken_over(monkeypatch: pytest.MonkeyPatch, *, exactly_once: bool = True, **policy: Any) -> FakeMirrorMaker:
    mm2 = FakeMirrorMaker(monkeypatch, exactly_once=exactly_once)
    mm2.write(*VALUES)
    mm2.copy(0, 9, synced=(0, 4))
    mm2.store(5)
    with mm2.takeover() as takeover:
        takeover.run()
    assert mm2.pair.copy(**policy).outcome is CopyOutcome.COMPLETE
    return mm2


def _positions(mm2: FakeMirrorMaker) -> list[tuple[int, Record]]:
    return [
        (number, record)
        for number, log in enumerate(mm2.pair.target.topics[POSITIONS].partitions)
        for batch in log.batches()
        for record in records_of(batch)
    ]


def _only(report: HandBackReport) -> ReturnDecision:
    (decision,) = report.decisions
    return decision


@pytest.mark.parametrize("way", WAYS)
def test_mirrormaker_continues_behind_the_last_record_of_the_flow(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    mm2 = _taken_over(monkeypatch, exactly_once=way != "at least once", **WAYS[way])
    report = mm2.hand_back()
    assert (_only(report).outcome, _only(report).next_offset, report.is_complete) == (Return.HANDED_BACK, 12, True)
    (partition, record) = _positions(mm2)[-1]
    assert (partition, record.key, record.value) == (partition_of(KEY), KEY, b'{"offset":11}')


def test_a_position_is_written_under_all_keys_that_there_are_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """MirrorMaker 2 looks up the bytes that Kafka Connect makes; no other key is to say anything else."""
    mm2 = FakeMirrorMaker(monkeypatch)
    mm2.write(*VALUES)
    mm2.copy(0, 9)
    other = b'["MirrorSourceConnector", {"topic": "t", "partition": 0, "cluster": "paris"}]'
    mm2.store_under(other, 8)
    with mm2.takeover() as takeover:
        takeover.run()
    mm2.pair.copy()
    mm2.hand_back()
    last = {record.key: (number, parse_offset(record.value)) for number, record in _positions(mm2)}
    assert last == {KEY: (partition_of(KEY), 11), other: (partition_of(other), 11)}


def test_a_dry_run_says_the_same_and_changes_nothing(mm2: FakeMirrorMaker) -> None:
    before = _positions(mm2)
    dry = mm2.hand_back(dry_run=True)
    assert (_positions(mm2), mm2.pair.committed()) == (before, 12)
    assert [*dry.lines()][1:] == [*mm2.hand_back().lines()][1:]
    assert "dry run" in next(dry.lines())


@pytest.mark.parametrize("way", WAYS)
def test_the_flow_that_is_started_by_mistake_copies_nothing(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Also as long as MirrorMaker 2 has not gone on: it may do so at any moment."""
    mm2 = _taken_over(monkeypatch, exactly_once=way != "at least once", **WAYS[way])
    mm2.hand_back()
    mm2.write(b"12")
    result = mm2.pair.copy(**WAYS[way])
    assert (result.outcome, "progress-lost" in str(result.error)) == (CopyOutcome.FAILED, True)
    assert mm2.pair.values() == VALUES


def test_the_flow_fails_after_mirrormaker_has_gone_on(mm2: FakeMirrorMaker) -> None:
    mm2.hand_back()
    assert mm2.pair.committed() is None
    mm2.write(b"12", b"13")
    mm2.copy(12, 14)
    mm2.store(13)
    result = mm2.pair.copy()
    assert result.outcome is CopyOutcome.FAILED
    assert "progress-lost" in str(result.error)
    with mm2.takeover() as takeover:
        (decision,) = takeover.run().decisions
    assert decision.next_offset == 14


def test_handing_back_is_repeated_with_the_same_positions(mm2: FakeMirrorMaker) -> None:
    mm2.hand_back()
    before = _positions(mm2)
    again = mm2.hand_back()
    assert (_only(again).outcome, _only(again).next_offset) == (Return.KEPT, 12)
    assert _positions(mm2) == before


def test_progress_is_kept_if_a_position_cannot_be_written(mm2: FakeMirrorMaker) -> None:
    refused = Action(errors={TopicPartition(POSITIONS, partition_of(KEY)): errors.TOPIC_AUTHORIZATION_FAILED})
    mm2.pair.target.control.on(Api.PRODUCE, refused)
    before = _positions(mm2)
    with pytest.raises(KafkaError):
        mm2.hand_back()
    assert (mm2.pair.committed(), _positions(mm2)) == (12, before)
    mm2.write(b"12")
    assert mm2.pair.copy().outcome is CopyOutcome.COMPLETE  # the flow may go on as well
    assert _only(mm2.hand_back()).next_offset == 13


def test_it_is_not_complete_as_long_as_progress_is_left(mm2: FakeMirrorMaker) -> None:
    refused = Action(errors={TopicPartition("paris.t", 0): errors.TOPIC_AUTHORIZATION_FAILED})
    mm2.pair.target.control.on(Api.OFFSET_DELETE, refused)
    report = mm2.hand_back()
    assert (_only(report).outcome, report.is_complete, mm2.pair.committed()) == (Return.HANDED_BACK, False, 12)
    assert "paris.t-0: the flow's progress could not be removed, repeat the command" in report.warnings[0]
    assert mm2.hand_back().is_complete
    assert mm2.pair.committed() is None


def test_what_could_not_be_removed_is_a_field_of_its_own(mm2: FakeMirrorMaker) -> None:
    refused = Action(errors={TopicPartition("paris.t", 0): errors.TOPIC_AUTHORIZATION_FAILED})
    mm2.pair.target.control.on(Api.OFFSET_DELETE, refused)
    (line,) = mm2.hand_back().to_json()["not_removed"]
    assert line.startswith("paris.t-0: the flow's progress could not be removed")
    assert mm2.hand_back().to_json()["not_removed"] == []


@pytest.mark.parametrize("way", ["transactions", "sequences"])
def test_a_late_attempt_of_the_flow_appends_nothing_behind_it(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Its batch has been on the way, or its machine has stood still."""
    mm2 = _taken_over(monkeypatch, **WAYS[way])
    log = mm2.pair.log()
    last = [one for one in log.batches() if one.producer_id >= 0 and not one.is_control][-1]
    late = build(
        [b"late"],
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        base_sequence=last.base_sequence + last.last_offset_delta + 1,
        attributes=TRANSACTIONAL if way == "transactions" else 0,
    )
    assert mm2.hand_back(dry_run=True).is_complete
    assert not log.is_outdated(batch(late))
    assert mm2.hand_back().is_complete
    end = log.end_offset
    assert (log.produce(bytes(late))[0], log.end_offset) == (errors.INVALID_PRODUCER_EPOCH, end)


def test_a_partition_whose_last_commits_are_lost_is_left_out_until_the_flow_has_run(mm2: FakeMirrorMaker) -> None:
    """MirrorMaker 2 would copy again what these had covered."""
    by_transactions = WAYS["transactions"]
    target = mm2.pair.target
    mm2.write(b"12")
    mm2.pair.copy(**by_transactions)
    kept = copy.deepcopy(target.groups)
    mm2.write(b"13")
    mm2.pair.copy(**by_transactions)
    target.groups.clear()
    target.groups.update(kept)
    for dry_run in (True, False):
        decision = _only(mm2.hand_back(dry_run=dry_run))
        assert (decision.outcome, "lost commits" in decision.reason) == (Return.LEFT_OUT, True)
    assert mm2.pair.copy(**by_transactions).outcome is CopyOutcome.COMPLETE
    assert _only(mm2.hand_back()).next_offset == 14
    assert mm2.pair.values() == [*VALUES, b"12", b"13"]


@pytest.mark.parametrize("source_has_more", [False, True])
def test_transaction_that_may_have_stored_the_progress_counts_if_the_source_has_more(
    mm2: FakeMirrorMaker, *, source_has_more: bool
) -> None:
    """Its copy was killed before it stored the exact end, and retention has deleted what was in front of it."""
    by_transactions, log = WAYS["transactions"], mm2.pair.log()
    mm2.write(b"12")
    mm2.pair.copy(**by_transactions)
    exact = log.end_offset
    for _ in range(3):
        log.append_values(b"x", producer_id=99)
    stored = log.end_offset
    mm2.write(b"13")
    mm2.pair.copy(**by_transactions)
    metadata = json.loads(mm2.pair.metadata())
    metadata["target"].update(end=exact + 1, since=exact)
    mm2.pair.set_metadata(json.dumps(metadata))
    log.append_values(b"x", b"x", producer_id=99)
    log.delete_before(stored)
    if source_has_more:
        mm2.write(b"14")
        assert _only(mm2.hand_back()).outcome is Return.LEFT_OUT
        assert mm2.pair.copy(**by_transactions).outcome is CopyOutcome.COMPLETE
    decision = _only(mm2.hand_back())
    assert (decision.outcome, decision.next_offset) == (Return.HANDED_BACK, 14 + source_has_more), decision.reason


def test_records_of_others_behind_the_progress_keep_no_partition(mm2: FakeMirrorMaker) -> None:
    mm2.write(b"12")
    mm2.pair.copy(**WAYS["transactions"])
    mm2.pair.log().append_values(b"others", producer_id=99)
    mm2.pair.log().append_values(b"others")
    assert _only(mm2.hand_back()).next_offset == 13


def test_a_partition_whose_log_cannot_be_read_is_left_out(mm2: FakeMirrorMaker) -> None:
    mm2.write(b"12")
    mm2.pair.copy(**WAYS["transactions"])
    mm2.pair.log().append_values(b"others", b"others", b"others")
    mm2.pair.target.control.add(
        lambda call: Action(errors={TARGET: errors.TOPIC_AUTHORIZATION_FAILED}) if call.api is Api.FETCH else None
    )
    decision = _only(mm2.hand_back())
    assert (decision.outcome, "the permission Read" in decision.reason) == (Return.LEFT_OUT, True), decision.reason


def test_a_partition_that_cannot_be_fenced_is_left_out(mm2: FakeMirrorMaker) -> None:
    refused = Action(errors={transactional_id(FLOW, TARGET): errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    mm2.pair.target.control.add(lambda call: refused if call.api is Api.DESCRIBE_TRANSACTIONS else None)
    decision = _only(mm2.hand_back())
    assert decision.outcome is Return.LEFT_OUT
    assert decision.reason.startswith("earlier attempts of the flow could not be fenced, and may still append: ")
    assert mm2.pair.committed() == 12


def test_it_refuses_while_the_flow_runs(mm2: FakeMirrorMaker) -> None:
    with Admin({"bootstrap.servers": mm2.pair.target.bootstrap}) as target:
        control = RunControlClient(target, FLOW, "run")
        control.claim()
        with pytest.raises(FlowError, match="mirror stop"):
            mm2.hand_back()
        control.want(ended=True)
        control.sync()
    assert _only(mm2.hand_back()).outcome is Return.HANDED_BACK


def test_it_refuses_while_mirrormaker_stores_positions(mm2: FakeMirrorMaker) -> None:
    with pytest.raises(FlowError, match="stored positions"):
        mm2.hand_back(pause=lambda _: mm2.store(7))
    assert mm2.pair.committed() == 12


# --- the decision

PROGRESS = Progress(
    offset=12,
    leader_epoch=0,
    source_cluster_id="paris",
    topic_id="source",
    target=TargetMark(topic_id="target", end=12, leader_epoch=0),
)
FACTS = Facts(
    source=TopicPartition("t", 0),
    target=TopicPartition("paris.t", 0),
    stored=5,
    source_log=SourceLog(0, 20, 20, 0, "source"),
    target_log=TargetLog(0, 12, 0, "target"),
    progress=PROGRESS,
)
INTERRUPTED = replace(PROGRESS, way=Way.SEQUENCES)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(FACTS, progress=INTERRUPTED), "interrupted"),
        (replace(FACTS, target_log=None), "no such partition"),
        (replace(FACTS, target_log=TargetLog(0, 12, 0, "another")), "not the one"),
        (replace(FACTS, target_log=TargetLog(0, 11, 0, "target")), "ended at 12, and now at 11"),
        (replace(FACTS, stored=12), "take it over again"),
        (replace(FACTS, source_log=SourceLog(0, 20, 20, 0, "another")), "deleted and made again"),
        (replace(FACTS, source_log=SourceLog(0, 11, 11, 0, "source")), "cut back to 11"),
        (replace(FACTS, source_log=SourceLog(13, 20, 20, 0, "source")), "offsets 12 to 12 are gone"),
    ],
    ids=[
        "interrupted",
        "deleted",
        "made again",
        "truncated",
        "behind MirrorMaker 2",
        "source made again",
        "source cut back",
        "source deleted",
    ],
)
def test_partition_whose_position_is_not_certain_is_left_out(facts: Facts, reason: str) -> None:
    decision = decide(facts, None, exactly_once=True)
    assert decision.outcome is Return.LEFT_OUT
    assert reason in decision.reason


def test_flow_that_has_ended_in_order_is_handed_back() -> None:
    assert decide(replace(FACTS, progress=replace(INTERRUPTED, ended=True)), None, exactly_once=True).next_offset == 12


def test_at_least_once_an_interrupted_run_shows_in_the_targets_log() -> None:
    assert decide(FACTS, None, exactly_once=False).outcome is Return.HANDED_BACK
    grown = replace(FACTS, target_log=TargetLog(0, 13, 0, "target"))
    assert decide(grown, None, exactly_once=False).outcome is Return.LEFT_OUT
    assert decide(grown, None, exactly_once=True).outcome is Return.HANDED_BACK


def test_progress_that_was_forgotten_is_not_passed_over() -> None:
    unknown = replace(FACTS, progress=None)
    assert decide(unknown, None, exactly_once=True).outcome is Return.KEPT
    assert decide(unknown, replace(PROGRESS, offset=6), exactly_once=True).outcome is Return.KEPT
    assert decide(unknown, PROGRESS, exactly_once=True).outcome is Return.LEFT_OUT
