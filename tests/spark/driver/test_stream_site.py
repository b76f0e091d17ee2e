"""What a stream says of its flows' states, and which slots and which second chances they get."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.config.load import load
from mirror.config.models import FlowConfig
from mirror.errors import FlowError, FlowHeld, KafkaTimeout, LatchMoved, MirrorError, MirrorMakerResumed
from mirror.relay.model.ranges import Outcome
from mirror.spark.driver import stream_flow, stream_job, stream_site
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.stream_flow import NoFreeSlot, StreamFlow
from mirror.spark.driver.stream_site import Signals, StreamSite
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.results import FlowReport
from mirror.spark.preflight.flow_checks import Findings, FlowsRefused
from mirror.spark.supervision.config_file import LoadedFlow
from mirror.spark.supervision.flow_states import NEW, FlowState, Latched, Lost, Refused, Supervised
from mirror.telemetry.metrics.metric_store import MetricStore
from tests.spark.fakes import SilentWriter
from tests.spark.supervision.stand_in import CLUSTERS, flow

RUNNING = Supervised(FlowState.RUNNING, 1)
AWAY = Supervised(FlowState.BACKING_OFF, 2, reason="cluster b does not answer, for 5 s", until_ms=9)
AGAIN = Supervised(FlowState.BACKING_OFF, 2, reason="cluster b does not answer, for 65 s", until_ms=99)
ALIVE = SimpleNamespace(isStopped=lambda: False)
"""The JVM's side of Spark's context."""
PREPARING = Supervised(FlowState.PREPARING, 2)
AGAIN_PREPARING = Supervised(FlowState.PREPARING, 2, reason=AWAY.reason)


class Summary:
    def write(self, reports: object) -> None:
        """Write nothing."""


class Site(StreamSite):
    def __init__(self, folder: Path, *, wait_s: float = 1e9, sc: Callable[[], object] = lambda: ALIVE) -> None:
        self.metrics = MetricStore()
        self.signals = Signals()
        self.rounds = list[None]()
        telemetry = SimpleNamespace(metrics=self.metrics, begin_round=lambda: self.rounds.append(None))
        super().__init__(
            cast("Any", SimpleNamespace(master="spark://h:1", _jsc=SimpleNamespace(sc=sc))),
            JobOptions(config=folder / "mirror.toml", report_dir=folder),
            Consoles(),
            cast("Any", telemetry),
            cast("Any", Summary()),
            cast("Any", SimpleNamespace(write_if_due=bool)),
            self.signals,
            {},
            time.monotonic() + wait_s,
        )

    def flow(self, name: str = "f") -> StreamFlow:
        return self._flows[name] if name in self._flows else self.add(name, lambda _: None)

    def change(self, *states: Supervised, name: str = "f") -> None:
        before = NEW
        for now in states:
            self.flow(name).on_change(None, before, now)
            before = now

    def states(self) -> dict[str, str]:
        points = {instrument.name: points for instrument, points in self.metrics.points()}
        return {dict(one.attributes)["flow"]: dict(one.attributes)["state"] for one in points["mirror.flow.state"]}


def test_each_change_is_one_line_and_a_repeated_attempt_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    site.change(PREPARING, RUNNING, AWAY, AGAIN_PREPARING, AGAIN, AGAIN_PREPARING, RUNNING)
    said = [line.partition("flow f: ")[2] for line in " ".join(capsys.readouterr().err.split()).split("mirror: ")]
    assert [line.strip() for line in said if line] == [
        "preparing",
        "running",
        "backing off: cluster b does not answer, for 5 s; it is tried again by itself",
        "running",
    ]


def test_a_flow_that_is_asked_to_end_is_not_said_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path)
    held = Supervised(FlowState.HELD, 3, "mirror stop has stopped it")
    stopped, sooner = (replace(held, state=now.state, then=FlowState.HELD) for now in (RUNNING, PREPARING))
    site.change(RUNNING, stopped, held, PREPARING, sooner, held)
    assert lines_of(capsys) == [
        "flow f: running",
        *["flow f: it ends in order: mirror stop has stopped it", "flow f: held: mirror stop has stopped it"] * 2,
    ]


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed since the last call, without times and line ends."""
    said = " ".join(capsys.readouterr().err.split()).split("mirror: ")
    return [re.sub(r"^[\d-]+ [\d:]+ ", "", line.strip()) for line in said if line]


def test_what_an_edit_does_is_one_line_for_each_state_of_its_flow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    expected = {
        RUNNING: ("it ends in order and restarts", "it ends in order"),
        AWAY: ("it is started with it now", "it is not started again"),
        Supervised(FlowState.HELD, 3): ("that takes effect once it is resumed", "it is not started again"),
    }
    for state, (edited, removed) in expected.items():
        site.change(state)
        lines_of(capsys)
        site.flow().on_edit(["topics"])
        site.flow().on_removal()
        assert lines_of(capsys) == [
            f"flow f: its configuration was read again (topics): {edited}",
            f"flow f: it was removed from the configuration file: {removed}",
        ]


def test_an_error_of_the_file_and_its_correction_are_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    site.on_file("")
    assert lines_of(capsys) == []
    site.on_file("mirror.toml: not TOML")
    site.on_file("")
    site.change(RUNNING, replace(RUNNING, edit_refused="topiks: unknown key"), RUNNING)
    assert lines_of(capsys) == [
        "warning: mirror.toml: not TOML; until this is corrected, the flows keep their previous configuration",
        f"{tmp_path / 'mirror.toml'}: can be read again",
        "flow f: running",
        "warning: flow f: topiks: unknown key; until this is corrected, the flow keeps its previous configuration",
        "flow f: its configuration is valid again",
    ]


def test_a_stream_that_ends_because_spark_has_is_not_said_to_be_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, sc=_refuse)
    site.change(RUNNING)
    lines_of(capsys)
    site.change(AWAY)
    (said,) = lines_of(capsys)
    assert "Spark ended before its stream" in said


def test_the_death_of_spark_is_one_error_for_each_flow_and_none_for_each_failed_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, sc=_refuse)
    for name in "fg":
        site.change(RUNNING, name=name)
    lines_of(capsys)
    for name in "fg":
        lost = site.flow(name).event_of(ConnectionRefusedError(111, "Connection refused"))
        assert isinstance(lost, Lost)
        site.change(RUNNING, AWAY, name=name)
    said = lines_of(capsys)
    assert [line.partition(":")[0] for line in said] == ["flow f", "flow g"]
    assert all("Spark ended before its stream" in line for line in said)


def test_a_flow_that_is_held_waits_for_its_release_and_one_that_was_is_tried_again(tmp_path: Path) -> None:
    event_of = Site(tmp_path).flow().event_of
    assert event_of(FlowHeld("held since 8")) == Latched("held since 8")
    assert isinstance(event_of(MirrorMakerResumed("it copies again")), Refused), "a takeover ends that"
    assert event_of(LatchMoved("held and released")) == Lost("held and released")


def _refuse() -> object:
    raise ConnectionRefusedError(111, "Connection refused")


def test_the_metric_has_the_state_of_each_flow(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.change(RUNNING, AWAY)
    site.change(RUNNING, name="g")
    assert site.states() == {"f": "backing off", "g": "running"}
    site.change(RUNNING, Supervised(FlowState.ENDED, 3), name="g")
    assert site.states() == {"f": "backing off"}


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (KafkaTimeout("no answer"), Lost("no answer", outage=True)),
        (FlowError("no topic matches"), Refused("no topic matches", 0)),
        (NoFreeSlot("no slot"), Lost("no slot")),
        (ZeroDivisionError("what"), Lost("ZeroDivisionError: what")),
    ],
)
def test_what_passes_is_lost_and_what_someone_has_to_mend_is_refused(
    tmp_path: Path, error: Exception, event: object
) -> None:
    site = Site(tmp_path)
    assert site.flow().event_of(error) == event


def test_only_a_flow_that_has_never_run_is_given_up(tmp_path: Path) -> None:
    site = Site(tmp_path, wait_s=0)
    site.change(AWAY)
    assert site.flow().gives_up(AWAY)
    site.change(RUNNING, AWAY)
    assert not site.flow().gives_up(AWAY)


def test_a_flow_that_is_added_to_a_cluster_gets_a_free_slot_or_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_site, "slots_of", lambda _: 3)
    site = Site(tmp_path)
    for name in "fg":
        site.change(PREPARING, name=name)
    assert [site._take_slots(site.flow(name)) for name in "fg"] == [1, 1]
    site.change(PREPARING, Supervised(FlowState.ENDED, 3), name="g")
    assert site._take_slots(site.flow("f")) == 3
    site.change(PREPARING, name="h")
    with pytest.raises(NoFreeSlot, match="3 task slots"):
        site._take_slots(site.flow("h"))


def test_each_tick_begins_a_round_by_which_a_probe_sees_that_the_stream_is_alive(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.tick()
    assert len(site.rounds) == 1


def test_a_second_signal_is_said_to_end_the_stream_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path)
    for _ in range(3):
        site.signals._on_signal(signal.SIGTERM, None)
        site.tick()
    assert lines_of(capsys) == [
        "ending after SIGTERM: committing what the target has acknowledged",
        "ending after SIGTERM: at once, as it was asked again",
    ]


def test_a_flow_starts_although_the_report_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("no folder")
    ledger = Ledger.of_stream(tmp_path, "f", "run1")
    assert ledger.why_not_writable() is not None
    assert (ledger.path.name, ledger.path.parents[2]) == ("run1", tmp_path)


class Settings:
    """A configuration whose first flow's source is away."""

    def __init__(self, folder: Path) -> None:
        path = folder / "mirror.toml"
        path.write_text(CLUSTERS + flow("f") + flow("g"))
        self.config = load(path)

    def of(self, name: str) -> LoadedFlow:
        return LoadedFlow(self.config, self.config.flows[name])


def test_a_cluster_that_is_away_delays_no_flow_of_others_and_all_refused_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, away = Settings(tmp_path), threading.Event()
    refusals: dict[str, MirrorError] = {}

    def check(_: object, flows: list[FlowConfig], *__: object) -> Findings:
        if flows[0].name == "f":
            assert away.wait(30)
        if (error := refusals.get(flows[0].name)) is not None:
            raise error
        return Findings()

    monkeypatch.setattr(stream_site, "check_flows", check)

    def first(*, may_wait: bool = True, signals: int = 0) -> bool:
        checks = stream_job._begin_checks(settings.config, list(settings.config.flows.values()), Consoles())
        seen = Signals()
        seen.count = signals
        return stream_job._await_first(checks, seen, may_wait=may_wait)

    assert first(), "one flow may run, while the other is still checked"
    assert not first(signals=1)
    away.set()
    refusals |= {"f": FlowsRefused({"f": ["flow f: no topic"]}), "g": FlowError("wrong password")}
    with pytest.raises(FlowsRefused, match="flow f: no topic\nflow g: wrong password"):
        first()
    refusals["f"] = KafkaTimeout("cluster a does not answer")
    assert first(), "it may run later"
    with pytest.raises(FlowsRefused):
        first(may_wait=False)


def test_an_opening_that_was_given_up_does_not_replace_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_site, "slots_of", lambda _: 4)
    monkeypatch.setattr(stream_site, "check_flows", lambda *_: Findings())
    monkeypatch.setattr(stream_flow, "ControlRecordThread", SilentControl)
    monkeypatch.setattr(stream_flow, "StatusWriter", SilentWriter)
    site, settings = Site(tmp_path), Settings(tmp_path).of("f")
    site.flow().on_change(settings, NEW, PREPARING)
    shown = site.flow().open(settings)
    site.flow().use(shown)
    late = site.flow().open(settings)
    assert site.reports[0] is shown.report
    assert site.flow().ledger is shown.ledger
    assert late.report is not shown.report
    assert late._initial is shown._initial, "what has appeared since the first start is new to each"


class SilentControl:
    """Follows nothing."""

    def __init__(self, _: object, options: object, *__: object, **_named: object) -> None:
        self.options = options
        self.calls: list[str] = []
        self.run = ""

    def begin(self) -> str:
        return "run"

    def wait(self, *, claims: bool) -> None:
        self.calls.append(f"wait {claims}")

    def hold(self, *, by_latch: bool) -> None:
        self.calls.append(f"hold {by_latch}")

    def close(self) -> None:
        self.calls.append("close")


def test_the_control_record_follows_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_flow, "ControlRecordThread", SilentControl)
    monkeypatch.setattr(stream_flow, "StatusWriter", SilentWriter)
    site, settings = Site(tmp_path), Settings(tmp_path).of("f")
    held = Supervised(FlowState.HELD, 2)
    before = NEW
    for now in (PREPARING, AWAY, Supervised(FlowState.REFUSED, 2), held, replace(held, by_other_run=True)):
        site.flow().on_change(settings, before, now)
        before = now
    control = cast("SilentControl", site.flow()._control)
    assert control.calls == ["wait True", "wait False", "hold False"]
    site.flow().leave()
    assert control.calls[3:] == ["close"]


def test_a_flow_that_does_not_run_has_its_reason_in_the_summary(tmp_path: Path) -> None:
    """Not what its last run has copied: `complete` would be wrong."""
    site = Site(tmp_path)
    site.change(PREPARING, RUNNING, AWAY)
    assert (site.reports[0].outcome, site.reports[0].error) == (Outcome.FAILED, AWAY.reason)
    site.change(AWAY, AGAIN_PREPARING, AGAIN, replace(AGAIN, state=FlowState.ENDED))
    assert (site.reports[0].error, site.status()) == (AGAIN.reason, 1)


def test_a_stream_that_is_stopped_before_a_flow_runs_has_failed_only_if_the_flow_had(tmp_path: Path) -> None:
    ended = replace(PREPARING, state=FlowState.ENDED)
    site = Site(tmp_path)
    site.change(PREPARING, ended)
    assert (site.reports[0].error, site.status()) == (None, 0)
    site = Site(tmp_path)
    site.change(PREPARING, AWAY, AGAIN_PREPARING)
    site.flow().report = FlowReport("f", datetime.now(UTC))  # of a start that has opened its run
    site.flow().on_change(None, AGAIN_PREPARING, ended)
    assert (site.reports[0].error, site.status()) == (AWAY.reason, 1)


def test_a_flow_that_failed_and_is_not_to_run_any_more_is_no_failure_of_the_stream(tmp_path: Path) -> None:
    refused = Supervised(FlowState.REFUSED, 2, reason="no topic matches")
    site = Site(tmp_path)
    site.change(PREPARING, refused)
    site.flow().on_removal()
    site.flow().on_change(None, refused, replace(refused, state=FlowState.ENDED))
    assert (site.reports, site.status()) == ([], 0)
    site.change(RUNNING, AWAY, Supervised(FlowState.HELD, 3), name="g")
    assert (site.reports[0].error, site.status()) == (None, 0)
