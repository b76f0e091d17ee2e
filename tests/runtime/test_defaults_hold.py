"""What holds where nothing is said, and what was said, seen at the faces and without a broker."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from mirror.client import Admin, Consumer, Producer
from mirror.cluster.settings import ClusterSettings
from mirror.consumer.core import ConsumerCore
from mirror.errors import KafkaTimeout
from mirror.runtime.clock import process_rng
from mirror.runtime.thread import acquire, release
from tests.client_state import memory
from tests.runtime.test_thread import CALLS as CONSUMER_CALLS
from tests.runtime.test_thread import TP
from tests.stalls import Stalls

DEFAULT_MS = 300
FACES: dict[str, Callable[[dict[str, object]], Any]] = {
    "consumer": Consumer,
    "admin": Admin,
    "producer": lambda options: Producer({**options, "transactional.id": "x"}),
}
CALLS = {"consumer": "list_topics", "admin": "list_topics", "producer": "init_transactions"}


@pytest.mark.parametrize("face", FACES)
def test_default_api_timeout_bounds_calls_that_name_none(face: str, silent: str, stalls: Stalls) -> None:
    client = FACES[face]({"bootstrap.servers": silent, "default.api.timeout.ms": DEFAULT_MS})
    try:
        with stalls.timing() as took, pytest.raises(KafkaTimeout, match=f"within {DEFAULT_MS} ms"):
            getattr(client, CALLS[face])()
        assert took.ms >= DEFAULT_MS - 1
        assert took.running_ms < 3_000
    finally:
        client.close(0) if face != "admin" else client.close()


@pytest.mark.parametrize("name", [*CONSUMER_CALLS, "close"])
def test_default_api_timeout_bounds_each_of_the_consumer_s_timed_calls(
    name: str, silent: str, stalls: Stalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All eleven of the timeout design; ``close`` has something to wait for only at a broker."""
    monkeypatch.setattr(ConsumerCore, "leave", lambda _self, _event, _now: None)
    consumer = Consumer({"bootstrap.servers": silent, "group.id": "g", "default.api.timeout.ms": DEFAULT_MS})
    consumer.assign([TP])
    with stalls.timing() as took:
        if name in {"poll", "close"}:
            assert not getattr(consumer, name)()
        else:
            with pytest.raises(KafkaTimeout, match=f"within {DEFAULT_MS} ms"):
                CONSUMER_CALLS[name](consumer)
    assert took.ms >= DEFAULT_MS - 1
    assert took.running_ms < 3_000
    consumer.close(0)


@pytest.mark.parametrize("face", FACES)
def test_default_api_timeout_is_a_minute(face: str, silent: str) -> None:
    client = FACES[face]({"bootstrap.servers": silent})
    try:
        deadline_ms, timeout_ms = client._timer(None)
        assert timeout_ms == 60_000
        assert deadline_ms - client.network_thread.clock.now() in range(59_000, 60_001)
        assert client._timer(7)[1] == 7
    finally:
        client.close(0) if face != "admin" else client.close()


@pytest.mark.parametrize("max_block_ms", [0, 300])
def test_send_waits_for_metadata_as_long_as_max_block_says(max_block_ms: int, silent: str, stalls: Stalls) -> None:
    """Behaviours 29 and 32, where no broker answers."""
    with Producer({"bootstrap.servers": silent, "max.block.ms": max_block_ms}) as producer:
        match = rf"^t-0: no metadata of it within max\.block\.ms \({max_block_ms}\)"
        with stalls.timing() as took, pytest.raises(KafkaTimeout, match=match):
            producer.send("t", 0, value=b"x")
        assert took.ms >= max_block_ms - 1
        assert took.running_ms < 3_000
        assert memory(producer).memory.free == memory(producer).memory.size, "it never came to memory"


def _draws(rng: random.Random) -> list[float]:
    return [rng.random() for _ in range(4)]


def _report(end: Connection) -> None:
    end.send(_draws(process_rng()))


def test_two_seeds_do_not_retry_in_step_in_two_processes_or_clusters(silent: str) -> None:
    """KIP-580: neither workers that were forked from one process, nor the clients of one."""
    theirs, ours = multiprocessing.get_context("fork").Pipe()
    worker = multiprocessing.get_context("fork").Process(target=_report, args=(theirs,))
    worker.start()
    assert ours.poll(30)
    seen = [ours.recv(), _draws(process_rng()), _draws(process_rng())]
    worker.join(30)
    threads = [acquire(ClusterSettings.parse({"bootstrap.servers": silent, "client.id": name})) for name in "ab"]
    try:
        seen += [_draws(thread.loop.rng) for thread in threads]
    finally:
        for thread in threads:
            release(thread)
    assert len({tuple(one) for one in seen}) == len(seen)
