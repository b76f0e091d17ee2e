"""A run of a flow that was taken over stops once MirrorMaker 2 copies again. Real clients, brokers in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.client import Admin
from mirror.config.models import ClusterConfig, FlowConfig, MirrorConfig
from mirror.errors import MirrorMakerResumed
from mirror.observation import Side
from mirror.relay.progress.flow_topic import takeover_topic_of
from mirror.runtime.clock import SystemClock
from mirror.spark.driver import copy_jobs
from mirror.spark.driver.copy_jobs import BoundedJob
from mirror.spark.driver.flow_preparation import FlowPreparation
from mirror.spark.driver.flow_run import FlowRun
from mirror.spark.driver.output.console import Consoles
from mirror.spark.ledger.results import FlowReport
from mirror.spark.ledger.topic_obstacles import TargetTopics
from mirror.spark.preflight.flow_checks import Findings
from mirror.spark.run_control import RunControlClient, new_run_id
from mirror.spark.status.held_state import read_resumed
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.tasks.options import FlowOptions
from mirror.takeover import watch as takeover_watch
from mirror.telemetry.run_telemetry import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.polling import eventually
from tests.relay.fake_pair import FLOW
from tests.takeover.fake_mirrormaker import CONNECTOR, FakeMirrorMaker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


STATES = "mm2-status.paris.internal"


class Runs:
    """Runs of a flow that was taken over; they copy nothing, but do what ``copying`` does."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mm2 = FakeMirrorMaker(monkeypatch)
        self.mm2.pair.target.add_topic(STATES, 5)
        self.mm2.write(b"0", b"1")
        self.mm2.copy(0, 1, synced=(0,))
        self.mm2.store(0)
        self.copying: Callable[[], object] = lambda: None
        self.copied = 0
        self._folder = tmp_path
        values = {"name": FLOW, "source": "paris", "target": "berlin", "topics": ["t"], "configs": "create"}
        self.flow = FlowConfig.model_validate({**values, "acls": {"sync": False}})

        def copy(*_: object) -> None:
            self.copied += 1
            self.copying()

        monkeypatch.setattr(FlowPreparation, "prepare", lambda *_: TargetTopics(copyable={"t": 1}))
        monkeypatch.setattr(BoundedJob, "run", copy)
        monkeypatch.setattr(copy_jobs, "copy_job", lambda *_: SimpleNamespace(results=[]))
        monkeypatch.setattr(takeover_watch, "INTERVAL_MS", 0)

    def run(self) -> None:
        pair = self.mm2.pair
        clusters = {"paris": pair.source.bootstrap, "berlin": pair.target.bootstrap}
        config = MirrorConfig(
            clusters={
                name: ClusterConfig.model_validate({"name": name, "options": {"bootstrap.servers": address}})
                for name, address in clusters.items()
            },
            flows={FLOW: self.flow},
        )
        run = new_run_id()
        options = config.clusters["berlin"].client_options()
        with ControlRecordThread(self.flow, options, lambda _: None, Consoles().warning, every_ms=5) as control:
            FlowRun(
                lambda: cast("Any", SimpleNamespace(defaultParallelism=1)),
                config,
                self.flow,
                FlowOptions(self._folder, FLOW, self._folder / "ledger" / FLOW / run),
                FlowReport(FLOW, datetime.now(UTC), run=run),
                consoles=Consoles(),
                telemetry=RunTelemetry(TelemetrySettings(disabled=True), self._folder, SystemClock()),
                findings=Findings(),
                control=control,
                follows=False,
            ).run(lambda _: None)

    def resumed(self) -> str | None:
        """As ``mirror status`` reads it."""
        options = {"bootstrap.servers": self.mm2.pair.target.bootstrap}
        with Admin(options) as admin:
            return read_resumed(Side("berlin", admin), options, FLOW)

    def stops(self) -> bool:
        """Whether the run is asked to end."""
        with Admin({"bootstrap.servers": self.mm2.pair.target.bootstrap}) as admin:
            control = RunControlClient(admin, FLOW).read()
        return control is not None and control.job > 0


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_a_run_copies_as_long_as_mirrormaker_rests(runs: Runs) -> None:
    runs.run()
    runs.mm2.run()
    runs.run()
    assert (runs.copied, runs.resumed()) == (2, None)


def test_a_run_does_not_begin_beside_mirrormaker(runs: Runs) -> None:
    runs.mm2.run()
    runs.mm2.store(1)
    assert runs.resumed() is None, "no run has seen it yet"
    for _ in range(2):
        with pytest.raises(MirrorMakerResumed, match=r"it has stored offset 1 of t-0 .* stop it"):
            runs.run()
    assert runs.copied == 0
    assert "it has stored offset 1 of t-0" in str(runs.resumed())
    runs.mm2.run()
    runs.run()
    assert (runs.copied, runs.resumed()) == (1, None)


def test_a_run_is_asked_to_end_once_mirrormaker_copies_again(runs: Runs) -> None:
    def copying() -> None:
        assert not runs.stops()
        runs.mm2.put(STATES, CONNECTOR, "RUNNING", task=0)
        eventually(runs.stops, what="the command to end")

    runs.mm2.run()
    runs.copying = copying
    with pytest.raises(MirrorMakerResumed, match="its task 0 is RUNNING"):
        runs.run()
    assert runs.copied == 1


def test_topics_of_a_cluster_that_is_configured_no_more_are_named(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.mm2.run(deployment={"offsets_cluster": "workers"})
    runs.run()
    assert runs.copied == 1
    assert f"the configuration has no cluster workers, which had the topics of {CONNECTOR}" in capsys.readouterr().err


def test_without_the_permission_to_read_the_record_a_run_says_so(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Action(errors={takeover_topic_of(FLOW): errors.TOPIC_AUTHORIZATION_FAILED})
    runs.mm2.pair.target.control.add(lambda call: refused if call.api is Api.METADATA else None)
    runs.run()
    assert runs.copied == 1
    assert "whether it was taken over from MirrorMaker 2 is not known" in capsys.readouterr().err
    assert runs.resumed() is None
