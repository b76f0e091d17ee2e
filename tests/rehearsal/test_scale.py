"""A rehearsal of many partitions, in the short form of its benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.bench_rehearsal import PER_GROUP, filled, measure

PARTITIONS = 200
WITHIN_MS = 3.0
"""CPU for each partition: work that grows with the square of their number takes more."""


def test_each_partition_takes_little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = measure(filled(monkeypatch, PARTITIONS), tmp_path)
    assert found.rehearsal.partitions == PARTITIONS
    assert found.rehearsal.records == PARTITIONS // PER_GROUP == len(found.rehearsal.groups)
    assert sum(one.read_again for one in found.rehearsal.groups) == PARTITIONS
    assert found.cpu_s * 1_000 < WITHIN_MS * PARTITIONS
