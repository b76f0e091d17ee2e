"""MIRROR_CONFIG is the default of --config, of every command and script that works on clusters of the user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.spark.driver.job_options import JobOptions

EXAMPLE: Final = Path(__file__).parents[2] / "config" / "example.toml"
_GROUP: Final[Any] = get_command(app)


def _variables() -> dict[str, object]:
    """The variable of --config by command, of all commands that have the option."""
    loaded = {name: _GROUP.resolve_command(typer.Context(_GROUP), [name])[1] for name in _GROUP.commands}
    return {name: one.envvar for name, command in loaded.items() for one in command.params if "--config" in one.opts}


def test_each_command_but_the_demo_has_the_variable() -> None:
    variables = _variables()
    assert {"run", "stream", "check-config", "status", "doctor"} < variables.keys()
    assert variables.pop("demo") is None  # it copies between clusters that it starts itself
    assert set(variables.values()) == {"MIRROR_CONFIG"}


def test_the_option_takes_precedence_over_the_variable(tmp_path: Path) -> None:
    missing = {"MIRROR_CONFIG": str(tmp_path / "missing.toml")}
    found = CliRunner().invoke(app, ["check-config", "--json"], env={"MIRROR_CONFIG": str(EXAMPLE)})
    assert (found.exit_code, found.stderr) == (0, "")
    assert "paris" in json.loads(found.stdout)["clusters"]
    given = CliRunner().invoke(app, ["check-config", "--json", "--config", str(EXAMPLE)], env=missing)
    assert given.stdout == found.stdout
    refused = CliRunner().invoke(app, ["check-config"], env=missing)
    line = "missing.toml: no such file; give the configuration's path with --config or MIRROR_CONFIG"
    assert (refused.exit_code, refused.stderr) == (1, f"mirror: {tmp_path}/{line}\n")


@pytest.mark.parametrize("value", [None, ""])
def test_without_both_the_error_names_both(value: str | None) -> None:
    result = CliRunner().invoke(app, ["plan"], env={"MIRROR_CONFIG": value})
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if "Missing" in line]
    assert "--config" in line
    assert "MIRROR_CONFIG" in line


def _parsed(*arguments: str) -> JobOptions:
    return JobOptions.parse(arguments, script="replicate.py", description="", stream=False)


def test_a_script_has_the_same_default(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MIRROR_CONFIG", "mine.toml")
    assert _parsed().config == Path("mine.toml")
    assert _parsed("--config", "other.toml").config == Path("other.toml")
    monkeypatch.setenv("MIRROR_CONFIG", "")
    with pytest.raises(SystemExit, match="2"):
        _parsed()
    assert "--config is missing, and so is the environment variable MIRROR_CONFIG" in capsys.readouterr().err
