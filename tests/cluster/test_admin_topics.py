"""Admin on the fake cluster: topics and logs, above all what becomes of some where others fail."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial

import pytest

from mirror.client import (
    EARLIEST,
    LATEST,
    AclOperation,
    NewTopic,
    Outcomes,
    ResourceType,
    TopicListing,
    TopicPartition,
)
from mirror.cluster.calls.keyed_call import first_failure
from mirror.errors import AuthorizationFailed, BrokerError, KafkaError, KafkaTimeout, OffsetOutOfRange
from mirror.wire import codec
from mirror.wire.api import Api
from mirror.wire.frames import Buffer
from mirror.wire.messages.admin import DeleteTopicsResponse
from tests.fakes import errors
from tests.fakes.admin import FakeAdmin
from tests.fakes.api_admin import SUPPORTED
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

NOT_CONTROLLER = 41
TPS = [TopicPartition("t", p) for p in range(3)]


def _cluster() -> FakeCluster:
    """Three brokers; topic t with a partition on each, with 3 records; topics a, b, c."""
    cluster = FakeCluster(3)
    cluster.add_topic("t", 3)
    for tp in TPS:
        for _ in range(3):
            cluster.log(*tp).append_values(b"x")
    for name in "abc":
        cluster.add_topic(name)
    return cluster


# --- each key to its own end


def test_a_refusal_stops_nobody_else_and_names_all_that_failed() -> None:
    cluster = _cluster()
    refusals: dict[TopicPartition | str, int] = {
        "a": errors.TOPIC_AUTHORIZATION_FAILED,
        "c": errors.TOPIC_AUTHORIZATION_FAILED,
    }
    cluster.control.on(Api.DELETE_TOPICS, Action(errors=refusals))
    with pytest.raises(AuthorizationFailed) as raised:
        FakeAdmin(cluster).delete_topics(["a", "b", "c"])
    assert "deleting topic 'a': TOPIC_AUTHORIZATION_FAILED" in str(raised.value)
    assert "deleting topic 'c': TOPIC_AUTHORIZATION_FAILED" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.code == errors.TOPIC_AUTHORIZATION_FAILED
    assert set(cluster.topics) == {"t", "a", "c"}


def test_partial_reports_each_ones_result_and_raises_nothing() -> None:
    cluster = _cluster()
    cluster.control.on(Api.CREATE_TOPICS, Action(errors={"x": errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    new = [NewTopic(name, 1) for name in ("z", "a", "x", "y")]
    found = FakeAdmin(cluster).create_topics(new, partial=True)
    assert list(found) == ["z", "y"], "in the order given"
    assert found["z"] == cluster.topics["z"].topic_id
    assert {name: _code(error) for name, error in found.failed.items()} == {
        "a": errors.TOPIC_ALREADY_EXISTS,
        "x": errors.TOPIC_AUTHORIZATION_FAILED,
    }
    with pytest.raises(AuthorizationFailed, match="creating topic 'x'"):
        found["x"]
    with pytest.raises(KeyError, match="never asked for"):
        found["never asked for"]


def test_one_that_is_retried_keeps_nobody_waiting_for_its_success() -> None:
    """What was answered is not asked again."""
    cluster = _cluster()
    cluster.control.on(Api.CREATE_PARTITIONS, Action(errors={"b": NOT_CONTROLLER}), times=3)
    FakeAdmin(cluster).create_partitions({"a": 2, "b": 2, "c": 2})
    asked = [[topic.name for topic in call.body.topics] for call in cluster.calls(Api.CREATE_PARTITIONS)]
    assert asked == [["a", "b", "c"], ["b"], ["b"], ["b"]]
    assert [len(cluster.topics[name].partitions) for name in "abc"] == [2, 2, 2]


def test_at_the_deadline_those_that_were_answered_keep_their_answers() -> None:
    cluster = _cluster()
    cluster.control.on(Api.DELETE_TOPICS, Action(errors={"b": NOT_CONTROLLER}), times=None)
    admin = FakeAdmin(cluster)
    begun = admin.client.now
    found = admin.delete_topics(["a", "b", "nope"], partial=True, timeout_ms=2_000)
    assert admin.client.completed_ms - begun == 2_000
    assert list(found) == ["a"]
    assert isinstance(found.failed["b"], KafkaTimeout)
    assert "deleting topic 'b' did not succeed within 2000 ms: " in str(found.failed["b"])
    assert _code(found.failed["b"].__cause__) == NOT_CONTROLLER
    assert _code(found.failed["nope"]) == errors.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(BrokerError, match=r"deleting topic 'nope': .*; deleting topic 'b' did not succeed"):
        admin.delete_topics(["b", "nope"], timeout_ms=2_000)


def test_a_late_answer_changes_nothing_that_was_reported() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    held = cluster.control.on(Api.DELETE_TOPICS, Action(hold="after"))
    found = admin.delete_topics(["a"], partial=True, timeout_ms=500)
    held.release()
    admin.client.run_for(1_000)
    assert (list(found), list(found.failed)) == ([], ["a"])


def test_one_that_the_answer_leaves_out_is_asked_for_again() -> None:
    cluster = _cluster()

    def without_a(body: DeleteTopicsResponse) -> DeleteTopicsResponse:
        cluster.add_topic("a")  # the broker did not get that far
        return DeleteTopicsResponse(tuple(one for one in body.responses if one.name != "a"))

    cluster.control.on(Api.DELETE_TOPICS, Action(rewrite=without_a))
    FakeAdmin(cluster).delete_topics(["a", "b"])
    asked = [[topic.name for topic in call.body.topics] for call in cluster.calls(Api.DELETE_TOPICS)]
    assert asked == [["a", "b"], ["a"]]
    assert set(cluster.topics) == {"t", "c"}


def test_nothing_asked_for_is_nothing_done() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    assert admin.delete_topics([]) == admin.create_topics([]) == {}
    asked = {call.api for call in cluster.received}
    assert asked <= {Api.API_VERSIONS, Api.METADATA}


def test_many_failures_are_reported_in_one_line_that_ends() -> None:
    failed = {n: BrokerError(f"deleting topic {n}: refused", 29) for n in range(1_000)}
    result = first_failure(failed)
    assert isinstance(result, BrokerError)
    assert result.code == 29
    assert str(result).startswith("deleting topic 0: refused; deleting topic 1: refused; ")
    assert str(result).endswith("; and 980 more")
    assert str(failed[0]) == "deleting topic 0: refused", "the one that it was made from"


def test_outcomes_survive_copies_and_processes() -> None:
    found = Outcomes({"a": 1}, {"b": KafkaTimeout("late")})
    for again in (copy.copy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301 - our own
        assert again == {"a": 1}
        assert str(again.failed["b"]) == "late"
    assert repr(found) == "Outcomes({'a': 1}, failed={'b': KafkaTimeout('late')})"


# --- attempts without an answer


def test_a_topic_found_there_after_a_lost_answer_is_an_error_that_says_so() -> None:
    cluster = _cluster()
    cluster.control.on(Api.CREATE_TOPICS, Action(close="after"))
    with pytest.raises(BrokerError, match="an earlier attempt of this call got no answer, and may have created it"):
        FakeAdmin(cluster).create_topics([NewTopic("new", 1)])
    assert "new" in cluster.topics


def test_a_deletion_that_timed_out_at_the_broker_and_was_done_is_a_success() -> None:
    cluster = _cluster()
    cluster.control.on(Api.DELETE_TOPICS, Action(errors={"a": errors.REQUEST_TIMED_OUT}))
    cluster.after(50, lambda: cluster.topics.pop("a"))
    FakeAdmin(cluster).delete_topics(["a"])
    assert len(cluster.calls(Api.DELETE_TOPICS)) == 2


def test_a_topic_that_was_never_there_is_an_error_at_once() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    begun = admin.client.now
    with pytest.raises(BrokerError, match="deleting topic 'nope': UNKNOWN_TOPIC_OR_PARTITION") as raised:
        admin.delete_topics(["nope"])
    assert _code(raised.value) == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.client.completed_ms - begun < 50


# --- what the calls do


def test_a_deleted_topic_is_gone_with_its_records() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    admin.delete_topics(["t"])
    assert admin.describe_topics(["t", "a"]).keys() == {"a"}
    admin.create_topics([NewTopic("t", 3)])
    assert admin.list_offsets({TPS[0]: LATEST})[TPS[0]].offset == 0


def test_a_deletion_by_id_spares_a_topic_that_was_made_again() -> None:
    cluster = _cluster()
    former = cluster.topics["a"].topic_id
    current = cluster.add_topic("a").topic_id
    found = FakeAdmin(cluster).delete_topics_by_id([former, cluster.topics["b"].topic_id], partial=True)
    assert _code(found.failed[former]) == errors.UNKNOWN_TOPIC_ID
    assert cluster.topics["a"].topic_id == current
    assert "b" not in cluster.topics


def test_a_deletion_by_id_without_an_answer_is_a_success() -> None:
    cluster = _cluster()
    cluster.control.on(Api.DELETE_TOPICS, Action(close="after"))
    assert len(FakeAdmin(cluster).delete_topics_by_id([cluster.topics["a"].topic_id])) == 1
    assert "a" not in cluster.topics


def test_each_broker_says_which_topics_it_knows() -> None:
    cluster = _cluster()
    cluster.lag(2)
    del cluster.topics["a"]
    cluster.control.on(Api.METADATA, Action(errors={"c": errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    found = FakeAdmin(cluster).describe_topics_by_broker(["a", "b", "c"])
    assert {node: sorted(topics) for node, topics in found.items()} == {
        1: ["b", "c"],
        2: ["a", "b", "c"],
        3: ["b", "c"],
    }
    assert isinstance(found[1]["c"], AuthorizationFailed)


def test_a_broker_that_does_not_answer_says_nothing_about_topics() -> None:
    cluster = _cluster()

    def hold(call: ServerCall) -> Action | None:
        named = call.api is Api.METADATA and [topic.name for topic in call.body.topics or ()] == ["nope"]
        return Action(hold="before") if named and call.node == 2 else None

    cluster.control.add(hold)
    found = FakeAdmin(cluster).describe_topics_by_broker(["nope"], partial=True, timeout_ms=2_000)
    assert (found, sorted(found.failed)) == ({1: {}, 3: {}}, [2])


def test_topics_that_may_not_be_seen_fail_alone() -> None:
    cluster = _cluster()
    cluster.control.on(Api.METADATA, Action(errors={"b": errors.TOPIC_AUTHORIZATION_FAILED}), times=None)
    found = FakeAdmin(cluster).describe_topics(["b", "nope", "a"], partial=True)
    assert (list(found), list(found.failed)) == (["a"], ["b"])


def test_topics_report_what_may_be_done_with_them_where_that_is_asked() -> None:
    cluster = _cluster()
    may = frozenset({AclOperation.READ, AclOperation.DESCRIBE})
    cluster.admin.may[ResourceType.TOPIC, "a"] = may
    admin = FakeAdmin(cluster)
    found = admin.describe_topics(["a", "b", "nope"], include_authorized_operations=True)
    assert {name: result.authorized_operations for name, result in found.items()} == {
        "a": may,
        "b": SUPPORTED[ResourceType.TOPIC],
    }
    assert admin.describe_topics(["a"])["a"].authorized_operations is None


def test_records_are_deleted_at_their_leaders() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    assert admin.delete_records({TPS[0]: 2, TPS[1]: -1, TPS[2]: 0}) == {TPS[0]: 2, TPS[1]: 3, TPS[2]: 0}
    found = admin.list_offsets(dict.fromkeys(TPS, EARLIEST))
    assert [found[tp].offset for tp in TPS] == [2, 3, 0]
    assert sorted(call.node for call in cluster.calls(Api.DELETE_RECORDS)) == [1, 2, 3]


def test_deleting_beyond_the_end_fails_for_that_partition_alone() -> None:
    cluster = _cluster()
    found = FakeAdmin(cluster).delete_records({TPS[0]: 99, TPS[1]: 1}, partial=True)
    assert found == {TPS[1]: 1}
    assert isinstance(found.failed[TPS[0]], OffsetOutOfRange)
    assert "deleting records of t-0 before offset 99" in str(found.failed[TPS[0]])


def test_records_are_deleted_at_a_leader_that_moved() -> None:
    cluster = _cluster()
    admin = FakeAdmin(cluster)
    admin.list_offsets(dict.fromkeys(TPS, LATEST))
    cluster.move("t", 0, 2)
    assert admin.delete_records({TPS[0]: 1}) == {TPS[0]: 1}


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    cluster = _cluster()
    cluster.kill(3)
    admin = FakeAdmin(cluster)
    found = admin.list_offsets(dict.fromkeys([*TPS, TopicPartition("nope", 0)], LATEST), partial=True, timeout_ms=3_000)
    assert {tp: result.offset for tp, result in found.items()} == {TPS[0]: 3, TPS[1]: 3}
    assert "listing offsets of t-2 did not succeed within 3000 ms" in str(found.failed[TPS[2]])
    assert "topic 'nope' does not exist" in str(found.failed[TopicPartition("nope", 0)])


def _code(error: BaseException | KafkaError | None) -> int:
    assert isinstance(error, BrokerError), error
    return error.code


# --- topic ids


def test_a_topic_s_id_is_that_of_each_partition_s_leader() -> None:
    cluster = _cluster()
    former = cluster.topics["t"].topic_id
    cluster.lag(2)
    now = cluster.add_topic("t", 3).topic_id
    cluster.lag(3)
    del cluster.lagging[3]["t"]
    assert dict(FakeAdmin(cluster).topic_ids(TPS)) == {TPS[0]: now, TPS[1]: former}


# --- all topics, again and again


def test_a_listing_that_is_known_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t", 3)
    admin = FakeAdmin(cluster)
    first = admin.list_changed_topics([])
    assert first.topics == admin.list_topics()
    decoded = list[Api]()
    decode = codec.decode_response

    def counted(api: Api, version: int, frame: Buffer) -> object:
        decoded.append(api)
        return decode(api, version, frame)

    monkeypatch.setattr(codec, "decode_response", counted)
    assert admin.list_changed_topics([b"x", first.digest]) == TopicListing(first.digest, None)
    assert decoded == []
    cluster.add_topic("new")
    changed = admin.list_changed_topics([first.digest])
    assert changed.digest != first.digest
    assert changed.topics is not None
    assert changed.topics.keys() == {"t", "new"}
    assert admin.list_changed_topics([first.digest, changed.digest]).topics is None


def test_a_listing_of_a_topic_that_gets_a_partition_is_another_one() -> None:
    cluster = FakeCluster(1)
    cluster.add_topic("t", 3)
    admin = FakeAdmin(cluster)
    before = admin.list_changed_topics([])
    admin.create_partitions({"t": 4})
    found = admin.list_changed_topics([before.digest]).topics
    assert found is not None
    assert len(found["t"].partitions) == 4


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda admin: admin.create_topics([NewTopic("a", 1)]), "TOPIC_ALREADY_EXISTS"),
        (lambda admin: admin.delete_topics(["missing"]), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
    ids=["create", "delete"],
)
def test_an_attempt_that_was_never_sent_explains_nothing(call: Callable[[FakeAdmin], object], outcome: str) -> None:
    """The brokers are away at first: they have neither made nor deleted what is found."""
    cluster = _cluster()
    for node in cluster.brokers:
        cluster.kill(node)
        cluster.after(1_000, partial(cluster.start, node))
    with pytest.raises(BrokerError, match=outcome) as raised:
        call(FakeAdmin(cluster))
    assert "may have created it" not in str(raised.value)


def test_a_timeout_before_anything_was_sent_raises_no_doubt() -> None:
    cluster = _cluster()
    for node in cluster.brokers:
        cluster.kill(node)
    with pytest.raises(KafkaTimeout) as raised:
        FakeAdmin(cluster).delete_topics(["a"], timeout_ms=2_000)
    assert "may have been done" not in str(raised.value)
    silent = _cluster()
    silent.control.on(Api.API_VERSIONS, Action(silent=True), times=None)
    with pytest.raises(KafkaTimeout) as raised:
        FakeAdmin(silent).delete_topics(["a"], timeout_ms=2_000)
    assert "may have been done" not in str(raised.value)
