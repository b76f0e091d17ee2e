"""Heartbeats are written to a flow's source until the flow ends, whatever fails. Real client, a broker in memory."""

from __future__ import annotations

import itertools
import queue
import threading
from typing import TYPE_CHECKING, cast

import pytest

from mirror.errors import AuthorizationFailed, ClientClosed
from mirror.mirrormaker.heartbeats import Heartbeats, HeartbeatWriter
from mirror.mirrormaker.names import HEARTBEATS
from mirror.mirrormaker.records import Heartbeat
from mirror.wire.api import Api
from mirror.wire.decode import Record, records_of
from tests.fakes import errors
from tests.fakes.control import Action, ServerCall

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeCluster

WITHIN_S = 20


def writer_to(cluster: FakeCluster) -> HeartbeatWriter:
    return HeartbeatWriter({"bootstrap.servers": cluster.bootstrap}, source="a", target="b", clock=cluster.clock)


def written(cluster: FakeCluster) -> list[Record]:
    return [record for batch in cluster.log(HEARTBEATS).batches() for record in records_of(batch)]


def test_a_heartbeat_names_the_flow_s_target_as_its_source(cluster: FakeCluster) -> None:
    """It stands for the opposite direction, whose heartbeats MirrorMaker 2 writes to this cluster."""
    cluster.add_topic(HEARTBEATS)
    with writer_to(cluster) as writer:
        writer.write()
    (record,) = written(cluster)
    expected = Heartbeat("b", "a", record.timestamp_ms)
    assert (record.key, record.value) == (expected.key(), expected.value())
    assert 0 <= cluster.clock.unix_ms() - record.timestamp_ms < 60_000


def test_heartbeats_are_written_by_one_producer_until_the_block_ends(cluster: FakeCluster) -> None:
    cluster.add_topic(HEARTBEATS)
    enough, calls = threading.Event(), itertools.count(1)

    class Counting(HeartbeatWriter):
        def write(self) -> None:
            super().write()
            if next(calls) == 5:
                enough.set()

    writer = Counting({"bootstrap.servers": cluster.bootstrap}, source="a", target="b")
    warned: list[str] = []
    with Heartbeats(writer, warned.append, interval_ms=1):
        assert enough.wait(WITHIN_S)
    assert warned == []
    assert len(written(cluster)) >= 5
    assert len({batch.producer_id for batch in cluster.log(HEARTBEATS).batches()}) == 1
    with pytest.raises(ClientClosed):
        writer.write()


@pytest.mark.parametrize(
    "error", [AuthorizationFailed("Write is missing", errors.TOPIC_AUTHORIZATION_FAILED), RuntimeError("a bug")]
)
def test_an_error_is_reported_once_and_heartbeats_continue_after_it(cluster: FakeCluster, error: Exception) -> None:
    cluster.add_topic(HEARTBEATS)
    refused = 3

    class Failing:
        """Fails at first, as a source without the permission, and succeeds later."""

        def __init__(self) -> None:
            self.calls = 0
            self.succeeded = threading.Event()

        def write(self) -> None:
            self.calls += 1
            if self.calls <= refused:
                raise error
            self.succeeded.set()

        def close(self) -> None:
            pass

    writer, warned = Failing(), queue.SimpleQueue[str]()
    with Heartbeats(cast("HeartbeatWriter", writer), warned.put, interval_ms=1):
        assert writer.succeeded.wait(WITHIN_S)
    assert warned.get_nowait() == f"no heartbeat could be written: {error}"
    assert warned.empty()


def test_the_block_ends_while_the_source_does_not_answer(cluster: FakeCluster) -> None:
    cluster.add_topic(HEARTBEATS)
    waiting = threading.Event()

    def silent(call: ServerCall) -> Action | None:
        if call.api is not Api.PRODUCE:
            return None
        waiting.set()
        return Action(silent=True)

    cluster.control.add(silent)
    heartbeats = Heartbeats(writer_to(cluster), lambda _: None)
    with heartbeats:
        assert waiting.wait(WITHIN_S)
    assert not heartbeats._thread.is_alive()
