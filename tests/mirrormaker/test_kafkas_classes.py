"""MirrorMaker 2's own classes read what is written here, and find what flows have copied."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from mirror.client import Admin, NewTopic, TopicPartition
from mirror.config.models import FlowConfig
from mirror.mirrormaker.checkpoints import CheckpointWriter, Translated
from mirror.mirrormaker.heartbeats import HeartbeatWriter
from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy
from mirror.mirrormaker.records import Checkpoint, CheckpointKey, Heartbeat, OffsetSync
from mirror.mirrormaker.source_offsets import SourceOffsetKey, encode_offset, parse_offset, partition_of
from mirror.relay.model.ranges import Outcome
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.runtime.clock import SystemClock
from mirror.sandbox.cluster import Cluster
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_topics
from tests.mirrormaker.kafkas_classes import KafkasClasses, kafkas_classes
from tests.spark.observed import sides_of

pytestmark = pytest.mark.brokers

EXAMPLES = 300
PARTS = ["", ".", "..", "_", "a", "b", "orders", "heartbeats", "my-heartbeats", "mm2", "__", "internal", "checkpoints"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasClasses]:
    with kafkas_classes(tmp_path_factory.mktemp("java")) as running:
        yield running


@pytest.fixture
def rng() -> random.Random:
    return random.Random(2121)


def text(rng: random.Random) -> str:
    """Any characters but surrogates."""
    codes = [rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]) for _ in range(rng.randrange(9))]
    return "".join(map(chr, codes))


def number(rng: random.Random) -> int:
    return rng.randrange(-(2**63), 2**63) >> rng.randrange(64)


def offset(rng: random.Random) -> int:
    return rng.randrange(2**63) >> rng.randrange(63)


def test_heartbeats_have_the_same_bytes(kafka: KafkasClasses, rng: random.Random) -> None:
    for _ in range(EXAMPLES):
        one = Heartbeat(text(rng), text(rng), number(rng))
        key, value = one.key().hex(), one.value().hex()
        fields = {"source": one.source, "target": one.target, "timestamp": one.timestamp_ms}
        assert kafka.ask(about="heartbeat", key=key, value=value, **fields) == {"key": key, "value": value, **fields}


def test_checkpoints_have_the_same_bytes(kafka: KafkasClasses, rng: random.Random) -> None:
    for _ in range(EXAMPLES):
        key = CheckpointKey(text(rng), TopicPartition(text(rng), rng.randrange(2**31)))
        one = Checkpoint(offset(rng), offset(rng), text(rng))
        fields = {
            "key": key.to_bytes().hex(),
            "value": one.to_bytes().hex(),
            "group": key.group,
            "topic": key.tp.topic,
            "partition": key.tp.partition,
            "upstream": one.source,
            "downstream": one.target,
            "metadata": one.metadata,
        }
        found = kafka.ask(about="checkpoint", **fields)
        assert found == fields
        assert CheckpointKey.parse(bytes.fromhex(found["key"])) == key
        assert Checkpoint.parse(bytes.fromhex(found["value"])) == one


def test_offset_syncs_have_the_same_bytes(kafka: KafkasClasses, rng: random.Random) -> None:
    for _ in range(EXAMPLES):
        one = OffsetSync(TopicPartition(text(rng), rng.randrange(2**31)), offset(rng), offset(rng))
        fields = {
            "topic": one.tp.topic,
            "partition": one.tp.partition,
            "upstream": one.source,
            "downstream": one.target,
        }
        assert kafka.ask(about="sync", **fields) == {"key": one.key().hex(), "value": one.value().hex()}
        assert OffsetSync.parse(one.key(), one.value()) == one


def test_positions_have_the_same_bytes_in_the_same_partition(kafka: KafkasClasses, rng: random.Random) -> None:
    for _ in range(EXAMPLES):
        tp = TopicPartition(text(rng) or "orders", rng.randrange(2**31))
        key, copied = SourceOffsetKey(text(rng) or "c", text(rng) or "east", tp), offset(rng)
        partitions = rng.randrange(1, 60)
        found = kafka.ask(
            about="position",
            connector=key.connector,
            cluster=key.cluster,
            topic=tp.topic,
            partition=tp.partition,
            offset=copied,
            partitions=partitions,
        )
        expected = key.to_bytes(), encode_offset(copied), partition_of(key.to_bytes(), partitions)
        assert (bytes.fromhex(found["key"]), bytes.fromhex(found["value"]), found["partition"]) == expected
        assert SourceOffsetKey.parse(key.to_bytes()) == key
        assert parse_offset(encode_offset(copied)) == copied


@pytest.mark.parametrize("separator", [".", "_", ".."])
def test_names_have_the_same_parts(kafka: KafkasClasses, rng: random.Random, separator: str) -> None:
    names = DefaultPolicy(separator)
    for _ in range(EXAMPLES):
        topic = separator.join(rng.choices(PARTS, k=rng.randrange(1, 5))) + rng.choice(["", separator])
        if not topic:
            continue
        target = rng.choice(["a", "b", "__", "orders"])
        assert kafka.ask(about="name", topic=topic, separator=separator, target=target) == {
            "source": names.topic_source(topic),
            "upstream": names.upstream_topic(topic),
            "original": names.original_topic(topic),
            "checkpoints": names.checkpoints_topic(topic),
            "internal": names.is_internal(topic),
            "carried": names.carries_heartbeats(topic, target),
        }, topic


def test_clusters_are_found_by_the_heartbeats_that_flows_copy(
    kafka: KafkasClasses, source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """Of two hops: those of the first one are carried on by the second, which goes back to the first cluster.

    Other tests' topics are on these clusters, too.
    """
    topic, a, b = unique("orders"), unique("a"), unique("b")
    with Admin(options(source_cluster)) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    copy(unique("f"), a, source_cluster, b, target_cluster, topic)
    copy(unique("g"), b, target_cluster, unique("c"), source_cluster, f"{a}.{topic}", naming="identity")
    middle = kafka.ask(about="cluster", servers=target_cluster.bootstrap_servers, source=a)
    assert {a} <= {*middle["upstream"]}
    assert b not in middle["upstream"]
    assert {f"{a}.heartbeats", "heartbeats"} <= {*middle["heartbeats"]}
    assert middle["hops"] == 1
    assert DefaultPolicy().checkpoints_topic(a) not in middle["checkpoints"]
    assert middle["remote"] == [f"{a}.heartbeats", f"{a}.{topic}"]
    last = kafka.ask(about="cluster", servers=source_cluster.bootstrap_servers, source=a)
    assert {a, b} <= {*last["upstream"]}
    assert {f"{b}.{a}.heartbeats", f"{b}.heartbeats"} <= {*last["heartbeats"]}
    assert (last["hops"], last["remote"]) == (2, [f"{a}.{topic}"])
    assert DefaultPolicy().checkpoints_topic(b) not in last["checkpoints"]


def test_offsets_are_translated_by_what_is_written(
    kafka: KafkasClasses, target_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    """By the last checkpoint of each group and partition, metadata included; of one group, and of many."""
    source, group, other = unique("east"), unique("billing"), unique("bill é")
    orders, clicks = (TopicPartition(f"{source}.{topic}", number) for topic, number in (("orders", 3), ("clicks", 0)))
    topic = NewTopic(DefaultPolicy().checkpoints_topic(source), 1, configs={"cleanup.policy": "compact"})
    with Admin(options(target_cluster)) as admin:
        admin.create_topics([topic])
    with CheckpointWriter(options(target_cluster), source=source, clock=SystemClock()) as writer:
        for rounds in (
            {CheckpointKey(group, orders): Checkpoint(137, 102), CheckpointKey(other, orders): Checkpoint(5, 5)},
            {
                CheckpointKey(group, orders): Checkpoint(137, 137, "méta"),
                CheckpointKey(group, clicks): Checkpoint(0, 0),
            },
            {CheckpointKey(other, orders): Checkpoint(3, 2)},
        ):
            positions = {key: Translated(checkpoint) for key, checkpoint in rounds.items()}
            assert writer.write(positions, 60_000) == len(rounds)
    found = kafka.ask(
        about="translation",
        servers=target_cluster.bootstrap_servers,
        source=source,
        group=group,
        pattern=f"{group}|{other}",
    )
    of_group = {str(orders): [137, "méta"], str(clicks): [0, ""]}
    assert found == {"group": of_group, "pattern": {group: of_group, other: {str(orders): [2, ""]}}}
    names = kafka.ask(about="cluster", servers=target_cluster.bootstrap_servers, source=source)
    assert topic.name in names["checkpoints"]


def options(cluster: Cluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def copy(name: str, source: str, from_: Cluster, target: str, to: Cluster, topic: str, naming: str = "prefix") -> None:
    """What a run does: prepares the topics, writes a heartbeat, copies everything."""
    flow = FlowConfig.model_validate(
        {"name": name, "source": source, "target": target, "topics": [topic], "naming": naming}
        | {"mirrormaker": {"heartbeats": True}}
    )
    with Admin(options(from_)) as source_admin, Admin(options(to)) as target_admin:
        prepare_topics(flow, sides_of(source_admin, target_admin))
        with HeartbeatWriter(options(from_), source=source, target=target) as writer:
            writer.write()
        plan = make_plan(PlanRequest(flow=flow, now_ms=0), sides_of(source_admin, target_admin))
    assert HEARTBEATS in {range_.topic for range_ in plan.ranges}
    results = copy_ranges(
        plan.ranges, source_options=options(from_), target_options=options(to), policy=flow.copy_policy()
    )
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
