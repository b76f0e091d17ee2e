"""Admin on the fake cluster: groups of both protocols, at their coordinators, and what they committed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

import pytest

from mirror.client import AclOperation, GroupListing, OffsetAndMetadata, ResourceType, TopicPartition
from mirror.errors import AuthorizationFailed, BrokerError, KafkaTimeout, ProtocolError
from mirror.wire.api import Api
from mirror.wire.messages.groups import DescribeGroupsResponse, OffsetCommitResponseTopic
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.api_admin import (
    CONSUMER,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    NON_EMPTY_GROUP,
    SUPPORTED,
    FakeGroup,
    FakeMember,
)
from tests.fakes.cluster import FakeCluster, GroupOffset
from tests.fakes.control import Action

T = TypeVar("T")
TPS = [TopicPartition("t", p) for p in range(3)]
OTHER = TopicPartition("u", 0)


def _cluster() -> FakeCluster:
    """Three brokers, each the coordinator of one group: two of the classic protocol, one of the new."""
    cluster = FakeCluster(3)
    cluster.add_topic("t", 3)
    cluster.add_topic("u")
    cluster.coordinators |= {"empty": 1, "old": 2, "new": 3}
    cluster.admin.groups |= {
        "empty": FakeGroup(),
        "old": FakeGroup(state="Stable", members=[FakeMember("m-1", [TPS[2], TPS[0], OTHER]), FakeMember("m-2")]),
        "new": FakeGroup(CONSUMER, "Stable", [FakeMember("m-3", [TPS[1]])]),
    }
    return cluster


def _code(error: BaseException) -> int:
    assert isinstance(error, BrokerError), error
    return error.code


# --- listing


def test_every_broker_lists_its_groups() -> None:
    cluster = _cluster()
    found = FakeAdmin(cluster).list_groups()
    assert found == {
        "empty": GroupListing("empty", "classic", "Empty", "consumer"),
        "old": GroupListing("old", "classic", "Stable", "consumer"),
        "new": GroupListing("new", "consumer", "Stable", "consumer"),
    }
    assert sorted(call.node for call in cluster.calls(Api.LIST_GROUPS)) == [1, 2, 3]


def test_groups_are_filtered_by_state_and_kind() -> None:
    admin = FakeAdmin(_cluster())
    assert set(admin.list_groups(states=["Stable"])) == {"old", "new"}
    assert set(admin.list_groups(kinds=["Classic"])) == {"empty", "old"}
    assert set(admin.list_groups(states=["Empty"], kinds=["consumer"])) == set()


def test_brokers_that_know_no_kinds_have_classic_groups_only() -> None:
    """Apache Kafka 3.0 to 3.7: their answer has no kind, their request no filter for it."""
    cluster = _cluster()
    del cluster.admin.groups["new"]
    cluster.versions[Api.LIST_GROUPS] = (0, 4)
    admin = FakeAdmin(cluster)
    assert set(admin.list_groups(kinds=["classic"])) == {"empty", "old"}
    assert admin.list_groups(kinds=["consumer"]) == {}


def test_a_list_with_gaps_is_an_error() -> None:
    cluster = _cluster()
    cluster.control.on(Api.LIST_GROUPS, Action(silent=True), times=None, node=2)
    with pytest.raises(KafkaTimeout, match="listing the groups of broker 2 did not succeed within 2000 ms"):
        FakeAdmin(cluster).list_groups(timeout_ms=2_000)


def test_a_broker_that_is_down_is_not_asked() -> None:
    cluster = _cluster()
    cluster.kill(2)
    assert set(FakeAdmin(cluster).list_groups()) == {"empty", "new"}


# --- describing


def test_groups_of_both_protocols_are_described_with_their_members() -> None:
    cluster = _cluster()
    found = FakeAdmin(cluster).describe_groups(["new", "old", "empty"])
    assert list(found) == ["new", "old", "empty"]
    assert [(one.kind, one.state, one.assignor) for one in found.values()] == [
        ("consumer", "Stable", "uniform"),
        ("classic", "Stable", "range"),
        ("classic", "Empty", "range"),
    ]
    assigned = {member.member_id: member.assignment for one in found.values() for member in one.members}
    assert assigned == {"m-1": (TPS[0], TPS[2], OTHER), "m-2": (), "m-3": (TPS[1],)}


def test_groups_of_one_coordinator_go_in_one_request() -> None:
    cluster = _cluster()
    cluster.coordinators |= {"empty": 2}
    FakeAdmin(cluster).describe_groups(["old", "empty"])
    assert [(call.node, call.body.groups) for call in cluster.calls(Api.DESCRIBE_GROUPS)] == [(2, ("empty", "old"))]
    assert len(cluster.calls(Api.FIND_COORDINATOR)) == 1
    assert cluster.calls(Api.CONSUMER_GROUP_DESCRIBE) == [], "only where the classic coordinator does not know it"


@pytest.mark.parametrize("newest", [5, 6])
def test_a_group_that_is_not_there_fails_alone(newest: int) -> None:
    """Before version 6 the broker calls it dead, and means the same."""
    cluster = _cluster()
    cluster.versions[Api.DESCRIBE_GROUPS] = (0, newest)
    found = FakeAdmin(cluster).describe_groups(["old", "nope", "new"], partial=True)
    assert list(found) == ["old", "new"]
    assert _code(found.failed["nope"]) == GROUP_ID_NOT_FOUND


def test_groups_report_what_may_be_done_with_them_also_before_they_are_there() -> None:
    """From version 6 on a broker has an error for a group that is not there, and tells nothing of it."""
    cluster = _cluster()
    may = frozenset({AclOperation.DESCRIBE})
    cluster.admin.may[ResourceType.GROUP, "nope"] = may
    refused = Action(errors={"old": errors.GROUP_AUTHORIZATION_FAILED})
    cluster.control.on(Api.DESCRIBE_GROUPS, refused, times=None)
    found = FakeAdmin(cluster).group_operations(["new", "nope", "old"], partial=True)
    assert found == {"new": SUPPORTED[ResourceType.GROUP], "nope": may}
    assert isinstance(found.failed["old"], AuthorizationFailed)
    assert {call.version for call in cluster.calls(Api.DESCRIBE_GROUPS)} == {5}


def test_a_broker_that_does_not_report_permissions_on_groups_is_not_asked_again() -> None:
    cluster = _cluster()

    def silent_about_them(answer: DescribeGroupsResponse) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(tuple(replace(one, authorized_operations=-(2**31)) for one in answer.groups))

    cluster.control.on(Api.DESCRIBE_GROUPS, Action(rewrite=silent_about_them), times=None)
    assert FakeAdmin(cluster).group_operations(["old"]) == {}
    assert len(cluster.calls(Api.DESCRIBE_GROUPS)) == 1


def test_any_broker_says_which_transactional_ids_may_be_seen() -> None:
    """No coordinator is looked up: that would make the topic of transactions where there is none."""
    cluster = _cluster()
    hidden = Action(errors={"b": errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})
    cluster.control.on(Api.DESCRIBE_TRANSACTIONS, hidden, times=None)
    found = FakeAdmin(cluster).transactional_id_operations([*"abcdef"], partial=True)
    assert found == dict.fromkeys([*"acdef"], frozenset({AclOperation.DESCRIBE}))
    assert "transactional id 'b'" in str(found.failed["b"])
    assert "the permission Describe on the transactional id is missing" in str(found.failed["b"])
    assert (len(cluster.calls(Api.DESCRIBE_TRANSACTIONS)), cluster.calls(Api.FIND_COORDINATOR)) == (1, [])


def test_brokers_without_the_new_protocol_have_no_groups_of_it() -> None:
    """Apache Kafka 3.0 to 3.6."""
    cluster = _cluster()
    cluster.versions[Api.DESCRIBE_GROUPS] = (0, 5)
    del cluster.versions[Api.CONSUMER_GROUP_DESCRIBE]
    found = FakeAdmin(cluster).describe_groups(["old", "nope"], partial=True)
    assert list(found) == ["old"]
    assert _code(found.failed["nope"]) == GROUP_ID_NOT_FOUND


def test_a_refused_coordinator_ends_its_group_alone() -> None:
    cluster = _cluster()
    refusals: dict[TopicPartition | str, int] = {"old": errors.GROUP_AUTHORIZATION_FAILED}
    cluster.control.on(Api.FIND_COORDINATOR, Action(errors=refusals), times=None)
    admin = FakeAdmin(cluster)
    found = admin.describe_groups(["old", "empty"], partial=True)
    assert list(found) == ["empty"]
    assert isinstance(found.failed["old"], AuthorizationFailed)
    begun = admin.client.now
    with pytest.raises(AuthorizationFailed, match=r"group 'old'.*the permission Describe on the group"):
        admin.describe_groups(["old"])
    assert admin.client.completed_ms - begun < 50, "also where nothing is left to ask for"


def test_a_moved_coordinator_is_found() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    admin.describe_groups(["old"])
    cluster.coordinators["old"] = 3
    assert admin.describe_groups(["old"])["old"].state == "Stable"


def test_an_assignment_that_cannot_be_read_fails_its_group_alone() -> None:
    cluster = _cluster()
    cluster.admin.groups["odd"] = FakeGroup(members=[FakeMember("m", raw=b"\0\1\0\0\0\5")])
    cluster.admin.groups["connect"] = FakeGroup(members=[FakeMember("w", raw=b"\0\1x")], protocol_type="connect")
    found = FakeAdmin(cluster).describe_groups(["odd", "connect", "old"], partial=True)
    assert list(found) == ["connect", "old"]
    assert found["connect"].members[0].assignment == (), "no consumers: their bytes are their own"
    assert isinstance(found.failed["odd"], ProtocolError)
    assert str(found.failed["odd"]).startswith("describing group 'odd': an assignment of 6 bytes")


# --- offsets, and the end of groups


def test_offsets_of_all_partitions_of_a_group() -> None:
    admin = FakeAdmin(_cluster())
    offsets = {TPS[0]: OffsetAndMetadata(5, 3, "about"), OTHER: OffsetAndMetadata(7)}
    admin.commit_group_offsets("empty", offsets)
    assert admin.group_offsets("empty") == offsets
    assert admin.group_offsets("empty", [OTHER, TPS[1]]) == {OTHER: OffsetAndMetadata(7)}
    assert admin.group_offsets("empty", []) == {}
    assert admin.group_offsets("nope") == {}


def test_offsets_are_deleted_but_not_those_that_a_member_reads() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    offsets = {tp: OffsetAndMetadata(5) for tp in (TPS[0], TPS[1], OTHER)}
    admin.commit_group_offsets("empty", offsets)
    cluster.groups["new"].update(cluster.groups["empty"])  # a commit without a member is refused there
    admin.delete_group_offsets("empty", [TPS[0], OTHER])
    assert set(admin.group_offsets("empty")) == {TPS[1]}

    nowhere = TopicPartition("nope", 0)
    found = admin.delete_group_offsets("new", [TPS[0], OTHER, nowhere], partial=True)
    assert list(found) == [OTHER]
    assert {tp: _code(error) for tp, error in found.failed.items()} == {
        TPS[0]: GROUP_SUBSCRIBED_TO_TOPIC,
        nowhere: errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set(admin.group_offsets("new")) == {TPS[0], TPS[1]}


def test_a_group_with_members_refuses_a_commit_without_one() -> None:
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        FakeAdmin(_cluster()).commit_group_offsets("new", {TPS[0]: OffsetAndMetadata(1)})


def _finished(admin: FakeAdmin, future: Future[T]) -> T:
    admin.client.run_until(future.done, 300_000)
    return future.result()


def test_a_refused_offset_does_not_stop_the_others_of_its_group() -> None:
    cluster, nowhere = _cluster(), TopicPartition("nope", 0)
    refused: dict[TopicPartition | str, int] = {
        TPS[0]: errors.OFFSET_METADATA_TOO_LARGE,
        nowhere: errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors={**refused, OTHER: errors.NOT_COORDINATOR}))
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors=refused), times=2)
    admin, wanted = FakeAdmin(cluster), dict.fromkeys((*TPS[:2], OTHER, nowhere), OffsetAndMetadata(5))
    found = _finished(admin, admin.commit_group_offsets_async("empty", wanted))
    assert set(found) == {TPS[1], OTHER} == set(admin.group_offsets("empty"))
    assert {tp: _code(error) for tp, error in found.failed.items()} == refused
    found = _finished(admin, admin.commit_group_offsets_async("new", {TPS[0]: OffsetAndMetadata(1)}))
    assert _code(found.failed[TPS[0]]) == errors.UNKNOWN_MEMBER_ID


def test_groups_commit_together_and_each_has_an_outcome_of_its_own() -> None:
    """One of each coordinator, one with members, one in a transient state; and one whose topic is refused."""
    cluster, nowhere = _cluster(), TopicPartition("nope", 0)
    cluster.coordinators |= {"also empty": 1, "moves": 2}
    refused: dict[TopicPartition | str, int] = {nowhere: errors.UNKNOWN_TOPIC_OR_PARTITION}
    first = Action(errors={**refused, "moves": errors.NOT_COORDINATOR})
    cluster.control.on(Api.OFFSET_COMMIT, first, times=4)
    cluster.control.on(Api.OFFSET_COMMIT, Action(errors=refused), times=None)
    admin = FakeAdmin(cluster)
    five, six = OffsetAndMetadata(5, 2, "so far"), OffsetAndMetadata(6)
    wanted = {
        "empty": {TPS[0]: five, nowhere: five},
        "also empty": {TPS[0]: six, OTHER: six},
        "moves": {TPS[1]: five},
        "new": {TPS[1]: six},
    }
    found = _finished(admin, admin.commit_offsets_of_groups_async(wanted))
    assert {group: set(of_group) for group, of_group in found.items()} == {
        "empty": {TPS[0]},
        "also empty": {TPS[0], OTHER},
        "moves": {TPS[1]},
        "new": set(),
    }
    assert _code(found["empty"].failed[nowhere]) == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert _code(found["new"].failed[TPS[1]]) == errors.UNKNOWN_MEMBER_ID
    assert admin.group_offsets("empty") == {TPS[0]: five}
    assert admin.group_offsets("also empty") == wanted["also empty"]
    assert admin.group_offsets("moves") == wanted["moves"]
    asked = [(call.node, call.body.group_id) for call in cluster.calls(Api.OFFSET_COMMIT)]
    assert asked.count((2, "moves")) == 2
    assert len(asked) == len(wanted) + 1


def test_groups_that_a_slow_coordinator_answers_in_time_are_done() -> None:
    """It handles one request of a connection at a time. What it is late for may be done nevertheless."""
    cluster, names = _cluster(), [f"group {number:02}" for number in range(32)]
    cluster.coordinators |= dict.fromkeys(names, 1)
    cluster.control.on(Api.OFFSET_COMMIT, Action(stall_ms=60), times=None)
    admin = FakeAdmin(cluster)
    found = _finished(
        admin, admin.commit_offsets_of_groups_async({key: {TPS[0]: OffsetAndMetadata(5)} for key in names}, 1_500)
    )
    assert [*found] == names[: 1_500 // 60]
    assert [*found.failed] == names[1_500 // 60 :]
    assert all(isinstance(error, KafkaTimeout) for error in found.failed.values())


def test_a_group_whose_commit_is_answered_in_part_is_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _cluster()
    admin, wanted = FakeAdmin(cluster), {"empty": dict.fromkeys(TPS, OffsetAndMetadata(5))}
    whole = "tests.fakes.api_groups.OffsetCommitResponseTopic"
    monkeypatch.setattr(whole, lambda name, partitions: OffsetCommitResponseTopic(name, partitions[1:]))
    found = _finished(admin, admin.commit_offsets_of_groups_async(wanted, 2_000))
    assert isinstance(found.failed["empty"], KafkaTimeout)
    assert "leaves it out" in str(found.failed["empty"])


def test_offsets_of_several_groups_come_with_one_request_of_each_coordinator() -> None:
    cluster = _cluster()
    cluster.coordinators |= {"also empty": 1, "nope": 3}
    cluster.groups["empty"][TPS[0]] = GroupOffset(5, 2, "so far")
    cluster.groups["also empty"][OTHER] = GroupOffset(7, -1, None)
    admin = FakeAdmin(cluster)
    found = _finished(admin, admin.offsets_of_groups_async(["empty", "also empty", "nope"]))
    assert found == {
        "empty": {TPS[0]: OffsetAndMetadata(5, 2, "so far")},
        "also empty": {OTHER: OffsetAndMetadata(7)},
        "nope": {},
    }
    assert sorted(call.node for call in cluster.calls(Api.OFFSET_FETCH)) == [1, 3]
    assert not any(call.body.require_stable for call in cluster.calls(Api.OFFSET_FETCH))


def test_a_group_whose_offsets_may_not_be_read_fails_alone() -> None:
    cluster = _cluster()
    refused = Action(errors={"old": errors.GROUP_AUTHORIZATION_FAILED})
    cluster.control.on(Api.OFFSET_FETCH, refused, times=None)
    admin = FakeAdmin(cluster)
    found = _finished(admin, admin.offsets_of_groups_async(["old", "empty"]))
    assert found == {"empty": {}}
    assert isinstance(found.failed["old"], AuthorizationFailed)


def test_a_group_that_a_broker_says_does_not_exist_has_no_offsets() -> None:
    """Apache Kafka's brokers answer without an error; others, as franz-go's, with one."""
    cluster = _cluster()
    unknown = Action(errors={"nope": GROUP_ID_NOT_FOUND})
    cluster.control.on(Api.OFFSET_FETCH, unknown, times=None)
    admin = FakeAdmin(cluster)
    assert _finished(admin, admin.offsets_of_groups_async(["nope"])) == {"nope": {}}
    assert admin.group_offsets("nope") == {}


def test_partitions_whose_offsets_cannot_be_read_are_not_taken_for_absent_ones() -> None:
    cluster = _cluster()
    cluster.groups["empty"] = {TPS[0]: GroupOffset(5, 2, "so far"), OTHER: GroupOffset(7, -1, None)}
    cluster.group_transactions["empty"].pending[7] = dict.fromkeys([TPS[0], TPS[1]], GroupOffset(9, -1, None))
    refused = Action(errors={OTHER: errors.TOPIC_AUTHORIZATION_FAILED})
    cluster.control.on(Api.OFFSET_FETCH, refused, times=None)
    admin = FakeAdmin(cluster)
    nowhere = TopicPartition("nope", 0)
    wanted = {"empty": [*TPS, OTHER, nowhere]}
    found = _finished(admin, admin.offsets_of_groups_async(wanted, require_stable=True))["empty"]
    assert found == {}
    assert {tp: _code(error) for tp, error in found.failed.items()} == {
        **dict.fromkeys(TPS[:2], errors.UNSTABLE_OFFSET_COMMIT),
        OTHER: errors.TOPIC_AUTHORIZATION_FAILED,
    }
    found = _finished(admin, admin.offsets_of_groups_async(wanted))["empty"]
    assert (dict(found), set(found.failed)) == ({TPS[0]: OffsetAndMetadata(5, 2, "so far")}, {OTHER})


def test_groups_are_listed_by_broker() -> None:
    admin = FakeAdmin(_cluster())
    found = _finished(admin, admin.list_groups_async([1, 3], kinds=["classic"]))
    assert {node: [one.group for one in groups] for node, groups in found.items()} == {1: ["empty"], 3: []}


def test_offsets_of_a_group_that_is_not_there() -> None:
    with pytest.raises(BrokerError, match="deleting offsets of group 'nope', t-0: GROUP_ID_NOT_FOUND"):
        FakeAdmin(_cluster()).delete_group_offsets("nope", [TPS[0]])


def test_groups_without_members_are_deleted() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    found = admin.delete_groups(["empty", "old", "nope"], partial=True)
    assert list(found) == ["empty"]
    assert {group: _code(error) for group, error in found.failed.items()} == {
        "old": NON_EMPTY_GROUP,
        "nope": GROUP_ID_NOT_FOUND,
    }
    assert set(admin.list_groups()) == {"old", "new"}
