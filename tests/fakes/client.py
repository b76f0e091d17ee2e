"""A cluster's clients on the fake network: the pure loop, turned by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, TypeVar, cast

from mirror.cluster.events import CompletableEvent, Event
from mirror.cluster.loop import ClusterLoop, JoinEvent
from mirror.cluster.settings import CLUSTER_KEYS, ClusterSettings
from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.consumer.core import ConsumerCore
from mirror.consumer.events import AssignEvent, PollEvent, SeekEvent
from mirror.consumer.fetched import Fetched
from mirror.consumer.settings import ConsumerSettings
from mirror.producer.batch.batches import ProducerBatch, RecordAccumulation, RecordMetadata
from mirror.producer.batch.queue import PartitionQueue, ProducerId
from mirror.producer.core import ProducerCore
from mirror.producer.events import (
    AbortEvent,
    AddOffsetsEvent,
    AddPartitionsEvent,
    AdmitIdEvent,
    AdoptEvent,
    BeginTransactionEvent,
    CommitEvent,
    FlushEvent,
    InitTransactionsEvent,
    ReleaseEvent,
    SendEvent,
)
from mirror.producer.settings import ProducerSettings
from mirror.timing import FOREVER_MS, deadline
from mirror.wire.encode import BatchBuilder
from tests.fakes.cluster import FakeCluster
from tests.fakes.network import FakeNetwork
from tests.fakes.record_batches import batch, build

T = TypeVar("T")

_MOST_TURNS = 20_000


class FakeClient:
    """Loop, network and settings of one client.

    ``options`` are dotted keys; the bootstrap servers are filled in. ``seed`` among them is the jitter's. ``beside``
    another client means in its loop, as clients of one cluster are in one process.
    """

    def __init__(self, cluster: FakeCluster, beside: FakeClient | None = None, /, **options: object) -> None:
        seed = options.pop("seed", 0)
        assert isinstance(seed, int)
        self.cluster = cluster
        self.options = {"bootstrap.servers": cluster.bootstrap, **options}
        self.settings = ClusterSettings.parse(self.options)
        rng = random.Random(seed)
        self.network: FakeNetwork = beside.network if beside else FakeNetwork(cluster, self.settings, rng)
        own = (self.settings, self.network, cluster.clock, rng)
        self.loop: ClusterLoop = beside.loop if beside else ClusterLoop(*own)
        self.completed_ms = 0
        self.turns = 0
        self.answered_ms: dict[Future[Any], int] = {}

    @property
    def now(self) -> int:
        return self.cluster.clock.now()

    def timer(self, timeout_ms: int = 60_000) -> tuple[int, int]:
        """(deadline, timeout) as an event wants them."""
        return deadline(self.now, timeout_ms), timeout_ms

    def submit(self, core: Any, event: Event) -> None:
        if isinstance(event, CompletableEvent):
            self.watch(event.future)
        self.loop.events.append((core, event))

    def watch(self, future: Future[Any]) -> None:
        """Note when ``future`` is answered."""
        future.add_done_callback(lambda done: self.answered_ms.setdefault(done, self.now))

    def run_until(self, condition: Callable[[], object], within_ms: int = 300_000) -> None:
        """Turn the loop until ``condition()``; fails where that takes longer, or where the loop spins."""
        self.network.horizon_ms = deadline(self.now, within_ms)
        for _ in range(_MOST_TURNS):
            if condition():
                self.network.horizon_ms = FOREVER_MS
                return
            assert self.now < self.network.horizon_ms, f"not within {within_ms} ms"
            self.turns += 1
            self.loop.run_once()
        raise AssertionError(f"the loop spins: {_MOST_TURNS} turns, and the clock only at {self.now}")

    def run_for(self, ms: int) -> None:
        """Let ``ms`` pass."""
        until = self.now + ms
        self.run_until(lambda: self.now >= until, within_ms=ms + 1)

    def suspend(self, ms: int, when: Callable[[], object]) -> None:
        """Let the network thread be late by ``ms``, once, between two turns: as soon as ``when()`` is true."""
        run_once = self.loop.run_once

        def late() -> None:
            run_once()
            if when():
                self.loop.run_once = run_once  # type: ignore[method-assign]
                self.cluster.clock.advance(ms)

        self.loop.run_once = late  # type: ignore[method-assign]

    def finish(self, future: Future[T], within_ms: int = 300_000) -> T:
        """The future's result, or its error raised; ``completed_ms`` is when it came, within the loop's turn."""
        self.run_until(future.done, within_ms)
        self.completed_ms = self.answered_ms[future]
        return future.result()

    def call(self, event: CompletableEvent[T], core: Any = None, within_ms: int = 300_000) -> T:
        """Queue ``event`` and wait for its answer."""
        self.submit(core, event)
        return self.finish(event.future, within_ms)


class FakeConsumer(FakeClient):
    """A client with a consumer core in its loop."""

    def __init__(self, cluster: FakeCluster, **options: object) -> None:
        seed = options.pop("seed", 0)
        own = ConsumerSettings.parse({"bootstrap.servers": cluster.bootstrap, **options})
        shared = {name: value for name, value in options.items() if name in CLUSTER_KEYS}
        super().__init__(cluster, seed=seed, **shared)
        self.core = ConsumerCore(own, self.loop)
        self.submit(None, JoinEvent(self.core))

    def read(self, *positions: tuple[TopicPartition, int]) -> None:
        """Assign these partitions and go on at these offsets."""
        self.submit(self.core, AssignEvent([tp for tp, _ in positions]))
        for tp, offset in positions:
            self.submit(self.core, SeekEvent(tp, offset, None))

    def poll(self, timeout_ms: int = 1_000, max_bytes: int | None = None) -> list[Fetched]:
        return self.call(PollEvent(*self.timer(timeout_ms), max_bytes), self.core)


class FakeProducer(FakeClient):
    """A client with a producer core in its loop; ``released`` counts the bytes given back."""

    def __init__(self, cluster: FakeCluster, beside: FakeClient | None = None, /, **options: object) -> None:
        seed, ask_id = options.pop("seed", 0), cast("Callable[[int], None] | None", options.pop("ask_id", None))
        own = ProducerSettings.parse({"bootstrap.servers": cluster.bootstrap, **options})
        shared = {name: value for name, value in options.items() if name in CLUSTER_KEYS}
        super().__init__(cluster, beside, seed=seed, **shared)
        self.taken = 0
        self.released = 0
        self.core = ProducerCore(own, self.loop, self._release, ask_id)
        self.submit(None, JoinEvent(self.core))

    def _release(self, tp: TopicPartition, size: int) -> None:
        del tp
        self.released += size

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """The queue that batches of ``tp`` went through."""
        return self.core.batches.queue(tp)

    def prepare(self, tp: TopicPartition, *values: bytes, created_ms: int | None = None) -> ProducerBatch:
        """A batch of ``values`` that is created now, or was at ``created_ms``, and not sent yet."""
        made = batch(build(values or (b"value",), base_offset=77, leader_epoch=7))
        return ProducerBatch(tp, made, self.now if created_ms is None else created_ms, made.size)

    def send(self, tp: TopicPartition, *values: bytes) -> Future[RecordMetadata]:
        made = self.prepare(tp, *values)
        return self.send_batch(made)

    def send_batch(self, made: ProducerBatch) -> Future[RecordMetadata]:
        self.taken += made.size
        self.watch(made.future)
        self.submit(self.core, SendEvent(made))
        return made.future

    def flush(self) -> None:
        self.submit(self.core, FlushEvent())

    def admit_id(self, producer_id: int) -> None:
        self.submit(self.core, AdmitIdEvent(producer_id))

    # --- adopted identities

    def adopt(self, tp: TopicPartition, identity: ProducerId, chain: int) -> None:
        self.submit(self.core, AdoptEvent(tp, identity, chain))

    def release(self, tp: TopicPartition) -> None:
        self.submit(self.core, ReleaseEvent(tp))

    def send_in_chain(self, tp: TopicPartition, chain: int, *values: bytes) -> Future[RecordMetadata]:
        made = self.prepare(tp, *values)
        made.chain = chain
        return self.send_batch(made)

    def prepare_open(self, tp: TopicPartition, *values: bytes) -> tuple[ProducerBatch, list[Future[RecordMetadata]]]:
        """A batch of single records, not sent yet and not full, and the futures of its records."""
        limit = 16_384
        records = RecordAccumulation(tp, BatchBuilder("none", limit), limit, nullcontext())
        futures = [records.append(None, value, (), self.cluster.clock.unix_ms()) for value in values]
        result = [one for one in futures if one is not None]
        for future in result:
            self.watch(future)
        return ProducerBatch(tp, None, self.now, limit, open=records), result

    # --- transactions

    def init(self, timeout_ms: int = 60_000) -> None:
        self.finish(self.init_async(timeout_ms))

    def init_async(self, timeout_ms: int = 60_000) -> Future[None]:
        event = InitTransactionsEvent("initializing transactions", *self.timer(timeout_ms))
        self.submit(self.core, event)
        return event.future

    def begin(self) -> None:
        self.submit(self.core, BeginTransactionEvent())

    def add_partitions(self, *tps: TopicPartition) -> None:
        self.submit(self.core, AddPartitionsEvent(tps))

    def add_offsets(self, group: str, offsets: dict[TopicPartition, int], timeout_ms: int = 60_000) -> Future[None]:
        result = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        event = AddOffsetsEvent(group, result, *self.timer(timeout_ms))
        self.submit(self.core, event)
        return event.future

    def commit(self, timeout_ms: int = 60_000) -> Future[None]:
        event = CommitEvent("committing the transaction", *self.timer(timeout_ms))
        self.submit(self.core, event)
        return event.future

    def abort(self, timeout_ms: int = 60_000) -> Future[None]:
        event = AbortEvent("aborting the transaction", *self.timer(timeout_ms))
        self.submit(self.core, event)
        return event.future
