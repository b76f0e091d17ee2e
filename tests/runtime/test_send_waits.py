"""The two waits of ``send`` (KIP-912), and that ``delivery.timeout.ms`` begins behind them (KIP-91)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirror.client import Producer, TopicPartition
from mirror.errors import DeliveryTimeout
from mirror.timing import Timer
from mirror.wire.api import Api
from tests.client_state import memory, place
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.fakes.record_batches import batch, build

OTHER, TP = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_MS, DELIVERY_MS = 3_000, 12_000
SIZE = 1_000
SENDS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send(*TP, value=b"x"),
    "send_batch": lambda producer: producer.send_batch(TP, batch(build((b"x",)))),
}


@pytest.fixture
def new_producer(cluster: FakeCluster) -> Iterator[Callable[..., Producer]]:
    """Makes a producer with memory for one batch of records."""
    cluster.add_topic("t", 2)
    made: list[Producer] = []

    def new(**options: object) -> Producer:
        memory = {"batch.size": SIZE, "buffer.memory": SIZE}
        times = {"request.timeout.ms": 10_000, "delivery.timeout.ms": DELIVERY_MS}
        made.append(Producer({"bootstrap.servers": cluster.bootstrap, **memory, **times, **options}))
        return made[-1]

    yield new
    for producer in made:
        producer.close(0)


@pytest.mark.parametrize("call", SENDS.values(), ids=SENDS)
@pytest.mark.parametrize("wait", ["metadata", "memory"])
def test_delivery_timeout_begins_when_send_returns(
    wait: str, call: Callable[[Producer], Any], cluster: FakeCluster, new_producer: Callable[..., Producer]
) -> None:
    producer = new_producer()
    api = Api.METADATA if wait == "metadata" else Api.PRODUCE
    cluster.control.on(api, Action(delay_ms=WAIT_MS))
    if wait == "memory":
        producer.send(*OTHER, value=b"x" * (SIZE - 100))
        place(producer, TP).known = True
    cluster.control.on(Api.PRODUCE, Action(silent=True), times=None)
    begun = cluster.clock.now()
    sent = call(producer)
    returned = cluster.clock.now()
    assert returned - begun >= WAIT_MS - 500, "it has waited"
    over: list[int] = []
    sent.add_done_callback(lambda _: over.append(cluster.clock.now()))
    assert isinstance(sent.exception(60), DeliveryTimeout)
    assert abs(over[0] - returned - DELIVERY_MS) < WAIT_MS / 2


@pytest.mark.parametrize(
    ("options", "left_ms", "limit"),
    [
        ({"max.block.ms": 10_000}, 10_000 - WAIT_MS, "max.block.ms (10000), of which metadata took"),
        ({"max.block.ms": 10_000, "max.block.ms.include.metadata": False}, 10_000, "max.block.ms (10000)"),
    ],
    ids=["shared", "split"],
)
@pytest.mark.parametrize("call", SENDS.values(), ids=SENDS)
def test_the_wait_for_memory_has_what_the_wait_for_metadata_left(
    options: dict[str, object],
    left_ms: int,
    limit: str,
    call: Callable[[Producer], Any],
    cluster: FakeCluster,
    new_producer: Callable[..., Producer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behaviours 29 and 30 in the calls themselves, not in the rule alone."""
    producer = new_producer(**options)
    cluster.control.on(Api.METADATA, Action(delay_ms=WAIT_MS))
    take, waits = memory(producer).take, list[tuple[int, str]]()

    def noted(tp: TopicPartition, count: int, timer: Timer, text: str) -> None:
        waits.append((timer.remaining_ms(), text))
        take(tp, count, timer, text)

    monkeypatch.setattr(memory(producer), "take", noted)
    call(producer)
    ((found_ms, text),) = waits
    assert left_ms - WAIT_MS / 2 < found_ms <= left_ms
    assert text.startswith(limit)
    place(producer, TP).open = None
    waits.clear()
    call(producer)
    assert waits[0][0] > 10_000 - WAIT_MS / 2, "once the metadata is there, memory has it all"
