"""``mirror failback``: what is wrong before anything is done, and clusters that do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from tests.cli.test_cutover import _CONFIG


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["sunday"], 1, 'switch = "sunday": no such switch'),
        ([], 2, "Missing argument 'NAME'"),
        (["saturday", "--list", "--lift"], 2, "give one of"),
        (["saturday", "--append"], 2, "give both"),
        (["saturday"], 1, "127.0.0.1:1"),
        (["saturday", "--inspect"], 1, "127.0.0.1:2"),
    ],
)
def test_what_keeps_it_from_beginning_is_one_error(
    arguments: list[str], status: int, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(_CONFIG)
    result = CliRunner().invoke(app, ["failback", *arguments, "--config", str(file)])
    assert result.exit_code == status, result.output
    assert line in result.stderr
    assert "Traceback" not in result.output
