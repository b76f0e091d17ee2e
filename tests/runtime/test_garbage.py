"""What is done leaves no cycle: a collection of the garbage of many requests stops all copies of a process."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.cluster.events import CompletableEvent
from mirror.cluster.loop import ClusterLoop, LeaveEvent
from mirror.relay.futures import done, failed, or_else, then
from mirror.runtime.pending_requests import PendingRequests


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_tracked_event_is_freed_when_it_is_done() -> None:
    pending = PendingRequests("Admin")
    event: CompletableEvent[int] = CompletableEvent("test", 0, 0)
    pending.add(event)
    assert len(pending) == 1
    event.complete(1)
    seen = weakref.ref(event)
    del event
    assert len(pending) == 0
    assert seen() is None


def test_leave_event_is_freed_when_the_client_has_left() -> None:
    core = cast("Any", SimpleNamespace(leave=lambda event, _: event.complete(None)))
    departed: deque[object] = deque()
    loop = cast("ClusterLoop", SimpleNamespace(departed=departed, touch=lambda _: None))
    event = LeaveEvent(core, 0, 0)
    event.apply(loop, 0)
    assert list(departed) == [core]
    seen = weakref.ref(event)
    del event
    assert seen() is None


@pytest.mark.parametrize("fails", [False, True])
def test_chained_futures_are_freed_with_their_outcome(fails: bool) -> None:
    first: Future[int] = Future()
    chosen = or_else(first, ValueError, lambda: done(2))
    outcome = then(chosen, lambda number: done(number + 1))
    if fails:
        first.set_exception(ValueError())
    else:
        first.set_result(5)
    assert outcome.result(0) == (3 if fails else 6)
    seen = [weakref.ref(future) for future in (first, chosen, outcome)]
    del first, chosen, outcome
    assert [future() for future in seen] == [None] * 3


def test_errors_are_passed_on() -> None:
    other = or_else(failed(ValueError("first")), KeyError, lambda: done(1))
    assert str(other.exception(0)) == "first"
    raising: Future[int] = or_else(failed(KeyError()), KeyError, lambda: failed(ValueError("second")))
    assert str(raising.exception(0)) == "second"

    def raises() -> Future[int]:
        raise ValueError("third")

    assert str(or_else(failed(KeyError()), KeyError, raises).exception(0)) == "third"
