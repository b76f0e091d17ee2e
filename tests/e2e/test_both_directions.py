"""Two clusters copy the topics of each other, with prefixes: each record is once on each side, and none comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.test_groups import consumed, next_of
from tests.e2e.test_stream import SHORT, Stream
from tests.polling import eventually

pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def _values(side: str, count: int) -> list[bytes]:
    return [f"{side}{number}".encode() for number in range(count)]


def _named(side: Side, topic: str) -> set[str]:
    return {name for name in side.topics() if name.endswith(topic)}


def _is_next(side: Side, topic: str, group: str, value: bytes) -> bool:
    return next_of(side, group, topic) == value


def test_a_run_copies_both_directions_and_nothing_comes_back(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, east, west = unique("orders"), unique("east"), unique("west")
    for side, name in ((source, "east"), (target, "west")):
        side.create(topic)
        side.fill(topic, _values(name, 100))
    pattern = f".*{topic}"
    flows = {"there": flow(east, west, [pattern]), "back": flow(west, east, [pattern])}
    site.write({east: source.address, west: target.address}, flows)
    run = site.run()
    assert (run.status, run.errors) == (0, [])
    assert _named(source, topic) == {topic, f"{west}.{topic}"}
    assert _named(target, topic) == {topic, f"{east}.{topic}"}
    assert target.read(f"{east}.{topic}") == source.read(topic) == _values("east", 100)
    assert source.read(f"{west}.{topic}") == target.read(topic) == _values("west", 100)
    # Also now that each cluster has the other one's copies, there is nothing more to do.
    planned = {one["flow"]: one for one in json.loads(site.ask("plan", "--json"))["flows"]}
    left_out = {name: one["left_out"] for name, one in planned.items()}
    assert left_out == {
        "there": [{"topic": f"{west}.{topic}", "reason": f"by its name it came from {west}"}],
        "back": [{"topic": f"{east}.{topic}", "reason": f"by its name it came from {east}"}],
    }
    assert [partition["topic"] for one in planned.values() for partition in one["partitions"]] == [topic, topic]


@pytest.mark.cluster
def test_a_consumer_moves_between_the_clusters_while_a_stream_runs_both_directions(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, group, east, west = unique("orders"), unique("billing"), unique("east"), unique("west")
    for side, name in ((source, "east"), (target, "west")):
        side.create(topic)
        side.fill(topic, _values(name, 400))
    values = _values("east", 400)

    def both(name: str, start: str, end: str) -> str:
        groups = f'[flows.{name}.groups]\ninclude = ["{group}"]\ninterval-ms = 1000\n'
        return flow(start, end, [f".*{topic}"], SHORT, groups)

    flows = {"there": both("there", east, west), "back": both("back", west, east)}
    site.write({east: source.address, west: target.address}, flows)
    stream = Stream(site)
    copy = f"{east}.{topic}"
    stream.await_copy(target, copy, values)
    stream.await_copy(source, f"{west}.{topic}", _values("west", 400))
    for number in range(4):
        here, there = ((source, topic), (target, copy)) if number % 2 == 0 else ((target, copy), (source, topic))
        first = 50 * number
        assert consumed(here[0], group, here[1], 60, committed=50) == values[first : first + 60]
        eventually(partial(_is_next, *there, group, values[first + 50]), what=f"position {number}")
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert target.read(copy) == values
    assert source.read(f"{west}.{topic}") == _values("west", 400)
    assert _named(source, topic) == {topic, f"{west}.{topic}"}
    assert _named(target, topic) == {topic, copy}
