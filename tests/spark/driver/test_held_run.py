"""A run of a flow that is held copies nothing, whenever it was held. Real clients and copies, brokers in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.errors import FlowHeld, KafkaTimeout, LatchMoved
from mirror.exit_status import HELD
from mirror.runtime.clock import SystemClock
from mirror.spark import holding
from mirror.spark.driver import copy_jobs
from mirror.spark.driver.copy_jobs import BoundedJob
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.flow_rounds import FlowRounds
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.output.console import Consoles
from mirror.spark.ledger.results import FlowReport, exit_status
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.preflight.flow_checks import Findings
from mirror.spark.run_control import RunControlClient, new_run_id
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.tasks.options import FlowOptions
from mirror.telemetry.run_telemetry import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.relay.fake_pair import FLOW, FakePair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Schedule:
    """Runs of a flow, as cron starts them; ``preparing`` and ``copied`` are what happens meanwhile."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pair = FakePair(monkeypatch)
        self.way = "transactions"
        self.preparing: Callable[[], object] = bool
        self.copied: Callable[[], object] = bool
        self.reports: list[FlowReport] = []
        self._folder = folder
        values = {"name": FLOW, "source": "paris", "target": "berlin", "topics": ["t"], "configs": "create"}
        self.flow = FlowConfig.model_validate({**values, "acls": {"sync": False}})
        addresses = {"paris": self.pair.source.bootstrap, "berlin": self.pair.target.bootstrap}
        clusters = {
            name: ClusterConfig.model_validate({"name": name, "options": {"bootstrap.servers": address}})
            for name, address in addresses.items()
        }
        self.config = MirrorConfig(clusters=clusters, flows={FLOW: self.flow})

        def prepare(_: object) -> TargetTopics:
            self.preparing()
            return TargetTopics(copyable={"t": 1})

        def copy(*_: object) -> None:
            self.pair.copy(exactly_once_by=self.way)
            self.copied()

        monkeypatch.setattr(FlowPreparation, "prepare", prepare)
        monkeypatch.setattr(BoundedJob, "run", copy)
        monkeypatch.setattr(copy_jobs, "copy_job", lambda *_: SimpleNamespace(results=[]))
        monkeypatch.setattr(holding, "SETTLED_MS", 0)

    def hold(self, *, wait: bool = False) -> None:
        holding.hold(self.config, self.flow, why="paris is lost", by="ada on h1", wait=wait)

    def release(self) -> None:
        holding.release(self.config, self.flow, by="ada on h1")

    def run(self) -> None:
        run = new_run_id()
        self.reports.append(FlowReport(FLOW, datetime.now(UTC), run=run))
        options = self.config.clusters["berlin"].client_options()
        with ControlRecordThread(self.flow, options, lambda _: None, Consoles().warning, every_ms=5) as control:
            FlowRun(
                lambda: cast("Any", SimpleNamespace(defaultParallelism=1)),
                self.config,
                self.flow,
                FlowOptions(self._folder, FLOW, self._folder / "ledger" / FLOW / run),
                self.reports[-1],
                consoles=Consoles(),
                telemetry=RunTelemetry(TelemetrySettings(disabled=True), self._folder, SystemClock()),
                findings=Findings(),
                control=control,
                follows=False,
            ).run(lambda _: None)


@pytest.fixture
def schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    return Schedule(tmp_path, monkeypatch)


@pytest.mark.parametrize("way", ["transactions", "auto"])
def test_the_lost_tail_is_not_appended_behind_newer_writes(schedule: Schedule, way: str) -> None:
    """Paris dies with one record that is not copied. Producers go on in Berlin. Paris is back, and so is cron."""
    schedule.way, pair = way, schedule.pair
    pair.write(b"balance=1")
    schedule.run()
    pair.write(b"balance=2 (only in Paris)")
    schedule.hold(wait=True)
    pair.log().append_values(b"balance=3 (written in Berlin)")
    for _ in range(2):
        with pytest.raises(FlowHeld, match=r"flow flow is held since .* by ada on h1: paris is lost; mirror release"):
            schedule.run()
    assert pair.values() == [b"balance=1", b"balance=3 (written in Berlin)"]
    assert (schedule.reports[-1].held, exit_status(schedule.reports[-1:])) == (True, HELD)


def test_a_run_that_has_read_the_latch_before_it_was_held_claims_and_copies_nothing(schedule: Schedule) -> None:
    schedule.pair.write(b"a")
    schedule.preparing = schedule.hold
    with pytest.raises(FlowHeld):
        schedule.run()
    assert schedule.pair.values() == []


def test_a_run_that_is_held_while_it_copies_says_so(schedule: Schedule) -> None:
    schedule.copied = schedule.hold
    with pytest.raises(FlowHeld):
        schedule.run()
    assert exit_status(schedule.reports) == HELD


def test_a_run_of_an_older_generation_does_nothing_more(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[str] = []
    monkeypatch.setattr(FlowRounds, "bring_groups", lambda _: brought.append("groups"))

    def hold_and_release() -> None:
        schedule.hold()
        with monkeypatch.context() as patched:
            patched.setattr(holding, "still_writes", lambda *_, **__: "")  # as if its host had stood still
            schedule.release()

    schedule.copied = hold_and_release
    with pytest.raises(LatchMoved):
        schedule.run()
    assert brought == []
    schedule.copied = bool
    schedule.run()
    assert len(brought) == 1


def test_a_run_whose_claim_is_not_answered_copies_nothing(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mirror hold` would not know of it."""

    def time_out(*_: object) -> None:
        raise KafkaTimeout("the coordinator does not answer")

    schedule.pair.write(b"a")
    with monkeypatch.context() as patched:
        patched.setattr(RunControlClient, "claim", time_out)
        with pytest.raises(KafkaTimeout):
            schedule.run()
    assert schedule.pair.values() == []
