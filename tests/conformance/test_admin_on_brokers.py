"""Every call of Admin on a real broker that obeys ACLs; compared with confluent-kafka, which shares no code with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient as OtherAdmin
from kio.schema.errors import ErrorCode

from mirror.client import (
    EARLIEST,
    LATEST,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetAndMetadata,
    PatternType,
    ResourceType,
    TopicPartition,
)
from mirror.errors import AuthorizationFailed, BrokerError, KafkaTimeout, OffsetOutOfRange
from mirror.observation import Side
from mirror.sandbox.cluster import Cluster
from mirror.wire.api import Api
from tests import jvm
from tests.conformance.admin_on_brokers import GUARDED, NOBODY, denied, other, reading, refused_calls
from tests.conformance.topics import Topics
from tests.faults.changes import refused as answering
from tests.faults.proxy import Action, Fault, Proxy
from tests.polling import eventually
from tests.stalls import Stalls

pytestmark = pytest.mark.brokers

UNKNOWN_TOPIC, ALREADY_THERE, INVALID_PARTITIONS, INVALID_CONFIG = 3, 36, 37, 40
NON_EMPTY_GROUP, NO_SUCH_GROUP, SUBSCRIBED = 68, 69, 86
SECRET = "hunter2-and-more"

Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    with Cluster(properties=GUARDED, heap=jvm.BROKER) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(guarded: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": guarded.bootstrap_servers}) as admin:
        yield admin


@pytest.fixture
def topics(guarded: Cluster, unique: Unique) -> Topics:
    return Topics(guarded.bootstrap_servers, unique)


@pytest.fixture
def behind(guarded: Cluster) -> Iterator[tuple[Proxy, Admin]]:
    """A proxy before the broker, and an Admin behind it."""
    with Proxy(guarded.bootstrap_servers) as proxy:
        options = {"bootstrap.servers": proxy.bootstrap_servers, "retry.backoff.ms": 50, "retry.backoff.max.ms": 200}
        with Admin(options) as admin:
            yield proxy, admin


def _code(error: BaseException) -> int:
    assert isinstance(error, BrokerError), error
    return error.code


def _partition_count(admin: Admin, topic: str) -> int:
    """0 as long as the broker that answers does not know a new topic yet."""
    found = admin.describe_topics([topic]).get(topic)
    return 0 if found is None else len(found.partitions)


# --- topics


def test_topics_are_created_grown_and_deleted(admin: Admin, unique: Unique) -> None:
    one, two = unique("one"), unique("two")
    ids = admin.create_topics([NewTopic(one, 1, 1), NewTopic(two, 2, 1, {"retention.ms": "5000"})])
    assert all(ids.values())
    admin.create_partitions({one: 3})
    eventually(lambda: _partition_count(admin, one) == 3, what="three partitions")
    eventually(lambda: set(admin.describe_topics([one, two])) == {one, two}, what="both topics")
    assert {name: result.topic_id for name, result in admin.describe_topics([one, two]).items()} == ids
    assert admin.topic_ids([TopicPartition(two, 0), TopicPartition(two, 1)]) == {
        TopicPartition(two, 0): ids[two],
        TopicPartition(two, 1): ids[two],
    }
    assert Side("", admin).own_configs([two]) == {two: {"retention.ms": "5000"}}
    admin.delete_topics([one, two])
    eventually(lambda: not admin.describe_topics([one, two]), what="the topics' end")


def test_topics_that_are_refused_stop_no_others(admin: Admin, unique: Unique) -> None:
    there, new, nope = unique("there"), unique("new"), unique("nope")
    admin.create_topics([NewTopic(there, 2, 1)])
    made = admin.create_topics([NewTopic(there, 1, 1), NewTopic("not/legal", 1, 1), NewTopic(new, 1, 1)], partial=True)
    assert list(made) == [new]
    assert _code(made.failed[there]) == ALREADY_THERE
    assert "creating topic 'not/legal': INVALID_TOPIC_EXCEPTION" in str(made.failed["not/legal"])
    with pytest.raises(BrokerError, match=f"adding partitions to '{there}': INVALID_PARTITIONS") as raised:
        admin.create_partitions({there: 1, new: 4})
    assert raised.value.code == INVALID_PARTITIONS
    eventually(lambda: _partition_count(admin, new) == 4, what="four partitions all the same")
    gone = admin.delete_topics([there, nope, new], partial=True)
    assert list(gone) == [there, new]
    assert _code(gone.failed[nope]) == UNKNOWN_TOPIC


def test_records_are_deleted(admin: Admin, topics: Topics) -> None:
    tps = topics.create(3)
    for tp in tps:
        topics.fill(tp, 10)
    found = admin.delete_records({tps[0]: 4, tps[1]: -1, tps[2]: 99}, partial=True)
    assert found == {tps[0]: 4, tps[1]: 10}
    assert isinstance(found.failed[tps[2]], OffsetOutOfRange)
    starts = admin.list_offsets(dict.fromkeys(tps, EARLIEST))
    assert [starts[tp].offset for tp in tps] == [4, 10, 0]
    assert {result.offset for result in admin.list_offsets(dict.fromkeys(tps, LATEST)).values()} == {10}


# --- configurations


def test_topic_configurations_change_by_what_is_named(admin: Admin, topics: Topics) -> None:
    (tp,) = topics.create(config={"retention.ms": "5000", "cleanup.policy": "delete"})
    topic = ConfigResource.topic(tp.topic)

    def own_after(*changes: ConfigChange, **options: bool) -> dict[str, str]:
        admin.incremental_alter_configs({topic: changes}, **options)
        wanted = Side("", admin).own_configs([tp.topic])
        return wanted[tp.topic]

    assert own_after(ConfigChange("retention.ms", "7"), validate_only=True)["retention.ms"] == "5000"
    append = ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND)
    admin.incremental_alter_configs({topic: [append, ConfigChange("segment.ms", "600000")]})
    wanted = {"retention.ms": "5000", "cleanup.policy": "delete,compact", "segment.ms": "600000"}
    eventually(lambda: own_after(append) == wanted, what="the changes, and no second compact")
    subtract = ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)
    admin.incremental_alter_configs({topic: [subtract, ConfigChange("segment.ms", operation=ConfigOperation.DELETE)]})
    left = {"retention.ms": "5000", "cleanup.policy": "compact"}
    eventually(lambda: Side("", admin).own_configs([tp.topic])[tp.topic] == left, what="what is left")

    entries = admin.describe_configs([topic])[topic]
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("5000", ConfigSource.TOPIC)
    assert entries["segment.ms"].source is ConfigSource.DEFAULT
    assert not entries["segment.ms"].sensitive
    some = admin.describe_configs([topic], keys=["retention.ms", "segment.ms", "unknown.ms"])[topic]
    assert some == {key: entries[key] for key in ("retention.ms", "segment.ms")}


def test_a_configuration_that_is_refused_stops_no_other(admin: Admin, topics: Topics, unique: Unique) -> None:
    (one,), (two,) = topics.create(), topics.create()
    changes = {
        ConfigResource.topic(one.topic): [ConfigChange("retention.ms", "9"), ConfigChange("segment.ms", SECRET)],
        ConfigResource.topic(unique("nope")): [ConfigChange("retention.ms", "9")],
        ConfigResource.topic(two.topic): [ConfigChange("retention.ms", "9")],
    }
    found = admin.incremental_alter_configs(changes, partial=True)
    refused, missing, done = changes
    assert (list(found), list(found.failed)) == ([done], [refused, missing])
    assert _code(found.failed[refused]) == INVALID_CONFIG
    assert _code(found.failed[missing]) == UNKNOWN_TOPIC
    # The broker repeats the value to say that it is no number.
    assert SECRET not in str(found.failed[refused])
    assert "Invalid value *** for configuration segment.ms" in str(found.failed[refused])
    own = Side("", admin).own_configs([one.topic])
    assert own[one.topic] == {}
    eventually(lambda: Side("", admin).own_configs([two.topic])[two.topic] == {"retention.ms": "9"}, what="the other")


def test_brokers_configurations_are_reported_and_changed(admin: Admin) -> None:
    node = admin.describe_cluster().brokers[0].node_id
    one, everyone = ConfigResource.broker(node), ConfigResource.broker()
    entries = admin.describe_configs([one])[one]
    assert entries["authorizer.class.name"].source is ConfigSource.BROKER_FILE
    assert entries["authorizer.class.name"].read_only
    assert entries["log.cleaner.threads"].source is ConfigSource.DEFAULT
    admin.incremental_alter_configs({one: [ConfigChange("log.cleaner.threads", "2")]})
    admin.incremental_alter_configs({everyone: [ConfigChange("background.threads", "11")]})

    def values() -> list[tuple[str | None, ConfigSource]]:
        found = admin.describe_configs([one])[one]
        return [(found[key].value, found[key].source) for key in ("log.cleaner.threads", "background.threads")]

    eventually(lambda: values() == [("2", ConfigSource.BROKER), ("11", ConfigSource.ALL_BROKERS)], what="the changes")
    back = {
        one: [ConfigChange("log.cleaner.threads", operation=ConfigOperation.DELETE)],
        everyone: [ConfigChange("background.threads", operation=ConfigOperation.DELETE)],
    }
    admin.incremental_alter_configs(back)
    eventually(lambda: {source for _, source in values()} == {ConfigSource.DEFAULT}, what="the defaults")


def test_a_secret_is_kept_by_the_broker_and_shown_by_nobody(admin: Admin) -> None:
    node = ConfigResource.broker(admin.describe_cluster().brokers[0].node_id)
    key = "listener.name.plaintext.ssl.truststore.password"
    admin.incremental_alter_configs({node: [ConfigChange(key, SECRET)]})
    eventually(lambda: key in admin.describe_configs([node])[node], what="the password")
    entry = admin.describe_configs([node])[node][key]
    assert (entry.value, entry.sensitive, entry.source) == (None, True, ConfigSource.BROKER)
    admin.incremental_alter_configs({node: [ConfigChange(key, operation=ConfigOperation.DELETE)]})


# --- disks


def test_sizes_on_disk(admin: Admin, topics: Topics) -> None:
    (tp,) = topics.create()
    topics.fill(tp, 500)
    (dirs,) = admin.describe_log_dirs().values()
    (result,) = dirs.values()
    assert result.error is None
    assert result.logs[tp].size_bytes > 500
    assert (result.logs[tp].offset_lag, result.logs[tp].future) == (0, False)
    assert result.total_bytes is not None
    assert result.usable_bytes is not None
    assert 0 < result.usable_bytes < result.total_bytes


# --- groups


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_either_protocol(
    protocol: str, admin: Admin, guarded: Cluster, topics: Topics, unique: Unique
) -> None:
    tps = topics.create(2)
    (elsewhere,) = topics.create()
    group, nope = unique("readers"), unique("nope")
    with reading(guarded.bootstrap_servers, group, tps[0], protocol) as consumer:
        consumer.commit(offsets=[other(tp, 5) for tp in tps], asynchronous=False)
        found = admin.describe_groups([nope, group], partial=True)
        assert (found[group].kind, found[group].state) == (protocol, "Stable")
        (member,) = found[group].members
        assert (member.client_id, sorted(member.assignment)) == ("reader", tps)
        assert _code(found.failed[nope]) == NO_SUCH_GROUP

        listed = admin.list_groups(states=["Stable"], kinds=[protocol])
        assert (listed[group].kind, listed[group].state) == (protocol, "Stable")
        assert group not in admin.list_groups(states=["Empty"])
        assert group not in admin.list_groups(kinds=["classic" if protocol == "consumer" else "consumer"])

        with pytest.raises(BrokerError, match=f"deleting group '{group}': NON_EMPTY_GROUP") as raised:
            admin.delete_groups([group])
        assert raised.value.code == NON_EMPTY_GROUP
        kept = admin.delete_group_offsets(group, [tps[0], elsewhere], partial=True)
        assert list(kept) == [elsewhere]
        assert _code(kept.failed[tps[0]]) == SUBSCRIBED

    eventually(lambda: admin.describe_groups([group])[group].state == "Empty", what="an empty group")
    assert {tp: raised.offset for tp, raised in admin.group_offsets(group).items()} == dict.fromkeys(tps, 5)
    admin.delete_group_offsets(group, [tps[0]])
    assert set(admin.group_offsets(group)) == {tps[1]}
    gone = admin.delete_groups([group, nope], partial=True)
    assert list(gone) == [group]
    assert _code(gone.failed[nope]) == NO_SUCH_GROUP
    assert group not in admin.list_groups()
    assert admin.group_offsets(group) == {}


def test_offsets_of_a_group_without_members(admin: Admin, topics: Topics, unique: Unique) -> None:
    group, tps = unique("progress"), topics.create(2)
    offsets = {tps[0]: OffsetAndMetadata(3, None, "a word"), tps[1]: OffsetAndMetadata(4)}
    admin.commit_group_offsets(group, offsets)
    assert admin.group_offsets(group) == offsets
    nowhere = TopicPartition(unique("nope"), 0)
    found = admin.delete_group_offsets(group, [nowhere, tps[0]], partial=True)
    assert list(found) == [tps[0]]
    assert _code(found.failed[nowhere]) == UNKNOWN_TOPIC
    assert admin.group_offsets(group) == {tps[1]: OffsetAndMetadata(4)}
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_group_offsets(unique("nope"), [tps[0]])


# --- permissions


def test_acls_are_created_found_and_deleted(admin: Admin, unique: Unique) -> None:
    name = unique("orders")
    read = AclBinding(ResourceType.TOPIC, name, "User:alice", AclOperation.READ)
    some = AclBinding(
        ResourceType.GROUP, name[:-2], "User:*", AclOperation.ALL, AclPermission.DENY, PatternType.PREFIXED, "10.0.0.1"
    )
    odd = read._replace(principal="alice")
    made = admin.create_acls([odd, read, some], partial=True)
    assert list(made) == [read, some]
    assert f"ALLOW READ on TOPIC '{name}' (LITERAL) for alice from *" in str(made.failed[odd])
    by_name = AclFilter(name=name, pattern=PatternType.MATCH)
    eventually(lambda: set(admin.describe_acls(by_name)) == {read, some}, what="both ACLs")
    assert admin.describe_acls(AclFilter(ResourceType.TOPIC, name)) == (read,)
    assert admin.describe_acls(AclFilter(name=name, operation=AclOperation.WRITE)) == ()
    assert set(admin.describe_acls()) >= {read, some}
    nobody = AclFilter(principal="User:nobody")
    gone = admin.delete_acls([by_name, nobody])
    assert (set(gone[by_name]), gone[nobody]) == ({read, some}, ())
    eventually(lambda: not admin.describe_acls(by_name), what="their end")


def test_a_missing_permission_is_named_with_what_it_is_on(admin: Admin, topics: Topics, unique: Unique) -> None:
    (tp,) = topics.create()
    group = unique("readers")
    admin.commit_group_offsets(group, {tp: OffsetAndMetadata(1)})
    for words, (kind, name, operation, call) in refused_calls(admin, tp, group).items():
        about, missing = words.split("; ")
        with denied(admin, kind, name, operation), pytest.raises(AuthorizationFailed) as raised:
            call()
        assert about in str(raised.value)
        assert f"the permission {missing} is missing; grant it to this client's user" in str(raised.value)
    assert admin.group_offsets(group) == {tp: OffsetAndMetadata(1)}, "nothing was done"


def test_what_may_be_done_is_reported_before_it_is_tried(
    guarded: Cluster, admin: Admin, topics: Topics, unique: Unique
) -> None:
    (tp,) = topics.create()
    hidden, free = unique("hidden"), unique("free")
    other_admin = OtherAdmin({"bootstrap.servers": guarded.bootstrap_servers})
    with denied(admin, ResourceType.TOPIC, tp.topic, AclOperation.READ, AclOperation.ALTER):
        found = admin.describe_topics([tp.topic], include_authorized_operations=True)[tp.topic]
        result = other_admin.describe_topics(TopicCollection([tp.topic]), include_authorized_operations=True)[tp.topic]
        assert found.authorized_operations is not None
        assert {one.name for one in found.authorized_operations} == {
            one.name for one in result.result(60).authorized_operations
        }
        assert found.authorized_operations == {
            *(AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE),
            *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
        }
        assert admin.describe_topics([tp.topic])[tp.topic].authorized_operations is None
    with (
        denied(admin, ResourceType.GROUP, hidden, AclOperation.DESCRIBE),
        denied(admin, ResourceType.GROUP, free, AclOperation.READ),
    ):
        groups = admin.group_operations([hidden, free], partial=True)
        assert {AclOperation.DESCRIBE, AclOperation.DELETE} <= groups[free], "also where there is no such group"
        assert AclOperation.READ not in groups[free]
        assert isinstance(groups.failed[hidden], AuthorizationFailed)


def test_transactional_ids_that_may_be_seen_are_reported_without_a_trace(admin: Admin, unique: Unique) -> None:
    hidden, free = unique("hidden"), unique("free")
    before = set(admin.list_topics())
    with denied(admin, ResourceType.TRANSACTIONAL_ID, hidden, AclOperation.DESCRIBE):
        found = admin.transactional_id_operations([hidden, free], partial=True)
    assert found == {free: {AclOperation.DESCRIBE}}
    assert isinstance(found.failed[hidden], AuthorizationFailed)
    # Other tests' topics may have ended meanwhile.
    assert set(admin.list_topics()) - before == set(), "no topic of transactions was made for that"


def test_a_topic_that_may_not_be_deleted(admin: Admin, topics: Topics) -> None:
    (tp,), (free,) = topics.create(), topics.create()
    cluster, delete = (ResourceType.CLUSTER, "kafka-cluster"), AclOperation.DELETE
    # Who may delete in the cluster needs no permission on the topic.
    with denied(admin, *cluster, delete), denied(admin, ResourceType.TOPIC, tp.topic, delete):
        with pytest.raises(AuthorizationFailed, match=f"deleting topic '{tp.topic}'.*Delete on the topic") as raised:
            admin.delete_topics([tp.topic, free.topic])
        assert free.topic not in str(raised.value)
    eventually(lambda: set(admin.describe_topics([tp.topic, free.topic])) == {tp.topic}, what="the other's end")


def test_who_may_not_describe_the_cluster_sees_no_disks(admin: Admin) -> None:
    cluster = (ResourceType.CLUSTER, "kafka-cluster")
    everything = AclBinding(*cluster, NOBODY, AclOperation.ALL)
    # Describe is what describe_acls takes as well: the denial cannot be listed, only tested.
    denial = AclBinding(*cluster, NOBODY, AclOperation.DESCRIBE, AclPermission.DENY)
    admin.create_acls([everything])
    eventually(lambda: admin.describe_acls(AclFilter(*cluster)), what="the first ACL")
    admin.create_acls([denial])
    try:
        with pytest.raises(AuthorizationFailed, match="broker 1.*the permission Describe on the cluster") as raised:  # noqa: RUF043
            eventually(lambda: not admin.describe_log_dirs(), what="a refusal")
        assert raised.value.code == 31
        with pytest.raises(AuthorizationFailed, match="the permission Describe on the cluster"):
            admin.describe_acls()
    finally:
        admin.delete_acls([AclFilter(*cluster, permission=AclPermission.DENY)])
        admin.delete_acls([AclFilter(*cluster)])

    def free() -> bool:
        with contextlib.suppress(AuthorizationFailed):
            return not admin.describe_acls(AclFilter(*cluster))
        return False

    eventually(free, what="no ACL")


# --- retries and deadlines


def test_a_retriable_answer_is_retried(behind: tuple[Proxy, Admin], admin: Admin, unique: Unique) -> None:
    """The broker has done it, and the answer says otherwise twice: the third attempt finds it done."""
    proxy, slow = behind
    name, left = unique("orders"), [2]
    admin.create_topics([NewTopic(name, 1, 1)])

    def change(seen: Any, body: Any) -> Any:
        left[0] -= 1
        return answering(ErrorCode.request_timed_out, "responses")(seen, body) if left[0] >= 0 else body

    proxy.change(Api.DELETE_TOPICS, change)
    slow.delete_topics([name])
    assert len(proxy.requests(Api.DELETE_TOPICS)) == 3
    eventually(lambda: not admin.describe_topics([name]), what="the topic's end")


def test_an_answer_that_is_lost_is_asked_for_again(behind: tuple[Proxy, Admin], admin: Admin, unique: Unique) -> None:
    proxy, slow = behind
    name = unique("orders")
    admin.create_topics([NewTopic(name, 1, 1)])
    proxy.fault(Fault(action=Action.CUT, api=Api.DELETE_TOPICS, times=1))
    slow.delete_topics([name])
    assert len(proxy.requests(Api.DELETE_TOPICS)) == 2


# In the suite, tests/runtime/test_defaults_hold.py has it, by a server that is silent.
@pytest.mark.cluster
def test_silence_ends_at_the_deadline(behind: tuple[Proxy, Admin], stalls: Stalls) -> None:
    proxy, slow = behind
    slow.describe_cluster()
    proxy.fault(Fault(action=Action.SILENCE, api=Api.LIST_GROUPS))
    said = "listing the groups of broker 1 did not succeed within 700 ms"
    with stalls.timing() as took, pytest.raises(KafkaTimeout, match=said):
        slow.list_groups(timeout_ms=700)
    assert took.ms >= 699
    assert took.running_ms < 1_200
