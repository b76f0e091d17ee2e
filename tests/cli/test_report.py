"""`mirror report`: a folder's report, made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from tests.spark.driver.test_report_source import FLOW, summary, write
from tests.telemetry import runs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "reports"
    write(path, "r1", [runs.healthy(), runs.expired()])
    summary(path, [runs.healthy(), runs.expired()])
    return path


def test_the_report_is_written_and_its_name_printed(folder: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{folder / 'report.html'}\n", "")
    assert "1 of 2 partitions is complete" in (folder / "report.html").read_text()


def test_the_report_can_be_written_elsewhere_and_for_one_flow(folder: Path) -> None:
    output = folder.parent / "new" / "other.html"
    result = CliRunner().invoke(app, ["report", str(folder), "--flow", FLOW, "--output", str(output)])
    assert (result.exit_code, result.stdout) == (0, f"{output}\n")
    assert output.exists()
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no run has written a summary.json here; give the --report-dir of a run"),
        (["reports", "--flow", "x"], "there is no flow 'x' here, only: paris-berlin"),
        (["reports", "--output", "reports/summary.json/report.html"], "cannot be written: "),
    ],
)
def test_a_report_that_cannot_be_made_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(folder.parent)
    result = CliRunner().invoke(app, ["report", *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("mirror: ")
    assert words in line
