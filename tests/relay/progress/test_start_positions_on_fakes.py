"""Start positions while a broker of the target is unavailable, or answers late."""

from __future__ import annotations

import pytest

from mirror.cluster.types import TopicPartition
from mirror.relay.model.ranges import Outcome
from mirror.relay.progress.committed import Progress, group_of, to_offset
from mirror.relay.progress.flow_topic import topic_of
from mirror.relay.progress.target_log import TargetMark
from mirror.wire.api import Api
from tests.fakes.cluster import GroupOffset
from tests.fakes.control import Action, ServerCall
from tests.relay.fake_pair import FLOW, FakePair

GOOD, SILENT = 1, 2


@pytest.fixture(params=[True, False], ids=["exactly once", "at least once"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakePair:
    """Two brokers: partition 0 and all coordinators on one, partition 1 and the progress topic on the other."""
    made = FakePair(monkeypatch, brokers=2, partitions=2, exactly_once=request.param)
    monkeypatch.setattr(made.target, "coordinator", lambda _: GOOD)
    made.target.log(topic_of(FLOW)).leader = SILENT
    for partition in range(2):
        made.write(b"0", b"1", partition=partition)
    return made


def _answers_no_more(pair: FakePair, *apis: Api) -> Action:
    action = Action(hold="before")
    pair.target.control.add(lambda call: action if call.node == SILENT and (not apis or call.api in apis) else None)
    return action


def test_empty_partitions_start_without_the_progress_topic(pair: FakePair) -> None:
    _answers_no_more(pair)
    healthy, sick = pair.copy_all()
    assert (healthy.outcome, healthy.records, healthy.expiries) == (Outcome.COMPLETE, 2, []), healthy.error
    assert sick.outcome is Outcome.EXPIRED
    assert {(each["phase"], each["cause"]) for each in sick.expiries} == {("metadata", "no answer")}
    pair.target.control.clear()
    pair.target.disconnect(SILENT)
    assert [one.outcome for one in pair.copy_all()] == [Outcome.COMPLETE] * 2
    assert [pair.values(partition) for partition in range(2)] == [[b"0", b"1"]] * 2


def test_partition_that_held_records_waits_for_the_progress_topic(pair: FakePair) -> None:
    pair.log().append_values(b"foreign")
    _answers_no_more(pair, Api.LIST_OFFSETS)
    waited, _ = pair.copy_all()
    assert (waited.outcome, waited.records) == (Outcome.EXPIRED, 0)
    assert pair.committed() is None


def test_record_that_is_read_late_detects_a_recreated_target(pair: FakePair) -> None:
    """The source is slower than the progress topic."""
    assert [one.outcome for one in pair.copy_all()] == [Outcome.COMPLETE] * 2
    pair.made_again()
    pair.log(1).leader = GOOD
    notes = _answers_no_more(pair, Api.FETCH)

    def slow(call: ServerCall) -> Action | None:
        return Action(stall_ms=100) if call.api is Api.FETCH else None

    pair.source.control.add(slow)
    pair.source.control.on(Api.FETCH, Action(hold="before"), times=None)
    pair.target.after(6_000, notes.release)
    results = pair.copy_all()
    assert {one.outcome for one in results} == {Outcome.FAILED}, results
    assert {str(one.error).partition(":")[0] for one in results} == {"target-recreated"}


def test_target_that_holds_only_markers_and_aborted_records_is_a_place_to_start(pair: FakePair) -> None:
    """The fence of a first attempt may have been aborted by that of a second one."""
    pair.log().end_transaction(98, commit=False)
    pair.aborted_write(b"aborted")
    assert [one.outcome for one in pair.copy_all()] == [Outcome.COMPLETE] * 2
    assert pair.values() == [b"0", b"1"]


def test_progress_that_another_first_attempt_commits_meanwhile_is_not_lost(pair: FakePair) -> None:
    pair.log().append_values(b"0", b"1")
    target = pair.target.topics["paris.t"]
    mark = TargetMark(topic_id=str(target.topic_id), end=2, leader_epoch=0)
    source_id = str(pair.source.topics["t"].topic_id)
    progress = Progress(offset=2, leader_epoch=0, source_cluster_id="paris", topic_id=source_id, target=mark)
    tp = TopicPartition("paris.t", 0)

    def commit_meanwhile(call: ServerCall) -> None:
        if call.api is Api.LIST_OFFSETS:
            pair.target.groups[group_of(FLOW, tp)][tp] = GroupOffset(2, 0, to_offset(progress).metadata)

    pair.target.control.add(commit_meanwhile)
    assert [one.outcome for one in pair.copy_all()] == [Outcome.COMPLETE] * 2
    assert pair.values() == [b"0", b"1"]
