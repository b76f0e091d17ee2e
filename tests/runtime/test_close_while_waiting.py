"""A client that is closed ends its own calls at once, also where others share its network thread and go on.

No broker answers here: what does not end by the close would end by its time-out, 40 s later.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mirror.client import LATEST, Admin, Consumer, Producer, TopicPartition
from mirror.errors import ClientClosed, KafkaError, KafkaTimeout
from tests.client_state import is_in_use, pending, unanswered
from tests.polling import eventually

LATE_MS = 40_000
TP = TopicPartition("t", 0)


CALLS: dict[str, Callable[[Admin], object]] = {
    "one answer": lambda admin: admin.list_topics(timeout_ms=LATE_MS),
    "each key": lambda admin: admin.list_offsets({TP: LATEST}, timeout_ms=LATE_MS),
    "partial": lambda admin: admin.list_offsets({TP: LATEST}, partial=True, timeout_ms=LATE_MS),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_admin_ends_its_calls(name: str, silent: str, other: Admin) -> None:
    admin = Admin({"bootstrap.servers": silent})
    assert admin.network_thread is other.network_thread
    going_on = other.group_offsets_async("g", timeout_ms=LATE_MS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(CALLS[name], admin)
        eventually(lambda: len(pending(admin)), what="the call")
        admin.close()
        error = waiting.exception(20)
    assert isinstance(error, ClientClosed)
    assert "this Admin was closed while it waited" in str(error)
    assert not going_on.done()
    assert not len(pending(admin))


def test_an_admin_ends_its_calls_that_nobody_waits_for(silent: str, other: Admin) -> None:
    admin = Admin({"bootstrap.servers": silent})
    calls: list[Future[Any]] = [
        admin.group_offsets_async("g", timeout_ms=LATE_MS),
        admin.list_offsets_async({TP: LATEST}, timeout_ms=LATE_MS),
    ]
    going_on = other.group_offsets_async("g", timeout_ms=LATE_MS)
    admin.close()
    assert [type(call.exception(20)) for call in calls] == [ClientClosed, ClientClosed]
    assert not going_on.done()
    eventually(lambda: len(other.network_thread.loop.reaper) == 1, what="only the other's call is left")


def test_a_call_that_is_made_while_the_admin_closes_does_not_wait(silent: str, other: Admin) -> None:
    """The close comes between the call's check that the client is open and its hand-over."""
    admin = Admin({"bootstrap.servers": silent})
    submit, thread = other.network_thread.submit, other.network_thread

    def closing(core: Any, event: Any) -> None:
        thread.submit = submit  # type: ignore[method-assign]
        admin.close()
        submit(core, event)

    thread.submit = closing  # type: ignore[method-assign]
    with pytest.raises(ClientClosed):
        admin.list_topics(timeout_ms=LATE_MS)


PRODUCER_CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("t", 0, value=b"x"),
    "init_transactions": lambda producer: producer.init_transactions(LATE_MS),
}


@pytest.mark.parametrize("name", PRODUCER_CALLS)
def test_close_unblocks_both_waits_without_brokers(name: str, silent: str, other: Admin) -> None:
    """Behaviour 34, for those who wait for metadata; and for who waits for a transactional id's coordinator."""
    options = {"transactional.id": "x"} if name == "init_transactions" else {}
    producer = Producer({"bootstrap.servers": silent, "max.block.ms": LATE_MS, **options})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(PRODUCER_CALLS[name], producer)
        eventually(lambda: len(pending(producer)) or producer.core._transactions, what="the call")
        producer.close(0)
        assert isinstance(waiting.exception(20), ClientClosed)
    assert not other.network_thread.dead


def test_metadata_waiters_end_as_soon_as_close_begins(silent: str, other: Admin) -> None:
    """Not only when it ends: here it would wait for 40 s for what was sent before."""
    producer = Producer({"bootstrap.servers": silent, "max.block.ms": LATE_MS, "delivery.timeout.ms": LATE_MS})
    with ThreadPoolExecutor(3) as pool:
        sending = [pool.submit(producer.send, "t", number, value=b"x") for number in range(2)]
        eventually(lambda: len(pending(producer)) == 2, what="two who wait for metadata")
        unanswered(producer).add("sent before, and never answered for")
        closing = pool.submit(producer.close, LATE_MS)
        try:
            assert [type(one.exception(20)) for one in sending] == [ClientClosed, ClientClosed]
            assert not closing.done()
        finally:
            unanswered(producer).answered("sent before, and never answered for")
        closing.result(30)
    assert not other.network_thread.dead


def test_a_consumer_in_use_is_not_closed_by_another_thread(silent: str, other: Admin) -> None:
    """So no call of it can be under way when it closes; who closes it gets an error."""
    consumer = Consumer({"bootstrap.servers": silent})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.list_topics, 500)
        eventually(lambda: is_in_use(consumer), what="the call")
        with pytest.raises(KafkaError, match="for one thread at a time"):
            consumer.close(0)
        assert isinstance(waiting.exception(20), KafkaTimeout)
    consumer.close(0)
    assert not other.network_thread.dead
