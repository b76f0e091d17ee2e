"""A log is read to its end, for as long as something arrives."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import pytest

from mirror.client import Consumer, Fetched, TopicPartition
from mirror.consumer.positions import LastResponse
from mirror.errors import KafkaError, KafkaTimeout
from mirror.relay.progress.log_reading import read_log, read_long_log
from mirror.timing import Timer
from tests.fakes.clock import FakeClock

TP, END, FETCH = TopicPartition("t", 0), 100, 10
STALL_MS = 10_000


class SlowConsumer:
    """Returns ten offsets with each poll, after ``fetch_ms`` each; from ``stops_at`` on nothing."""

    def __init__(self, clock: FakeClock, fetch_ms: int, stops_at: int = END) -> None:
        self._clock, self._fetch_ms, self._stops_at = clock, fetch_ms, stops_at
        self._at = 0
        self.throttled_until_ms = 0

    def assign(self, _: Collection[TopicPartition]) -> None:
        pass

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._at = offset

    def last_responses(self) -> dict[TopicPartition, LastResponse]:
        return {TP: LastResponse(self._clock.now(), END, self.throttled_until_ms)}

    def last_error(self, _: TopicPartition) -> KafkaError | None:
        return None

    def poll(self, timeout_ms: int) -> list[Fetched]:
        stopped = self._at >= self._stops_at
        self._clock.advance(timeout_ms if stopped else min(timeout_ms, self._fetch_ms))
        if stopped or timeout_ms < self._fetch_ms:
            return []
        self._at += FETCH
        return [Fetched(tp=TP, offset=self._at - FETCH, next_offset=self._at)]


def test_a_long_log_is_read_for_as_long_as_something_arrives() -> None:
    clock = FakeClock()
    consumer = cast("Consumer", SlowConsumer(clock, fetch_ms=6_000))
    before_ms, read = clock.now(), 0
    for fetched in read_long_log(consumer, TP, 0, END, clock, STALL_MS):
        clock.advance(STALL_MS)  # the caller's own work is not counted
        read = fetched.next_offset
    assert read == END
    assert clock.now() - before_ms == 10 * (6_000 + STALL_MS)
    with pytest.raises(KafkaTimeout, match="up to offset 10 only"):
        list(read_log(consumer, TP, 0, END, Timer(clock, STALL_MS)))


def test_a_log_of_which_nothing_more_arrives_is_given_up() -> None:
    clock = FakeClock()
    consumer = cast("Consumer", SlowConsumer(clock, fetch_ms=1_000, stops_at=50))
    before_ms = clock.now()
    with pytest.raises(KafkaTimeout, match="up to offset 50 only"):
        list(read_long_log(consumer, TP, 0, END, clock, STALL_MS))
    assert clock.now() - before_ms == 5 * 1_000 + STALL_MS


def test_a_broker_that_throttles_is_waited_for_until_it_is_silent() -> None:
    clock = FakeClock()
    slow = SlowConsumer(clock, fetch_ms=1_000, stops_at=50)
    slow.throttled_until_ms = clock.now() + 300_000
    before_ms = clock.now()
    with pytest.raises(KafkaTimeout, match=r"up to offset 50 only.*throttles this client: raise the quota"):
        list(read_long_log(cast("Consumer", slow), TP, 0, END, clock, STALL_MS))
    assert clock.now() - before_ms == 300_000 + STALL_MS
