"""Reads a part of one partition's log, in a thread that may wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mirror.client import Consumer, Fetched, OffsetAndMetadata, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.timing import Clock, StallTimer, Timer

THROTTLED: Final = "its broker throttles this client: raise the quota consumer_byte_rate (or request_percentage)"


def read_log(
    consumer: Consumer, tp: TopicPartition, start: int | OffsetAndMetadata, end: int, timer: Timer
) -> Iterator[Fetched]:
    """Yield the fetches of ``tp`` from ``start`` until ``end`` is reached.

    Nothing else is assigned to ``consumer``, and nothing at all once the end is reached. A fetch may begin in its first
    batch, and extend beyond ``end``. Raises KafkaError, KafkaTimeout when ``timer`` expires: a StallTimer not while
    the broker throttles this client (KIP-219).
    """
    at = start if isinstance(start, int) else start.offset
    consumer.assign([tp])
    consumer.seek(tp, start)
    while at < end:
        fetches = consumer.poll(timer.remaining_ms())
        for fetched in fetches:
            if fetched.error is not None:
                raise fetched.error
            at = fetched.next_offset
            yield fetched
        if not fetches and timer.expired():
            response = consumer.last_responses().get(tp)
            throttled = response is not None and response.throttled_until_ms > 0
            if response is not None and throttled and isinstance(timer, StallTimer):
                timer.begin_again_at(response.throttled_until_ms)
                if not timer.expired():
                    continue
            cause = consumer.last_error(tp)
            reason = f"; {THROTTLED}" if throttled else "; a transaction may be open there"
            reason = f": {cause}" if cause is not None else reason
            msg = f"{tp}: could be read up to offset {at} only, not to {end}, in the time there was{reason}"
            raise KafkaTimeout(msg) from cause
    consumer.assign([])  # it fetches nothing more while its caller works


def read_long_log(
    consumer: Consumer, tp: TopicPartition, start: int | OffsetAndMetadata, end: int, clock: Clock, stall_ms: int
) -> Iterator[Fetched]:
    """Do what :func:`read_log` does, for as long as something arrives within ``stall_ms``.

    Raises KafkaError; KafkaTimeout if nothing does. What the caller does in between is not counted.
    """
    timer = StallTimer(clock, stall_ms)
    for fetched in read_log(consumer, tp, start, end, timer):
        yield fetched
        timer.advance()
