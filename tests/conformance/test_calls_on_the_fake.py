"""Seed 001 for all eleven timed calls, on the in-memory cluster: exact, since the clock is the test's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mirror.cluster.admin.cluster import ClientInstanceId
from mirror.cluster.admin.topics import DescribeTopics
from mirror.cluster.calls.group_offset_calls import CommitGroupOffsets, GroupOffsets
from mirror.cluster.calls.offset_calls import ListOffsets
from mirror.cluster.events import CompletableEvent
from mirror.cluster.loop import LeaveEvent
from mirror.cluster.requests import Request
from mirror.cluster.types import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from mirror.consumer.events import PollEvent, PositionEvent, ResetEvent
from mirror.errors import KafkaTimeout
from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from tests.fakes.client import FakeConsumer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import build

TP = TopicPartition("orders", 0)
Timer = tuple[int, int]
REQUEST_TIMEOUT_MS = 30_000


@dataclass(frozen=True)
class TimedCall:
    """One of the eleven: how it is asked, which API its last step is, and whether it goes to the consumer's core."""

    name: str
    make: Callable[[FakeConsumer, Timer], CompletableEvent[Any]]
    api: Api
    to_core: bool = False
    silent: bool = False
    """Time-outs are no errors: ``poll`` and ``close``."""
    mine: Callable[[Any], bool] = lambda _: True
    """Whether a request body of ``api`` is this call's own; the client asks for metadata on its own account too."""

    def __str__(self) -> str:
        return self.name

    def requests(self, consumer: FakeConsumer) -> list[ServerCall]:
        return [sent for sent in consumer.cluster.calls(self.api) if self.mine(sent.body)]

    def start(self, consumer: FakeConsumer, timeout_ms: int) -> CompletableEvent[Any]:
        event = self.make(consumer, consumer.timer(timeout_ms))
        consumer.submit(consumer.core if self.to_core else None, event)
        return event


def list_offsets(time: int) -> Callable[[FakeConsumer, Timer], CompletableEvent[Any]]:
    return lambda _, timer: ListOffsets({TP: time}, read_committed=True, deadline_ms=timer[0], timeout_ms=timer[1])


def position(consumer: FakeConsumer, timer: Timer) -> CompletableEvent[Any]:
    consumer.submit(consumer.core, ResetEvent({TP: LATEST}))
    return PositionEvent(TP, *timer)


CALLS = [
    TimedCall("beginning_offsets", list_offsets(EARLIEST), Api.LIST_OFFSETS),
    TimedCall("client_instance_id", lambda _, timer: ClientInstanceId(*timer), Api.GET_TELEMETRY_SUBSCRIPTIONS),
    TimedCall("close", lambda c, timer: LeaveEvent(c.core, *timer), Api.FETCH, silent=True),
    TimedCall(
        "commit_sync",
        lambda _, timer: CommitGroupOffsets("group", {TP: OffsetAndMetadata(1)}, *timer),
        Api.OFFSET_COMMIT,
    ),
    TimedCall("committed", lambda _, timer: GroupOffsets("group", [TP], *timer), Api.OFFSET_FETCH),
    TimedCall("end_offsets", list_offsets(LATEST), Api.LIST_OFFSETS),
    TimedCall(
        "list_topics", lambda _, timer: DescribeTopics(None, *timer), Api.METADATA, mine=lambda b: b.topics is None
    ),
    TimedCall("offsets_for_times", list_offsets(0), Api.LIST_OFFSETS),
    TimedCall(
        "partitions_for",
        lambda _, timer: DescribeTopics(["clicks"], *timer),
        Api.METADATA,
        mine=lambda b: b.topics is not None and [t.name for t in b.topics] == ["clicks"],
    ),
    TimedCall("poll", lambda _, timer: PollEvent(*timer), Api.FETCH, to_core=True, silent=True),
    TimedCall("position", position, Api.LIST_OFFSETS, to_core=True),
]

all_calls = pytest.mark.parametrize("call", CALLS, ids=str)


def ready_consumer(call: TimedCall | None = None) -> FakeConsumer:
    """A consumer that has read everything there is, with metadata, coordinator, connections and a fetch session."""
    cluster = FakeCluster()
    cluster.add_topic("orders")
    cluster.add_topic("clicks")
    cluster.log("orders").append(build((b"one",)))
    consumer = FakeConsumer(cluster, **{"request.timeout.ms": REQUEST_TIMEOUT_MS})
    consumer.read((TP, 0))
    assert consumer.poll()
    # A consumer that reads on has another Fetch under way; `poll` is to make its own.
    consumer.call(GroupOffsets("group", [TP], *consumer.timer()))
    consumer.run_for(10_000)
    cluster.received.clear()
    if call is not None and call.name == "poll":
        consumer.run_until(lambda: cluster.calls(Api.FETCH))
    return consumer


def outcome(call: TimedCall, consumer: FakeConsumer, event: CompletableEvent[Any]) -> None:
    """The call's own way of saying that time was up."""
    if call.silent:
        assert not event.future.result()
    else:
        with pytest.raises(KafkaTimeout) as caught:
            event.future.result()
        assert isinstance(caught.value, TimeoutError)
    del consumer


@all_calls
def test_expired_event_times_out_once(call: TimedCall) -> None:
    consumer = ready_consumer(call)
    consumer.cluster.control.add(lambda _: Action(silent=True))
    result: list[object] = []
    began = consumer.now
    event = call.start(consumer, 1_000)
    event.future.add_done_callback(result.append)
    consumer.run_until(event.future.done)
    assert consumer.now - began == 1_000
    consumer.run_for(REQUEST_TIMEOUT_MS)
    assert len(result) == 1
    outcome(call, consumer, event)


@all_calls
def test_one_network_poll_before_reaping(call: TimedCall) -> None:
    consumer = ready_consumer(call)
    event = call.start(consumer, 0)
    consumer.loop.run_once()
    consumer.loop.run_once()
    assert event.future.done()
    # Attempted: the request was made although its time had passed before it began.
    assert call.requests(consumer)


@all_calls
def test_a_call_works_again_once_the_broker_answers(call: TimedCall) -> None:
    consumer = ready_consumer(call)
    action = Action(hold="before")
    consumer.cluster.control.add(lambda _: action)
    event = call.start(consumer, 500)
    consumer.run_until(event.future.done)
    outcome(call, consumer, event)
    consumer.cluster.control.clear()
    action.release()
    if call.name == "close":
        return
    consumer.cluster.log("orders").append(build((b"two",)))
    again = call.start(consumer, 60_000)
    answer = consumer.finish(again.future)
    assert answer or call.name in {"commit_sync", "committed"}


@all_calls
def test_retries_until_deadline_then_timeout(call: TimedCall) -> None:
    consumer = ready_consumer(call)
    consumer.cluster.control.on(call.api, Action(close="before"), times=None)
    began, before = consumer.now, len(call.requests(consumer))
    event = call.start(consumer, 5_000)
    consumer.run_until(event.future.done)
    attempts = [sent.received_ms - began for sent in call.requests(consumer)[before:]]
    outcome(call, consumer, event)
    if call.name == "close":
        # The broker ends the session by itself later on: one attempt is made, and no other is waited for.
        assert (len(attempts), consumer.now) == (1, began)
        return
    assert consumer.now - began == 5_000
    # 100, 200, 400, 800, 1000 ms between them, give or take a fifth, and the reconnects.
    assert 5 <= len(attempts) <= 12
    if not call.silent:
        assert "closed the connection" in str(event.future.exception())


def watched_limits(call: TimedCall, consumer: FakeConsumer) -> list[tuple[int, int]]:
    """(when, time-out) of each request of the call from now on, as the network gets them; ms."""
    limits: list[tuple[int, int]] = []
    began, send = consumer.now, consumer.network.send

    def watched(request: Request, now: int) -> None:
        if request.api is call.api and call.mine(request.body):
            limits.append((now - began, request.timeout_ms))
        send(request, now)

    consumer.network.send = watched  # type: ignore[method-assign]
    return limits


@all_calls
def test_each_requests_timeout_is_min_of_remaining_and_request_timeout(call: TimedCall) -> None:
    consumer = ready_consumer(call)
    consumer.cluster.control.on(call.api, Action(silent=True), times=None)
    began, before = consumer.now, len(call.requests(consumer))
    limits = watched_limits(call, consumer)
    event = call.start(consumer, REQUEST_TIMEOUT_MS + 5_000)
    consumer.run_until(event.future.done)
    first, *rest = [sent.received_ms - began for sent in call.requests(consumer)[before:]]
    outcome(call, consumer, event)
    for at_ms, limit_ms in limits:
        # What a poll or a position waits for goes on when they have ended: the consumer reads on.
        left_ms = FOREVER_MS if call.name in {"poll", "position"} else REQUEST_TIMEOUT_MS + 5_000 - at_ms
        assert limit_ms == min(left_ms, REQUEST_TIMEOUT_MS)
    if call.name == "close":
        assert (first, rest, consumer.now - began) == (0, [], REQUEST_TIMEOUT_MS)
        return
    assert consumer.now - began == REQUEST_TIMEOUT_MS + 5_000
    # The Fetch that was under way has its answer first, and the poll's own goes then.
    assert first <= (consumer.core.fetching._settings.fetch_max_wait_ms if call.name == "poll" else 0)
    # The first had request.timeout.ms; what was left for the second was less.
    assert len(rest) == 1
    assert REQUEST_TIMEOUT_MS <= rest[0] - first < REQUEST_TIMEOUT_MS + 1_000
    if not call.silent:
        assert f"within {REQUEST_TIMEOUT_MS + 5_000} ms" in str(event.future.exception())


@all_calls
def test_no_request_outlives_the_time_that_remains(call: TimedCall) -> None:
    """A caller in a hurry has its answer in time, and neither that nor a late answer breaks the connection."""
    consumer = ready_consumer(call)
    held = consumer.cluster.control.on(call.api, Action(hold="before"))
    began, limits = consumer.now, watched_limits(call, consumer)
    event = call.start(consumer, 2_000)
    consumer.run_until(event.future.done)
    assert consumer.now - began == 2_000
    outcome(call, consumer, event)
    if call.name not in {"poll", "position"}:
        assert limits == [(0, 2_000)]
    held.release()
    consumer.run_for(2_000)
    assert consumer.network.trouble(1) is None


def warm_consumer() -> FakeConsumer:
    """Connected, but it has never heard of topic "clicks": listing its offsets takes two steps."""
    consumer = ready_consumer()
    consumer.call(DescribeTopics(None, *consumer.timer()))
    consumer.cluster.received.clear()
    return consumer


def offsets_of_clicks(consumer: FakeConsumer, timeout_ms: int) -> ListOffsets:
    deadline_ms, _ = consumer.timer(timeout_ms)
    times = {TopicPartition("clicks", 0): EARLIEST}
    event = ListOffsets(times, read_committed=True, deadline_ms=deadline_ms, timeout_ms=timeout_ms)
    consumer.submit(None, event)
    return event


def test_a_chain_that_keeps_succeeding_is_not_cut() -> None:
    """Metadata, then the offsets, with a timeout of 0: each step is answered at once, so neither is cut off."""
    consumer = warm_consumer()
    began = consumer.now
    event = offsets_of_clicks(consumer, 0)
    consumer.run_until(event.future.done)
    assert [sent.api for sent in consumer.cluster.received if sent.api is not Api.FETCH] == [
        Api.METADATA,
        Api.LIST_OFFSETS,
    ]
    assert event.future.result()[TopicPartition("clicks", 0)].offset == 0
    assert consumer.now == began


def test_a_chain_is_cut_at_its_first_failed_step() -> None:
    consumer = warm_consumer()
    consumer.cluster.control.on(Api.LIST_OFFSETS, Action(close="before"), times=None)
    event = offsets_of_clicks(consumer, 0)
    consumer.run_until(event.future.done)
    assert len(consumer.cluster.calls(Api.LIST_OFFSETS)) == 1
    with pytest.raises(KafkaTimeout):
        event.future.result()
