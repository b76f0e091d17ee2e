"""What is copied: the ten workloads, and which copiers take part in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

PLAIN: Final = "plain"
COMPACTED: Final = "compacted"
TRANSACTIONAL: Final = "transactional"
PEERS: Final = frozenset({"mirror-exactly-once", "mirrormaker-tuned"})
"""They take part in every round of every workload: all targets but some of (a) are about these two."""
ROUNDS: Final = 3
"""Of what is compared; one where it is not."""
MORE_ROUNDS: Final = 5
"""Of the peers where the claims are."""
PLAIN_SPARK: Final = "plain-spark"
_COMPARED: Final = {
    "a": {PLAIN_SPARK, "mirror-at-least-once", "mirrormaker-exactly-once", "null-copier"},
    "b": {PLAIN_SPARK},
}
"""They take part in three rounds of these workloads. All other copiers are in first rounds only, which saves hours."""
COPIERS: Final = (
    "mirror-exactly-once",
    "mirrormaker-tuned",
    PLAIN_SPARK,
    "null-copier",
    "mirror-at-least-once",
    "mirrormaker-exactly-once",
    "confluent-loop",
    "fetch-alone",
    "mirrormaker-default",
    "produce-alone",
    "kafka-python",
)
"""In the order of a first round: those that are compared stand near each other."""

LARGE: Final = 256 * 1024
"""Bytes of a batch before compression: as those of a tuned MirrorMaker 2."""

_GAPS: Final = "a broker refuses a batch with gaps as it is"
_MONTH_MS: Final = 30 * 86_400_000
_LARGE_BESIDE: Final = "it takes minutes for each round, and (a) measures it on the same records"
_TINY: Final = "one batch of ten records per partition and request would measure requests, no ceiling"


@dataclass(frozen=True, slots=True)
class Workload:
    """``batch_bytes`` before compression; ``kind`` is PLAIN, COMPACTED or TRANSACTIONAL.

    ``rounds``: those of the peers. ``busy``: how many partitions get records, in turns; 0: all, by their keys.
    ``age_ms``: how old the newest record is when it is written. ``left_out``: copier -> why it is not measured.
    ``compared_rounds``: the copies of how many rounds are compared record by record; 0: of all.
    """

    key: str
    title: str
    records: int
    value_bytes: int
    codec: str = "lz4"
    partitions: int = 4
    brokers: int = 1
    batch_bytes: int = 112 * 1024
    batch_records: int = 100_000
    kind: str = PLAIN
    busy: int = 0
    age_ms: int = 0
    compared_rounds: int = 0
    rounds: int = ROUNDS
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """At the source."""
        return f"orders-{self.key}"

    @property
    def replicas(self) -> int:
        """At the target."""
        return self.brokers

    def compares(self, number: int) -> bool:
        """Whether the copies of round ``number`` (from 1) are compared record by record."""
        return not self.compared_rounds or number <= self.compared_rounds

    def scaled(self, scale: float) -> Workload:
        """With that part of the records."""
        return replace(self, records=max(self.partitions, round(self.records * scale)))


_ALL: Final = (
    Workload("a", "1 KB JSON, lz4, large batches", 2_000_000, 1_000, batch_bytes=LARGE, rounds=MORE_ROUNDS),
    Workload(
        "b",
        "100-byte records, batches of 10, uncompressed",
        2_000_000,
        100,
        codec="none",
        batch_records=10,
        rounds=MORE_ROUNDS,
        left_out={"null-copier": _TINY, "produce-alone": _TINY},
    ),
    Workload("c", "10 KB values, uncompressed", 60_000, 10_000, codec="none", batch_bytes=LARGE),
    Workload("d", "1 KB JSON, zstd, large batches", 1_000_000, 1_000, codec="zstd", batch_bytes=LARGE),
    Workload(
        "e",
        "1 KB JSON, lz4, compacted: about half of 1 million records gone",
        1_000_000,
        1_000,
        kind=COMPACTED,
        left_out={"null-copier": _GAPS, "produce-alone": _GAPS},
    ),
    Workload("f", "1 KB JSON, lz4, 200 partitions with 1% of (a)'s each", 1_000_000, 1_000, partitions=200),
    Workload("g", "1 KB JSON, lz4, transactions of 1,000 records, 5% aborted", 1_000_000, 1_000, kind=TRANSACTIONAL),
    Workload(
        "h",
        "1 KB JSON, lz4, 50 partitions, target of 3 brokers with 3 replicas",
        1_000_000,
        1_000,
        partitions=50,
        brokers=3,
        rounds=MORE_ROUNDS,
    ),
    Workload("i", "as (a), a month old", 2_000_000, 1_000, batch_bytes=LARGE, age_ms=_MONTH_MS),
    Workload(
        "j",
        "as (a), twelve times as many records: minutes in which start-up and a JVM's compilation hardly count",
        24_000_000,
        1_000,
        batch_bytes=LARGE,
        compared_rounds=1,
        rounds=MORE_ROUNDS,
        left_out=dict.fromkeys(sorted(set(COPIERS) - PEERS - {PLAIN_SPARK}), _LARGE_BESIDE),
    ),
)
WORKLOADS: Final = {workload.key: workload for workload in _ALL}
BESIDE_IDLE: Final = {
    False: Workload("idle-alone", "20 busy partitions of 20", 100_000, 1_000, partitions=20, busy=20),
    True: Workload("idle-beside", "20 busy partitions of 200", 100_000, 1_000, partitions=200, busy=20),
}
"""By whether there are idle partitions, too."""


def takes_part(workload: Workload, copier: str, number: int) -> bool:
    """Whether ``copier`` has a run in the workload's round ``number`` (from 1)."""
    if copier in workload.left_out:
        return False
    if copier in PEERS:
        return number <= workload.rounds
    return number <= (ROUNDS if copier in _COMPARED.get(workload.key, ()) else 1)


def order(workload: Workload, copiers: Sequence[str], number: int, rounds: int) -> list[str]:
    """Who runs in round ``number`` (from 1), one after the other: each round begins elsewhere in the circle."""
    here = [copier for copier in copiers if takes_part(workload, copier, number)]
    start = (number - 1) * max(1, len(here) // max(1, rounds)) % max(1, len(here))
    return here[start:] + here[:start]
