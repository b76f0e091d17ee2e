"""The last errors of partitions, and the reasons of their ways, from the newest results of a flow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mirror.client import TopicPartition
from mirror.spark.ledger.last_errors import LastError, LastErrors
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from tests.spark.attempts import YOUNG, expiry, in_way, result

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_800_000_000_000


def dated(path: Path, time_ms: int) -> None:
    os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))


ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))


def test_without_a_ledger_there_are_no_last_errors(tmp_path: Path) -> None:
    assert LastErrors(tmp_path / "nowhere", "f").of([ZERO]) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_last_error_of_a_partition_is_found(tmp_path: Path) -> None:
    old = Ledger.open(tmp_path, "f", "20260101")
    old.write_attempts([result(0, "first"), result(1, "of the first run")])
    dated(old.path / "results-00000000.parquet", T0)
    run = Ledger.open(tmp_path, "f", "20260102")
    run.write_attempts([result(0, "second"), result(2, None)], 1)
    dated(run.path / "results-00000001.parquet", T0 + 1_000)
    run.write_attempts([result(0, "third"), result(2, None)], 2)
    dated(run.path / "results-00000002.parquet", T0 + 2_000)
    troubles = LastErrors(tmp_path, "f")
    assert troubles.of([ZERO, ONE, TWO]) == {
        ZERO: LastError("third", T0 + 2_000),
        ONE: LastError("of the first run", T0),
    }
    run.write_attempts([result(0, "fourth")], 3)
    dated(run.path / "results-00000003.parquet", T0 + 3_000)
    assert troubles.of([ZERO]) == {ZERO: LastError("fourth", T0 + 3_000)}
    assert troubles.of([]) == {}


def test_an_expiry_has_its_own_time(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "run")
    recovered = result(0, None, expiry(T0 + 1), expiry(T0 + 7))
    ledger.write_attempts([recovered, result(1, "orders-1: delivery.timeout.ms was over", expiry(T0 + 5))])
    assert LastErrors(tmp_path, "f").of([ZERO, ONE]) == {
        ZERO: LastError("expired (queue, no leader): not the leader", T0 + 7),
        ONE: LastError("orders-1: delivery.timeout.ms was over", T0 + 5),
    }


def test_the_error_of_a_partition_without_a_task_is_that_of_the_plan(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "run")
    settled = [result(0, "retention: gone").result, result(1, None).result]
    ledger.write_plan(Plan(flow="f", tasks=[], results_without_task=settled, epoch=4))
    dated(ledger.path / "plan-00000004.json", T0)
    assert LastErrors(tmp_path, "f").of([ZERO, ONE]) == {ZERO: LastError("retention: gone", T0)}


def test_unreadable_files_are_skipped(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "run")
    (ledger.path / "results-00000001.parquet").write_bytes(b"PAR1 cut short")
    (ledger.path / "plan-00000001.json").write_text('{"flow": "f"')
    (ledger.path / "plan-00000002.json").write_text('{"flow": "f"}')
    ledger.write_attempts([result(0, "good")], 3)
    assert LastErrors(tmp_path, "f").of([ZERO]).keys() == {ZERO}


def test_only_the_last_files_are_read(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, "f", "run")
    for epoch in range(1, 12):
        ledger.write_attempts([result(1 if epoch == 1 else 0, f"epoch {epoch}")], epoch)
        dated(ledger.path / f"results-{epoch:08}.parquet", T0 + epoch)
    troubles = LastErrors(tmp_path, "f")
    assert troubles.of([ZERO, ONE]) == {ZERO: LastError("epoch 11", T0 + 11)}
    assert len(troubles._cache) == 6


def test_reasons_are_read_again_only_from_newer_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(tmp_path, "f", "run")
    ledger.write_attempts([in_way(0, "sequences", YOUNG)])
    last = LastErrors(tmp_path, "f")
    with monkeypatch.context() as unread:
        assert last.way_reasons() == {(ZERO, "sequences"): YOUNG}
        unread.setattr("pyarrow.parquet.read_table", None)
        assert last.way_reasons() == {(ZERO, "sequences"): YOUNG}
    (tmp_path / "ledger" / "f" / "run" / "results-00000001.parquet").write_bytes(b"torn")
    assert last.way_reasons() == {}
