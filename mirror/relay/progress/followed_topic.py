"""Follows one of a flow's topics: reads all of it once, and then what was appended since."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import Final

from mirror.client import Admin
from mirror.relay.progress.flow_topic import FlowTopic, log_bounds
from mirror.relay.progress.log_reading import read_log
from mirror.timing import Timer
from mirror.wire.decode import Record


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

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()

    def news(self, timer: Timer) -> tuple[bool, list[Record]]:
        """Return the committed records since the last call, and whether they are all of the topic again.

        They are all at the first call, and if the topic was made again or lost records; none if it does not exist. Open
        transactions are not waited for. Raises KafkaError, KafkaTimeout.
        """
        tp = self._topic.tp
        found = self._admin.describe_topics([tp.topic], timeout_ms=timer.remaining_ms())
        if tp.topic not in found:
            self._at = None
            return True, []
        start, end = log_bounds(self._admin, tp, timer, "read_committed")
        again = self._at is None or found[tp.topic].topic_id != self._id or not start <= self._at <= end
        at = start if again or self._at is None else self._at
        records = [record for fetched in read_log(self._consumer, tp, at, end, timer) for record in fetched.records()]
        self._id, self._at = found[tp.topic].topic_id, max(end, records[-1].offset + 1 if records else 0)
        return again, records
