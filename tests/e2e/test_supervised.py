"""A stream whose flows come and go, and whose clusters are away: each flow runs whenever it can."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from mirror.sandbox.cluster import Cluster
from mirror.spark.ledger.status_table import read_status
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.feed import Feed
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import Stream, numbered
from tests.polling import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

LINES = "refresh-ms = 2000\nshutdown-timeout-ms = 10000\n"
LONGEST_PAUSE_S = 8.0
"""Of a flow that nobody touches, on a machine that others keep busy; the start of a job takes longer."""


def state(target: Side, name: str) -> tuple[str, str]:
    """The state of a flow, and the run, by its status topic."""
    found = read_status({"bootstrap.servers": target.address}, name, 10_000).run
    return ("", "") if found is None else (found.state, found.run)


def test_a_target_that_is_away_at_the_start_is_copied_to_once_it_comes(
    site: Site, source: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("away")
    source.create(topic)
    source.fill(topic, numbered(0, 100))
    with Cluster(heap=jvm.BROKER) as cluster:
        target = Side(cluster.bootstrap_servers)
        site.write(
            {"a": source.address, "b": target.address},
            {"f": flow("a", "b", [topic], LINES)},
            b={"default.api.timeout.ms": 5_000},
        )
        (broker,) = cluster.pids
        cluster.kill(broker)
        stream = Stream(site)
        summary = site.report / "summary.json"
        eventually(summary.exists, within_s=120, what="the state of the flow", every_s=0.2)
        cluster.restart(broker)
        stream.await_copy(target, f"a.{topic}", numbered(0, 100))
        run = stream.end()
    assert (run.status, run.errors) == (0, [])
    assert "flow f: backing off" in run.err
    assert "flow f: running" in run.err


def test_flows_are_added_edited_and_removed_while_another_one_copies_without_a_pause(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    steady, other = unique("steady"), unique("other")
    for topic in (steady, other):
        source.create(topic)
    source.fill(other, numbered(0, 50))
    clusters = {"a": source.address, "b": target.address}
    first, second = unique("f"), unique("g")
    flows = {first: flow("a", "b", [steady], LINES)}
    site.write(clusters, flows)
    seen: list[tuple[float, int]] = []

    def watch(condition: Callable[[], object], what: str) -> None:
        def holds() -> object:
            assert stream.child.poll() is None, stream.child.communicate()
            end = target.progress(first, f"a.{steady}", 0)
            if not seen or end != seen[-1][1]:
                seen.append((time.monotonic(), end))
            return condition()

        eventually(holds, within_s=150, what=what, every_s=0.1)

    with Feed(source, steady, 1, 50) as feed:
        stream = Stream(site)
        watch(lambda: state(target, first)[0] == "running" and seen[-1][1] > 100, "the first flow")
        run = state(target, first)[1]
        del seen[:-1]
        site.write(clusters, flows | {second: flow("a", "b", [other], LINES)})
        watch(lambda: target.progress(second, f"a.{other}", 0) == 50, "the flow that was added")
        added = state(target, second)[1]
        site.write(clusters, flows | {second: flow("a", "b", [other], LINES, 'headers = { edited = "yes" }')})
        watch(lambda: state(target, second)[0] == "running" and state(target, second)[1] != added, "the edit")
        source.fill(other, numbered(50, 50))
        watch(lambda: target.progress(second, f"a.{other}", 0) == 100, "what came after the edit")
        site.write(clusters, flows | {second: flow("a", "b", [other], "refresh-ms = 1")})
        watch(lambda: "refresh-ms" in _reason(target, second), "the word about the wrong edit")
        assert state(target, second)[0] == "running"
        site.write(clusters, flows)
        watch(lambda: state(target, second)[0] == "ended", "the flow that was removed")
        pauses = [after[0] - before[0] for before, after in itertools.pairwise(seen)]
        assert max(pauses) < LONGEST_PAUSE_S, pauses
        assert state(target, first) == ("running", run), "the other flow was not started again"
        feed.end()
        ended = stream.end()
    assert (ended.status, ended.errors) == (0, [])
    assert target.read(f"a.{other}") == numbered(0, 100)


def _reason(target: Side, name: str) -> str:
    found = read_status({"bootstrap.servers": target.address}, name, 10_000).run
    return "" if found is None else found.reason
