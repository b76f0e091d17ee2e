"""`mirror stream` in both directions, and what it keeps in step beside the records. In memory: tests/alignment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from mirror.alignment.deletion_decision import CONFIRM_MS
from tests.conftest import NewCluster
from tests.e2e.broker_side import WITHIN_S, Side
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import Stream, numbered
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

LOCAL = ('naming = "identity"', 'origin = "local"', 'origin-from = "earliest"')
SOON_S = 60.0
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def _both_ways(site: Site, east: Side, west: Side, topics: str, *lines: str) -> None:
    flows = {
        "there": flow("east", "west", [topics], *LOCAL, *lines),
        "back": flow("west", "east", [topics], *LOCAL, *lines),
    }
    site.write({"east": east.address, "west": west.address}, flows)


@pytest.mark.cluster
def test_a_stream_in_both_directions_begins_with_an_empty_cluster(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """The flow back waits until the other flow has created a topic; what the second cluster creates comes back, too."""
    topic = unique("first")
    source.create(topic)
    source.fill(topic, numbered(0, 100))
    _both_ways(site, source, target, f"{topic}.*")
    stream = Stream(site)
    stream.await_copy(target, topic, numbered(0, 100))
    target.fill(topic, numbered(100, 50))
    stream.await_copy(source, topic, numbered(0, 150), within_s=SOON_S)
    target.create(f"{topic}-2")
    target.fill(f"{topic}-2", numbered(0, 30))
    stream.await_copy(source, f"{topic}-2", numbered(0, 30), within_s=SOON_S)
    source.fill(topic, numbered(150, 10))
    stream.await_copy(target, topic, numbered(0, 160), within_s=SOON_S)
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert source.read(topic) == numbered(0, 160)
    assert "no topic" not in run.err


@pytest.mark.cluster
def test_a_run_in_both_directions_begins_with_an_empty_cluster(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Also with the flow first that has nothing to copy; one flow alone is refused."""
    topic = unique("lone")
    target.create(topic)
    target.fill(topic, numbered(0, 100))
    _both_ways(site, source, target, topic)
    run = site.run()
    assert (run.status, run.errors) == (0, [])
    assert source.read(topic) == numbered(0, 100)
    assert {name: each["outcome"] for name, each in site.flows().items()} == {"there": "complete", "back": "complete"}
    site.write(
        {"east": source.address, "west": target.address}, {"there": flow("east", "west", [f"{topic}-2"], *LOCAL)}
    )
    run = site.run()
    assert run.status == 1
    assert "topics of cluster east matches topics" in run.err


@pytest.mark.cluster
def test_a_stream_keeps_topics_configurations_and_acls_of_both_sides_in_step(
    site: Site, new_cluster: NewCluster, unique: Callable[[str], str]
) -> None:
    """Users of either side see the same topics, settings and rights."""
    sides = east, west = [Side(new_cluster(properties=GUARDED).bootstrap_servers) for _ in range(2)]
    topic = unique("step")
    segments: dict[str, Any] = {"segment.ms": "86400000"}
    east.create(topic, **segments)
    east.fill(topic, numbered(0, 10))
    _both_ways(site, east, west, f"{topic}.*", "sync-interval-ms = 1000", "acls = { sync = true }")
    stream = Stream(site)
    stream.await_copy(west, topic, numbered(0, 10))
    assert west.config(topic)["segment.ms"] == "86400000"

    size: dict[str, Any] = {"max.message.bytes": "2000000"}
    west.create(f"{topic}-2", 3, **size)
    for at, (side, guarded) in enumerate(zip(sides, (topic, f"{topic}-2"), strict=True)):
        _set(side, topic, f"{at + 7}00000")
        _await_configs(sides, topic, f"{at + 7}00000")
        side.acl(ResourceType.TOPIC, guarded, AclOperation.READ, AclPermissionType.ALLOW)
        _await_acls(sides, topic, at + 1)
    eventually(lambda: f"{topic}-2" in east.topics(), within_s=SOON_S, what="the new topic")
    assert (east.partitions(f"{topic}-2"), east.config(f"{topic}-2")["max.message.bytes"]) == (3, "2000000")
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert site.ask("drift").count(": in step") == 2


@pytest.mark.cluster
def test_a_stream_deletes_what_its_source_deletes_and_keeps_topics_of_others(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Of two deleted source topics the flow has created the copy of one; a third one is copied all the time."""
    stream, topic = _deleting(site, source, target, unique("gone"))
    source.fill(topic, numbered(10, 10))
    stream.await_copy(target, f"a.{topic}", numbered(0, 20), within_s=SOON_S)
    stream.end()
    assert target.read(f"a.{topic}-3") == numbered(0, 10)
    assert f"a.{topic}-2" not in target.topics()


@pytest.mark.cluster
def test_a_stream_deletes_nothing_over_the_limit_until_a_command_does(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    """Two source topics vanish at once, and the limit is one; the command that the stream names deletes the copies."""
    topic = unique("limit")
    names = [topic, f"{topic}-2", f"{topic}-3"]
    stream = _deletes(site, source, target, names)
    for name in names[1:]:
        source.delete(name)

    def rounds() -> tuple[dict[str, int], int]:
        (one,) = json.loads(site.ask("status", "--json"))["flows"]
        kinds = one["sync"]["kinds"] if one["sync"] else {}
        found = kinds.get("deletions", {"not_in_step": {}, "time_ms": 0})
        return found["not_in_step"], found["time_ms"]

    held: dict[str, int] = {"over-limit": 2}
    eventually(lambda: rounds()[0] == held, within_s=SOON_S, what="two topics over the limit", every_s=1)
    first_ms = rounds()[1]
    eventually(lambda: rounds()[1] > first_ms + CONFIRM_MS, within_s=SOON_S, what="rounds that confirm it", every_s=1)
    assert rounds()[0] == held
    assert {f"a.{name}" for name in names} <= target.topics()

    site.ask("apply", "--flow", "f", "--max-deletions", "2")
    copies = {f"a.{name}" for name in names[1:]}
    eventually(lambda: not copies & target.topics(), within_s=SOON_S, what="the end of the copies")
    source.fill(topic, numbered(10, 10))
    stream.await_copy(target, f"a.{topic}", numbered(0, 20), within_s=SOON_S)
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    said = " ".join(run.err.split())  # another test of this flow may have deleted a topic within the last hour
    assert re.search(
        "2 to delete(, [0-9] deleted within the last hour)?, and the limit is 1: mirror apply --flow f", said
    )
    assert "mirror apply --flow f --max-deletions 2 deletes them" in said


def _deleting(site: Site, source: Side, target: Side, topic: str) -> tuple[Stream, str]:
    """A stream that has deleted the copy of a topic, and not that of another one, which others have created."""
    target.create(f"a.{topic}-3")
    stream = _deletes(site, source, target, [topic, f"{topic}-2", f"{topic}-3"])
    source.delete(f"{topic}-2")
    source.delete(f"{topic}-3")
    eventually(lambda: f"a.{topic}-2" not in target.topics(), within_s=SOON_S, what="the end of the copy")
    return stream, topic


def _deletes(site: Site, source: Side, target: Side, topics: list[str]) -> Stream:
    """A stream that has copied ``topics``, whose names begin with the first one, and deletes what vanishes."""
    for name in topics:
        source.create(name)
        source.fill(name, numbered(0, 10))
    lines = 'on-topic-deleted = "delete"', "sync-interval-ms = 1000", "refresh-ms = 1000", "period-ms = 8000"
    site.write({"a": source.address, "b": target.address}, {"f": flow("a", "b", [f"{topics[0]}.*"], *lines)})
    stream = Stream(site)
    for name in topics:
        stream.await_copy(target, f"a.{name}", numbered(0, 10))
    return stream


def _set(side: Side, topic: str, value: str) -> None:
    entry = ConfigEntry("segment.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    side.admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)


def _await_configs(sides: list[Side], topic: str, value: str) -> None:
    eventually(
        lambda: all(side.config(topic)["segment.ms"] == value for side in sides), within_s=SOON_S, what="its value"
    )


def _await_acls(sides: list[Side], prefix: str, count: int) -> None:
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.TOPIC,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )

    def names(side: Side) -> list[str]:
        found = side.admin.describe_acls(every).result(WITHIN_S)
        return sorted(acl.name for acl in found if acl.name.startswith(prefix))

    eventually(
        lambda: len(names(sides[0])) == count and names(sides[0]) == names(sides[1]),
        within_s=SOON_S,
        what=f"{count} ACLs on both sides",
    )
