"""Two clusters copy the topics of each other: each record is once on each side, and none comes back.

With prefixes the topics' names show where records came from, under the same names their producer ids do.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow

# The suite has both directions as a stream (test_stream_in_step.py), and without Spark.
pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def _values(side: str, count: int) -> list[bytes]:
    return [f"{side}{number}".encode() for number in range(count)]


def _named(side: Side, topic: str) -> set[str]:
    return {name for name in side.topics() if name.endswith(topic)}


def test_a_run_copies_both_directions_and_nothing_comes_back(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic, shared, east, west = unique("orders"), unique("shared"), unique("east"), unique("west")
    for side, name in ((source, "east"), (target, "west")):
        for each in (topic, shared):
            side.create(each)
            side.fill(each, _values(name, 100))
    pattern = f".*{topic}"
    local = ('naming = "identity"', 'origin = "local"', 'origin-from = "earliest"')
    flows = {
        "there": flow(east, west, [pattern], "register-producers = true"),
        "back": flow(west, east, [pattern], "register-producers = true"),
        "shared-there": flow(east, west, [shared], *local),
        "shared-back": flow(west, east, [shared], *local),
    }
    site.write({east: source.address, west: target.address}, flows)
    run = site.run()
    assert (run.status, run.errors) == (0, [])
    assert _named(source, topic) == {topic, f"{west}.{topic}"}
    assert _named(target, topic) == {topic, f"{east}.{topic}"}
    assert target.read(f"{east}.{topic}") == source.read(topic) == _values("east", 100)
    assert source.read(f"{west}.{topic}") == target.read(topic) == _values("west", 100)
    both = sorted([*_values("east", 100), *_values("west", 100)])
    for side in (source, target):
        assert sorted(value or b"" for value in side.read(shared)) == both
    # Also now that each cluster has the other one's copies, there is nothing more to do.
    for name, cluster in (("there", west), ("back", east)):
        (planned,) = json.loads(site.ask("plan", "--json", "--flow", name))["flows"]
        assert planned["left_out"] == [{"topic": f"{cluster}.{topic}", "reason": f"by its name it came from {cluster}"}]
        assert [partition["topic"] for partition in planned["partitions"]] == [topic]
