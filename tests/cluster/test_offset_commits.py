"""Commits of single offsets: those of a group share requests, and each has an outcome of its own."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from mirror.cluster.calls.offset_commits import CommitOffset
from mirror.cluster.events import FailEvents
from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.errors import AuthorizationFailed, KafkaError, KafkaTimeout
from mirror.wire.api import Api
from tests.client_state import pending
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.client import FakeClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

TPS = [TopicPartition("t", number) for number in range(8)]
GROUP = "g"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(3)
    cluster.add_topic("t", len(TPS))
    cluster.coordinators[GROUP] = 2
    return cluster


@pytest.fixture
def client(cluster: FakeCluster) -> FakeClient:
    """A client that knows the coordinator."""
    client = FakeClient(cluster)
    client.finish(commit(client, TPS[0], 1))
    cluster.received.clear()
    return client


def commit(
    client: FakeClient, tp: TopicPartition, offset: int, timeout_ms: int = 60_000, group: str = GROUP
) -> Future[None]:
    event = CommitOffset(group, tp, OffsetAndMetadata(offset), *client.timer(timeout_ms))
    client.submit(None, event)
    return event.future


def offsets(call: ServerCall) -> dict[int, int]:
    """The partitions and offsets of an OffsetCommit."""
    return {part.partition_index: part.committed_offset for topic in call.body.topics for part in topic.partitions}


def requests(cluster: FakeCluster) -> list[dict[int, int]]:
    return [offsets(call) for call in cluster.calls(Api.OFFSET_COMMIT)]


def stored(cluster: FakeCluster) -> dict[int, int]:
    return {tp.partition: kept.offset for tp, kept in cluster.groups[GROUP].items()}


def test_what_comes_while_a_request_is_in_flight_shares_the_next(cluster: FakeCluster, client: FakeClient) -> None:
    held = cluster.control.on(Api.OFFSET_COMMIT, Action(hold="before"))
    first = commit(client, TPS[0], 10)
    client.run_until(lambda: requests(cluster))
    others = [commit(client, tp, 20) for tp in TPS[1:]]
    client.run_for(100)
    assert requests(cluster) == [{0: 10}], "one request of a group is in flight"
    held.release()
    for future in (first, *others):
        client.finish(future)
    assert requests(cluster) == [{0: 10}, dict.fromkeys(range(1, 8), 20)]


def test_groups_do_not_wait_for_each_other(cluster: FakeCluster, client: FakeClient) -> None:
    cluster.coordinators["other"] = 3
    cluster.control.on(Api.OFFSET_COMMIT, Action(hold="before"), node=2)
    stuck = commit(client, TPS[0], 10)
    client.finish(commit(client, TPS[1], 20, group="other"), within_ms=1_000)
    assert not stuck.done()


def test_the_last_commit_of_a_partition_is_sent_for_the_earlier_ones(cluster: FakeCluster, client: FakeClient) -> None:
    held = cluster.control.on(Api.OFFSET_COMMIT, Action(hold="before"))
    first = commit(client, TPS[0], 10)
    client.run_until(lambda: requests(cluster))
    later = [commit(client, TPS[0], offset) for offset in (20, 30, 40)]
    held.release()
    for future in (first, *later):
        client.finish(future)
    assert requests(cluster) == [{0: 10}, {0: 40}]
    assert stored(cluster) == {0: 40}


def test_a_refusal_of_one_partition_fails_that_one(cluster: FakeCluster, client: FakeClient) -> None:
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors={TPS[3]: errors.TOPIC_AUTHORIZATION_FAILED}))
    futures = [commit(client, tp, 10) for tp in TPS]
    client.run_until(lambda: all(future.done() for future in futures))
    error = futures[3].exception()
    assert isinstance(error, AuthorizationFailed)
    assert "committing offsets of group 'g', t-3" in str(error)
    assert [future.exception() for future in futures if future is not futures[3]] == [None] * 7
    assert len(requests(cluster)) == 1


def test_a_partition_that_is_retried_delays_no_other(cluster: FakeCluster, client: FakeClient) -> None:
    """Its topic is being deleted, or a broker that has just started does not know it yet."""
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors={TPS[3]: errors.UNKNOWN_TOPIC_OR_PARTITION}), times=None)
    stuck = commit(client, TPS[3], 10, 3_000)
    begun = client.now
    for offset in range(20):
        client.finish(commit(client, TPS[1], offset), within_ms=50)
        client.run_for(100)
    retries = [call.received_ms - begun for call in cluster.calls(Api.OFFSET_COMMIT) if 3 in offsets(call)]
    assert 3 <= len(retries) <= 7, "by KIP-580, whatever the others do"
    with pytest.raises(KafkaTimeout, match=r"t-3 did not succeed within 3000 ms: .*UNKNOWN_TOPIC_OR_PARTITION"):
        client.finish(stuck)
    assert client.completed_ms - begun == 3_000


def test_a_partition_that_is_known_again_is_committed(cluster: FakeCluster, client: FakeClient) -> None:
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors={TPS[3]: errors.UNKNOWN_TOPIC_OR_PARTITION}))
    other, older, newer = commit(client, TPS[1], 30), commit(client, TPS[3], 10), commit(client, TPS[3], 20)
    client.finish(newer)
    assert other.done()
    assert older.done()
    assert stored(cluster) == {0: 1, 1: 30, 3: 20}
    assert requests(cluster) == [{1: 30, 3: 20}, {3: 20}]
    assert not cluster.calls(Api.FIND_COORDINATOR), "the other one shows that the coordinator is the right one"


def test_a_commit_that_comes_while_an_earlier_one_is_retried_is_sent_for_both(
    cluster: FakeCluster, client: FakeClient
) -> None:
    refused = Action(hold="before", errors={TPS[3]: errors.UNKNOWN_TOPIC_OR_PARTITION})
    cluster.control.on(Api.OFFSET_COMMIT, refused)
    older = commit(client, TPS[3], 10)
    client.run_until(lambda: requests(cluster))
    newer = commit(client, TPS[3], 20)
    client.run_for(10)
    refused.release()
    client.finish(newer)
    assert older.exception(0) is None
    assert requests(cluster) == [{3: 10}, {3: 20}]


def test_a_coordinator_that_moved_is_looked_up_again(cluster: FakeCluster, client: FakeClient) -> None:
    cluster.coordinators[GROUP] = 3
    futures = [commit(client, tp, 10) for tp in TPS]
    for future in futures:
        client.finish(future, within_ms=2_000)
    assert [call.node for call in cluster.calls(Api.OFFSET_COMMIT)] == [2, 3]
    assert stored(cluster) == dict.fromkeys(range(8), 10)


def test_a_connection_that_breaks_is_retried(cluster: FakeCluster, client: FakeClient) -> None:
    cluster.control.on(Api.OFFSET_COMMIT, Action(close="before"))
    client.finish(commit(client, TPS[0], 10), within_ms=5_000)
    assert stored(cluster)[0] == 10


def test_each_commit_expires_at_its_own_deadline(cluster: FakeCluster, client: FakeClient) -> None:
    """The coordinator does not answer: those in flight, and those that wait behind them."""
    cluster.control.on(Api.OFFSET_COMMIT, Action(silent=True), times=None)
    begun = client.now
    futures = []
    for number, timeout_ms in enumerate((400, 300, 200, 100)):
        futures.append((timeout_ms, commit(client, TPS[number], 10, timeout_ms)))
        client.run_for(1)
    for timeout_ms, future in reversed(futures):
        with pytest.raises(KafkaTimeout):
            client.finish(future)
        assert timeout_ms <= client.completed_ms - begun <= timeout_ms + 10


def test_a_commit_that_waited_for_the_one_before_is_attempted_once(cluster: FakeCluster, client: FakeClient) -> None:
    """Its turn comes with the answer at whose time it expires."""
    cluster.control.on(Api.OFFSET_COMMIT, Action(delay_ms=100))
    commit(client, TPS[0], 10)
    client.run_until(lambda: requests(cluster))
    waiting = commit(client, TPS[1], 20, 100)
    client.run_until(waiting.done)
    client.run_for(50)
    assert stored(cluster) == {0: 10, 1: 20}


def test_a_commit_is_not_retried_after_its_deadline(cluster: FakeCluster, client: FakeClient) -> None:
    """However late the network thread is; another commit of the same partition still has its first attempt."""
    refusal = Action(errors={TPS[0]: errors.COORDINATOR_LOADING})
    cluster.control.on(Api.OFFSET_COMMIT, refusal)
    late = commit(client, TPS[0], 10, 1_000)
    client.finish(commit(client, TPS[1], 11))  # which shows that the coordinator is the right one
    cluster.clock.advance(10_000)
    with pytest.raises(KafkaTimeout):
        client.finish(late)
    client.run_for(5_000)
    assert requests(cluster) == [{0: 10, 1: 11}]
    cluster.control.on(Api.OFFSET_COMMIT, refusal)
    late = commit(client, TPS[0], 20, 1_000)
    client.finish(commit(client, TPS[1], 21))
    cluster.clock.advance(10_000)
    client.finish(commit(client, TPS[0], 30, 0))
    assert requests(cluster) == [{0: 10, 1: 11}, {0: 20, 1: 21}, {0: 30}]


def test_a_late_commit_expires_although_the_group_s_other_partitions_advance(
    cluster: FakeCluster, client: FakeClient
) -> None:
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors={TPS[0]: errors.COORDINATOR_LOADING}), times=None)
    late = commit(client, TPS[0], 10, 1_000)
    client.run_until(lambda: requests(cluster))
    begun = client.now
    client.finish(commit(client, TPS[1], 10))
    cluster.clock.advance(10_000)
    with pytest.raises(KafkaTimeout):
        client.finish(late)
    assert client.completed_ms - begun < 10_500


def test_a_group_that_may_not_be_described_is_refused_by_name(cluster: FakeCluster) -> None:
    client = FakeClient(cluster)
    cluster.control.on(Api.FIND_COORDINATOR, Action(errors={GROUP: errors.GROUP_AUTHORIZATION_FAILED}))
    futures = [commit(client, tp, 10) for tp in TPS]
    for future in futures:
        with pytest.raises(AuthorizationFailed, match="group 'g'"):
            client.finish(future)


def test_commits_of_a_closed_client_are_dropped(cluster: FakeCluster) -> None:
    admin = FakeAdmin(cluster)
    held = cluster.control.on(Api.OFFSET_COMMIT, Action(hold="before"))
    futures = [admin.commit_offset_async(GROUP, TPS[0], OffsetAndMetadata(1))]
    admin.client.run_until(lambda: requests(cluster))
    futures.append(admin.commit_offset_async(GROUP, TPS[1], OffsetAndMetadata(1)))
    pending(admin).end(admin.network_thread)
    admin.client.run_until(lambda: all(future.done() for future in futures))
    held.release()
    admin.client.run_for(1_000)
    assert requests(cluster) == [{0: 1}]


def test_commits_whose_callers_have_left_are_not_sent_when_their_connection_is_there(cluster: FakeCluster) -> None:
    client = FakeClient(cluster)
    event = CommitOffset(GROUP, TPS[0], OffsetAndMetadata(7), *client.timer())
    client.submit(None, event)
    client.run_until(lambda: client.loop.offset_commits._groups[GROUP].in_flight if client.turns else None)
    client.submit(None, FailEvents([(event, KafkaError("closed"))]))
    client.run_for(10_000)
    assert requests(cluster) == []
    assert not client.loop.offset_commits._groups
