"""Ctrl-C in a poll must not lose what was on its way, nor have it count as read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import Consumer, Fetched, TopicPartition
from mirror.cluster.events import Event
from mirror.consumer.core import ConsumerCore

TP = TopicPartition("orders", 0)


class Arrival(Event):
    """What a broker's answer would bring: one batch's place, without its bytes."""

    def apply(self, core: ConsumerCore, now: int) -> None:
        del now
        position = core.positions.get(TP)
        assert position is not None
        assert position.fetch is not None
        core.positions.put(Fetched(tp=TP, offset=position.fetch, next_offset=position.fetch + 1, size=1, held=1), None)


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    with Consumer({"bootstrap.servers": "127.0.0.1:9"}) as consumer:
        consumer.assign([TP])
        consumer.seek(TP, 1)
        yield consumer


def arrive(consumer: Consumer) -> None:
    consumer.network_thread.submit(consumer.core, Arrival())


def cut_short(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> Future[list[Fetched]]:
    """A poll that Ctrl-C ends; its future."""
    waited: list[Future[Any]] = []

    def interrupted(future: Future[Any], *_: object) -> Any:
        waited.append(future)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(consumer.network_thread, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(60_000)
    return waited[0]


def offsets(fetched: list[Fetched]) -> list[int]:
    return [one.offset for one in fetched]


def test_what_came_for_it_comes_with_the_next(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(consumer)
    assert offsets(cut_short(consumer, monkeypatch).result(30)) == [1]
    assert offsets(consumer.poll(0)) == [1]
    assert consumer.poll(0) == []


def test_what_comes_later_comes_once(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(consumer, monkeypatch)
    assert consumer.poll(0) == []
    arrive(consumer)
    assert offsets(consumer.poll(10_000)) == [1]
    assert consumer.poll(0) == []


def test_the_next_ones_limit_holds_for_it(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(consumer)
    arrive(consumer)
    assert offsets(cut_short(consumer, monkeypatch).result(30)) == [1, 2]
    assert offsets(consumer.poll(0, max_bytes=1)) == [1]
    assert offsets(consumer.poll(0, max_bytes=1)) == [2]


def test_it_is_not_consumed(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a commit of the positions would skip what no caller has received."""
    arrive(consumer)
    cut_short(consumer, monkeypatch).result(30)
    assert consumer.position(TP) == 1
    assert offsets(consumer.poll(0)) == [1]
    assert consumer.position(TP) == 2


def test_a_seek_voids_it(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(consumer)
    assert offsets(cut_short(consumer, monkeypatch).result(30)) == [1]
    consumer.seek(TP, 7)
    assert consumer.poll(0) == []
    arrive(consumer)
    assert offsets(consumer.poll(10_000)) == [7]


def test_an_answer_is_not_kept_by_the_event_that_brought_it(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop may watch a poll until its deadline, which is perhaps an hour away; and its answer may be 50 MB."""
    events: list[Any] = []
    call = consumer.network_thread.call

    def noting(core: object, event: Any, **options: Any) -> Any:
        events.append(event)
        return call(core, event, **options)

    monkeypatch.setattr(consumer.network_thread, "call", noting)
    arrive(consumer)
    assert offsets(consumer.poll(3_600_000)) == [1]
    (event,) = events
    assert event.future.result(0) == []
    assert event.taken == []
