"""Reads logs for a search, for as long as something arrives, and until it is to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from mirror.client import Consumer, Fetched, OffsetAndMetadata, TopicPartition
from mirror.errors import ClientClosed, OffsetOutOfRange
from mirror.relay.batches.appended import Unproved
from mirror.relay.progress.log_reading import read_log
from mirror.timing import Clock, Timer, deadline, remaining

MIN_PATIENCE_MS: Final = 1_000
"""How long a slice waits at least for the logs that it compares, and for other calls."""
_POLL_MS: Final = 500
"""How soon a search notices that it is to stop."""


class Patience(Timer):
    """Expires if nothing was read for some time; raises ClientClosed once the search is to stop."""

    def __init__(self, clock: Clock, patience_ms: int, stopped: Callable[[], bool]) -> None:
        super().__init__(clock, patience_ms)
        self._patience_ms: Final = patience_ms
        self._stopped: Final = stopped
        self._until_ms = self.deadline_ms

    def extend(self) -> None:
        """Something was read."""
        self._until_ms = deadline(self._clock.now(), self._patience_ms)

    def remaining_ms(self) -> int:
        """Return the milliseconds to wait before it is asked again. Raises ClientClosed."""
        if self._stopped():
            raise ClientClosed("the search for the exact position was stopped")
        return min(_POLL_MS, remaining(self._until_ms, self._clock.now()))


def read_from(
    consumer: Consumer, tp: TopicPartition, seek: OffsetAndMetadata, end: int, timer: Patience
) -> tuple[int, Iterator[Fetched]]:
    """Return the offset where the reading begins, and the fetches from there to ``end``.

    It begins at the log's start if that is behind ``seek``. If retention moves it further later, OffsetOutOfRange is
    raised.
    """
    while True:
        fetches = read_log(consumer, tp, seek, end, timer)
        try:
            first = next(fetches, None)
        except OffsetOutOfRange as error:
            log_start = consumer.beginning_offsets([tp], MIN_PATIENCE_MS)[tp]
            if log_start <= seek.offset:
                raise Unproved(f"the source's log ends before offset {seek.offset} now") from error
            seek = OffsetAndMetadata(log_start, topic_id=seek.topic_id)
        else:
            return seek.offset, _chained(first, fetches, timer)


def _chained(first: Fetched | None, rest: Iterable[Fetched], timer: Patience) -> Iterator[Fetched]:
    if first is not None:
        timer.extend()
        yield first
    for fetched in rest:
        timer.extend()
        yield fetched
