"""``--log-format``: of each command, before or after its name, and handed on to the processes of a job."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.spark.driver.job_options import JobOptions

FORMAT = "MIRROR_LOG_FORMAT"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORMAT, "text")  # and put back what the test changes


@pytest.mark.parametrize(
    "arguments",
    [
        ["--log-format", "json", "plan", "--config", "none.toml"],
        ["plan", "--config", "none.toml", "--log-format", "json"],
        ["plan", "--log-format=json", "--config", "none.toml"],
    ],
)
def test_an_error_is_a_line_of_json(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    line = json.loads(result.stderr)
    assert (result.exit_code, line["level"], line["event"]) == (1, "ERROR", "mirror.error")
    assert line["message"].startswith("none.toml: no such file")


def test_another_format_is_wrong_usage() -> None:
    assert CliRunner().invoke(app, ["--log-format", "yaml", "plan", "--config", "none.toml"]).exit_code == 2


def test_a_job_elsewhere_is_given_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    options = JobOptions(config=Path("mirror.toml"))
    assert "--log-format" not in options.to_arguments()
    monkeypatch.setenv(FORMAT, "json")
    arguments = options.to_arguments()
    monkeypatch.setenv(FORMAT, "text")
    assert JobOptions.parse(arguments, script="replicate.py", description="", stream=False) == options
    assert os.environ[FORMAT] == "json", "for the tasks"
