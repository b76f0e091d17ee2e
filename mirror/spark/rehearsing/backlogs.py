"""What of partitions has not arrived on the other cluster: how many records, how large, and since when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.rehearsal.values import Backlog
from mirror.spark.rehearsing.ages import MOST_PARTITIONS, first_timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror.client import TopicPartition


class Missing(NamedTuple):
    """The offsets of one partition that have not arrived."""

    new: TopicPartition
    """The partition of the other cluster."""
    start: int | None
    """None if it is not known what has arrived."""
    end: int | None
    """None if the end of the log is not known."""

    @property
    def records(self) -> int | None:
        """How many records that are, at most; None if it is not known."""
        return None if self.start is None or self.end is None else max(0, self.end - self.start)


def read_backlogs(
    options: Mapping[str, object],
    partitions: Mapping[TopicPartition, Missing],
    read_sizes: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, float]] = lambda _: {},
) -> tuple[tuple[Backlog, ...], bool]:
    """Return what has not arrived, the unknown first, then the most, and whether all ages are known.

    ``options`` reach the cluster of these ``partitions``. ``read_sizes`` returns bytes for each offset; it is called if
    something has not arrived. Raises KafkaError.
    """
    counts = {tp: one.records for tp, one in partitions.items()}
    behind = sorted((tp for tp, count in counts.items() if count), key=lambda tp: (-(counts[tp] or 0), tp))
    unknown = sorted(tp for tp, count in counts.items() if count is None)
    spans = {tp: (partitions[tp].start or 0, partitions[tp].end or 0) for tp in behind[:MOST_PARTITIONS]}
    times = first_timestamps(options, spans)
    sizes = read_sizes(behind) if behind else {}
    backlogs = tuple(
        Backlog(
            old=tp,
            new=partitions[tp].new,
            records=counts[tp],
            bytes=None if tp not in sizes else round((counts[tp] or 0) * sizes[tp]),
            oldest_ms=times.get(tp),
        )
        for tp in (*unknown, *behind)
    )
    return backlogs, not unknown and len(times) == len(behind)
