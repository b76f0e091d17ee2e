"""What a source partition keeps from readers of committed records: all behind its oldest open transaction. Pure.

A transaction whose producer hangs, or is gone, keeps the partition's last stable offset where it began, until
``transaction.timeout.ms`` of that producer (or, where its coordinator has forgotten it, for ever). The high watermark
goes on. What lies between the two cannot be copied, and counts neither as lag nor as missing. So it is shown by itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from mirror.cluster.types import TopicPartition

STUCK_AFTER_MS: Final = 60_000
"""A last stable offset that has not moved for so long, with records behind it, is worth a warning."""
_NOTED_MS: Final = 10_000
"""From this age on a command that asks only once names a transaction: a younger one is most likely healthy."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The oldest open transaction of a source partition, as it was at ``seen_ms``.

    It begins at ``offset``, the last stable offset; ``records`` counts the offsets from there to the high watermark.
    ``since_ms`` is when the last stable offset was first seen there. Its producer and ``start_ms``, when its
    coordinator says that it began, are None or "" where the brokers do not tell. ``last_record_ms`` is the time of the
    producer's last record there, which the producer chose. Times are in ms since 1970.
    """

    topic: str
    partition: int
    offset: int
    records: int
    seen_ms: int
    since_ms: int
    start_ms: int | None = None
    last_record_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str = ""

    @property
    def tp(self) -> TopicPartition:
        """Where it is."""
        return TopicPartition(self.topic, self.partition)

    @property
    def age_ms(self) -> int:
        """How long it is known to be open."""
        return max(0, self.seen_ms - min(self.since_ms, self.since_ms if self.start_ms is None else self.start_ms))

    @property
    def is_noteworthy(self) -> bool:
        """Whether a command that asks only once should name it.

        Where the coordinator does not tell its age, the time of its last record has to stand in for it.
        """
        if self.start_ms is None and self.last_record_ms is not None:
            return max(self.age_ms, self.seen_ms - self.last_record_ms) >= _NOTED_MS
        return self.age_ms >= _NOTED_MS

    def is_stuck(self, epoch_ms: int = 0) -> bool:
        """Whether it is worth a warning, where the next observation comes after ``epoch_ms``."""
        return self.age_ms >= max(STUCK_AFTER_MS, epoch_ms)

    def describe(self) -> str:
        """One line: what is not copied, whose transaction it is, and what to do."""
        return f"{self.tp}: {self.summary()}; if its producer is gone, abort it on the source cluster: {self.command()}"

    def summary(self) -> str:
        """What is not copied, and whose transaction it is."""
        who = [
            *([f"transactional id {self.transactional_id!r}"] if self.transactional_id else []),
            *([f"producer id {self.producer_id}"] if self.producer_id is not None else []),
            *([f"epoch {self.producer_epoch}"] if self.producer_epoch is not None else []),
        ]
        producer = f" ({', '.join(who)})" if who else ""
        return (
            f"{self.records:,} records from offset {self.offset} on are not copied: they are behind a"
            f" transaction{producer} that {self._for_how_long()}"
        )

    def _for_how_long(self) -> str:
        if self.start_ms is None and self.last_record_ms is not None and self.age_ms < _NOTED_MS:
            return f"is open, and wrote its last record {_ago(self.seen_ms - self.last_record_ms)} ago"
        return f"has been open for {'' if self.start_ms is not None else 'at least '}{_ago(self.age_ms)}"

    def command(self, bootstrap: str = "...") -> str:
        """Apache Kafka's own, for its producer is not ours (brokers of 3.0 and newer need no more than this)."""
        return (
            f"kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {shlex.quote(self.topic)}"
            f" --partition {self.partition} --start-offset {self.offset}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


OpenTransactions = Mapping[TopicPartition, OpenTransaction]
"""By source partition, those that have one."""


def update_open_transactions(
    before: OpenTransactions, stable: Mapping[TopicPartition, tuple[int, int]], now_ms: int
) -> dict[TopicPartition, OpenTransaction]:
    """The partitions whose last stable offset is below what readers of all records see.

    ``stable`` has the last stable offset and the high watermark of each partition, as they are at ``now_ms``;
    ``before`` is what the previous observation found. What is known of a transaction holds while the offset
    stands still.
    """
    found = {}
    for tp, (offset, high_watermark) in stable.items():
        if high_watermark <= offset:
            continue
        known = before.get(tp)
        records = high_watermark - offset
        if known is not None and known.offset == offset:
            found[tp] = replace(known, records=records, seen_ms=now_ms)
        else:
            found[tp] = OpenTransaction(
                topic=tp.topic,
                partition=tp.partition,
                offset=offset,
                records=records,
                seen_ms=now_ms,
                since_ms=now_ms,
            )
    return found


def describe_oldest(found: OpenTransactions, most: int = 3) -> list[str]:
    """A line for each of the ``most`` oldest, and one for how many more there are."""
    oldest = sorted(found.values(), key=lambda one: (-one.age_ms, one.tp))
    more = len(oldest) - most
    have = "partition has" if more == 1 else "partitions have"
    rest = f"{more} more {have} records behind an open transaction"
    return [*(one.describe() for one in oldest[:most]), *([rest] if more > 0 else [])]


def _ago(ms: int) -> str:
    for each, unit in _UNITS:
        if ms >= 2 * each:
            return f"{ms // each} {unit}"
    return f"{max(0, ms) // 1000} s"
