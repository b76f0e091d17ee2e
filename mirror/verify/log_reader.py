"""Reads the logs of one side, one partition after the other."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Final

from mirror.client import Consumer, Fetched, TopicPartition
from mirror.closing import Closing
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import KafkaTimeout
from mirror.timing import Clock, StallTimer

if TYPE_CHECKING:
    pass

_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Less wastes what a broker cuts off at the end of each response, which is fetched again."""
_FETCH_BYTES: Final = 32 * 1024 * 1024
_FIXED: Final = {"isolation.level": "read_committed", "auto.offset.reset": "none"}


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

    def read(self, tp: TopicPartition, start: int, end: int) -> Generator[Fetched, None, None]:
        """Yield the fetches from ``start`` until ``end`` is reached; a fetch may extend beyond both.

        Its memory is used again when the next one is taken. Raises KafkaError, and KafkaTimeout if nothing arrives.
        """
        if start >= end:
            return
        at, timer = start, StallTimer(self._clock, self._stall_ms)
        self._consumer.assign([tp])
        try:
            self._consumer.seek(tp, start)
            while at < end:
                fetches = self._consumer.poll(timer.remaining_ms())
                for fetched in fetches:
                    if fetched.error is not None:
                        raise fetched.error
                    at = fetched.next_offset
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

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
