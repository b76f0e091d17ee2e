"""Topics of every kind on a source of any release, and the comparison of their copies by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from mirror.sandbox.cluster import Cluster
from tests.copying.pair import End, Seen
from tests.e2e.broker_side import CODECS, WITHIN_S, Side, failed_into
from tests.polling import eventually

SOURCE_PROPERTIES: Final = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
"""A source compacts within a test's time."""
OLD_FORMATS: Final = {0: "0.9.0", 1: "0.10.0"}
"""Message format -> ``message.format.version`` by which brokers before 3.0 write it."""
OLD_CODECS: Final = ("none", "gzip", "snappy", "lz4")
PARTITIONS: Final = 2
_COMPACTION: Final = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.001", "segment_ms": "100"}
_MAGIC_AT: Final = 16
"""Where all formats of a log have their number."""


def writes_old_formats(version: str) -> bool:
    """Return whether brokers of the release write topics of :data:`OLD_FORMATS`."""
    return version.startswith("2.")


class SourceTopics:
    """A plain, a compacted and a transactional topic, and one for each old format that the release writes."""

    def __init__(self, cluster: Cluster, version: str, suffix: str) -> None:
        self.cluster: Final = cluster
        self.side: Final = End(cluster.bootstrap_servers)
        self.plain: Final = f"plain-{suffix}"
        self.compacted: Final = f"compacted-{suffix}"
        self.transactional: Final = f"transactional-{suffix}"
        writes_old = writes_old_formats(version)
        self.old: Final = {magic: f"format-{magic}-{suffix}" for magic in OLD_FORMATS if writes_old}
        self._turns = 0

    @property
    def partitions(self) -> dict[str, int]:
        """All topics with the number of their partitions."""
        kinds = (self.plain, self.transactional)
        return {**dict.fromkeys(kinds, PARTITIONS), self.compacted: 1, **dict.fromkeys(self.old.values(), 4)}

    def create(self) -> None:
        for topic, count in self.partitions.items():
            self.side.create(topic, count, **self._config(topic))

    def grow(self) -> None:
        """Write to each topic: every codec, null keys and values, headers, committed and aborted transactions."""
        self._turns += 1
        for codec in CODECS:
            self._write(self.plain, self.side.producer(compression_type=codec), headers=True)
        self._write_transactions()
        for topic in self.old.values():
            for partition, codec in enumerate(OLD_CODECS):
                # A broker refuses what an idempotent producer writes to a topic of an old format.
                producer = self.side.producer(compression_type=codec, enable_idempotence=False, max_in_flight=1)
                self._write(topic, producer, partition)

    def compact(self) -> None:
        """Write to the compacted topic until the first of its records are gone."""
        self.side.fill(self.compacted, [b"old %d" % number for number in range(50)], first_ms=_now_ms())

        def compacted() -> bool:
            # The cleaner compacts a segment only when there is a newer one.
            self.side.fill(self.compacted, [b"turn"], first_ms=_now_ms())
            found = self.side.seen(self.compacted)
            return found[0][0] > 0

        eventually(compacted, within_s=WITHIN_S, what="compaction", every_s=0.3)

    def check_formats(self) -> None:
        """Assert that the broker's logs have the old formats."""
        for magic, topic in self.old.items():
            for partition in range(len(OLD_CODECS)):
                assert _magic(self.cluster, topic, partition) == magic

    def difference(self, target: Side, prefix: str = "a.", topics: Sequence[str] = ()) -> str | None:
        """Return how the target's committed records differ from the source's, in their order; None if not at all."""
        copies, there = End(target.address), target.topics()
        for topic in topics or tuple(self.partitions):
            count, copied = self.partitions[topic], f"{prefix}{topic}"
            if copied not in there:
                return f"there is no topic {copied}"
            theirs, ours = self.side.logs(topic, count), copies.logs(copied, count)
            for partition, (original, copy) in enumerate(zip(theirs, ours, strict=True)):
                expected, found = ([record for _, record in log] for log in (original, copy))
                if topic == self.compacted:
                    # Either may have been compacted since.
                    expected, found = _latest(expected), _latest(found)
                assert expected, f"{topic}-{partition} has no records"
                if len(found) != len(expected):
                    return f"{copied}-{partition} has {len(found)} records instead of {len(expected)}"
                for number, (record, wanted) in enumerate(zip(found, expected, strict=True)):
                    if record != wanted:
                        return f"{copied}-{partition}, record {number}: {record} instead of {wanted}"
        return None

    def _config(self, topic: str) -> dict[str, str]:
        if topic == self.compacted:
            return dict(_COMPACTION)
        formats = {name: OLD_FORMATS[magic] for magic, name in self.old.items()}
        return {"message_format_version": formats[topic]} if topic in formats else {}

    def _write(self, topic: str, producer: Producer, partition: int | None = None, *, headers: bool = False) -> None:
        failures, first = list[str](), _now_ms()
        for number in range(60):
            producer.produce(
                topic,
                [f"value {self._turns} {number} ".encode() * 20, None, b""][number % 3],
                [f"key-{number}".encode(), None, b""][number % 4 % 3],
                number % PARTITIONS if partition is None else partition,
                timestamp=first + number,
                headers=[("type", b"order"), ("none", None)] if headers and number % 2 else None,
                on_delivery=failed_into(failures),
            )
        assert producer.flush(WITHIN_S) == 0
        assert not failures, failures[0]

    def _write_transactions(self) -> None:
        producer = self.side.producer(transactional_id=self.transactional, compression_type="lz4")
        producer.init_transactions(WITHIN_S)
        for number, commit in enumerate((True, False, True)):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                for record in range(20):
                    producer.produce(self.transactional, b"%d %d %d" % (self._turns, number, record), b"key", partition)
            producer.flush(WITHIN_S)
            (producer.commit_transaction if commit else producer.abort_transaction)(WITHIN_S)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _latest(records: list[Seen]) -> list[Seen]:
    """Return the last record of each key."""
    last = {record.key: record for record in records}
    return sorted(last.values())


def _magic(cluster: Cluster, topic: str, partition: int) -> int:
    folder = Path(cluster.directory, "broker-1", "data", f"{topic}-{partition}")
    (segment,) = folder.glob("*.log")
    return segment.read_bytes()[_MAGIC_AT]
