"""The status of a flow, read once and repeatedly: from both clusters to each partition's status."""

from __future__ import annotations

import itertools
import json
import queue
from typing import TYPE_CHECKING

import pytest

from mirror.client import EARLIEST, LATEST, Admin
from mirror.config.load import load
from mirror.errors import ConnectionFailed, KafkaTimeout, MirrorError
from mirror.relay.model.way import Way
from mirror.spark import clusters
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.spark.ledger.status_table import LastError, StatusTable
from mirror.spark.status import flow_view, status_reader
from mirror.spark.status.flow_status import FlowStatus
from mirror.spark.status.lag_monitor import LagMonitor, pause_ms
from mirror.telemetry.lag.lags import LagState
from tests.spark.flow_harness import configuration
from tests.spark.status_harness import T0, StatusHarness, only_partition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOUR_MS = 3_600_000


def test_one_reading_has_lags_and_no_rates(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 7, 0], earliest=0)
    site.commit(40)
    site.commit(7, 1)
    with site.watch() as watch:
        found = watch.read()
    assert (found.flow, found.source, found.target, found.time_ms, found.run) == ("f", "a", "b", T0, None)
    behind, done, empty = found.partitions
    assert (behind.target_topic, behind.earliest, behind.end, behind.progress) == ("a.orders", 0, 100, 40)
    assert (behind.lag.records, behind.lag.state, behind.committed_ms) == (60, LagState.BEHIND, T0)
    assert behind.lag[1:5] == (None, None, None, None)
    assert (done.lag.records, done.lag.state) == (0, LagState.CAUGHT_UP)
    assert (empty.progress, empty.lag.records, empty.lag.state) == (None, 0, LagState.CAUGHT_UP)
    assert (found.totals.records, found.totals.unknown) == (60, 0)


def test_several_readings_have_rates_and_times(site: StatusHarness) -> None:
    site.a.add_topic("orders", [60_000], configs={"retention.ms": str(HOUR_MS)})
    site.run()
    with site.watch() as watch:
        for each in range(39):
            site.commit(1_500 * each)
            watch.read()
            site.later(2)
            site.produce(2_000)
        site.commit(1_500 * 39)
        found = watch.read()
        (one,) = found.partitions
    assert found.run is not None
    assert found.run.run == "r1"
    assert (one.lag.copied_per_s, one.lag.produced_per_s, one.lag.state) == (750.0, 1_000.0, LagState.FALLING_BEHIND)
    assert one.lag.records == 60_000 + 39 * 500
    assert one.lag.seconds == pytest.approx(79.5)
    assert one.lag.loss_s == pytest.approx(3_600 - one.lag.records / 750)
    assert len(site.options) == 2, "the connections stay"


def test_a_partition_is_stuck_only_while_a_run_copies_it(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    site.commit(40)
    with site.watch() as watch:
        assert [site.looked(watch, 10) for _ in range(9)][-1] is LagState.FALLING_BEHIND
        site.run()
        assert only_partition(watch).lag.state is LagState.STUCK
        site.run(ended=True)
        assert only_partition(watch).lag.state is LagState.FALLING_BEHIND


def test_a_partition_without_a_leader_has_that_error(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 5])
    site.lead(-1, 0)
    with site.watch() as watch:
        lost, other = watch.read().partitions
    assert (lost.end, lost.lag.state) == (None, LagState.NO_LEADER)
    assert lost.trouble == LastError("the source partition has no leader", T0)
    assert (other.lag.state, other.trouble) == (LagState.NOT_BEGUN, None)


def test_a_leader_that_does_not_answer_hides_no_other_partition(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 5]).set_moods({"silent": '["orders/0"]'})
    with site.watch() as watch:
        lost, other = watch.read().partitions
    assert lost.trouble is not None
    assert "listing offsets of orders-0: LEADER_NOT_AVAILABLE" in lost.trouble.line
    assert (lost.lag.state, other.end) == (LagState.NO_LEADER, 5)


def test_the_reading_fails_if_no_leader_answers(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 5]).set_moods({"silent": '["orders/0", "orders/1"]'})
    with site.watch() as watch, pytest.raises(KafkaTimeout, match="listing offsets of orders-0: LEADER_NOT_AVAILABLE"):
        watch.read()


def test_the_reading_after_a_failed_one_reconnects(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    with site.watch() as watch:
        watch.read()
        site.a.stop()
        with pytest.raises(KafkaTimeout):
            watch.read()
        site.a.start()
        site.later(2)
        assert only_partition(watch).end == 100
    assert len(site.options) == 4


@pytest.mark.parametrize(("configured", "call_timeout_ms", "expected"), [("", 9, 9), ("5", 9, 5), ("5", None, 5)])
def test_a_call_timeout_bounds_that_of_the_configuration(
    site: StatusHarness, configured: str, call_timeout_ms: int | None, expected: int
) -> None:
    line = f'"default.api.timeout.ms" = {configured}' if configured else ""
    site.config.write_text(configuration().replace('"a:1"', f'"a:1"\n{line}'))
    site.a.add_topic("orders", [100])
    with site.watch(call_timeout_ms) as watch:
        watch.read()
    assert site.options[0]["default.api.timeout.ms"] == expected


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, 604_800.0),
        ({"retention.ms": "60000"}, 60.0),
        ({"retention.ms": "-1"}, None),
        ({"cleanup.policy": "compact"}, None),
        ({"cleanup.policy": "compact,delete"}, 604_800.0),
    ],
)
def test_retention_is_that_of_the_source_s_topic(
    site: StatusHarness, configs: dict[str, str], expected: float | None
) -> None:
    site.a.add_topic("orders", [100], configs=configs)
    site.commit(100)
    with site.watch() as watch:
        assert only_partition(watch).lag.loss_s == expected


def test_retention_is_read_once_for_each_topic(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100], configs={"retention.ms": "60000"})
    site.commit(100)
    with site.watch() as watch:
        watch.read()
        site.a.add_topic("orders", [100], configs={"retention.ms": "90000"})
        site.a.add_topic("orders-2", [3], configs={"retention.ms": "70000"})
        site.commit(3, topic="orders-2")
        site.later(2)
        found = watch.read()
    assert [each.lag.loss_s for each in found.partitions] == [60.0, 70.0]


def test_log_starts_of_many_partitions_are_read_less_often(
    site: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_view, "_KEPT_MS", 3_000)
    site.a.add_topic("orders", [100, 100])
    with site.watch() as watch:
        for _ in range(3):
            site.looked(watch, 1)
        # Twice each time: the last stable offset, and the high watermark.
        assert (site.asked.count(LATEST), site.asked.count(EARLIEST)) == (12, 2)
        site.a.add_topic("orders-2", [3], earliest=1)
        assert watch.read().partitions[2].earliest == 1, "of one that is new it is not known"
        assert site.asked.count(EARLIEST) == 3
        site.later(5)
        watch.read()
        assert site.asked.count(EARLIEST) == 3
        site.later(1)
        watch.read()
        assert site.asked.count(EARLIEST) == 6


def test_without_permission_for_the_configuration_there_is_no_time_to_loss(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100]).set_moods({"topic_configs": "not authorized"})
    site.commit(100)
    with site.watch() as watch:
        one = only_partition(watch)
    assert (one.lag.loss_s, one.lag.state) == (None, LagState.CAUGHT_UP)


def test_retention_that_could_not_be_read_is_read_again(site: StatusHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    site.a.add_topic("orders", [100])
    site.commit(100)

    def fails(*_: object, **__: object) -> None:
        raise KafkaTimeout("no answer")

    with site.watch() as watch:
        with monkeypatch.context() as patched:
            patched.setattr(Admin, "describe_configs", fails)
            assert only_partition(watch).lag.loss_s is None
        site.later(2)
        assert only_partition(watch).lag.loss_s == 604_800.0


def test_an_invalid_target_leaves_no_connection_open(site: StatusHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    monkeypatch.setattr(Admin, "close", lambda admin: closed.append(admin.network_thread.settings.bootstrap))
    watch = site.watch()
    monkeypatch.setattr(clusters, "Admin", lambda options: _refused(options, Admin))
    with pytest.raises(ConnectionFailed):
        watch.read()
    assert closed == [(("a", 1),)]


def _refused(options: Mapping[str, object], admin: type[Admin]) -> Admin:
    if options["bootstrap.servers"] == "b:1":
        raise ConnectionFailed("no")
    return admin(options)


def test_a_gap_sets_state_and_lag(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100, 30, 9], earliest=5)
    with site.a.change() as state:
        topic_id = state["topics"]["orders"]["id"]
    site.commit(2, topic_id=topic_id)
    site.commit(70, 1, topic_id=topic_id)
    site.commit(9, 2, topic_id="another")
    with site.watch() as watch:
        found = watch.read()
    assert [each.lag.state for each in found.partitions] == [LagState.LOSING, LagState.FAILED, LagState.FAILED]
    # Never 0 for progress that is no place in the log of now; and nothing is said of times.
    assert [each.lag.records for each in found.partitions] == [98, None, 4]
    assert [each.lag.loss_s for each in found.partitions] == [0.0, None, None]
    assert (found.totals.records, found.totals.unknown) == (102, 1)
    kinds = [each.trouble.line.split(":")[0] for each in found.partitions if each.trouble]
    assert kinds == ["retention", "truncated", "recreated"]


def test_what_is_gone_behind_a_lower_bound_is_no_gap(site: StatusHarness) -> None:
    """It may be copied: only a task finds out."""
    site.a.add_topic("orders", [100], earliest=5)
    with site.a.change() as state:
        topic_id = state["topics"]["orders"]["id"]
    site.commit(2, topic_id=topic_id, way=Way.SEQUENCES)
    with site.watch() as watch:
        (found,) = watch.read().partitions
    assert found.trouble is None


@pytest.mark.parametrize("until", ["60", '"1970-01-01T00:00:00.060Z"'])
def test_there_is_no_lag_after_the_flow_s_end(site: StatusHarness, until: str) -> None:
    """The fake's record n has the time n."""
    site.config.write_text(f"{configuration()}until = {until}\n")
    site.a.add_topic("orders", [100])
    site.commit(60)
    with site.watch() as watch:
        one = only_partition(watch)
        assert (one.end, one.lag.records, one.lag.state, one.trouble) == (60, 0, LagState.CAUGHT_UP, None)
        site.commit(50)
        assert only_partition(watch).lag.records == 10
        with site.a.change() as state:
            state["topics"]["orders"]["partitions"][0]["earliest"] = 90
        site.commit(60)
        assert only_partition(watch).lag.state is LagState.CAUGHT_UP, "what it does not want may go"


def test_an_end_bounds_the_lag_once_the_source_has_reached_it(site: StatusHarness) -> None:
    site.config.write_text(f'{configuration()}until = "1970-01-01T00:00:00.060Z"\n')
    site.a.add_topic("orders", [40])
    site.commit(10)
    with site.watch() as watch:
        assert only_partition(watch).lag.records == 30
        site.produce(50)
        site.later(2)
        assert only_partition(watch).lag.records == 50


def test_a_status_as_json(site: StatusHarness) -> None:
    site.config.write_text(f'{configuration()}exactly-once-by = "transactions"\n')
    site.a.add_topic("orders", [100, 5])
    site.commit(100)
    site.lead(-1, 1)
    site.run()
    with site.watch() as watch:
        result = json.loads(json.dumps(watch.read().to_json()))
    first, second = result.pop("partitions")
    assert result == {
        "flow": "f",
        "source": "a",
        "target": "b",
        "time_ms": T0,
        "run": {
            "run": "r1",
            "host": "h1",
            "since_ms": T0,
            "job": 0,
            "version": 0,
            "generation": 0,
            "attempts": [],
            "stop": False,
            "ended": False,
            "seen_ms": 0,
            "gone": False,
        },
        "lag": 0,
        "unknown": 1,
        "lag_seconds": 0.0,
        "copied_per_second": None,
        "produced_per_second": None,
        "seconds_to_drain": 0.0,
        "seconds_to_loss": 604_800.0,
        "states": {"no leader": 1, "caught up": 1},
        "withheld_records": 0,
        "groups": None,
        "sync": None,
        "index_bytes": None,
        "state": None,
        "tasks": [],
        "unread": None,
        "mirrormaker": None,
        "latch": {"role": "active", "generation": 0, "reason": "", "by": "", "since_ms": 0},
        "away": {},
        "refused": None,
    }
    assert list(result["states"]) == ["no leader", "caught up"]
    assert first == {
        "topic": "orders",
        "partition": 0,
        "target_topic": "a.orders",
        "state": "caught up",
        "earliest": 0,
        "end": 100,
        "progress": 100,
        "lag": 0,
        "committed_ms": T0,
        "lag_seconds": 0.0,
        "copied_per_second": None,
        "produced_per_second": None,
        "seconds_to_drain": 0.0,
        "seconds_to_loss": 604_800.0,
        "trouble": None,
        "trouble_ms": None,
        "last_error": None,
        "last_error_ms": None,
        "high_watermark": 100,
        "withheld": None,
        "way": "transactions",
        "way_reason": 'exactly-once-by = "transactions"',
        "target_loss": "",
    }
    assert (second["state"], second["trouble"], second["trouble_ms"]) == (
        "no leader",
        "the source partition has no leader",
        T0,
    )


def test_a_lag_that_never_drains_is_null_in_json(site: StatusHarness) -> None:
    site.a.add_topic("orders", [100])
    site.commit(40)
    with site.watch() as watch:
        site.looked(watch, 10)
        found = watch.read()
    assert found.totals.drain_s == float("inf")
    assert found.to_json()["seconds_to_drain"] is None


def test_an_unexpected_error_does_not_end_the_monitor(
    site: StatusHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = queue.SimpleQueue[object]()

    class Listener:
        interval_ms = 1

        def on_status(self, status: FlowStatus) -> None:
            found.put(status)

        def on_error(self, error: MirrorError) -> None:
            found.put(str(error))

    read, calls = status_reader.StatusReader.read, itertools.count()

    def broken(reader: status_reader.StatusReader) -> FlowStatus:
        if next(calls) == 0:
            raise RuntimeError("a bug")
        return read(reader)

    monkeypatch.setattr(status_reader.StatusReader, "read", broken)
    config = load(site.config)
    site.a.add_topic("orders", [100], earliest=0)
    with (
        run_telemetry(tmp_path, Consoles()) as telemetry,
        LagMonitor(config, config.flows["f"], telemetry, Listener(), no_reports),
    ):
        assert found.get(timeout=30) == "RuntimeError: a bug"
        assert isinstance(found.get(timeout=30), FlowStatus)


def no_reports() -> tuple[StatusTable, str]:
    return StatusTable(), ""


def test_the_pause_after_a_failed_reading_does_not_outlast_the_outage() -> None:
    assert pause_ms(1_000, 10, failed=False) == 1_000
    assert pause_ms(1_000, 600, failed=False) == 30_000, "reading takes a fiftieth of the time"
    assert pause_ms(1_000, 10_000, failed=True) == 10_000, "not 500 s"
