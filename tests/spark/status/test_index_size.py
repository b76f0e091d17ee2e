"""The size of the offset index, as the target's brokers know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.relay.progress.flow_topic import offset_topic_of
from mirror.runtime.clock import SystemClock
from mirror.spark.status.lag_monitor import record_lags
from mirror.telemetry.metrics.instruments import INDEX_SIZE
from mirror.telemetry.run_telemetry import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.spark.flow_harness import use_fakes
from tests.spark.status_harness import StatusHarness

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusHarness:
    use_fakes(monkeypatch)
    harness = StatusHarness(tmp_path)
    harness.a.add_topic("orders", [9])
    return harness


def size_of(site: StatusHarness, tmp_path: Path) -> dict[tuple[tuple[str, str], ...], object]:
    telemetry = RunTelemetry(TelemetrySettings(), tmp_path, SystemClock())
    with site.watch() as watch:
        status = watch.read()
    telemetry.close()
    record_lags(telemetry, status)
    found: dict[tuple[tuple[str, str], ...], object] = {
        one.attributes: one.value for kind, points in telemetry.metrics.points() if kind is INDEX_SIZE for one in points
    }
    assert status.to_json()["index_bytes"] == (next(iter(found.values())) if found else None)
    return found


def test_the_size_is_that_of_the_offset_topic_on_the_target(site: StatusHarness, tmp_path: Path) -> None:
    site.a.add_topic(offset_topic_of("f"), [9])
    assert size_of(site, tmp_path) == {}, "there is none on the target yet"
    site.b.add_topic(offset_topic_of("f"), [7]).add_topic("others", [500])
    assert size_of(site, tmp_path) == {(("flow", "f"),): 700}


def test_without_the_permission_the_size_is_not_known(site: StatusHarness, tmp_path: Path) -> None:
    site.b.add_topic(offset_topic_of("f"), [7]).set_moods({"log_dirs": "not authorized"})
    assert size_of(site, tmp_path) == {}


def test_the_size_is_read_again_after_five_minutes(site: StatusHarness) -> None:
    site.b.add_topic(offset_topic_of("f"), [7])
    with site.watch() as watch:
        assert watch.read().index_bytes == 700
        site.b.add_topic(offset_topic_of("f"), [9])
        site.now_ms += 299_000
        assert watch.read().index_bytes == 700
        site.now_ms += 2_000
        assert watch.read().index_bytes == 900
