"""Topics that are deleted on the source of a flow, by the command line, on real brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror.client import NewTopic, TopicPartition
from mirror.cluster.types import OffsetAndMetadata
from mirror.errors import BrokerError
from mirror.relay.progress.committed import group_of
from mirror.spark.preflight import drift
from tests.alignment.test_on_brokers import Flow
from tests.polling import eventually
from tests.topic_creation import await_topics, create_topics

if TYPE_CHECKING:
    from mirror.sandbox.cluster import Cluster


@pytest.fixture
def flow(
    source_cluster: Cluster,
    target_cluster: Cluster,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Flow]:
    """Deletes topics a second after they are missed."""
    monkeypatch.setattr(drift, "CONFIRM_MS", 1_000)
    monkeypatch.setattr("mirror.alignment.deletion_decision.CONFIRM_MS", 1_000)
    made = Flow(source_cluster, target_cluster, unique("orders"), unique("f"), tmp_path)
    text = made.file.read_text().replace(f'"{made.topic}"', f'"{made.topic}.*"')
    made.file.write_text(text + 'on-topic-deleted = "delete"\n')
    create_topics(made.source, [NewTopic(made.topic + suffix, 2) for suffix in ("", "-b", "-c", "-d")])
    yield made
    made.close()


def topics(found: dict[str, Any]) -> dict[str, str | None]:
    return {one["topic"]: one["reason"] for one in found["deletions"]["differences"]}


def gone(flow: Flow, *names: str) -> None:
    flow.source.delete_topics(names)
    eventually(lambda: not any(broker for broker in flow.source.describe_topics_by_broker(names).values()))


def test_what_the_flow_has_created_is_deleted_up_to_the_limit(flow: Flow) -> None:
    assert flow.ask("apply")[0] == 0
    copies = [f"a.{flow.topic}{suffix}" for suffix in ("-b", "-c", "-d")]
    await_topics(flow.target, copies)
    tp = TopicPartition(copies[0], 0)
    flow.target.commit_group_offsets(group_of(flow.name, tp), {tp: OffsetAndMetadata(0)})
    gone(flow, f"{flow.topic}-b")
    assert topics(flow.ask("drift")[1]) == {copies[0]: None}
    status, found = flow.ask("apply")
    assert (status, found["deletions"]["changed"]) == (0, 1)
    eventually(lambda: copies[0] not in flow.target.describe_topics(copies))
    eventually(lambda: not flow.target.group_offsets(group_of(flow.name, tp), [tp]))

    gone(flow, f"{flow.topic}-c", f"{flow.topic}-d")
    assert topics(flow.ask("apply")[1]) == dict.fromkeys(copies[1:], "over-limit")
    flow.target.delete_topics([copies[2]])
    eventually(lambda: copies[2] not in flow.target.describe_topics(copies))
    other_id = create_topics(flow.target, [NewTopic(copies[2], 1)])[copies[2]]
    status, found = flow.ask("apply", "--max-deletions", "2")
    assert (status, topics(found)) == (0, {copies[1]: None, copies[2]: "not-created-by-flow"})
    assert flow.target.describe_topics([copies[2]])[copies[2]].topic_id == other_id


def test_a_topic_id_that_does_not_exist_is_an_error_of_its_own(flow: Flow) -> None:
    with pytest.raises(BrokerError) as refused:
        flow.target.delete_topics_by_id([uuid.uuid4()])
    assert refused.value.code == 100
