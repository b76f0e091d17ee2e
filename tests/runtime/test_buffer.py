"""Waiting for ``buffer.memory`` in threads: it ends by memory, by time, by close, and by the network thread's death."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from mirror.cluster.topics import TopicPartition
from mirror.errors import ClientClosed, KafkaTimeout, NetworkThreadDied, RecordTooLarge
from mirror.producer.memory import Grant
from mirror.runtime import buffer
from mirror.runtime.buffer import BufferMemory
from mirror.runtime.clock import SystemClock
from mirror.timing import FOREVER_MS, Timer
from tests.polling import eventually

_SICK, _HEALTHY = TopicPartition("sick", 0), TopicPartition("healthy", 0)


def _timer(timeout_ms: int) -> Timer:
    return Timer(SystemClock(), timeout_ms)


def _in_thread(action: Callable[[], None]) -> Future[None]:
    """Daemon threads: one that waits for ever must not hold up the tests' end."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            action()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001 - handed to who looks at the future
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _waiting(memory: BufferMemory, tp: TopicPartition, count: int, timeout_ms: int = FOREVER_MS) -> Future[None]:
    """A thread that waits, and is seen to."""
    already = len(memory._woken)
    future = _in_thread(lambda: memory.take(tp, count, _timer(timeout_ms)))
    eventually(lambda: len(memory._woken) == already + 1, what="a waiter")
    return future


def _all_free(memory: BufferMemory) -> bool:
    return memory._pool.free == memory.size and not memory.waiting and not memory._woken


def test_buffer_timeout_releases_waiter_and_memory() -> None:
    memory = BufferMemory(1_000)
    memory.take(_SICK, 900, _timer(0))
    with pytest.raises(KafkaTimeout) as late:
        memory.take(_HEALTHY, 200, _timer(20), "max.block.ms (20)")
    for part in (
        "healthy-0",
        "200 bytes",
        "buffer.memory (1000)",
        "max.block.ms (20)",
        "sick-0 holds most (900 bytes)",
    ):
        assert part in str(late.value)
    assert not memory.waiting
    assert not memory._woken
    memory.give_back(_SICK, 900)
    assert _all_free(memory)


def test_a_wait_without_time_is_none() -> None:
    memory = BufferMemory(100)
    memory.take(_SICK, 60, _timer(0))
    with pytest.raises(KafkaTimeout):
        memory.take(_SICK, 10, _timer(0))
    memory.take(_HEALTHY, 40, _timer(0))


def test_memory_given_back_wakes_whose_turn_it_is() -> None:
    memory = BufferMemory(100)
    memory.take(_SICK, 100, _timer(0))
    first = _waiting(memory, TopicPartition("t", 1), 30)
    second = _waiting(memory, TopicPartition("t", 2), 80)
    assert memory.waiting
    memory.give_back(_SICK, 100)
    first.result(10)
    assert not second.done()
    memory.give_back(TopicPartition("t", 1), 30)
    second.result(10)
    memory.give_back(TopicPartition("t", 2), 80)
    assert _all_free(memory)


def test_the_next_in_line_is_woken_when_one_gives_up() -> None:
    memory = BufferMemory(100)
    memory.take(_SICK, 50, _timer(0))
    large = _waiting(memory, TopicPartition("t", 1), 60, timeout_ms=300)
    small = _waiting(memory, TopicPartition("t", 2), 10)
    small.result(10)
    assert isinstance(large.exception(10), KafkaTimeout)


def test_close_unblocks_who_waits_for_memory() -> None:
    memory = BufferMemory(100)
    memory.take(_SICK, 100, _timer(0))
    waiting = [_waiting(memory, TopicPartition("t", number), 10) for number in range(3)]
    memory.close()
    assert [type(future.exception(10)) for future in waiting] == [ClientClosed] * 3
    with pytest.raises(ClientClosed):
        memory.take(_HEALTHY, 1, _timer(0))
    memory.give_back(_SICK, 100)
    assert _all_free(memory)


def test_the_network_threads_death_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "_LOOK_S", 0.01)
    dead = threading.Event()

    def look() -> None:
        if dead.is_set():
            msg = "the network thread died"
            raise NetworkThreadDied(msg)

    memory = BufferMemory(100, look)
    memory.take(_SICK, 100, _timer(0))
    waiting = _waiting(memory, _HEALTHY, 10)
    dead.set()
    assert isinstance(waiting.exception(10), NetworkThreadDied)
    memory.give_back(_SICK, 100)
    assert _all_free(memory)


class _Interrupted(BufferMemory):
    """The wait is cut short right after its memory was granted."""

    def _wait(self, grant: Grant, woken: threading.Event, timer: Timer, limit: str) -> None:
        super()._wait(grant, woken, timer, limit)
        raise KeyboardInterrupt


def test_what_was_granted_in_the_race_goes_back() -> None:
    memory = _Interrupted(100)
    memory.take(_SICK, 100, _timer(0))
    waiting = _waiting(memory, _HEALTHY, 10)
    memory.give_back(_SICK, 100)
    assert isinstance(waiting.exception(10), KeyboardInterrupt)
    assert _all_free(memory)


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(RecordTooLarge, match=r"healthy-0: a batch of 101 bytes does not fit buffer\.memory \(100\)"):
        BufferMemory(100).take(_HEALTHY, 101, _timer(0))


def test_many_threads_leave_nothing_behind() -> None:
    memory = BufferMemory(1_000)

    def work(number: int) -> None:
        for turn in range(300):
            tp, count = TopicPartition("t", (number + turn) % 3), 1 + (number * 131 + turn * 17) % 400
            memory.take(tp, count, _timer(FOREVER_MS))
            memory.give_back(tp, count)

    workers = [_in_thread(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc] # a default
    for worker in workers:
        worker.result(30)
    assert _all_free(memory)
