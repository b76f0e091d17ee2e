"""Brokers with malformed responses, on the fake clock: each call ends by its deadline, with a MirrorError at most.

No response kills the loop, and everything works once the responses are correct again.

MIRROR_FUZZ_SEEDS is the number of seeds (default 16); the parameter of a failed test is its seed.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import pytest

from mirror.cluster.admin.cluster import ClientInstanceId
from mirror.cluster.admin.topics import DescribeTopics
from mirror.cluster.calls.group_offset_calls import CommitGroupOffsets, GroupOffsets
from mirror.cluster.calls.offset_calls import ListOffsets
from mirror.cluster.events import CompletableEvent
from mirror.cluster.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from mirror.consumer.events import AssignEvent, PollEvent, PositionEvent, ResetEvent, SeekEvent
from mirror.errors import MirrorError
from tests.fakes.client import FakeConsumer, FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import values_of
from tests.fakes.server_codec import encode_response
from tests.faults.fuzzer import Fuzzer

SEEDS = int(os.environ.get("MIRROR_FUZZ_SEEDS", "16"))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 20
TIMEOUT_MS = 20_000
_LATE_MS = 35_000
"""The turn that ends a request may be as late as that request's own timeout."""

_SOON_MS: Final = 60_000
"""The time within which a client that accepted a malformed response has repeated its request."""


class FuzzedCluster:
    """Three brokers, and a topic of two partitions with records. A share of the responses is malformed."""

    def __init__(self, seed: int) -> None:
        self.cluster = FakeCluster(3)
        self.cluster.add_topic("t", 2)
        self.cluster.add_topic("out", 2)
        for tp in (T0, T1):
            for number in range(RECORDS):
                self.cluster.log("t", tp.partition).append_values(b"%d" % number)
        self.fuzzer = Fuzzer(seed)
        self.malformed_share = self.fuzzer._rng.choice((0.1, 0.3, 0.7, 1.0))
        self.bytes = self.fuzzer.chance()
        self.cluster.control.add(self._rule)

    def _rule(self, call: ServerCall) -> Action | None:
        if self.fuzzer.chance() > self.malformed_share:
            return None
        if self.fuzzer.chance() < self.bytes:
            return Action(mangle=self.fuzzer.frame)
        return Action(rewrite=lambda body: self._writable(call, body))

    def _writable(self, call: ServerCall, body: Any) -> Any:
        """Return a changed body that the format can encode."""
        for _ in range(5):
            changed = self.fuzzer.body(body)
            with contextlib.suppress(Exception):
                encode_response(call.api, call.version, call.correlation_id, changed)
                return changed
        return body

    def heal(self) -> None:
        """Send correct responses again, and restart the brokers: connections keep the versions they have received."""
        self.cluster.control.clear()
        for broker in self.cluster.brokers.values():
            broker.generation += 1


def _all_done(futures: list[Future[Any]]) -> bool:
    return all(future.done() for future in futures)


def _assert_mirror_error(future: Future[Any]) -> None:
    error = future.exception()
    assert error is None or isinstance(error, MirrorError), repr(error)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_malformed_response_does_not_hang_a_consumer_or_kill_its_loop(seed: int) -> None:
    fuzzed = FuzzedCluster(seed)
    consumer = FakeConsumer(fuzzed.cluster, **{"auto.offset.reset": "earliest", "seed": seed})
    consumer.submit(consumer.core, AssignEvent([T0, T1]))
    calls: list[tuple[Any, CompletableEvent[Any]]] = []
    for turn in range(3):
        timer = consumer.timer(TIMEOUT_MS)
        if turn:
            consumer.submit(consumer.core, ResetEvent({T0: LATEST if turn == 1 else EARLIEST}))
        calls = [
            (
                None,
                ListOffsets({T0: EARLIEST, T1: LATEST}, read_committed=True, deadline_ms=timer[0], timeout_ms=timer[1]),
            ),
            (None, DescribeTopics(None, *timer)),
            (None, DescribeTopics(["t", "none"], *timer)),
            (None, CommitGroupOffsets("group", {T0: OffsetAndMetadata(1)}, *timer)),
            (None, GroupOffsets("group", [T0, T1], *timer)),
            (None, ClientInstanceId(*timer)),
            (consumer.core, PositionEvent(T0, *timer)),
            (consumer.core, PollEvent(*timer, None)),
        ]
        for core, event in calls:
            consumer.submit(core, event)
        until = consumer.now + TIMEOUT_MS + _LATE_MS
        consumer.run_until(partial(_all_done, [event.future for _, event in calls]), within_ms=until - consumer.now)
        for _, event in calls:
            _assert_mirror_error(event.future)
    assert fuzzed.fuzzer.made
    fuzzed.heal()
    consumer.run_for(_SOON_MS)
    consumer.submit(consumer.core, AssignEvent([T0, T1]))
    for tp in (T0, T1):
        consumer.submit(consumer.core, SeekEvent(tp, 0, None))
    found: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}
    until = consumer.now + 600_000
    while any(len(values) < RECORDS for values in found.values()):
        assert consumer.now < until, found
        for fetched in consumer.poll(10_000):
            if fetched.error is not None:
                # An earlier error, which is reported once; a seek continues.
                consumer.submit(consumer.core, SeekEvent(fetched.tp, len(found[fetched.tp]), None))
                continue
            found[fetched.tp] += [value for batch in fetched.batches for value in values_of(batch.view)]
    assert found == {tp: [b"%d" % number for number in range(RECORDS)] for tp in (T0, T1)}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
def test_malformed_response_does_not_hang_a_producer_or_kill_its_loop(transactional: bool, seed: int) -> None:
    fuzzed = FuzzedCluster(seed)
    options: dict[str, Any] = {"delivery.timeout.ms": 45_000, "seed": seed}
    if transactional:
        options["transactional.id"] = "id"
    producer = FakeProducer(fuzzed.cluster, **options)
    out = TopicPartition("out", 0)
    futures: list[Future[Any]] = []
    for _ in range(3):
        with contextlib.suppress(MirrorError):
            if transactional:
                producer.init(TIMEOUT_MS)
                producer.begin()
        futures = [producer.send(out, b"%d" % number) for number in range(5)]
        if transactional:
            futures += [producer.add_offsets("group", {T0: 5}, TIMEOUT_MS), producer.commit(TIMEOUT_MS)]
        producer.run_until(partial(_all_done, futures), within_ms=45_000 + 2 * _LATE_MS)
        for future in futures:
            _assert_mirror_error(future)
        if transactional:
            abort = producer.abort(TIMEOUT_MS)
            producer.run_until(abort.done, within_ms=TIMEOUT_MS + _LATE_MS)
            _assert_mirror_error(abort)
    fuzzed.heal()
    producer.run_for(_SOON_MS)
    after = FakeProducer(fuzzed.cluster, producer, **{**options, "seed": seed + 1})
    if transactional:
        after.init(200_000)
        after.begin()
    sent = [after.send(TopicPartition("out", 1), b"%d" % number) for number in range(5)]
    for future in sent:
        after.finish(future)
    if transactional:
        after.finish(after.commit())
