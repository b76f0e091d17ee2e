"""A flow whose status is read, on fake clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin, TopicPartition
from mirror.config.load import load
from mirror.errors import KafkaError
from mirror.relay.progress import status_values
from mirror.relay.progress.control_record import RunControl, control_partition
from mirror.relay.progress.status_topic import StatusNews, StatusRecord
from mirror.relay.progress.status_values import StatusKind
from mirror.spark import clusters
from mirror.spark.status import status_reader
from mirror.spark.status.flow_status import PartitionStatus
from mirror.spark.status.status_reader import StatusReader
from mirror.telemetry.lag.lags import LagState
from tests.relay.progress.test_status_values import REPORT
from tests.spark import fakes
from tests.spark.flow_harness import FlowHarness, use_fakes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.client import OffsetResult, Outcomes
    from mirror.relay.progress.status_values import StatusKey
    from mirror.spark.ledger.attempt_results import AttemptResult

T0 = 1_800_000_000_000


class ReportedFlow(FlowHarness):
    """A flow whose status topic has what a test says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records: dict[StatusKey, StatusRecord] = {}
        self.topic_error: KafkaError | None = None
        """Why the topic cannot be read."""
        self.limits_ms: list[object] = []
        """How long readings would wait for it."""

    def report_results(self, *attempts: AttemptResult, time_ms: int = T0, run: str = REPORT.run) -> None:
        """Have the topic get the last results of partitions."""
        for result in (attempt.result for attempt in attempts):
            target = TopicPartition(f"a.{result.topic}", result.partition)
            key = status_values.partition_key(StatusKind.PARTITION, target)
            self.records[key] = StatusRecord(key, replace(REPORT, run=run, target=target, result=result), time_ms)

    def report_obstacle(self, topic: str, reason: str) -> None:
        """Have the topic get why a source topic cannot be copied."""
        key = status_values.obstacle_key(topic)
        self.records[key] = StatusRecord(key, {"reason": reason}, T0)

    def report_value(self, key: StatusKey, value: object) -> None:
        """Have the topic get a record."""
        stored = status_values.decode(key, status_values.encode(value), "f")
        self.records[key] = StatusRecord(key, stored, T0)

    def use_topic(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have statuses read the topic."""
        site = self

        class Follower(fakes.SilentFollower):
            def news(self, *limit: object) -> StatusNews:
                site.limits_ms += limit
                if site.topic_error is not None:
                    raise site.topic_error
                return StatusNews(again=True, records=list(site.records.values()))

        monkeypatch.setattr(status_reader, "StatusFollower", Follower)


class StatusHarness(ReportedFlow):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.options: list[Mapping[str, object]] = []
        self.asked: list[int] = []

    def watch(self, call_timeout_ms: int | None = None) -> StatusReader:
        config = load(self.config)
        return StatusReader(config, config.flows["f"], call_timeout_ms=call_timeout_ms, unix_ms=lambda: self.now_ms)

    def later(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    def produce(self, records: int, partition: int = 0, topic: str = "orders") -> None:
        with self.a.change() as state:
            state["topics"][topic]["partitions"][partition]["end"] += records

    def run(self, *, ended: bool = False) -> None:
        group, tp = control_partition("f")
        orders = RunControl(run="r1", host="h1", since_ms=T0, stop=ended, ended=ended)
        Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group, {tp: orders.to_offset()})

    def looked(self, watch: StatusReader, seconds: float) -> LagState:
        """The first partition's state; then so much time goes by."""
        found = watch.read().partitions[0].lag.state
        self.later(seconds)
        return found

    def lead(self, leader: int, partition: int = 0) -> None:
        with self.a.change() as state:
            state["topics"]["orders"]["partitions"][partition]["leader"] = leader


def new_status_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StatusHarness:
    """Return the harness, with fake clusters in ``tmp_path``."""
    use_fakes(monkeypatch)
    site = StatusHarness(tmp_path)

    class Noting(Admin):
        def __init__(self, options: Mapping[str, object]) -> None:
            super().__init__(options)
            site.options.append(options)

        def list_offsets(
            self,
            asked: Mapping[TopicPartition, int],
            *,
            isolation: str = "read_committed",
            partial: bool = False,
            timeout_ms: int | None = None,
        ) -> Outcomes[TopicPartition, OffsetResult]:
            site.asked += asked.values()
            return super().list_offsets(asked, isolation=isolation, partial=partial, timeout_ms=timeout_ms)

    monkeypatch.setattr(clusters, "Admin", Noting)
    site.use_topic(monkeypatch)
    return site


def only_partition(watch: StatusReader) -> PartitionStatus:
    (one,) = watch.read().partitions
    return one
