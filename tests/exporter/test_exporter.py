"""``mirror exporter`` on clusters in memory: what it serves, also with one side away, and what it says of itself."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.config.load import load
from mirror.errors import FlowError
from mirror.exporter import reader, site
from mirror.exporter.reader import FlowsReader, pause_ms
from mirror.exporter.site import Site
from mirror.relay.progress import status_values
from mirror.relay.progress.status_values import RunState
from mirror.spark.clusters import Clusters
from mirror.spark.driver.telemetry_bridge import describe_flow
from mirror.telemetry.export.prometheus import Endpoint
from mirror.telemetry.metrics.metric_store import MetricStore
from tests.exporter.served import Served
from tests.polling import eventually
from tests.spark.fakes import use_clusters
from tests.spark.flow_harness import UNREACHABLE_FLOW, use_fakes
from tests.spark.status_harness import T0, ReportedFlow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.config.models import FlowConfig
    from mirror.observation import Sides
    from mirror.spark.status.status_reader import StatusReader


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReportedFlow:
    use_clusters(monkeypatch)
    use_fakes(monkeypatch)
    flow = ReportedFlow(tmp_path)
    flow.use_topic(monkeypatch)
    flow.a.add_topic("orders", [100])
    flow.b.add_topic("a.orders", [40])
    flow.commit(40)
    ended = RunState(run="r", state="ended", reason="complete", since_ms=T0, complete_ms=T0)
    flow.report_value(status_values.RUN, ended)
    return flow


@contextmanager
def served(flow: ReportedFlow) -> Iterator[Served]:
    config, metrics = load(flow.config), MetricStore()
    for one in config.flows.values():
        describe_flow(metrics, one)
    with FlowsReader(config, config.select(None), metrics, interval_ms=20) as flows:
        endpoint = Endpoint(
            metrics,
            "127.0.0.1",
            0,
            site=lambda app: Site(app, flows, lambda: f"<p>{len(flows.readings.flows)}</p>"),
        )
        with closing(endpoint):
            yield Served(endpoint.port)


def test_between_runs_all_is_served_and_stays_while_one_side_is_away(flow: ReportedFlow) -> None:
    of_flow = 'flow="f",source="a",target="b"'

    def state(name: str) -> str:
        return f'mirror_flow_state{{flow="f",source="a",state="{name}",target="b"}} 1.0'

    with served(flow) as exporter:
        eventually(lambda: exporter.get("/readyz") == (200, "ok\n"), what="both clusters to be read")
        lag = f'mirror_lag_records{{{of_flow},topic="orders"}} 60.0'
        eventually(lambda: exporter.has(lag), what="the lag")
        assert exporter.has(state("ended"))
        assert exporter.has(
            f"mirror_flow_success_timestamp_seconds{{{of_flow}}} {T0 / 1000:.1e}".replace("e+09", "e+09")
        )
        assert exporter.has('mirror_cluster_up{cluster="a"} 1.0')
        flow.a.stop()
        eventually(lambda: exporter.has('mirror_cluster_up{cluster="a"} 0.0'), what="the source to be away")
        assert exporter.has(lag)
        assert exporter.has('mirror_cluster_up{cluster="b"} 1.0')
        code, text = exporter.get("/readyz")
        assert (code, text.startswith("cluster a cannot be read: cluster a does not answer")) == (200, True)
        flow.b.stop()
        eventually(lambda: exporter.has(state("unknown")), what="both to be away")
        assert exporter.has(lag)
        flow.a.start()
        flow.b.start()
        flow.commit(90)
        eventually(lambda: exporter.has(lag.replace("60.0", "10.0")), what="both to be back")
        assert exporter.get("/healthz") == (200, "ok\n")


def test_what_it_says_of_itself(flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(flow) as exporter:
        assert exporter.get("/") == (200, "<p>1</p>")
        assert exporter.get("/", "HEAD") == (200, "")
        assert exporter.get("/", "POST")[0] == 405
        assert exporter.get("/else") == (404, "there are /, /metrics, /healthz and /readyz\n")
        monkeypatch.setattr(site, "missing", lambda _: "needs Jinja: pip install it")
        assert exporter.get("/") == (503, "the page needs Jinja: pip install it\n")
        eventually(lambda: exporter.get("/readyz")[0] == 200, what="the first round")
        monkeypatch.setattr(reader, "HEALTHY_MS", -1_000_000)
        monkeypatch.setattr(reader, "_HEALTHY_INTERVALS", -50_000)
        assert exporter.get("/healthz") == (503, "not read for long: f\n")


def test_before_the_first_round_it_is_not_ready(flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowsReader, "_run", lambda *_: None)
    with served(flow) as exporter:
        assert exporter.get("/readyz") == (503, "not tried yet: f\n")
        assert exporter.get("/healthz") == (200, "ok\n"), "it has only begun"


def test_a_bug_in_a_round_is_shown_and_the_next_one_is_tried(
    flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = FlowsReader._read
    failing = [True]

    def read(self: FlowsReader, *arguments: object) -> bool:
        if failing:
            raise ZeroDivisionError("a bug")
        return works(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(FlowsReader, "_read", read)
    config = load(flow.config)
    with FlowsReader(config, config.select(None), MetricStore(), interval_ms=20) as flows:
        readings = flows.readings
        eventually(lambda: readings.flows[0].error == "ZeroDivisionError: a bug", what="the error")
        failing.clear()
        eventually(lambda: readings.flows[0].error == "" and readings.flows[0].status is not None, what="the reading")


@pytest.mark.parametrize("broken", ["record_flow", "StatusReader", "Clusters"])
def test_what_fails_outside_of_a_reading_ends_no_thread(
    flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    works, failed = getattr(reader, broken), list[str]()

    def fail_first(*arguments: object, **named: object) -> object:
        if len(failed) < 2:  # twice: once more when the first failure is recorded
            failed.append(broken)
            raise ZeroDivisionError("a bug")
        return works(*arguments, **named)

    monkeypatch.setattr(reader, broken, fail_first)
    config = load(flow.config)
    with FlowsReader(config, config.select(None), MetricStore(), interval_ms=20) as flows:
        readings = flows.readings
        eventually(lambda: readings.flows[0].status is not None and len(failed) == 2, what="the reading")
        eventually(lambda: readings.untried == [], what="the end of a round")


def test_the_page_is_not_made_for_each_request(flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowsReader, "_run", lambda *_: None)
    config, made, now_s = load(flow.config), [0], [0.0]

    def page() -> str:
        made[0] += 1
        return str(made[0])

    with FlowsReader(config, config.select(None), MetricStore(), interval_ms=20) as flows:
        served = Site(lambda *_: [], flows, page, lambda: now_s[0])
        asked = {"PATH_INFO": "/", "REQUEST_METHOD": "GET"}
        found = list[bytes]()
        for now_s[0] in (0.0, 4.9, 5.0, 9.9, 60.0):
            found += served(asked, lambda *_: bytes)
    assert found == [b"1", b"1", b"2", b"2", b"3"]


def test_a_login_that_cannot_be_read_for_a_while_ends_no_thread(
    flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret is replaced: for a moment there is no such file, and no client can be made."""
    works, missing = Clusters.of, [True]

    def of(self: Clusters, named: FlowConfig) -> Sides:
        if missing:
            raise FlowError("the key store is not there")
        return works(self, named)

    monkeypatch.setattr(Clusters, "of", of)
    config = load(flow.config)
    with FlowsReader(config, config.select(None), MetricStore(), interval_ms=20) as flows:
        readings = flows.readings
        eventually(lambda: readings.flows[0].error == "the key store is not there", what="the error")
        eventually(lambda: readings.untried == [], what="the end of a round: the exporter is ready")
        missing.clear()
        eventually(lambda: readings.flows[0].status is not None, what="the reading")


def test_a_cluster_that_hangs_delays_only_its_flows_and_no_answer(
    flow: ReportedFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.config.write_text(flow.config.read_text() + UNREACHABLE_FLOW)
    works, go_on = FlowsReader._read, threading.Event()

    def read(self: FlowsReader, reader: StatusReader, sides: Sides) -> bool:
        if reader.flow.name == "g":
            go_on.wait(30)
        return works(self, reader, sides)

    monkeypatch.setattr(FlowsReader, "_read", read)
    with served(flow) as exporter:
        eventually(lambda: exporter.has('mirror_cluster_up{cluster="a"} 1.0'), what="the flow that can be read")
        eventually(lambda: exporter.get("/readyz") == (503, "not tried yet: g\n"), what="the end of its round")
        assert exporter.get("/")[0] == 200
        go_on.set()
        eventually(lambda: exporter.has('mirror_cluster_up{cluster="gone"} 0.0'), what="the other one")
        eventually(lambda: exporter.get("/readyz")[0] == 200, what="the end of the other one's round")


@pytest.mark.parametrize(
    ("took_ms", "failed", "pause"),
    [
        (100, False, 10_000),
        (5_000, False, 20_000),
        (30_000, False, 60_000),
        (12_000, True, 12_000),
        (90_000, True, 60_000),
    ],
)
def test_a_slow_flow_is_read_less_often_but_each_minute(took_ms: int, failed: bool, pause: int) -> None:
    assert pause_ms(10_000, took_ms, failed=failed) == pause
    assert pause_ms(300_000, took_ms, failed=failed) == 300_000


@pytest.mark.parametrize("listen", ["9465", ":9465", "h:", "h:x", "h:65536"])
def test_a_wrong_address_is_refused(flow: ReportedFlow, listen: str) -> None:
    found = CliRunner().invoke(app, ["exporter", "--config", str(flow.config), "--listen", listen])
    assert (found.exit_code, "must be HOST:PORT" in found.stderr) == (2, True)


def test_an_address_that_is_taken_is_one_line() -> None:
    taken = Endpoint(MetricStore(), "127.0.0.1", 0)
    with (
        closing(taken),
        pytest.raises(FlowError, match=f"--listen: cannot listen on 127.0.0.1:{taken.port}: .*; choose"),
    ):
        Endpoint(MetricStore(), "127.0.0.1", taken.port, option="--listen", remedy="choose another")
