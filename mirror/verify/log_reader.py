"""Reads the logs of one side, one partition after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mirror.client import Consumer, Fetched, TopicPartition
from mirror.closing import Closing
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import KafkaTimeout
from mirror.timing import Clock, StallTimer

_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Less wastes what a broker cuts off at the end of each response, which is fetched again."""
_FETCH_BYTES: Final = 32 * 1024 * 1024
_FIXED: Final = {"isolation.level": "read_committed", "auto.offset.reset": "none", "fetch.max.wait.ms": 20}
"""What is read is there already: a fetch at the end of a log would only delay the next partition's."""
_AHEAD_PARTITIONS: Final = 64
_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""What is read ahead, of so many partitions at once, has as many bytes at most, or one batch more."""
_AHEAD_OFFSETS: Final = 10_000
"""A part that may have more records takes longer to read than to begin with."""
_AHEAD_MS: Final = 1_000
"""So long nothing may arrive of any partition that is read ahead; each is then waited for by itself."""


class LogPart(NamedTuple):
    """Offsets of one partition."""

    tp: TopicPartition
    start: int
    end: int


class LogReader(Closing):
    """A consumer of one cluster. For one thread."""

    def __init__(self, options: Mapping[str, object], clock: Clock, stall_ms: int) -> None:
        """``options`` are dotted keys, of which those of a consumer are used. Raises ConfigError.

        ``stall_ms`` is how long nothing may arrive.
        """
        keys = ConsumerSettings.keys()
        defaults = {"max.partition.fetch.bytes": _PARTITION_FETCH_BYTES, "fetch.max.bytes": _FETCH_BYTES}
        given = {key: value for key, value in options.items() if key in keys and key != "group.id"}
        self._consumer: Final = Consumer({**defaults, **given, **_FIXED})
        self._clock: Final = clock
        self._stall_ms: Final = stall_ms
        self._parts: Final[list[LogPart]] = []
        self._places: Final[dict[tuple[TopicPartition, int], int]] = {}
        self._ahead: Final[dict[LogPart, deque[Fetched]]] = {}

    def expect(self, parts: Iterable[LogPart]) -> None:
        """Have the beginnings of these parts, which are read in this order, fetched many at once.

        By itself each partition costs a round trip for its metadata, one for its records, and the wait for a fetch at
        the end of the partition before, which together take longer than to compare a short part.
        """
        self._forget()
        self._parts[:] = [part for part in parts if 0 < part.end - part.start <= _AHEAD_OFFSETS]
        self._places.clear()
        self._places.update({(part.tp, part.start): place for place, part in enumerate(self._parts)})

    def read(self, tp: TopicPartition, start: int, end: int) -> Generator[Fetched, None, None]:
        """Yield the fetches from ``start`` until ``end`` is reached; a fetch may extend beyond both.

        Its memory is used again when the next one is taken. Raises KafkaError, and KafkaTimeout if nothing arrives.
        """
        if start >= end:
            return
        at, ahead = start, self._take_ahead(tp, start)
        try:
            while ahead and at < end:
                at = _next_offset(ahead[0])
                yield ahead[0]
                ahead.popleft().release()
        finally:
            _release(ahead)
        if at < end:
            yield from self._read(tp, at, end)

    def _read(self, tp: TopicPartition, start: int, end: int) -> Generator[Fetched, None, None]:
        at, timer = start, StallTimer(self._clock, self._stall_ms)
        self._consumer.assign([tp])
        try:
            self._consumer.seek(tp, start)
            while at < end:
                fetches = self._consumer.poll(timer.remaining_ms())
                for fetched in fetches:
                    at = _next_offset(fetched)
                    yield fetched
                    fetched.release()
                if fetches:
                    timer.advance()
                elif timer.expired():
                    cause = self._consumer.last_error(tp)
                    reason = f": {cause}" if cause is not None else "; a transaction may be open there"
                    msg = f"{tp} could be read up to offset {at}, and not to {end}: nothing more arrived{reason}"
                    raise KafkaTimeout(msg) from cause
        finally:
            self._consumer.assign([])

    def _take_ahead(self, tp: TopicPartition, start: int) -> deque[Fetched]:
        """Return what was read ahead from ``start`` on, which is not kept any more."""
        place = self._places.pop((tp, start), None)
        if place is None:
            return deque()
        part = self._parts[place]
        if part not in self._ahead:
            self._forget()
            self._read_ahead(self._parts[place : place + _AHEAD_PARTITIONS])
        return self._ahead.pop(part, deque())

    def _read_ahead(self, parts: Sequence[LogPart]) -> None:
        """Fetch the beginnings of these parts, as far as they arrive soon and there is room for them."""
        awaited: dict[TopicPartition, LogPart] = {}
        for part in parts:
            awaited.setdefault(part.tp, part)
        self._consumer.assign(awaited, paused=True)
        room = _AHEAD_BYTES
        try:
            for tp, part in awaited.items():
                self._consumer.seek(tp, part.start)
            self._consumer.resume(awaited)
            while awaited and room > 0 and (fetches := self._consumer.poll(_AHEAD_MS, max_bytes=room)):
                for fetched in fetches:
                    room -= fetched.held
                    self._ahead.setdefault(awaited[fetched.tp], deque()).append(fetched)
                read = {one.tp for one in fetches if one.error or one.next_offset >= awaited[one.tp].end}
                self._consumer.incremental_unassign(read)
                for tp in read:
                    del awaited[tp]
        finally:
            self._consumer.assign([])

    def _forget(self) -> None:
        """Release what was read ahead and not taken."""
        for fetches in self._ahead.values():
            _release(fetches)
        self._ahead.clear()

    def close(self) -> None:
        """Close the connections."""
        self._forget()
        self._consumer.close()


def _release(fetches: Iterable[Fetched]) -> None:
    for fetched in fetches:
        fetched.release()


def _next_offset(fetched: Fetched) -> int:
    """Return where the next fetch begins. Raises the error that has stopped the partition."""
    if fetched.error is not None:
        raise fetched.error
    return fetched.next_offset
