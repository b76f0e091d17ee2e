"""How fast a stream copies is what it has caught up with: a stream that has caught up waits for its producers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirror.relay.model.timeline import CopyTimeline
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.planning.history import bytes_per_second
from mirror.spark.planning.rates import MIN_BYTES, CopyRate, catch_up_rate
from tests.spark.ledger.test_results import result

MB = 1_000_000


def caught_up(size: int, seconds: float) -> CopyTimeline:
    span = {"name": "mirror.catch_up", "began_ms": 5_000, "ended_ms": 5_000 + int(seconds * 1000), "bytes": size}
    other = {"name": "mirror.attempt", "began_ms": 0, "ended_ms": 99_000, "attempt": 1, "error": "late"}
    return CopyTimeline(spans=[other, span], lag_before=700, lag_after=0)


def behind(**more: Any) -> CopyTimeline:
    return CopyTimeline(lag_before=700, lag_after=300, **more)


def test_what_a_stream_has_caught_up_with_is_its_rate() -> None:
    results = [
        result(0, bytes=90 * MB, seconds=180.0, timeline=caught_up(20 * MB, 4.0)),
        result(1, bytes=30 * MB, seconds=180.0, timeline=caught_up(10 * MB, 2.5)),
    ]
    assert catch_up_rate(results) == CopyRate(30 * MB, 4.0), "what it copied afterwards was what producers wrote"


def test_partition_that_is_behind_all_the_time_counts_whole() -> None:
    results = [
        result(0, bytes=900 * MB, seconds=180.0, timeline=behind()),
        result(1, bytes=90 * MB, seconds=180.0, timeline=caught_up(20 * MB, 4.0)),
    ]
    assert catch_up_rate(results) == CopyRate(920 * MB, 180.0)


@pytest.mark.parametrize(
    "results",
    [
        [],
        [result(0, bytes=900 * MB, seconds=180.0)],
        [result(0, bytes=900 * MB, seconds=180.0, timeline=CopyTimeline(lag_before=0, lag_after=0))],
        [result(0, bytes=900 * MB, seconds=180.0, timeline=CopyTimeline(lag_before=0, lag_after=9))],
        [result(0, bytes=90 * MB, timeline=caught_up(MIN_BYTES - 1, 0.5))],
        [result(0, bytes=0, seconds=180.0, timeline=behind())],
    ],
    ids=["nothing", "no timeline", "caught up from the start", "not behind before", "too little", "stuck"],
)
def test_what_says_nothing_about_the_rate_does_not_count(results: list[Any]) -> None:
    assert catch_up_rate(results) is None


def test_rates_of_later_epochs_and_runs_add_up(tmp_path: Path) -> None:
    folder = tmp_path / "ledger" / "f"
    stream = Ledger.open(tmp_path, "f", "1")
    assert bytes_per_second(folder) is None
    stream.add_rate(40.0 * MB, 4.0)
    assert bytes_per_second(folder) == 10 * MB
    stream.add_rate(80.0 * MB, 2.0)
    assert stream.rate() == (100.0 * MB, 4.0), "the earlier epoch counts half"
    Ledger.open(tmp_path, "f", "2").add_rate(20.0 * MB, 6.0)
    assert bytes_per_second(folder) == 12 * MB


@pytest.mark.parametrize("content", ["", "{", '{"bytes": 5}', "[]"])
def test_damaged_rate_counts_as_none(tmp_path: Path, content: str) -> None:
    ledger = Ledger.open(tmp_path, "f", "1")
    (ledger.path / "rate.json").parent.mkdir(parents=True, exist_ok=True)
    (ledger.path / "rate.json").write_text(content)
    assert bytes_per_second(tmp_path / "ledger" / "f") is None
    ledger.add_rate(40.0 * MB, 4.0)
    assert bytes_per_second(tmp_path / "ledger" / "f") == 10 * MB
