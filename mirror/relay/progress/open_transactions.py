"""Open transactions of a source partition: they withhold records from readers of committed records. Pure.

A transaction whose producer hangs, or has died, keeps the partition's last stable offset at its beginning until that
producer's ``transaction.timeout.ms`` has passed (or for ever, if its coordinator has forgotten it). The high watermark
keeps rising. The records between the two cannot be copied, and count neither as lag nor as missing, so they are
reported on their own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from mirror.cluster.types import TopicPartition

STUCK_AFTER_MS: Final = 60_000
"""If the last stable offset has not moved for this long, with records behind it, a warning is due."""
_NOTEWORTHY_AFTER_MS: Final = 10_000
"""From this age on a command that observes once reports a transaction: a younger one is most likely healthy."""
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The oldest open transaction of a source partition. Times are in ms since 1970; the field names are JSON keys."""

    topic: str
    partition: int
    offset: int
    """The first offset of the transaction, which is the last stable offset."""
    records: int
    """The offsets from there to the high watermark."""
    seen_ms: int
    """When it was last observed."""
    since_ms: int
    """When the last stable offset was first observed there."""
    start_ms: int | None = None
    """When it began, according to its coordinator; None if the brokers do not say, as for the fields below."""
    last_record_ms: int | None = None
    """The timestamp of its producer's last record in the partition, which the producer chose."""
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str = ""

    @property
    def tp(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def age_ms(self) -> int:
        """For how long it is known to be open."""
        return max(0, self.seen_ms - min(self.since_ms, self.since_ms if self.start_ms is None else self.start_ms))

    @property
    def is_noteworthy(self) -> bool:
        """Whether a command that observes only once should report it.

        If the coordinator does not report its start, the timestamp of its last record is used instead.
        """
        if self.start_ms is None and self.last_record_ms is not None:
            return max(self.age_ms, self.seen_ms - self.last_record_ms) >= _NOTEWORTHY_AFTER_MS
        return self.age_ms >= _NOTEWORTHY_AFTER_MS

    def is_stuck(self, epoch_ms: int = 0) -> bool:
        """Whether a warning is due if the next observation comes after ``epoch_ms``."""
        return self.age_ms >= max(STUCK_AFTER_MS, epoch_ms)

    def describe(self) -> str:
        """Return one line: what is not copied, whose transaction it is, and what to do."""
        return f"{self.tp}: {self.summary()}; if its producer is gone, abort it on the source cluster: {self.command()}"

    def summary(self) -> str:
        """Return what is not copied, and whose transaction it is."""
        owner = [
            *([f"transactional id {self.transactional_id!r}"] if self.transactional_id else []),
            *([f"producer id {self.producer_id}"] if self.producer_id is not None else []),
            *([f"epoch {self.producer_epoch}"] if self.producer_epoch is not None else []),
        ]
        producer = f" ({', '.join(owner)})" if owner else ""
        return (
            f"{self.records:,} records from offset {self.offset} on are not copied: they are behind a"
            f" transaction{producer} that {self._open_for()}"
        )

    def _open_for(self) -> str:
        if self.start_ms is None and self.last_record_ms is not None and self.age_ms < _NOTEWORTHY_AFTER_MS:
            return f"is open, and wrote its last record {_duration(self.seen_ms - self.last_record_ms)} ago"
        return f"has been open for {'' if self.start_ms is not None else 'at least '}{_duration(self.age_ms)}"

    def command(self, bootstrap: str = "...") -> str:
        """Return the Apache Kafka command that aborts it (brokers 3.0 and newer need no further options)."""
        return (
            f"kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {shlex.quote(self.topic)}"
            f" --partition {self.partition} --start-offset {self.offset}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


OpenTransactions = Mapping[TopicPartition, OpenTransaction]
"""By source partition, without partitions that have none."""


def update_open_transactions(
    before: OpenTransactions, offsets: Mapping[TopicPartition, tuple[int, int]], now_ms: int
) -> dict[TopicPartition, OpenTransaction]:
    """Return the partitions whose last stable offset is below the high watermark.

    ``offsets`` has the last stable offset and the high watermark of each partition at ``now_ms``, ``before`` the
    previous observation. What is known about a transaction remains valid while the offset does not move.
    """
    found = {}
    for tp, (offset, high_watermark) in offsets.items():
        if high_watermark <= offset:
            continue
        previous = before.get(tp)
        records = high_watermark - offset
        if previous is not None and previous.offset == offset:
            found[tp] = replace(previous, records=records, seen_ms=now_ms)
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


def describe_oldest(found: OpenTransactions, limit: int = 3) -> list[str]:
    """Return a line for each of the ``limit`` oldest, and one that counts the others."""
    oldest = sorted(found.values(), key=lambda transaction: (-transaction.age_ms, transaction.tp))
    more = len(oldest) - limit
    have = "partition has" if more == 1 else "partitions have"
    rest = f"{more} more {have} records behind an open transaction"
    return [*(transaction.describe() for transaction in oldest[:limit]), *([rest] if more > 0 else [])]


class StuckTransactions:
    """Which open transactions were reported. A transaction is reported once."""

    def __init__(self) -> None:
        self._reported: set[tuple[TopicPartition, int]] = set()

    def lines(self, found: OpenTransactions, every_ms: int) -> list[str]:
        """Return lines about those that hold back a last stable offset; the next call comes after ``every_ms``."""
        stuck = {tp: one for tp, one in found.items() if one.is_stuck(every_ms)}
        new = {tp: one for tp, one in stuck.items() if (tp, one.offset) not in self._reported}
        self._reported = {(tp, one.offset) for tp, one in stuck.items()}
        return describe_oldest(new)


def _duration(ms: int) -> str:
    for unit_ms, unit in _UNITS:
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {unit}"
    return f"{max(0, ms) // 1000} s"
