"""Admin's calls that do not wait: at once, whatever the network thread is at; all that goes wrong is in the future."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import LATEST, Admin, OffsetAndMetadata, TopicPartition
from mirror.cluster.events import Event
from mirror.errors import ClientClosed, InvalidArgument, KafkaTimeout, NetworkThreadDied
from tests.polling import eventually
from tests.runtime.listener import Listener

TP = TopicPartition("t", 0)
Call = Callable[[Admin], Future[Any]]
CALLS: dict[str, Call] = {
    "read": lambda admin: admin.group_offsets_async("g", [TP], 50),
    "read all": lambda admin: admin.group_offsets_async("g", timeout_ms=50),
    "commit one": lambda admin: admin.commit_offset_async("g", TP, OffsetAndMetadata(1), 50),
    "list": lambda admin: admin.list_offsets_async({TP: LATEST}, isolation="read_uncommitted", timeout_ms=50),
    "commit": lambda admin: admin.commit_group_offsets_async("g", {TP: OffsetAndMetadata(1)}, 50),
}
EACH = {"list", "commit"}
"""Those whose result has the error of each partition."""
WRONG: dict[str, Call] = {
    "group": lambda admin: admin.group_offsets_async(7, [TP]),  # type: ignore[arg-type] # that is what is wrong
    "partitions": lambda admin: admin.group_offsets_async("g", [TopicPartition("t", -1)]),
    "time-out": lambda admin: admin.group_offsets_async("g", [TP], -1),
    "offset": lambda admin: admin.commit_group_offsets_async("g", {TP: OffsetAndMetadata(-3)}),
    "one offset": lambda admin: admin.commit_offset_async("g", TP, OffsetAndMetadata(-3)),
    "one group": lambda admin: admin.commit_offset_async(7, TP, OffsetAndMetadata(3)),  # type: ignore[arg-type]
    "time": lambda admin: admin.list_offsets_async({TP: -70}),
    "isolation": lambda admin: admin.list_offsets_async({TP: LATEST}, isolation="read_all"),
}


class _Busy(Event):
    """Keeps the network thread from everything else, until it is released."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()

    def apply(self, core: object, now: int) -> None:
        del core, now
        self.begun.set()
        self.over.wait(60)


@pytest.fixture
def admin() -> Iterator[Admin]:
    listener = Listener()
    admin = Admin({"bootstrap.servers": listener.address})
    yield admin
    admin.close()
    listener.close()


def test_none_of_them_waits_for_a_busy_network_thread(admin: Admin) -> None:
    busy = _Busy()
    admin.network_thread.submit(None, busy)
    assert busy.begun.wait(60)
    began = time.monotonic()
    futures = [call(admin) for call in CALLS.values() for _ in range(250)]
    assert time.monotonic() - began < 40
    assert not any(future.done() or future.cancel() for future in futures)
    busy.over.set()
    errors = [future.exception(60) for future in futures[:750]]
    assert {type(error) for error in errors} == {KafkaTimeout}
    for found in (future.result(60) for future in futures[750:]):
        assert (found, type(found.failed[TP])) == ({}, KafkaTimeout)


@pytest.mark.parametrize("name", CALLS)
def test_they_may_be_made_in_a_callback(name: str, admin: Admin) -> None:
    nested: Future[Future[Any]] = Future()
    CALLS["read"](admin).add_done_callback(lambda _: nested.set_result(CALLS[name](admin)))
    again = nested.result(30)
    error = again.exception(30) if name not in EACH else again.result(30).failed[TP]
    assert isinstance(error, KafkaTimeout)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_in_the_future(name: str, admin: Admin) -> None:
    assert isinstance(WRONG[name](admin).exception(0), InvalidArgument)
    assert not admin.network_thread.loop.events


@pytest.mark.parametrize("name", CALLS)
def test_so_is_an_end_that_came_before(name: str, admin: Admin) -> None:
    admin.close()
    assert isinstance(CALLS[name](admin).exception(0), ClientClosed)


def test_and_the_network_threads_death(admin: Admin) -> None:
    waiting = admin.group_offsets_async("g", [TP])

    def run_once() -> None:
        raise RuntimeError("a bug in the loop")

    admin.network_thread.loop.run_once = run_once  # type: ignore[method-assign]
    admin.network_thread.network.wakeup()
    assert isinstance(waiting.exception(30), NetworkThreadDied)
    eventually(lambda: admin.network_thread.dead, what="the thread's death")
    for call in CALLS.values():
        assert isinstance(call(admin).exception(0), NetworkThreadDied)
