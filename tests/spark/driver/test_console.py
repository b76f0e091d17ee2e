"""What the driver's script prints, and where: for people, or for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.spark.driver.batch_job import summarized
from mirror.spark.driver.launch.submission import STDERR_PIPE, STDOUT_PIPE
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.report.report_lock import locked
from mirror.spark.ledger.results import FlowReport

SCRIPT = """
import os, subprocess, sys, warnings
from mirror.spark.driver.output.console import Consoles

consoles = Consoles()
if "--json" in sys.argv:
    consoles.switch_to_json()
subprocess.run(["echo", "a process"])
print("a library")
warnings.warn("a warning")
consoles.print_table("a table")
consoles.error("an error")
consoles.write_json({"period": 1})
consoles.write_json({"flows": []}, indent=1)
consoles.write_json("{}" + chr(10))
"""


def _script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )


def test_with_json_stdout_has_only_json() -> None:
    done = _script("--json")
    assert done.stdout == '{"period": 1}\n{\n "flows": []\n}\n{}\n'
    for text in ("a process\n", "a library\n", "UserWarning: a warning\n", "mirror: an error\n"):
        assert text in done.stderr
    assert "a table" not in done.stderr


def test_each_line_of_a_log_for_programs_is_a_json_object(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIRROR_LOG_FORMAT", "json")
    consoles = Consoles()
    consoles.progress("flow f: planning")
    consoles.set_live_text("f", "half")
    consoles.warning("late\nvery")
    consoles.report(FlowError("broken"), debug=True)
    consoles.print_table("a table")
    out, err = capfd.readouterr()
    lines = [json.loads(line) for line in err.splitlines()]
    assert [(line["level"], line["message"].splitlines()[0]) for line in lines] == [
        ("INFO", "flow f: planning"),
        ("WARNING", "late"),
        ("ERROR", "broken"),
        ("ERROR", "mirror.errors.FlowError: broken"),
    ]
    assert (lines[0]["mirror.flow"], out) == ("f", "a table\n")


def test_without_json_stdout_has_tables() -> None:
    done = _script()
    assert sorted(done.stdout.splitlines()) == ["a library", "a process", "a table"]
    assert "mirror: an error\n" in done.stderr


@pytest.fixture
def consoles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Consoles]:
    """For programs, with files for the pipes."""
    for variable in (STDOUT_PIPE, STDERR_PIPE):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    made = Consoles()
    made.switch_to_json()
    yield made
    for console in (made._out, made.err):
        console.file.close()


def _printed(folder: Path) -> str:
    return (folder / STDOUT_PIPE).read_text().removeprefix("\0")


def test_the_summary_is_printed_however_a_job_ends(tmp_path: Path, consoles: Consoles) -> None:
    report = FlowReport("f", datetime(2026, 1, 31, tzinfo=UTC))

    def fail() -> None:
        with summarized(tmp_path / "report", consoles) as summary:
            summary.write([report])
            report.error = "why"
            summary.write([report])
            assert _printed(tmp_path) == ""
            raise FlowError("why")

    with pytest.raises(FlowError, match="why"):
        fail()
    (flow,) = json.loads(_printed(tmp_path))["flows"]
    assert (flow["outcome"], flow["error"]) == ("failed", "why")


def test_the_summary_of_another_run_is_not_printed(tmp_path: Path, consoles: Consoles) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (report / "summary.json").write_text('{"flows": []}')
    with locked(report), pytest.raises(FlowError), summarized(report, consoles):
        pass
    with pytest.raises(FlowError, match="not begun"), summarized(report, consoles):
        raise FlowError("not begun")
    assert _printed(tmp_path) == ""


def test_the_line_of_an_error_has_its_flow_once(capfd: pytest.CaptureFixture[str]) -> None:
    consoles = Consoles()
    for text in ("flow f is held since 8", "flow f: broken", "broken", "flow fg is held since 8"):
        consoles.report(FlowError(text), debug=False, flow="f")
    lines = ["flow f is held since 8", "flow f: broken", "flow f: broken", "flow f: flow fg is held since 8"]
    assert capfd.readouterr().err.splitlines() == [f"mirror: {line}" for line in lines]
