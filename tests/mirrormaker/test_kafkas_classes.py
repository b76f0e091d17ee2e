"""MirrorMaker 2's own classes read what is written here, and find what flows have copied."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from mirror.client import Admin, NewTopic
from mirror.config.models import FlowConfig
from mirror.mirrormaker.heartbeats import HeartbeatWriter
from mirror.mirrormaker.names import HEARTBEATS, DefaultPolicy
from mirror.mirrormaker.records import Heartbeat
from mirror.relay.model.ranges import Outcome
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_topics
from tests.conftest import NewCluster
from tests.mirrormaker.kafkas_classes import KafkasClasses, kafkas_classes

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


def test_heartbeats_have_the_same_bytes(kafka: KafkasClasses, rng: random.Random) -> None:
    for _ in range(EXAMPLES):
        one = Heartbeat(text(rng), text(rng), number(rng))
        key, value = one.key().hex(), one.value().hex()
        fields = {"source": one.source, "target": one.target, "timestamp": one.timestamp_ms}
        assert kafka.ask(about="heartbeat", key=key, value=value, **fields) == {"key": key, "value": value, **fields}


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
            "internal": names.is_internal(topic),
            "carried": names.carries_heartbeats(topic, target),
        }, topic


def test_clusters_are_found_by_the_heartbeats_that_flows_copy(
    kafka: KafkasClasses, source_cluster: Cluster, new_cluster: NewCluster, unique: Callable[[str], str]
) -> None:
    """Of two hops: those of the first one are carried on by the second."""
    middle, last = new_cluster(), new_cluster()
    topic = unique("orders")
    with Admin(options(source_cluster)) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    copy(unique("f"), "a", source_cluster, "b", middle, topic)
    copy(unique("g"), "b", middle, "c", last, f"a.{topic}", naming="identity")
    assert kafka.ask(about="cluster", servers=middle.bootstrap_servers, source="a") == {
        "upstream": ["a"],
        "heartbeats": ["a.heartbeats", "heartbeats"],
        "hops": 1,
        "remote": ["a.heartbeats", f"a.{topic}"],
    }
    assert kafka.ask(about="cluster", servers=last.bootstrap_servers, source="a") == {
        "upstream": ["a", "b"],
        "heartbeats": ["b.a.heartbeats", "b.heartbeats"],
        "hops": 2,
        "remote": [f"a.{topic}"],
    }


def options(cluster: Cluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def copy(name: str, source: str, from_: Cluster, target: str, to: Cluster, topic: str, naming: str = "prefix") -> None:
    """What a run does: prepares the topics, writes a heartbeat, copies everything."""
    flow = FlowConfig.model_validate(
        {"name": name, "source": source, "target": target, "topics": [topic], "naming": naming}
        | {"mirrormaker": {"heartbeats": True}}
    )
    with Admin(options(from_)) as source_admin, Admin(options(to)) as target_admin:
        prepare_topics(flow, source_admin, target_admin)
        with HeartbeatWriter(options(from_), source=source, target=target) as writer:
            writer.write()
        plan = make_plan(PlanRequest(flow=flow, now_ms=0), source_admin, target_admin)
    assert HEARTBEATS in {range_.topic for range_ in plan.ranges}
    results = copy_ranges(
        plan.ranges, source_options=options(from_), target_options=options(to), policy=flow.copy_policy()
    )
    assert {result.outcome for result in results} == {Outcome.COMPLETE}
