"""``mirror stop`` as it is typed: a run that is there is waited for, one that has died is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import stop as command
from mirror.client import Admin
from mirror.errors import FlowError
from mirror.relay.progress.control_record import RunControl, control_partition, from_offset
from tests.cli.test_status import give
from tests.spark.flow_harness import FlowHarness, use_fakes

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

NOW_MS = 1_800_000_000_000


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_fakes(monkeypatch)
    monkeypatch.setattr(command, "_POLL_INTERVAL_S", 0.01)
    path = FlowHarness(tmp_path).config
    path.write_text(path.read_text() + "shutdown-timeout-ms = 1000\n")
    return path


def stop(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["stop", "--config", str(config), *arguments])


def orders() -> RunControl:
    group, tp = control_partition("f")
    found = from_offset(Admin({"bootstrap.servers": "b:1"}).group_offsets(group, [tp]).get(tp))
    assert found is not None
    return found


@pytest.mark.parametrize("as_json", [False, True])
def test_stop_does_not_wait_for_a_dead_run(config: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    monkeypatch.setattr(command, "_unix_ms", lambda: NOW_MS)
    give(RunControl(run="r1", host="h1", since_ms=1, seen_ms=NOW_MS - 754_000))
    monkeypatch.setattr(command, "_SPARK_SHUTDOWN_S", 3_600)  # if it waited, it would be stopped as one that hangs
    found = stop(config, *(["--json"] if as_json else []))
    assert found.exit_code == 0
    if as_json:
        (result,) = json.loads(found.stdout)
        assert (result["state"], result["silent_seconds"]) == ("gone", 754)
    else:
        assert "no sign of life for 754 s: it has died or cannot reach the target" in found.stdout
    assert orders().ended, "nor does anybody else take it for one that runs"
    assert orders().stop, "where it is there after all, it hears that it is to end"


@pytest.mark.parametrize("seen_ms", [0, NOW_MS])
def test_stop_is_sent_to_a_run_that_may_be_alive(config: Path, monkeypatch: pytest.MonkeyPatch, seen_ms: int) -> None:
    monkeypatch.setattr(command, "_unix_ms", lambda: NOW_MS)
    monkeypatch.setattr(command, "_SPARK_SHUTDOWN_S", 0.2)
    give(RunControl(run="r1", host="h1", since_ms=1, seen_ms=seen_ms))
    found = stop(config)
    assert found.exit_code == 3
    assert found.stdout.endswith(": stop requested; its end is not reported yet\n")
    assert (orders().stop, orders().ended) == (True, False)


def test_an_overwritten_stop_is_sent_again(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = RunControl(run="r1", host="h1", since_ms=1, seen_ms=NOW_MS)
    give(there)
    monkeypatch.setattr(command, "_unix_ms", lambda: NOW_MS)
    monkeypatch.setattr(command, "pause", lambda _: give(there))
    assert stop(config, "--no-wait").exit_code == 0
    assert orders().stop


@pytest.mark.parametrize(("copies", "stopped"), [("r1", True), ("r2", False), (None, False)])
def test_stop_of_one_run_leaves_another_one_alone(
    config: Path, monkeypatch: pytest.MonkeyPatch, copies: str | None, stopped: bool
) -> None:
    """A run may have taken over since ``mirror status`` showed the one that is to stop."""
    monkeypatch.setattr(command, "_unix_ms", lambda: NOW_MS)
    if copies is not None:
        give(RunControl(run=copies, host="h1", since_ms=1, seen_ms=NOW_MS))
    found = stop(config, "--run", "r1", "--no-wait")
    assert found.exit_code == 0
    if copies is not None:
        assert orders().stop is stopped
    if not stopped:
        assert found.stdout == "f: not this run\n"
    notice = "no flow is copied by run r1: it has ended, or has another ID (mirror status)"
    assert (notice in found.stderr) is not stopped


def test_stop_of_one_run_and_resume_exclude_each_other(config: Path) -> None:
    found = stop(config, "--run", "r1", "--resume")
    assert found.exit_code == 2
    assert "--run names a run to stop" in found.stderr


def test_text_of_another_client_is_printed_as_text(config: Path) -> None:
    """Every client that may commit for the group of a flow's orders can name the run and its host."""
    group, tp = control_partition("f")
    names_all = RunControl(run="r\x1b[31m", host="ev\x1b]0;title\x07\nf: nothing runs", since_ms=0, job=1)
    Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group, {tp: names_all.to_offset()})
    result = stop(config, "--no-wait")
    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = result.stdout.splitlines()
    assert line.isprintable()
    assert line.startswith(r"f: run r\x1b[31m on ev\x1b]0;title\x07\nf: nothing runs, ")


def test_an_error_is_printed_on_stderr(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "contact", lambda *_: {"b": FlowError("cluster b does not answer")})
    result = stop(config)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "mirror: f: the command could not be sent: cluster b does not answer\n"


@pytest.mark.parametrize("taken_up", [True, False])
def test_a_flow_that_a_stream_holds_is_begun_again(
    config: Path, monkeypatch: pytest.MonkeyPatch, taken_up: bool
) -> None:
    monkeypatch.setattr(command, "_SPARK_SHUTDOWN_S", 0.2)
    held = RunControl(run="r1", host="h1", since_ms=1, seen_ms=NOW_MS, stop=True, ended=True)
    give(held)

    def pause(_: float) -> None:
        assert (orders().run, orders().stop, orders().ended) == ("r1", False, True)
        if taken_up:
            give(RunControl(run="r2", host="h1", since_ms=2, seen_ms=NOW_MS))

    monkeypatch.setattr(command, "pause", pause)
    found = stop(config, "--resume")
    assert found.exit_code == (0 if taken_up else 3)
    assert found.stdout == (
        "f: begun again\n"
        if taken_up
        else "f: no stream has begun it again: if none runs, start it with mirror stream\n"
    )


def test_a_resume_that_the_stream_has_overwritten_is_sent_again(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = RunControl(run="r1", host="h1", since_ms=1, seen_ms=NOW_MS, stop=True, ended=True)
    give(held)
    found: list[bool] = []

    def pause(_: float) -> None:
        found.append(orders().stop)
        give(held if len(found) == 1 else RunControl(run="r2", host="h1", since_ms=2, seen_ms=NOW_MS))

    monkeypatch.setattr(command, "pause", pause)
    assert stop(config, "--resume").exit_code == 0
    assert found == [False, False]


def test_a_resume_that_is_not_waited_for_is_only_asked_for(config: Path) -> None:
    give(RunControl(run="r1", host="h1", since_ms=1, seen_ms=NOW_MS, stop=True, ended=True))
    found = stop(config, "--resume", "--no-wait")
    assert (found.exit_code, found.stdout) == (0, "f: asked to begin again\n")
    assert not orders().stop


def test_nothing_is_begun_again_that_runs(config: Path) -> None:
    running = RunControl(run="r1", host="h1", since_ms=1, seen_ms=NOW_MS)
    give(running)
    found = stop(config, "--resume")
    assert (found.exit_code, found.stdout) == (0, "f: nothing is held\n")
    assert orders() == running
