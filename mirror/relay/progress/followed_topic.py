"""Follows one of a flow's topics: reads all of it once, and then what was appended since, however long it takes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from mirror.client import Admin
from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import FlowTopic, log_bounds
from mirror.relay.progress.log_reading import read_long_log
from mirror.timing import Clock, Timer
from mirror.wire.decode import Record


class News(NamedTuple):
    """What was read of a topic."""

    again: bool
    """Whether the records begin with the first one of the topic, and replace all of earlier calls."""
    records: Sequence[Record] = ()
    error: KafkaError | None = None
    """Why there are more; the next call goes on behind them."""


class FollowedTopic:
    """Keeps its clients and its position. Its calls wait for the target; use it in one thread."""

    def __init__(self, topic: FlowTopic) -> None:
        self._topic: Final = topic
        with ExitStack() as stack:
            self._admin: Final = stack.enter_context(Admin(topic.options))
            self._consumer: Final = stack.enter_context(topic.consumer())
            self._clients: Final = stack.pop_all()
        self._id: uuid.UUID | None = None
        self._at: int | None = None

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
        tp = self._topic.tp
        found = self._admin.describe_topics([tp.topic], timeout_ms=stall_ms)
        if tp.topic not in found:
            self._id = self._at = None
            return News(again=True)
        start, end = log_bounds(self._admin, tp, Timer(clock, stall_ms), "read_committed")
        again = self._at is None or found[tp.topic].topic_id != self._id or not start <= self._at <= end
        at = start if again or self._at is None else self._at
        self._id, records = found[tp.topic].topic_id, list[Record]()
        try:
            for fetched in read_long_log(self._consumer, tp, at, end, clock, stall_ms):
                records += fetched.records()
                at = fetched.next_offset
        except KafkaError as error:
            self._at = at
            return News(again, records, error)
        self._at = max(at, end)
        return News(again, records)
