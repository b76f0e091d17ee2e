"""What a stream says of its flows' states, and which slots and which second chances they get."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.errors import FlowError, KafkaTimeout
from mirror.spark.driver import stream_site
from mirror.spark.driver.job_options import JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.stream_site import NoFreeSlot, Signals, StreamSite
from mirror.spark.preflight.flow_checks import Findings
from mirror.spark.supervision.states import FlowState, Lost, Refused, Supervised
from mirror.telemetry.metrics.metric_store import MetricStore

WANTED = Supervised(FlowState.WANTED, 0)
RUNNING = Supervised(FlowState.RUNNING, 1)
AWAY = Supervised(FlowState.BACKING_OFF, 2, reason="cluster b does not answer, for 5 s", until_ms=9)
AGAIN = Supervised(FlowState.BACKING_OFF, 2, reason="cluster b does not answer, for 65 s", until_ms=99)
ALIVE = SimpleNamespace(isStopped=lambda: False)
"""The JVM's side of Spark's context."""
PREPARING = Supervised(FlowState.PREPARING, 2, reason=AWAY.reason)


class Summary:
    def write(self, reports: object) -> None:
        """Write nothing."""


class Site(StreamSite):
    def __init__(
        self,
        folder: Path,
        *,
        wait_s: float = 1e9,
        sc: Callable[[], object] = lambda: ALIVE,
    ) -> None:
        self.metrics = MetricStore()
        telemetry = SimpleNamespace(metrics=self.metrics, export_metrics=lambda: None)
        super().__init__(
            cast("Any", SimpleNamespace(master="spark://h:1", _jsc=SimpleNamespace(sc=sc))),
            JobOptions(config=folder / "mirror.toml", report_dir=folder),
            Consoles(),
            cast("Any", telemetry),
            cast("Any", Summary()),
            cast("Any", None),
            Signals(),
            Findings(),
            time.monotonic() + wait_s,
        )

    def change(self, *states: Supervised, name: str = "f") -> None:
        before: Supervised | None = None
        for now in states:
            self.on_change(name, None, before, now)
            before = now

    def states(self) -> dict[str, str]:
        points = {instrument.name: points for instrument, points in self.metrics.points()}
        return {dict(one.attributes)["flow"]: dict(one.attributes)["state"] for one in points["mirror.flow.state"]}


def test_each_change_is_one_line_and_a_repeated_attempt_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path)
    site.change(WANTED, PREPARING, RUNNING, AWAY, PREPARING, AGAIN, PREPARING, RUNNING)
    said = [line.partition("flow f: ")[2] for line in " ".join(capsys.readouterr().err.split()).split("mirror: ")]
    assert [line.strip() for line in said if line] == [
        "preparing: cluster b does not answer, for 5 s",
        "running",
        "backing off: cluster b does not answer, for 5 s; it is tried again by itself",
        "running",
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
        site.on_edit("f", ["topics"])
        site.on_removal("f")
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
        site.change(WANTED, RUNNING, name=name)
    lines_of(capsys)
    for name in "fg":
        lost = site.event_of(name, ConnectionRefusedError(111, "Connection refused"))
        assert isinstance(lost, Lost)
        site.change(RUNNING, AWAY, name=name)
    said = lines_of(capsys)
    assert [line.partition(":")[0] for line in said] == ["flow f", "flow g"]
    assert all("Spark ended before its stream" in line for line in said)


def _refuse() -> object:
    raise ConnectionRefusedError(111, "Connection refused")


def test_the_metric_has_the_state_of_each_flow(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.change(WANTED, RUNNING, AWAY)
    site.change(WANTED, RUNNING, name="g")
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
    site.change(WANTED)
    assert site.event_of("f", error) == event


def test_only_a_flow_that_has_never_run_is_given_up(tmp_path: Path) -> None:
    site = Site(tmp_path, wait_s=0)
    site.change(WANTED, AWAY)
    assert site.gives_up("f", AWAY)
    site.change(WANTED, RUNNING, AWAY)
    assert not site.gives_up("f", AWAY)


def test_a_flow_that_is_added_to_a_cluster_gets_a_free_slot_or_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_site, "slots_of", lambda _: 3)
    site = Site(tmp_path)
    site.change(WANTED, PREPARING, name="f")
    site.change(WANTED, PREPARING, name="g")
    first, second = (site._flows[name] for name in "fg")
    assert (site._take_slots(first), site._take_slots(second)) == (1, 1)
    site.change(PREPARING, AWAY, name="g")
    second.state = FlowState.ENDED
    assert site._take_slots(first) == 3
    site.change(WANTED, PREPARING, name="h")
    with pytest.raises(NoFreeSlot, match="3 task slots"):
        site._take_slots(site._flows["h"])
