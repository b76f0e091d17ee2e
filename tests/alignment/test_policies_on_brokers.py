"""A target whose policies refuse topics and configurations, on real brokers that load them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirror.client import NewTopic
from mirror.relay.model.ranges import Outcome
from mirror.relay.task.copy_ranges import copy_ranges
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.distribution import LATEST, Distribution
from mirror.sandbox.fetch import class_path, fetch
from mirror.spark.planning.snapshot import PlanRequest, make_plan
from mirror.spark.preflight.target_topics import prepare_topics
from tests import jvm
from tests.alignment.test_on_brokers import Flow
from tests.e2e.broker_side import Side
from tests.spark.observed import sides_of
from tests.spark.planning.test_range_planner import flow as flow_config
from tests.topic_creation import await_topics, create_topics

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(240)]

_POLICIES = Path(__file__).parent / "java" / "Policies.java"
_CLASSES = {
    "create.topic.policy.class.name": "Policies$Creation",
    "alter.config.policy.class.name": "Policies$Alteration",
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and a controller with the policies on their class path."""
    classes = jvm.compiled(_POLICIES, tmp_path_factory.mktemp("policies"), class_path(fetch()))
    distribution = Distribution(
        jars=lambda on_progress: [*LATEST.jars(on_progress), classes], java_options=LATEST.java_options
    )
    with Cluster(distribution=distribution, properties=_CLASSES, heap=jvm.PLAIN_BROKER) as cluster:
        yield cluster


@pytest.fixture
def flow(source_cluster: Cluster, strict: Cluster, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Flow]:
    """Copies all topics whose names begin with that of its own."""
    made = Flow(source_cluster, strict, unique("orders"), unique("f"), tmp_path)
    made.file.write_text(made.file.read_text().replace(f'"{made.topic}"', f'"{made.topic}.*"'))
    yield made
    made.close()


def test_a_refused_topic_is_one_error_that_names_it_and_all_others_are_copied(
    flow: Flow, source_cluster: Cluster, strict: Cluster
) -> None:
    refused = f"{flow.topic}-secret"
    create_topics(flow.source, [NewTopic(flow.topic, 1), NewTopic(refused, 2)])
    for command in ("drift", "apply", "apply"):
        status, found = flow.ask(command)
        assert (status, found["obstacles"].keys()) == (3, {refused})
        (line,) = found["obstacles"].values()
        assert line == (
            f"topic {refused} cannot be copied: target topic a.{refused} cannot be created: creating topic"
            f" 'a.{refused}': POLICY_VIOLATION (error 44): topic a.{refused} has no owner; correct the cause, or create"
            " the topic yourself with 2 partitions"
        )
        assert not [warning for warning in found["warnings"] if "POLICY" in warning]
    await_topics(flow.target, [f"a.{flow.topic}"])
    assert f"a.{refused}" not in flow.target.list_topics()

    for topic in (flow.topic, refused):
        Side(source_cluster.bootstrap_servers).fill(topic, [b"1", b"2"])
    config = flow_config(flow.name, topics=[f"{flow.topic}.*"])
    targets = prepare_topics(config, sides_of(flow.source, flow.target)).targets
    request = PlanRequest(flow=config, now_ms=0, targets=targets)
    plan = make_plan(request, sides_of(flow.source, flow.target))
    source, target = ({"bootstrap.servers": one.bootstrap_servers} for one in (source_cluster, strict))
    (result,) = copy_ranges(plan.ranges, source_options=source, target_options=target, policy=config.copy_policy())
    assert (result.topic, result.outcome, result.records) == (flow.topic, Outcome.COMPLETE, 2)


def test_a_topic_is_created_without_the_configuration_that_is_refused(flow: Flow) -> None:
    configs = {"retention.ms": "-1", "segment.ms": "600000"}
    create_topics(flow.source, [NewTopic(flow.topic, 2, configs=configs)])
    status, found = flow.ask("apply")
    copy = f"a.{flow.topic}"
    (warning,) = (one for one in found["warnings"] if "POLICY" in one)
    assert warning == (
        f"target topic {copy} is created without retention.ms = -1: creating topic '{copy}': POLICY_VIOLATION (error"
        " 44): topics are not kept for ever"
    )
    assert (status, found["obstacles"]) == (3, {})
    flow.await_target({"segment.ms": "600000"})


def test_a_refused_change_is_reported_with_its_reason_and_the_rest_is_applied(flow: Flow) -> None:
    """Of one topic and of all; the policy sees all changes of a topic together, and refuses them so."""
    create_topics(flow.source, [NewTopic(flow.topic, 1)])
    assert flow.run("apply") == (0, {})
    await_topics(flow.target, [f"a.{flow.topic}"])
    flow.on_source(retention_ms="-1", segment_ms="600000")
    for _ in range(2):
        status, found = flow.ask("apply")
        details = {one["key"]: one["detail"] for one in found["configs"]["differences"] if one["reason"]}
        assert status == 3
        change = f"changing retention.ms of topic a.{flow.topic}"
        assert details == {"retention.ms": f"{change}: POLICY_VIOLATION (error 44): topics are not kept for ever"}
        flow.await_target({"segment.ms": "600000"})
    flow.on_source(retention_ms="172800000")
    assert flow.run("apply") == (0, {"retention.ms": None})
    flow.await_target({"retention.ms": "172800000", "segment.ms": "600000"})
