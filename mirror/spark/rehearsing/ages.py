"""Reads the first records that have not arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.client import Consumer, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import cluster_options
from mirror.runtime.clock import SystemClock
from mirror.timing import Timer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.wire.decode import Record

MOST_PARTITIONS: Final = 1_000
"""So many partitions are read at most, those with the most records; the fetch of each returns at least a batch."""
_TIMEOUT_MS: Final = 15_000
_READING: Final = {
    "auto.offset.reset": "none",
    "isolation.level": "read_committed",
    "max.partition.fetch.bytes": 1,  # a broker returns one batch, however large it is
}


def first_timestamps(
    options: Mapping[str, object], spans: Mapping[TopicPartition, tuple[int, int]], timeout_ms: int = _TIMEOUT_MS
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms since 1970) of the first committed record in these offsets [start, end) of each log.

    A partition is absent if it has no such record, or did not answer in time. Raises ConfigError.
    """
    found = first_records(options, spans, timeout_ms)
    # Records of magic 0 have no timestamp.
    return {tp: one.timestamp_ms for tp, one in found.items() if one is not None and one.timestamp_ms >= 0}


def first_records(
    options: Mapping[str, object], spans: Mapping[TopicPartition, tuple[int, int]], timeout_ms: int = _TIMEOUT_MS
) -> dict[TopicPartition, Record | None]:
    """Return the first committed record in these offsets [start, end) of each log; None if there is none.

    A partition is absent if it did not answer in time. Raises ConfigError.
    """
    found: dict[TopicPartition, Record | None] = {}
    if not spans:
        return found
    timer = Timer(SystemClock(), timeout_ms)
    with Consumer({**cluster_options(options), **_READING}) as consumer:
        left = set(spans)
        try:
            consumer.assign(left, paused=True)
            for tp in left:
                consumer.seek(tp, spans[tp][0])
            consumer.resume(left)
            while left and not timer.expired():
                done = set[TopicPartition]()
                for fetched in consumer.poll(timer.remaining_ms()):
                    if fetched.error is not None:
                        done.add(fetched.tp)
                        continue
                    first = next(fetched.records(), None)
                    if first is not None or fetched.next_offset >= spans[fetched.tp][1]:
                        is_in_span = first is not None and first.offset < spans[fetched.tp][1]
                        found.setdefault(fetched.tp, first if is_in_span else None)
                        done.add(fetched.tp)
                    fetched.release()
                if done:
                    left -= done
                    consumer.assign(left)
        except KafkaError:
            return found  # what was read counts
    return found
