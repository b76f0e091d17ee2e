"""Estimates the size of records, and so of a backlog in bytes, from the source's log directories."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror.client import TopicPartition
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.observation import Side
    from mirror.relay.model.ranges import Range
    from mirror.spark.planning.range_planner import SourcePartition

_log: Final = logging.getLogger(__name__)

ASSUMED_RECORD_BYTES: Final = 1024
"""The size of a record if no partition's sizes are available."""


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """The estimated sizes of records.

    A partition without an estimate counts with the others' average; if there is no estimate at all, backlogs compare
    as their numbers of records do.
    """

    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)
    """By source partition: bytes on disk, compressed."""
    error: str | None = None
    """Why some estimates are missing; None if a broker reported no error."""

    def average(self) -> float:
        """Return the bytes per offset of a partition without an estimate."""
        if not self.bytes_per_offset:
            return ASSUMED_RECORD_BYTES
        return sum(self.bytes_per_offset.values()) / len(self.bytes_per_offset)

    def bytes_of(self, ranges: Iterable[Range]) -> dict[TopicPartition, int]:
        """Return the size of each range in bytes, by its source partition."""
        average = self.average()
        return {
            tp: int((range_.end - range_.start) * self.bytes_per_offset.get(tp, average))
            for range_ in ranges
            for tp in [TopicPartition(range_.topic, range_.partition)]
        }


class LogSpan(NamedTuple):
    """The offsets of a log, and the broker that leads it."""

    leader: int
    earliest: int
    end: int


def record_sizes(source: Side, partitions: Iterable[SourcePartition]) -> RecordSizes:
    """Look up the partitions' log sizes on all brokers at once, within 10 s; this needs Describe on the cluster.

    Raises nothing: a plan can also be made by numbers of records.
    """
    spans = {one.tp: LogSpan(one.leader, one.earliest, one.end) for one in partitions}
    return sizes_of(source, spans)


def sizes_of(source: Side, spans: Mapping[TopicPartition, LogSpan]) -> RecordSizes:
    """Do what :func:`record_sizes` does, for these parts of logs."""
    try:
        log_dirs = source.log_dirs
    except KafkaError as error:
        _log.info("backlogs are planned by records, not by bytes: %s", error)
        return RecordSizes(error=str(error))
    # A log that is being moved to another directory is listed twice; the future one may be incomplete.
    logs = {
        node: {tp: log.size_bytes for log_dir in dirs.values() for tp, log in log_dir.logs.items() if not log.future}
        for node, dirs in log_dirs.items()
    }
    found: dict[TopicPartition, float] = {}
    for tp, span in spans.items():
        size = logs.get(span.leader, {}).get(tp, 0)
        if size > 0 and span.end > span.earliest:
            found[tp] = size / (span.end - span.earliest)
    failed = next(iter(log_dirs.failed.values()), None)
    return RecordSizes(found, None if failed is None else str(failed))
