"""Follows one of a flow's topics: reads all of it once, and then what was appended since, however long it takes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from mirror.client import Admin, OffsetAndMetadata
from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import FlowTopic, log_bounds
from mirror.relay.progress.log_reading import read_long_log
from mirror.timing import Clock, Timer
from mirror.wire.decode import Record

_CHECK_MS: Final = 10_000
"""How often a topic that is waited at is checked: whether it was made again, or lost records."""


class News(NamedTuple):
    """What was read of a topic."""

    again: bool
    """Whether the records begin with the first one of the topic, and replace all of earlier calls."""
    records: Sequence[Record] = ()
    error: KafkaError | None = None
    """Why there are more; the next call goes on behind them."""


class FollowedTopic:
    """Keeps its clients and its position. Its calls wait for the target; use it in one thread."""

    def __init__(self, topic: FlowTopic, wait_ms: int = 0) -> None:
        """``wait_ms``: how long :meth:`news` waits for something new, with one request at the broker."""
        self._topic: Final = topic
        self._wait_ms: Final = wait_ms
        with ExitStack() as stack:
            self._admin: Final = stack.enter_context(Admin(topic.options))
            self._consumer: Final = stack.enter_context(topic.consumer(wait_ms=wait_ms))
            self._clients: Final = stack.pop_all()
        self._id: uuid.UUID | None = None
        self._at: int | None = None
        self._waits = False
        """Whether the consumer has the partition assigned, at :attr:`_at`."""
        self._check_at = 0

    @property
    def topic_id(self) -> str:
        """The id of the topic at the last call of :meth:`news`; empty if there was none."""
        return str(self._id or "")

    @property
    def exists(self) -> bool:
        """Whether there was such a topic at the last call of :meth:`news`."""
        return self._at is not None

    @property
    def position(self) -> int:
        """Up to where the topic was read; 0 if it was not."""
        return self._at or 0

    def wake(self) -> None:
        """End a wait for something new, or the next one. From any thread."""
        self._consumer.wake()

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    def follow(
        self, clock: Clock, stall_ms: int, *, clear: Callable[[], object], take: Callable[[Record], object]
    ) -> None:
        """Pass the :meth:`news` to ``take``, in order, and call ``clear`` first if they replace all of earlier calls.

        Raises KafkaError, also if these are not all: the next call goes on behind them.
        """
        news = self.news(clock, stall_ms)
        if news.again:
            clear()
        for record in news.records:
            take(record)
        if news.error is not None:
            raise news.error

    def news(self, clock: Clock, stall_ms: int) -> News:
        """Return the committed records since the last call.

        They are all at the first call, and if the topic was made again or lost records; none if it does not exist. Open
        transactions are not waited for. ``stall_ms`` limits each request, and the time in which nothing arrives. Raises
        KafkaError.
        """
        if self._wait_ms and clock.now() < self._check_at and (records := self._await()) is not None:
            return News(again=False, records=records)
        self._check_at = 0  # until all is read: a wait after an error would return nothing, as if it were over
        tp = self._topic.tp
        found = self._admin.describe_topics([tp.topic], timeout_ms=stall_ms)
        if tp.topic not in found:
            self._id = self._at = None
            return News(again=True)
        start, end = log_bounds(self._admin, tp, Timer(clock, stall_ms), "read_committed")
        again = self._at is None or found[tp.topic].topic_id != self._id or not start <= self._at <= end
        at = start if again or self._at is None else self._at
        self._id, records = found[tp.topic].topic_id, list[Record]()
        self._waits = self._waits and not again and at >= end
        try:
            # Reading ends with nothing assigned.
            for fetched in read_long_log(self._consumer, tp, at, end, clock, stall_ms) if at < end else ():
                records += fetched.records()
                at = fetched.next_offset
        except KafkaError as error:
            self._at = at
            return News(again, records, error)
        self._at, self._check_at = max(at, end), clock.now() + _CHECK_MS
        return News(again, records)

    def _await(self) -> list[Record] | None:
        """Return what is appended within the time to wait; None if the partition cannot be read."""
        tp, consumer = self._topic.tp, self._consumer
        assert self._at is not None  # noqa: S101 - it was read before
        if not self._waits:
            consumer.assign([tp])
            consumer.seek(tp, OffsetAndMetadata(self._at, topic_id=self._id))
            self._waits = True
        records = list[Record]()
        fetches = consumer.poll(self._wait_ms)
        for fetched in fetches:
            if fetched.error is not None:
                self._waits, self._check_at = False, 0
                break
            records += fetched.records()
            self._at = fetched.next_offset
        is_unreadable = not self._waits or (not fetches and consumer.last_error(tp) is not None)
        return None if is_unreadable and not records else records
