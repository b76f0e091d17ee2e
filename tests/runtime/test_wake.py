"""Waking a consumer's calls from other threads and from signal handlers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mirror.client import Consumer, TopicPartition
from mirror.cluster.events import Event
from mirror.consumer.events import WakeableEvent
from mirror.errors import InvalidArgument, KafkaTimeout, NetworkThreadDied, Woken, WrongState
from mirror.runtime import thread
from tests.polling import eventually
from tests.runtime.listener import Listener

TP = TopicPartition("t", 0)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    listener = Listener()
    consumer = Consumer({"bootstrap.servers": listener.address, "group.id": "g"})
    consumer.assign([TP])
    yield consumer
    consumer.close(0)
    listener.close()


def test_a_waiting_poll_is_woken_from_another_thread(consumer: Consumer) -> None:
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(consumer.poll, 200_000)
        eventually(lambda: consumer.core._poll_event is not None, what="the poll has begun")
        began = time.monotonic()
        consumer.wake()
        assert waiting.result(30) == []
        assert time.monotonic() - began < 30


def test_a_future_of_another_cluster_may_wake_it(consumer: Consumer) -> None:
    """As the relay does it: an acknowledgement of the target, on the target's network thread."""
    listener = Listener()
    acknowledged: Future[None] = Future()
    acknowledged.add_done_callback(lambda _: consumer.wake())

    class Acknowledge(Event):
        def apply(self, core: object, now: int) -> None:
            del core, now
            acknowledged.set_result(None)

    with Consumer({"bootstrap.servers": listener.address}) as other:
        other.network_thread.submit(None, Acknowledge())
        began = time.monotonic()
        assert consumer.poll(200_000) == []
        assert time.monotonic() - began < 60
    listener.close()


def test_a_poll_that_waits_for_records_wakes_the_network_thread_at_its_end_only(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, woken = consumer.network_thread.network, 0
    eventually(lambda: consumer.poll(1) == [] and consumer.core.listening, what="nothing is left to do but to wait")
    wakeup = network.wakeup

    def counted() -> None:
        nonlocal woken
        woken += 1
        wakeup()

    monkeypatch.setattr(network, "wakeup", counted)
    monkeypatch.setattr(thread, "_LOOK_S", 3_600.0)
    assert consumer.poll(50) == []
    assert woken == 1
    consumer.core.listening = False
    assert consumer.poll(50) == []
    assert woken == 2, "it may have records, and is asked at once"


def test_many_wakes_before_the_loop_turns_are_one(consumer: Consumer) -> None:
    turning, submitted, go_on = threading.Event(), 0, threading.Event()
    submit = consumer.network_thread.submit

    class Block(Event):
        def apply(self, core: object, now: int) -> None:
            del core, now
            turning.set()
            go_on.wait(60)

    def counted(core: object, event: Event) -> None:
        nonlocal submitted
        submitted += 1
        submit(core, event)

    submit(None, Block())
    assert turning.wait(60)
    consumer.network_thread.submit = counted  # type: ignore[method-assign]
    try:
        for _ in range(1_000):
            consumer.wake()
    finally:
        go_on.set()
        del consumer.network_thread.submit
    assert submitted == 1
    assert consumer.poll(200_000) == []
    began = time.monotonic()
    assert consumer.poll(50) == []
    assert time.monotonic() - began > 0.04


def test_no_wake_is_lost_however_they_meet(consumer: Consumer) -> None:
    """Each poll here would wait for minutes; each is ended by the wake that follows the one before."""
    polls, rounds = 0, 2_000
    answered = threading.Semaphore(0)

    def poll() -> None:
        nonlocal polls
        for _ in range(rounds):
            assert consumer.poll(200_000) == []
            polls += 1
            answered.release()

    thread = threading.Thread(target=poll)
    thread.start()
    for _ in range(rounds):
        consumer.wake()
        assert answered.acquire(timeout=60), f"a wake was lost after {polls} polls"
    thread.join(30)
    assert polls == rounds


def test_a_closed_or_dead_consumer_is_woken_in_vain(consumer: Consumer) -> None:
    other = Consumer({"bootstrap.servers": "127.0.0.1:9"})
    other.close(0)
    for _ in range(2):
        other.wake()

    def run_once() -> None:
        raise RuntimeError("a bug in the loop")

    consumer.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    consumer.network_thread.network.wakeup()
    eventually(lambda: consumer.network_thread.dead, what="its end")
    for _ in range(2):
        consumer.wake()
    with pytest.raises(NetworkThreadDied):
        consumer.poll(0)


def test_a_wake_cut_short_does_not_stop_those_to_come(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_core: object, _event: Event) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(consumer.network_thread, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.wake()
    consumer.wake()
    assert consumer.poll(200_000) == []


WAKEABLE: dict[str, Callable[[Consumer], object]] = {
    "commit_sync": lambda consumer: consumer.commit_sync({TP: 1}, 30_000),
    "committed": lambda consumer: consumer.committed([TP], 30_000),
    "list_topics": lambda consumer: consumer.list_topics(30_000),
    "partitions_for": lambda consumer: consumer.partitions_for("t", 30_000),
    "position": lambda consumer: consumer.position(TP, 30_000),
}
every_wakeable_call = pytest.mark.parametrize("name", WAKEABLE)


@every_wakeable_call
def test_other_calls_are_woken_too(name: str, consumer: Consumer) -> None:
    """Those that Java's consumer documents to raise WakeupException."""
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(WAKEABLE[name], consumer)
        eventually(lambda: consumer.core._wakeable is not None, what="the call has begun")
        consumer.wake()
        error = waiting.exception(30)
    assert isinstance(error, Woken)
    assert "wake() ended it" in str(error)
    began = time.monotonic()
    assert consumer.poll(50) == []
    assert time.monotonic() - began > 0.04, "the wake has ended one call"


@every_wakeable_call
def test_a_wake_before_the_call_ends_it(name: str, consumer: Consumer) -> None:
    consumer.wake()
    with pytest.raises(Woken):
        WAKEABLE[name](consumer)
    assert consumer.core._wakeable is None


def test_a_call_that_is_done_takes_no_wake(consumer: Consumer) -> None:
    with pytest.raises(KafkaTimeout):
        consumer.committed([TP], 1)
    consumer.wake()
    assert consumer.poll(200_000) == []


@every_wakeable_call
def test_a_call_that_is_refused_takes_no_wake(name: str, consumer: Consumer) -> None:
    """In a callback, where a call would block the thread that is to end it."""
    called: Future[None] = Future()
    errors = list[BaseException]()

    def call(_: Future[None]) -> None:
        try:
            WAKEABLE[name](consumer)
        except WrongState as error:
            errors.append(error)

    called.add_done_callback(call)

    class Complete(Event):
        def apply(self, core: object, now: int) -> None:
            del core, now
            called.set_result(None)

    consumer.network_thread.submit(None, Complete())
    eventually(lambda: errors, what="its refusal")
    consumer.wake()
    assert consumer.poll(200_000) == []


@every_wakeable_call
def test_a_call_that_ends_before_it_is_queued_takes_no_wake(
    name: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the loop already lets a wake end it."""
    submit = consumer.network_thread.submit

    def interrupted(core: object, event: Event) -> None:
        submit(core, event)
        if isinstance(event, WakeableEvent):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(consumer.network_thread, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            WAKEABLE[name](consumer)
    consumer.wake()
    assert consumer.poll(200_000) == []


def test_calls_that_are_not_woken_leave_the_wake_to_the_next(consumer: Consumer) -> None:
    consumer.wake()
    with pytest.raises(KafkaTimeout):
        consumer.end_offsets([TP], 1)
    assert consumer.poll(200_000) == []


def test_a_signal_handler_may_wake_the_thread_that_it_interrupts(consumer: Consumer) -> None:
    """Wherever that is: also while it hands over an event, with the lock that is for that."""

    def stuck(_number: int, _frame: object) -> None:
        raise AssertionError("wake() does not return")

    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: consumer.wake())
    alarm = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(20)
    try:
        with consumer.network_thread._gate:
            signal.raise_signal(signal.SIGUSR1)
        assert consumer.poll(200_000) == []
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("wrong", [-1, "8", 1.5])
def test_a_limit_that_is_none_is_refused(wrong: Any, consumer: Consumer) -> None:
    with pytest.raises(InvalidArgument, match=f"max_bytes must be a number of bytes, 0 or more, not {wrong!r}"):
        consumer.poll(0, max_bytes=wrong)
