"""Waiting for ``buffer.memory`` in threads: it ends by memory, by time, by close, and by the network thread's death."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from mirror.cluster.types import TopicPartition
from mirror.errors import ClientClosed, InvalidArgument, KafkaTimeout, NetworkThreadDied, RecordTooLarge
from mirror.producer.batch.memory import Grant
from mirror.runtime.clock import SystemClock
from mirror.runtime.memory import buffer_memory as buffer
from mirror.runtime.memory.buffer_memory import BufferMemory, MemoryShare
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


def _waiting(memory: MemoryShare, tp: TopicPartition, count: int, timeout_ms: int = FOREVER_MS) -> Future[None]:
    """A thread that waits, and is seen to."""
    already = len(memory._accounts.woken)
    future = _in_thread(lambda: memory.take(tp, count, _timer(timeout_ms)))
    eventually(lambda: len(memory._accounts.woken) == already + 1, what="a waiter")
    return future


def _all_free(memory: MemoryShare) -> bool:
    return memory.memory.free == memory.memory.size and not memory.memory.waiting and not memory._accounts.woken


def test_buffer_timeout_releases_waiter_and_memory() -> None:
    memory = BufferMemory(1_000).share()
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
    assert not memory.memory.waiting
    assert not memory._accounts.woken
    memory.give_back(_SICK, 900)
    assert _all_free(memory)


def test_a_wait_without_time_is_none() -> None:
    memory = BufferMemory(100).share()
    memory.take(_SICK, 60, _timer(0))
    with pytest.raises(KafkaTimeout):
        memory.take(_SICK, 10, _timer(0))
    memory.take(_HEALTHY, 40, _timer(0))


def test_memory_given_back_wakes_whose_turn_it_is() -> None:
    memory = BufferMemory(100).share()
    memory.take(_SICK, 100, _timer(0))
    first = _waiting(memory, TopicPartition("t", 1), 30)
    second = _waiting(memory, TopicPartition("t", 2), 80)
    assert memory.memory.waiting
    memory.give_back(_SICK, 100)
    first.result(30)
    assert not second.done()
    memory.give_back(TopicPartition("t", 1), 30)
    second.result(30)
    memory.give_back(TopicPartition("t", 2), 80)
    assert _all_free(memory)


def test_the_next_in_line_is_woken_when_one_gives_up() -> None:
    memory = BufferMemory(100).share()
    memory.take(_SICK, 50, _timer(0))
    large = _waiting(memory, TopicPartition("t", 1), 60, timeout_ms=300)
    small = _waiting(memory, TopicPartition("t", 2), 10)
    small.result(30)
    assert isinstance(large.exception(30), KafkaTimeout)


def test_close_unblocks_who_waits_for_memory() -> None:
    memory = BufferMemory(100).share()
    memory.take(_SICK, 100, _timer(0))
    waiting = [_waiting(memory, TopicPartition("t", number), 10) for number in range(3)]
    memory.close()
    assert [type(future.exception(30)) for future in waiting] == [ClientClosed] * 3
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

    memory = BufferMemory(100).share(look)
    memory.take(_SICK, 100, _timer(0))
    waiting = _waiting(memory, _HEALTHY, 10)
    dead.set()
    assert isinstance(waiting.exception(30), NetworkThreadDied)
    memory.give_back(_SICK, 100)
    assert _all_free(memory)


class _Interrupted(MemoryShare):
    """The wait is cut short right after its memory was granted."""

    def _wait(self, grant: Grant, woken: threading.Event, timer: Timer | None, limit: str) -> None:
        super()._wait(grant, woken, timer, limit)
        raise KeyboardInterrupt


def test_what_was_granted_in_the_race_goes_back() -> None:
    whole = BufferMemory(100)
    memory = _Interrupted(whole, whole._accounts)
    memory.take(_SICK, 100, _timer(0))
    waiting = _waiting(memory, _HEALTHY, 10)
    memory.give_back(_SICK, 100)
    assert isinstance(waiting.exception(30), KeyboardInterrupt)
    assert _all_free(memory)


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(RecordTooLarge, match=r"healthy-0: a batch of 101 bytes does not fit buffer\.memory \(100\)"):
        BufferMemory(100).share().take(_HEALTHY, 101, _timer(0))


def test_many_threads_leave_nothing_behind() -> None:
    memory = BufferMemory(1_000).share()

    def work(number: int) -> None:
        for turn in range(300):
            tp, count = TopicPartition("t", (number + turn) % 3), 1 + (number * 131 + turn * 17) % 400
            memory.take(tp, count, _timer(FOREVER_MS))
            memory.give_back(tp, count)

    workers = [_in_thread(lambda number=number: work(number)) for number in range(8)]  # type: ignore[misc] # a default
    for worker in workers:
        worker.result(30)
    assert _all_free(memory)


# --- shared by several producers


def test_memory_that_is_given_back_wakes_a_waiting_caller() -> None:
    memory = BufferMemory(100)
    one, other = memory.share(), memory.share()
    one.take(_SICK, 20, _timer(0))
    other.take(_SICK, 20, _timer(0))
    assert memory.free == 60
    waiting = _waiting(other, _HEALTHY, 70)
    one.give_back(_SICK, 20)
    waiting.result(30)
    assert "free=10" in repr(memory)
    with pytest.raises(KafkaTimeout, match="it holds 20 bytes"):
        one.take(_SICK, 10, _timer(0))  # a partition has one share, however many threads write to it


def test_who_closes_leaves_it_to_the_others() -> None:
    memory = BufferMemory(100)
    one, other = memory.share(), memory.share()
    one.take(_SICK, 100, _timer(0))
    mine, theirs = _waiting(one, TopicPartition("t", 1), 10), _waiting(other, TopicPartition("t", 2), 20)
    one.close()
    assert isinstance(mine.exception(30), ClientClosed)
    assert not theirs.done()
    one.give_back(_SICK, 100)  # what was in flight
    theirs.result(30)
    other.give_back(TopicPartition("t", 2), 20)
    assert _all_free(other)


def test_a_waiter_has_all_send_what_lingers() -> None:
    """It may be another producer's batch that holds the memory; one whose thread has died is no end of the wait."""
    memory = BufferMemory(100)
    asked: list[str] = []

    def dead() -> None:
        asked.append("dead")
        raise NetworkThreadDied("the network thread died")

    def sends() -> None:
        asked.append("lingering")
        lingering.give_back(_SICK, 60)

    lingering = memory.share(sends)
    quiet, gone = memory.share(lambda: asked.append("quiet")), memory.share(lambda: asked.append("gone"))
    ended, waiting = memory.share(dead), memory.share(lambda: asked.append("waiting"))
    for one in (ended, gone, lingering, lingering):
        one.lingers()
    gone.close()
    gone.lingers()
    lingering.take(_SICK, 60, _timer(0))
    quiet.take(TopicPartition("t", 1), 10, _timer(0))
    waiting.take(_HEALTHY, 50, _timer(5_000))
    assert asked == ["waiting", "dead", "lingering"]


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "32 MB", None])
def test_a_size_that_is_none(size: object) -> None:
    with pytest.raises(InvalidArgument, match="a BufferMemory must be a number of bytes, at least 1"):
        BufferMemory(size)  # type: ignore[arg-type] # what a caller without types may give
