"""The registries of two clusters in memory: begun, and refused where they would not keep what they are for."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest

from mirror.client import Admin
from mirror.errors import FlowError, KafkaError, NotRetriable
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.model.ranges import Outcome, RangeResult
from mirror.relay.model.way import Way
from mirror.relay.origin.records import REGISTRY_TOPIC, LogKey, producer_records
from mirror.relay.origin.registration import open_registration
from mirror.relay.origin.registry import (
    LocalOrigin,
    open_origin,
    prepare_registries,
    read_registry,
    registry_topic,
    write_records,
)
from mirror.wire.api import Api
from tests.fakes.cluster import FakeCluster
from tests.relay.both_directions import A, B, CopiesBothWays
from tests.relay.fake_pair import FLOW, FakePair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch)


def _options(cluster: FakeCluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap}


def _add_registry(cluster: FakeCluster, policy: str) -> None:
    cluster.add_topic(REGISTRY_TOPIC).configs["cleanup.policy"] = policy


def _prepare(pair: FakePair) -> None:
    prepare_registries(FLOW, _options(pair.source), _options(pair.target), only_local=True)


def test_a_registry_begins_with_the_ends_of_all_logs_and_the_one_of_the_source_is_kept(pair: FakePair) -> None:
    for cluster in (pair.source, pair.target):
        _add_registry(cluster, "compact")
    pair.write(b"1", b"2")
    _prepare(pair)
    pair.write(b"3")
    _prepare(pair)
    source, target = (read_registry(registry_topic(_options(side)), 10_000) for side in (pair.source, pair.target))
    assert source.log_ends == {LogKey(str(pair.source.topics["t"].topic_id), 0): 2}
    assert source.has_begun
    assert target.has_begun
    assert target.sources[FLOW].topic_id == str(pair.source.topics[REGISTRY_TOPIC].topic_id)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("policy", [None, "delete", "compact,delete"])
def test_a_registry_that_is_missing_or_deletes_its_records_is_refused(
    pair: FakePair, side: str, policy: str | None
) -> None:
    other = pair.target if side == "source" else pair.source
    _add_registry(other, "compact")
    if policy is not None:
        _add_registry(pair.source if side == "source" else pair.target, policy)
    expected = "does not exist" if policy is None else f"has cleanup.policy = {policy}: "
    with pytest.raises(FlowError, match=f"{REGISTRY_TOPIC} of the {side} {expected}"):
        _prepare(pair)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_registry_that_may_elect_uncleanly_is_refused(pair: FakePair, side: str) -> None:
    for cluster in (pair.source, pair.target):
        _add_registry(cluster, "compact")
    refused = pair.source if side == "source" else pair.target
    refused.topics[REGISTRY_TOPIC].configs["unclean.leader.election.enable"] = "true"
    with pytest.raises(FlowError, match=f"{REGISTRY_TOPIC} of the {side} has unclean.leader.election.enable = true"):
        _prepare(pair)


def _register(cluster: FakeCluster, *producer_ids: int) -> None:
    write_records(registry_topic(_options(cluster)), producer_records(producer_ids, "b-a", 0).values(), 10_000)


@pytest.fixture
def prepared(pair: FakePair) -> FakePair:
    """The registry of the source has records of a flow in the other direction."""
    for cluster in (pair.source, pair.target):
        _add_registry(cluster, "compact")
    _prepare(pair)
    for producer_id in (7, 8):
        _register(pair.source, producer_id)
    _prepare(pair)
    return pair


def _lose_last(cluster: FakeCluster, *, more: int = 0) -> None:
    """Have the last batch of the registry lost, and then ``more`` producer ids registered."""
    log = cluster.log(REGISTRY_TOPIC)
    cluster.elect_uncleanly(REGISTRY_TOPIC, 0, log.leader, log.index[-1][0])
    for number in range(more):
        _register(cluster, 100 + number)


def test_a_clean_election_of_the_registry_loses_nothing(prepared: FakePair) -> None:
    with _opened(prepared) as origin:
        log = prepared.source.log(REGISTRY_TOPIC)
        log.move(log.leader)
        _register(prepared.source, 9)
        origin.decide([9])
    _prepare(prepared)


@pytest.mark.parametrize("more", [0, 3])
def test_a_registry_that_has_lost_what_was_read_stops_the_flow(prepared: FakePair, more: int) -> None:
    """Also if it is as long as before, and in a process that has not read it before."""
    with _opened(prepared) as origin:
        _lose_last(prepared.source, more=more)
        with pytest.raises(NotRetriable, match=r"origin-unknown: .* has lost records"):
            origin.decide([9])
    with pytest.raises(NotRetriable, match=r"origin-unknown: .* has lost records"):
        _opened(prepared)
    with pytest.raises(FlowError, match=r"origin-unknown: .* has lost records"):
        _prepare(prepared)


def test_a_registry_without_leader_epochs_that_is_shorter_than_what_was_read_stops_the_flow(pair: FakePair) -> None:
    del pair.source.versions[Api.OFFSET_FOR_LEADER_EPOCH]
    for cluster in (pair.source, pair.target):
        _add_registry(cluster, "compact")
    _prepare(pair)
    _register(pair.source, 7)
    _prepare(pair)
    with _opened(pair) as origin:
        origin.decide([9])
        _lose_last(pair.source)
        with pytest.raises(NotRetriable, match=r"origin-unknown: .* has lost records"):
            origin.decide([10])
    with pytest.raises(FlowError, match=r"origin-unknown: .* has lost records"):
        _prepare(pair)


def test_a_task_knows_what_an_earlier_one_of_its_process_has_read(prepared: FakePair) -> None:
    _register(prepared.source, 9)  # after the run has begun
    _opened(prepared).close()
    _lose_last(prepared.source, more=1)
    with pytest.raises(NotRetriable, match=r"origin-unknown: .* has lost records"):
        _opened(prepared)


def test_a_registry_whose_first_records_were_deleted_stops_the_flow(prepared: FakePair) -> None:
    log = prepared.source.log(REGISTRY_TOPIC)
    log.delete_before(log.index[1][0])
    with pytest.raises(FlowError, match=r"has lost records \(offsets 0 to "):
        _prepare(prepared)


def test_a_leader_that_was_replaced_is_not_believed(prepared: FakePair) -> None:
    log = prepared.source.log(REGISTRY_TOPIC)
    log.move(log.leader)
    _prepare(prepared)
    log.leader_epoch -= 1
    with pytest.raises(KafkaError, match="it was replaced, and does not know it yet"):
        _prepare(prepared)


def _opened(pair: FakePair) -> LocalOrigin:
    policy = CopyPolicy(only_local=True, registers_producers=True)
    origin = open_origin(FLOW, _options(pair.source), _options(pair.target), policy, 10_000)
    assert origin is not None
    return origin


def test_a_process_registers_an_id_again_only_after_another_election(pair: FakePair) -> None:
    _add_registry(pair.source, "compact")
    topic, log = registry_topic(_options(pair.source)), pair.source.log(REGISTRY_TOPIC)

    def register_in_a_task() -> int:
        """Return the end of the registry."""
        admitted = threading.Event()
        with Admin(topic.options) as admin:
            registration = open_registration(topic, "b-a", admin, 10_000)
            registration.on_producer_id(7, admitted.set)
            assert admitted.wait(30)
            registration.close()
        return log.end_offset

    assert [register_in_a_task() for _ in range(3)] == [1, 1, 1]
    log.move(log.leader)
    assert [register_in_a_task() for _ in range(2)] == [2, 2]


@pytest.mark.parametrize("way", [Way.SEQUENCES, Way.TRANSACTIONS])
def test_nothing_comes_back_when_an_election_loses_what_the_registry_says_of_it(pair: FakePair, way: Way) -> None:
    """The flow has read the producer id that is lost, and has not passed the batch under it."""
    both = CopiesBothWays(pair, way)
    both.write(A, b"a1")
    both.write(B, b"b1")
    for side in (A, B, A):
        assert both.copy_from(side).outcome is Outcome.COMPLETE
    both.write(B, b"b2")
    under_a_new_id = replace(both.policy, exactly_once=False)
    assert both.copy_from(B, under_a_new_id).outcome is Outcome.COMPLETE
    assert both.values(A) == [b"a1", b"b1", b"b2"]
    both.begin_run(A)
    _lose_last(pair.source)
    result = both.copy_from(A)
    assert result.outcome is Outcome.FAILED
    assert "has lost records" in str(result.error)
    assert both.values(B) == [b"b1", b"a1", b"b2"]
    both.write(B, b"b3")
    assert both.copy_from(B).outcome is Outcome.COMPLETE, "the flow that writes there goes on"
    assert both.values(A) == [b"a1", b"b1", b"b2", b"b3"]


@pytest.mark.parametrize("way", [Way.SEQUENCES, Way.TRANSACTIONS])
def test_each_record_that_a_flow_leaves_out_is_counted_once(pair: FakePair, way: Way) -> None:
    both, left_out = CopiesBothWays(pair, way), Counter[str]()
    for number in range(3):
        for side in (A, B):
            both.write(side, *(b"%d-%d-%d" % (side, number, each) for each in range(4 + number)))
        for side in (A, B):
            left_out += _left_out(both.copy_from(side))
    for side in (A, B):
        left_out += _left_out(both.copy_from(side))
    assert sorted(both.values(A)) == sorted(both.values(B))
    assert left_out == {"there": 15, "back": 15}


def _left_out(result: RangeResult) -> Counter[str]:
    assert result.outcome is Outcome.COMPLETE, result.error
    return Counter({result.flow: result.skipped.get("not-local", 0)})
