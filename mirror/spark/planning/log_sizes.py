"""How large records are, estimated from the source's log directories: what a backlog is in bytes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import TopicPartition
from mirror.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.client import Admin
    from mirror.relay.model.ranges import Range
    from mirror.spark.planning.range_planner import SourcePartition

_log: Final = logging.getLogger(__name__)

ASSUMED_RECORD_BYTES: Final = 1024
"""Of records of which nothing is known."""
_WITHIN_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """``known``: source partition -> bytes per offset, as they lie on disk, compressed. ``missing``: why some are not.

    Where a partition's are not known, its records count as those of the others on average: so where nothing is known,
    backlogs compare as their numbers of records do.
    """

    bytes_per_offset: Mapping[TopicPartition, float] = field(default_factory=dict)
    error: str | None = None

    def average(self) -> float:
        """Bytes per offset of a partition that is not known."""
        return (
            sum(self.bytes_per_offset.values()) / len(self.bytes_per_offset)
            if self.bytes_per_offset
            else ASSUMED_RECORD_BYTES
        )

    def bytes_of(self, ranges: Iterable[Range]) -> dict[TopicPartition, int]:
        """The backlog of each range, by its source partition."""
        average = self.average()
        return {
            tp: int((each.end - each.start) * self.bytes_per_offset.get(tp, average))
            for each in ranges
            for tp in [TopicPartition(each.topic, each.partition)]
        }


def record_sizes(source: Admin, partitions: Iterable[SourcePartition]) -> RecordSizes:
    """Ask all brokers at once, within 10 s; what is not told (it needs Describe on the cluster) is not known.

    Raises nothing: a plan by numbers of records is a good one, too.
    """
    try:
        told = source.describe_log_dirs(partial=True, timeout_ms=_WITHIN_MS)
    except KafkaError as error:
        _log.info("backlogs are planned by records, not by bytes: %s", error)
        return RecordSizes(error=str(error))
    # A log that is being moved to another directory is there twice: as a future one it may be incomplete.
    logs = {
        node: {tp: log.size_bytes for one in dirs.values() for tp, log in one.logs.items() if not log.future}
        for node, dirs in told.items()
    }
    known: dict[TopicPartition, float] = {}
    for each in partitions:
        tp = TopicPartition(each.topic, each.partition)
        size = logs.get(each.leader, {}).get(tp, 0)
        if size > 0 and each.end > each.earliest:
            known[tp] = size / (each.end - each.earliest)
    failed = next(iter(told.failed.values()), None)
    return RecordSizes(known, None if failed is None else str(failed))
