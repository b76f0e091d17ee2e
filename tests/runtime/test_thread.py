"""Behaviour 40 (seed 001's "risky design"): no caller ever hangs on a network thread that is not there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from mirror.client import Admin, Consumer, TopicPartition
from mirror.cluster.loop import LeaveEvent
from mirror.consumer.core import ConsumerCore
from mirror.errors import ClientClosed, KafkaError, KafkaTimeout, NetworkThreadDied
from mirror.runtime import thread as thread_module
from mirror.sandbox.ports import HOST
from tests.client_state import is_in_use
from tests.polling import eventually
from tests.stalls import Stalls

TP = TopicPartition("orders", 0)
AT_ONCE_S = 20.0
"""Generous, and far from the callers' own 60 s."""


class Bug(Exception):
    """An error of no known class."""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.create_server((HOST, 0)) as server:
        yield f"{HOST}:{server.getsockname()[1]}"


@pytest.fixture
def consumer(silent: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": silent, "group.id": "readers"})
    yield consumer
    consumer.close(timeout_ms=0)


def break_loop(consumer: Consumer) -> None:
    """Make the next turn of the live loop fail."""

    def run_once() -> None:
        raise Bug("a bug in the loop")

    consumer.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    consumer.network_thread.network.wakeup()


CALLS: dict[str, Callable[[Consumer], object]] = {
    "beginning_offsets": lambda c: c.beginning_offsets([TP]),
    "client_instance_id": lambda c: c.client_instance_id(),
    "commit_sync": lambda c: c.commit_sync({TP: 1}),
    "committed": lambda c: c.committed([TP]),
    "end_offsets": lambda c: c.end_offsets([TP]),
    "list_topics": lambda c: c.list_topics(),
    "offsets_for_times": lambda c: c.offsets_for_times({TP: 0}),
    "partitions_for": lambda c: c.partitions_for("orders"),
    "poll": lambda c: c.poll(),
    "position": lambda c: c.position(TP),
}


@pytest.mark.parametrize("name", CALLS)
def test_network_thread_death_fails_every_caller(name: str, consumer: Consumer) -> None:
    consumer.assign([TP])
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(CALLS[name], consumer)
        eventually(lambda: is_in_use(consumer), what="the call has begun")
        break_loop(consumer)
        began = time.monotonic()
        error = waiting.exception(AT_ONCE_S)
    assert isinstance(error, NetworkThreadDied)
    assert isinstance(error.__cause__, Bug)
    assert "a bug in the loop" in str(error)
    # A later caller hears the same, with the same cause.
    with pytest.raises(NetworkThreadDied) as later:
        CALLS[name](consumer)
    assert isinstance(later.value.__cause__, Bug)
    assert time.monotonic() - began < AT_ONCE_S


def test_callers_in_other_threads_hear_of_it_too(silent: str) -> None:
    """Clients that share the thread, each with a caller waiting."""
    clients = [Admin({"bootstrap.servers": silent}) for _ in range(5)]
    consumer = Consumer({"bootstrap.servers": silent})
    with ThreadPoolExecutor(5) as others:
        waiting = [others.submit(client.list_topics) for client in clients]
        eventually(lambda: len(consumer.network_thread.loop.reaper) == 5, what="five calls are under way")
        break_loop(consumer)
        assert all(isinstance(one.exception(AT_ONCE_S), NetworkThreadDied) for one in waiting)
    for client in clients:
        client.close()
    consumer.close()


def test_close_returns_after_the_death(consumer: Consumer) -> None:
    break_loop(consumer)
    eventually(lambda: consumer.network_thread.dead, what="the thread's death")
    began = time.monotonic()
    consumer.close()
    consumer.close()
    assert time.monotonic() - began < AT_ONCE_S
    with pytest.raises(ClientClosed):
        consumer.poll(0)


def test_a_death_in_the_middle_of_close_ends_it(consumer: Consumer) -> None:
    entered = threading.Event()

    def leave(_event: object, _now: int) -> None:
        entered.set()
        raise Bug("in close")

    consumer.core.leave = leave  # type: ignore[assignment, method-assign]
    began = time.monotonic()
    consumer.close()
    assert entered.is_set()
    assert consumer.network_thread.dead
    assert time.monotonic() - began < AT_ONCE_S


def test_a_new_client_gets_a_new_thread_after_a_death(consumer: Consumer, silent: str) -> None:
    break_loop(consumer)
    eventually(lambda: consumer.network_thread.dead, what="the thread's death")
    with Consumer({"bootstrap.servers": silent}) as second:
        assert second.network_thread is not consumer.network_thread
        with pytest.raises(KafkaTimeout):
            second.list_topics(timeout_ms=50)


def test_a_thread_that_cannot_start_is_reported_at_once(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(NetworkThreadDied, match="could not start: can't start new thread"):
            Consumer({"bootstrap.servers": silent})
    # Nothing of the failure stays behind.
    with Consumer({"bootstrap.servers": silent}) as consumer:
        assert consumer.poll(0) == []


def test_a_stuck_thread_is_reported_with_its_place(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    monkeypatch.setattr(thread_module, "STUCK_MS", 300)
    going_on = threading.Event()

    def run_once() -> None:
        going_on.wait(120)

    original = consumer.network_thread.loop.run_once
    consumer.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    consumer.network_thread.network.wakeup()
    try:
        began = time.monotonic()
        with pytest.raises(NetworkThreadDied, match="stuck") as caught:
            consumer.list_topics(timeout_ms=100)
        assert time.monotonic() - began < AT_ONCE_S
        assert "going_on.wait" in str(caught.value.__cause__)
        # The next ones need not find it out for themselves.
        with stalls.timing() as took:
            with pytest.raises(NetworkThreadDied, match="stuck"):
                consumer.list_topics(timeout_ms=100)
            consumer.close(timeout_ms=100)
        assert took.running_ms < 1_000
    finally:
        consumer.network_thread.loop.run_once = original  # type: ignore[method-assign]
        going_on.set()
    eventually(lambda: consumer.network_thread.dead, what="its end, once it turns again")


def test_a_slow_broker_is_no_stuck_thread(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread runs, though no broker answers: that is a timeout, not a bug."""
    monkeypatch.setattr(thread_module, "STUCK_MS", 300)
    with pytest.raises(KafkaTimeout):
        consumer.list_topics(timeout_ms=2_000)


def test_one_consumer_in_two_threads_is_an_error_at_once(consumer: Consumer) -> None:
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(consumer.poll, 120_000)
        eventually(lambda: is_in_use(consumer), what="the poll has begun")
        began = time.monotonic()
        with pytest.raises(KafkaError, match="one thread at a time"):
            consumer.poll(120_000)
        with pytest.raises(KafkaError, match="one thread at a time"):
            consumer.close()
        assert time.monotonic() - began < AT_ONCE_S
        consumer.wake()
        assert waiting.result(AT_ONCE_S) == []
    # One after the other is no error.
    assert consumer.poll(0) == []


def test_clients_of_one_cluster_share_a_thread_that_ends_with_the_last(silent: str) -> None:
    first = Consumer({"bootstrap.servers": silent})
    second = Consumer({"bootstrap.servers": silent, "group.id": "others"})
    admin = Admin({"bootstrap.servers": silent})
    other = Consumer({"bootstrap.servers": silent, "client.id": "another"})
    shared = first.network_thread
    assert second.network_thread is shared
    assert admin.network_thread is shared
    assert other.network_thread is not shared
    first.close()
    admin.close()
    assert second.poll(0) == []
    second.close()
    assert not shared.is_alive
    assert other.poll(0) == []
    other.close()
    assert not other.network_thread.is_alive


def test_threads_leave_nothing_behind(silent: str) -> None:
    me = psutil.Process()
    threads, files = threading.active_count(), me.num_fds()
    for _ in range(20):
        with Consumer({"bootstrap.servers": silent}) as consumer:
            consumer.poll(0)
    assert threading.active_count() == threads
    assert me.num_fds() <= files


def test_an_event_that_comes_while_the_thread_dies_is_answered(silent: str) -> None:
    """Many callers and one death, at every moment that chance brings."""
    for _ in range(10):
        clients = [Admin({"bootstrap.servers": silent}) for _ in range(4)]
        consumer = Consumer({"bootstrap.servers": silent})
        with ThreadPoolExecutor(4) as others:
            waiting = [others.submit(client.list_topics) for client in clients]
            break_loop(consumer)
            assert all(isinstance(one.exception(AT_ONCE_S), NetworkThreadDied) for one in waiting)
        for client in clients:
            client.close()
        consumer.close()


def test_after_close_a_call_says_closed_not_died(silent: str) -> None:
    admin = Admin({"bootstrap.servers": silent})
    admin.close()
    with pytest.raises(ClientClosed):
        admin.list_topics()
    assert admin.network_thread.dead


def test_closing_takes_the_time_it_was_given_where_nobody_answers(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, stalls: Stalls
) -> None:
    """A thread that sleeps until the deadline is not stuck: the fetch sessions have their time to end."""

    def never_done(_self: ConsumerCore, _event: LeaveEvent, _now: int) -> None:
        """As with a broker that does not answer."""

    monkeypatch.setattr(ConsumerCore, "leave", never_done)
    with stalls.timing() as took:
        consumer.close(timeout_ms=1_200)
    assert took.ms >= 1_190
    assert took.running_ms < 2_200
