"""Calls: routed, retried until the deadline, answered per key. On the fake cluster."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import pytest

from mirror.cluster.admin.cluster import DescribeCluster
from mirror.cluster.admin.topics import CreatePartitions, CreateTopics, DescribeTopics
from mirror.cluster.calls.group_offset_calls import CommitGroupOffsets, GroupOffsets
from mirror.cluster.calls.offset_calls import ListOffsets
from mirror.cluster.events import FailEvents
from mirror.cluster.types import EARLIEST, LATEST, NewTopic, OffsetAndMetadata, TopicPartition
from mirror.errors import (
    AuthorizationFailed,
    BrokerError,
    ConnectionFailed,
    KafkaError,
    KafkaTimeout,
    UnsupportedVersion,
)
from mirror.wire.api import Api
from mirror.wire.messages.metadata import MetadataResponse
from tests.fakes import errors
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

_TPS = [TopicPartition("t", p) for p in range(3)]


def _cluster() -> FakeCluster:
    """Three brokers, a topic whose partition n has n records and is led by broker n + 1."""
    cluster = FakeCluster(3)
    cluster.add_topic("t", 3)
    for tp in _TPS:
        for number in range(tp.partition):
            cluster.log(*tp).append_values(b"%d" % number)
    return cluster


def _ends(client: FakeClient, tps: list[TopicPartition], timeout_ms: int = 60_000) -> ListOffsets:
    deadline_ms, timeout = client.timer(timeout_ms)
    return ListOffsets(dict.fromkeys(tps, LATEST), read_committed=True, deadline_ms=deadline_ms, timeout_ms=timeout)


def _offsets(client: FakeClient, call: ListOffsets) -> dict[int, int]:
    return {tp.partition: found.offset for tp, found in client.call(call).items()}


def test_keys_go_to_their_leaders() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    assert _offsets(client, _ends(client, _TPS)) == {0: 0, 1: 1, 2: 2}
    assert sorted(call.node for call in cluster.calls(Api.LIST_OFFSETS)) == [1, 2, 3]


def test_only_what_failed_is_asked_again() -> None:
    cluster = _cluster()
    cluster.topics["t"].partitions[1].leader = 3
    cluster.control.on(Api.LIST_OFFSETS, Action(errors={_TPS[2]: errors.NOT_LEADER}), node=3)
    client = FakeClient(cluster)
    assert _offsets(client, _ends(client, _TPS)) == {0: 0, 1: 1, 2: 2}
    asked = [[p.partition_index for t in c.body.topics for p in t.partitions] for c in cluster.calls(Api.LIST_OFFSETS)]
    assert sorted(asked) == [[0], [1, 2], [2]]


class _Counted(str):
    """A name that counts what it is compared with."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return str.__eq__(self, other)


def test_an_answer_for_many_keys_is_not_looked_through_for_each() -> None:
    """On the network thread, where all others would wait for it."""
    cluster = FakeCluster(1)
    names = [f"topic-{number}" for number in range(300)]
    for name in names:
        cluster.add_topic(name, 1)
    client = FakeClient(cluster)
    found = client.call(DescribeTopics([_Counted(name) for name in names], *client.timer()))
    assert sorted(found) == sorted(names)
    assert _Counted.compared <= 10 * len(names)


def test_retries_until_deadline_then_timeout() -> None:
    cluster = _cluster()
    cluster.control.on(Api.LIST_OFFSETS, Action(errors={_TPS[1]: errors.NOT_LEADER}), times=None)
    client = FakeClient(cluster)
    begun = client.now
    with pytest.raises(
        KafkaTimeout, match=r"listing offsets did not succeed within 10000 ms: .*t-1: NOT_LEADER"
    ) as late:
        client.call(_ends(client, [_TPS[1]], 10_000))
    assert client.completed_ms - begun == 10_000
    assert isinstance(late.value.__cause__, BrokerError)
    times = [call.received_ms for call in cluster.calls(Api.LIST_OFFSETS)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(gaps) >= 8
    for number, gap in enumerate(gaps):
        assert 80 * min(10, 2**number) <= gap <= min(1_000, 120 * 2**number) + 20, gaps


def test_each_request_waits_no_longer_than_what_remains() -> None:
    """min(remaining API time, request.timeout.ms), seed 001."""
    cluster = _cluster()
    cluster.control.on(Api.LIST_OFFSETS, Action(silent=True), times=None)
    client = FakeClient(cluster, **{"request.timeout.ms": 4_000})
    begun = client.now
    with pytest.raises(KafkaTimeout):
        client.call(_ends(client, [_TPS[1]], 10_000))
    assert client.completed_ms - begun == 10_000
    times = [call.received_ms - begun for call in cluster.calls(Api.LIST_OFFSETS)]
    assert len(times) == 3
    assert times[1] - times[0] >= 4_000
    assert times[2] - times[1] >= 4_000


def test_one_network_poll_before_reaping() -> None:
    """An operation with timeout 0 is still attempted once."""
    cluster = _cluster()
    client = FakeClient(cluster)
    _offsets(client, _ends(client, _TPS))  # connected, and the leaders are known
    seen = len(cluster.calls(Api.LIST_OFFSETS))
    call = _ends(client, [_TPS[1]], timeout_ms=0)
    client.submit(None, call)
    client.loop.run_once()
    assert len(cluster.calls(Api.LIST_OFFSETS)) == seen + 1
    client.run_until(call.future.done, within_ms=1)


def test_a_timed_out_call_leaves_its_neighbours_connection_alone() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    held = cluster.control.on(Api.LIST_OFFSETS, Action(hold="after"))
    hurried, patient = _ends(client, [_TPS[1]], 500), _ends(client, [_TPS[1]], 20_000)
    client.submit(None, hurried)
    client.submit(None, patient)
    with pytest.raises(KafkaTimeout):
        client.finish(hurried.future)
    held.release()
    assert client.finish(patient.future)[_TPS[1]].offset == 1
    assert len({call.connection for call in cluster.calls(Api.LIST_OFFSETS)}) == 1


def test_a_broken_connection_is_opened_again() -> None:
    cluster = _cluster()
    breaks: tuple[Literal["before", "after"], ...] = ("before", "after")
    for close in breaks:
        cluster.control.on(Api.LIST_OFFSETS, Action(close=close))
    cluster.control.on(Api.LIST_OFFSETS, Action(half="close"))
    client = FakeClient(cluster)
    assert _offsets(client, _ends(client, [_TPS[2]])) == {2: 2}
    assert len({call.connection for call in cluster.calls(Api.LIST_OFFSETS)}) == 4


def test_half_an_answer_and_then_silence_is_found_by_the_request_timeout() -> None:
    cluster = _cluster()
    cluster.control.on(Api.LIST_OFFSETS, Action(half="silent"))
    client = FakeClient(cluster, **{"request.timeout.ms": 2_000})
    begun = client.now
    assert _offsets(client, _ends(client, [_TPS[2]])) == {2: 2}
    assert 2_000 <= client.completed_ms - begun <= 2_500


def test_answers_may_arrive_byte_by_byte() -> None:
    client = FakeClient(_cluster())
    client.network.split = 1
    assert _offsets(client, _ends(client, _TPS)) == {0: 0, 1: 1, 2: 2}


def test_a_moved_leader_is_found() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    _offsets(client, _ends(client, _TPS))
    cluster.move("t", 2, 1)
    assert _offsets(client, _ends(client, [_TPS[2]])) == {2: 2}


def test_a_dead_broker_is_passed_by_once_its_partitions_moved() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    _offsets(client, _ends(client, _TPS))
    cluster.kill(3)
    cluster.after(2_000, lambda: cluster.move("t", 2, 1))
    assert _offsets(client, _ends(client, [_TPS[2]])) == {2: 2}


def test_a_fatal_error_is_reported_at_once() -> None:
    cluster = _cluster()
    cluster.control.on(Api.LIST_OFFSETS, Action(errors={_TPS[0]: errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    client = FakeClient(cluster)
    begun = client.now
    with pytest.raises(AuthorizationFailed, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
        client.call(_ends(client, _TPS))
    assert client.completed_ms - begun < 50


@pytest.mark.parametrize("api", [Api.LIST_OFFSETS, Api.METADATA])
def test_a_broker_too_old_is_reported_at_once(api: Api) -> None:
    cluster = _cluster()
    cluster.versions[api] = (0, api.value.low - 1)
    client = FakeClient(cluster)
    begun = client.now
    with pytest.raises(UnsupportedVersion, match=rf"broker-\d\.fake:9092: the broker speaks {api.label} versions 0 to"):
        client.call(_ends(client, _TPS))
    assert client.completed_ms - begun < 50


def test_a_cluster_that_is_not_there_is_named() -> None:
    cluster = _cluster()
    for node in cluster.brokers:
        cluster.kill(node)
    client = FakeClient(cluster)
    with pytest.raises(KafkaTimeout, match=r"broker-1\.fake:9092: connection refused") as late:
        client.call(_ends(client, _TPS, 5_000))
    assert isinstance(late.value.__cause__, ConnectionFailed)


def test_a_missing_topic_is_named_when_time_is_up() -> None:
    client = FakeClient(_cluster())
    with pytest.raises(KafkaTimeout, match="topic 'nope' does not exist"):
        client.call(_ends(client, [TopicPartition("nope", 0)], 3_000))


def test_offsets_by_position_and_isolation() -> None:
    cluster = _cluster()
    log = cluster.log("t", 0)
    log.append_values(b"a", b"b")
    log.append_values(b"open", attributes=16, producer_id=5)
    client = FakeClient(cluster)
    deadline_ms, timeout = client.timer()
    first = ListOffsets({_TPS[0]: EARLIEST}, read_committed=True, deadline_ms=deadline_ms, timeout_ms=timeout)
    dirty = ListOffsets({_TPS[0]: LATEST}, read_committed=False, deadline_ms=deadline_ms, timeout_ms=timeout)
    assert _offsets(client, first) == {0: 0}
    assert _offsets(client, _ends(client, [_TPS[0]])) == {0: 2}
    assert _offsets(client, dirty) == {0: 3}


def test_group_offsets_are_kept_and_read_at_the_coordinator() -> None:
    cluster = _cluster()
    cluster.coordinators["g"] = 2
    client = FakeClient(cluster)
    offsets = {_TPS[0]: OffsetAndMetadata(5, 3, "about"), _TPS[1]: OffsetAndMetadata(7)}
    client.call(CommitGroupOffsets("g", offsets, *client.timer()))
    assert client.call(GroupOffsets("g", _TPS, *client.timer())) == offsets
    assert {call.node for api in (Api.OFFSET_COMMIT, Api.OFFSET_FETCH) for call in cluster.calls(api)} == {2}
    assert len(cluster.calls(Api.FIND_COORDINATOR)) == 1, "remembered"


def test_a_moved_coordinator_is_found() -> None:
    cluster = _cluster()
    cluster.coordinators["g"] = 2
    client = FakeClient(cluster)
    assert client.call(GroupOffsets("g", _TPS, *client.timer())) == {}
    cluster.coordinators["g"] = 3
    client.call(CommitGroupOffsets("g", {_TPS[0]: OffsetAndMetadata(5)}, *client.timer()))
    assert cluster.calls(Api.OFFSET_COMMIT)[-1].node == 3


def test_a_coordinator_on_a_broker_that_came_later_is_found() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    assert client.call(GroupOffsets("old", _TPS, *client.timer())) == {}
    cluster.coordinators["g"] = cluster.add_broker()
    begun = client.now
    assert client.call(GroupOffsets("g", _TPS, *client.timer())) == {}
    assert client.completed_ms - begun < 500


def test_a_pending_transaction_makes_an_offset_fetch_wait() -> None:
    """Require stable, KIP-447."""
    cluster = _cluster()
    client = FakeClient(cluster)
    client.call(CommitGroupOffsets("g", {_TPS[0]: OffsetAndMetadata(5)}, *client.timer()))
    cluster.control.on(Api.OFFSET_FETCH, Action(errors={_TPS[0]: errors.UNSTABLE_OFFSET_COMMIT}), times=3)
    assert client.call(GroupOffsets("g", _TPS, *client.timer())) == {_TPS[0]: OffsetAndMetadata(5)}
    assert len(cluster.calls(Api.OFFSET_FETCH)) == 4


def test_a_refused_group_is_reported_at_once() -> None:
    cluster = _cluster()
    cluster.control.on(Api.FIND_COORDINATOR, Action(errors={"g": errors.GROUP_AUTHORIZATION_FAILED}), times=None)
    client = FakeClient(cluster)
    with pytest.raises(AuthorizationFailed, match="group 'g'"):
        client.call(GroupOffsets("g", _TPS, *client.timer()))


def test_topics_are_created_grown_and_described() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    wanted = NewTopic("new", 2, configs={"retention.ms": "1000"})
    client.call(CreateTopics([wanted], *client.timer()))
    client.call(CreatePartitions({"new": 4}, *client.timer()))
    found = client.call(DescribeTopics(["new", "absent"], *client.timer()))
    assert list(found) == ["new"]
    assert [p.partition for p in found["new"].partitions] == [0, 1, 2, 3]
    everything = client.call(DescribeTopics(None, *client.timer()))
    assert set(everything) == {"t", "new"}
    refused = client.call(CreateTopics([wanted], *client.timer())).failed["new"]
    assert str(refused).startswith("creating topic 'new': TOPIC_ALREADY_EXISTS (error 36)")


ILLEGAL = ("", ".", "..", "a/b", "a b", "\x1b]0;owned\x07", "a\nb", "ä", "x" * 250)
LEGAL = ("a", "...", "a.b_c-9", "x" * 249)


def test_no_topic_has_a_name_that_is_not_legal() -> None:
    """Whatever a broker lists: it would reach terminals and files (``Topic.validate``)."""
    cluster = _cluster()

    def named(body: MetadataResponse) -> MetadataResponse:
        (one,) = body.topics
        return replace(body, topics=(one, *(replace(one, name=name) for name in (*ILLEGAL, *LEGAL))))

    client = FakeClient(cluster)
    client.call(DescribeCluster(*client.timer()))
    cluster.control.on(Api.METADATA, Action(rewrite=named))
    found = client.call(DescribeTopics(None, *client.timer()))
    assert set(found) == {"t", *LEGAL}


def test_the_cluster_is_described() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    result = client.call(DescribeCluster(*client.timer()))
    assert (result.cluster_id, result.controller_id) == ("fake-cluster", 1)
    assert [broker.node_id for broker in result.brokers] == [1, 2, 3]


def test_a_request_that_waits_for_its_connection_is_not_sent_once_its_caller_has_left() -> None:
    cluster = _cluster()
    client = FakeClient(cluster)
    call = CreateTopics([NewTopic("new", 1)], *client.timer())
    client.submit(None, call)
    client.run_until(lambda: call.in_flight, within_ms=1)
    assert not cluster.calls(Api.CREATE_TOPICS), "it waits for the negotiation"
    client.submit(None, FailEvents([(call, KafkaError("closed"))]))
    assert client.call(DescribeTopics(["t"], *client.timer())).keys() == {"t"}
    client.run_for(10_000)
    assert not cluster.calls(Api.CREATE_TOPICS)


def test_a_leader_that_is_known_after_the_deadline_gets_no_retry() -> None:
    """Only a first attempt is made then: that of a chain of steps that have all succeeded."""
    cluster = _cluster()
    client = FakeClient(cluster)
    _offsets(client, _ends(client, _TPS))
    partition = cluster.topics["t"].partitions[1]
    partition.leader = -1
    call = _ends(client, [_TPS[1]], 2_000)
    client.submit(None, call)
    client.run_until(lambda: call.failing and call.pending, within_ms=1_900)
    before = len(cluster.calls(Api.LIST_OFFSETS))
    partition.leader = 1
    cluster.clock.advance(10_000)
    with pytest.raises(KafkaTimeout):
        client.finish(call.future)
    client.run_for(5_000)
    assert len(cluster.calls(Api.LIST_OFFSETS)) == before


def test_what_was_refused_while_it_was_only_checked_changed_nothing() -> None:
    cluster = _cluster()
    cluster.control.on(Api.CREATE_TOPICS, Action(silent=True), times=None)
    client = FakeClient(cluster)
    outcomes = client.call(CreateTopics([NewTopic("new", 1)], *client.timer(1_000), validate_only=True))
    assert "may have been done" not in str(outcomes.failed["new"])
