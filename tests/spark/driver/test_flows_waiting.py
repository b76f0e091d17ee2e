"""A stream starts the flows that can start; one whose cluster is away waits, one that is refused fails alone."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mirror.config.load import load
from mirror.errors import BrokerError, KafkaTimeout
from mirror.spark.driver import awaited_flow, batch_job, stream_job
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.report.report_file import ReportFile
from mirror.spark.driver.stream_flow import StreamFlow
from mirror.spark.driver.stream_job import ShutdownSignal, _Stream
from mirror.spark.ledger.results import Summary
from mirror.spark.preflight import acl_lookup, flow_checks
from mirror.spark.preflight.flow_checks import Findings
from mirror.wire.error_codes import LEADER_NOT_AVAILABLE
from tests.spark import fakes
from tests.spark.flow_harness import UNREACHABLE_FLOW, FlowHarness, use_fakes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.spark.driver.batch_flow import FlowRunner

WITHOUT_TOPICS = """
[flows.h]
source = "a"
target = "b"
topics = ["invoices"]
"""


class Site(FlowHarness):
    """A stream of which only the session and the queries are missing: each flow ends as soon as it has started."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.a.add_topic("orders", [1])
        self.shutdown = ShutdownSignal()
        self.started: list[str] = []
        self.runs: list[str | None] = []
        self.sessions = 0
        self.on_start: Callable[[], object] = dict
        site = self

        def start(run: StreamFlow, spark: object, runner: FlowRunner, *, available_now: bool) -> None:
            del spark, available_now
            if error := runner._findings.errors.get(run.report.flow):
                raise error
            site.started.append(run.report.flow)
            site.runs.append(run.report.run)
            site.on_start()

        def session() -> Any:
            site.sessions += 1
            context = SimpleNamespace(master="local[2]", defaultParallelism=2)
            return SimpleNamespace(sparkContext=context, stop=lambda: None)

        monkeypatch.setattr(StreamFlow, "start", start)
        monkeypatch.setattr(stream_job, "start_session", session)
        monkeypatch.setattr(stream_job, "use_cheap_checkpoints", lambda _: None)
        monkeypatch.setattr(self.shutdown, "listen", lambda: None)
        monkeypatch.setattr(awaited_flow, "_PAUSE_S", 0.02)

    def run(self, wait: float | None = None) -> int:
        options = JobOptions(config=self.config, report_dir=self.report, wait=wait)
        config, consoles = load(self.config), Consoles()
        summary, report = Summary(self.report, pytest.fail), ReportFile(self.report, pytest.fail)
        return _Stream(config, config.select(), options, consoles, self.shutdown, summary, report).run()

    def errors(self) -> dict[str, str | None]:
        flows = json.loads((self.report / "summary.json").read_text())["flows"]
        return {one["flow"]: one["error"] for one in flows}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    use_fakes(tmp_path, monkeypatch, flow_checks, acl_lookup)
    return Site(tmp_path, monkeypatch)


def test_a_flow_whose_cluster_is_away_starts_when_it_answers(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with site.config.open("a") as file:
        file.write(UNREACHABLE_FLOW)
    site.on_start = lambda: fakes.Cluster("gone:1", site.folder).make().add_topic("clicks", [5])
    assert site.run() == 0
    assert site.started == ["f", "g"]
    assert site.errors() == {"f": None, "g": None}
    err = " ".join(capsys.readouterr().err.split())
    assert "warning: flow g: no broker of gone:1 could be reached; is the address right?; it starts once" in err


def test_a_refused_flow_fails_alone(site: Site) -> None:
    with site.config.open("a") as file:
        file.write(WITHOUT_TOPICS)
    assert site.run() == 1
    assert site.started == ["f"]
    assert site.errors()["f"] is None
    assert "none of the 1 topics" in (site.errors()["h"] or "")


def test_with_wait_0_a_cluster_that_is_away_fails_its_flow_before_spark_starts(site: Site) -> None:
    (site.folder / "b-1.json").unlink()
    assert site.run(wait=0) == 1
    assert (site.started, site.sessions) == ([], 0)
    assert site.errors() == {"f": "no broker of b:1 could be reached; is the address right?"}


@pytest.mark.parametrize("signalled", [False, True])
def test_a_flow_waits_until_its_time_is_over_or_a_signal_ends_it(site: Site, signalled: bool) -> None:
    (site.folder / "b-1.json").unlink()
    if signalled:
        threading.Timer(0.2, lambda: setattr(site.shutdown, "signum", 15)).start()
    began_s = time.monotonic()
    assert site.run(wait=None if signalled else 0.2) == 1
    assert 0.2 <= time.monotonic() - began_s < 30
    assert site.errors() == {"f": "not started: a cluster has not answered"}


def test_a_flow_that_is_refused_once_its_cluster_answers_does_not_start(site: Site) -> None:
    (site.folder / "a-1.json").rename(site.folder / "away.json")

    def answers() -> None:
        fakes.Cluster("a:1", site.folder).make().add_topic("others", [1])

    threading.Timer(0.2, answers).start()
    assert site.run() == 1
    assert site.started == []
    assert "none of the 1 topics" in (site.errors()["f"] or "")


def test_a_check_that_fails_unexpectedly_ends_the_waiting(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.folder / "b-1.json").unlink()

    def check(*_: object) -> Findings:
        raise ZeroDivisionError("what")

    monkeypatch.setattr(stream_job, "check_flows", check)
    assert site.run(wait=20) == 1
    assert site.errors() == {"f": "ZeroDivisionError: what"}


def test_a_flow_whose_cluster_does_not_answer_its_start_starts_later_as_another_run(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def on_start() -> None:
        if len(site.started) < 3:
            raise KafkaTimeout("no partition has a leader") from BrokerError("no leader", LEADER_NOT_AVAILABLE)

    site.on_start = on_start
    assert site.run() == 0
    assert site.started == ["f", "f", "f"]
    assert len(set(site.runs)) == 3
    assert site.errors() == {"f": None}
    err = " ".join(capsys.readouterr().err.split())
    assert err.count("flow f: no partition has a leader; it starts once the cluster answers") == 1


def test_a_flow_whose_cluster_never_answers_its_start_is_given_up_in_time(site: Site) -> None:
    def on_start() -> None:
        raise KafkaTimeout("no partition has a leader")

    site.on_start = on_start
    assert site.run(wait=0.5) == 1
    assert len(site.started) > 1
    assert site.errors()["f"] in {"no partition has a leader", "not started: a cluster has not answered"}


def test_a_flow_whose_cluster_answers_after_a_signal_does_not_start(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.folder / "b-1.json").unlink()

    def check(*_: object) -> Findings:
        site.shutdown.signum = 15
        return Findings()

    monkeypatch.setattr(stream_job, "check_flows", check)
    assert site.run() == 1
    assert site.started == []
    assert site.errors() == {"f": "not started: a cluster has not answered"}


def test_runs_and_streams_name_a_cluster_that_has_not_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(_: object, __: object, on_waiting: Any) -> Findings:
        on_waiting("cluster a has not answered for 3 s; still waiting")
        return Findings()

    monkeypatch.setattr(batch_job, "check_flows", check)
    config = load(site.config)
    batch_job.check(config, config.select(), Summary(site.report, pytest.fail), Consoles())
    assert "cluster a has not answered for 3 s; still waiting" in " ".join(capsys.readouterr().err.split())
