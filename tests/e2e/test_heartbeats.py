"""A flow that writes heartbeats for MirrorMaker 2's tools: a run writes one, a stream one each second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.mirrormaker.names import HEARTBEATS
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.test_stream import SHORT, Stream
from tests.polling import eventually

# In the suite, tests/mirrormaker/test_kafkas_classes.py copies heartbeats between real brokers.
pytestmark = [pytest.mark.brokers, pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

WITH_HEARTBEATS = "[flows.f.mirrormaker]\nheartbeats = true\n"


def prepared(site: Site, source: Side, target: Side, unique: Callable[[str], str], *lines: str) -> str:
    """A flow of one topic from a cluster whose name no other test uses: the topic of its copied heartbeats."""
    topic, name = unique("orders"), unique("east")
    source.create(topic)
    source.fill(topic, [b"1"])
    wanted = flow(name, "b", [topic], *lines, WITH_HEARTBEATS)
    site.write({name: source.address, "b": target.address}, {"f": wanted})
    return f"{name}.{HEARTBEATS}"


def test_a_run_writes_one_heartbeat_and_copies_it(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    copied = prepared(site, source, target, unique)
    before = source.end(HEARTBEATS) if HEARTBEATS in source.topics() else 0
    run = site.run()
    assert (run.status, run.errors) == (0, [])
    assert source.end(HEARTBEATS) == before + 1
    assert target.read(copied)[-1] == source.read(HEARTBEATS)[-1]
    assert source.config(HEARTBEATS)["cleanup.policy"] == "compact"


def test_heartbeats_of_a_stream_arrive_until_it_ends(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    copied = prepared(site, source, target, unique, SHORT)
    stream = Stream(site)

    def arrived() -> bool:
        assert stream.child.poll() is None, stream.child.communicate()
        return copied in target.topics() and len(target.read(copied)) >= 5

    eventually(arrived, within_s=200, what="five heartbeats")
    run = stream.end()
    assert (run.status, run.errors) == (0, [])
    values = target.read(copied)
    assert values == source.read(HEARTBEATS)[: len(values)]
