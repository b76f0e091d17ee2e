"""``mirror forget`` on real brokers, which delete groups with a topic's offsets, and topics after their answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.client import NewTopic, TopicPartition
from mirror.cluster.types import OffsetAndMetadata
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.relay.progress.flow_topic import inventory_topic_of, offset_topic_of, status_topic_of, topic_of
from mirror.spark.run_control import RunControlClient
from tests.alignment.test_on_brokers import Flow
from tests.polling import eventually
from tests.topic_creation import await_topics, create_topics

if TYPE_CHECKING:
    from mirror.sandbox.cluster import Cluster


@pytest.fixture
def flow(
    source_cluster: Cluster, target_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Flow]:
    made = Flow(source_cluster, target_cluster, unique("orders"), unique("f"), tmp_path)
    create_topics(made.source, [NewTopic(made.topic, 2)])
    assert made.run("apply")[0] == 0
    await_topics(made.target, [f"a.{made.topic}"])
    yield made
    made.close()


def forget(flow: Flow, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["forget", flow.name, "--config", str(flow.file), "--json", *arguments])
    return result.exit_code, json.loads(result.stdout)


def test_nothing_of_a_flow_is_left_but_its_data(flow: Flow) -> None:
    tp, name = TopicPartition(f"a.{flow.topic}", 0), flow.name
    groups = [group_of(name, tp), lazy_group_of(name, tp), f"{name}-readers"]
    for group in groups:
        flow.target.commit_group_offsets(group, {tp: OffsetAndMetadata(0)})
    run = RunControlClient(flow.target, name, "run")
    run.claim()
    run.want(ended=True)
    run.sync()
    topics = [topic_of(name), offset_topic_of(name), status_topic_of(name), inventory_topic_of(name)]
    removed = {*topics, *groups[:2], f"mirror.{name}.control"}
    status, found = forget(flow, "--dry-run")
    assert (status, {one["name"] for one in found["removed"]}) == (0, removed)
    status, found = forget(flow)
    assert (status, {one["name"] for one in found["removed"]}, found["failed"]) == (0, removed, [])
    eventually(lambda: forget(flow)[1]["removed"] == [])
    assert not flow.target.list_groups().keys() & removed
    assert flow.target.group_offsets(groups[2], [tp]) == {tp: OffsetAndMetadata(0)}
    assert f"a.{flow.topic}" in flow.target.describe_topics([f"a.{flow.topic}"])
