"""``mirror cutover``: what is wrong before a cluster is asked, and clusters that do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app

_CONFIG = """
[clusters.old]
"bootstrap.servers" = "127.0.0.1:1"
"default.api.timeout.ms" = 300
[clusters.new]
"bootstrap.servers" = "127.0.0.1:2"
"default.api.timeout.ms" = 300
[flows.f]
source = "old"
target = "new"
topics = ["t"]
naming = "identity"
[switches.saturday]
flows = ["f"]
"""


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["sunday"], 1, 'switch = "sunday": no such switch'),
        (["saturday", "--until", "opened"], 2, "must be one of ready, fenced"),
        ([], 2, "Missing argument 'NAME'"),
        (["saturday"], 1, "127.0.0.1:2"),
        (["saturday", "--dry-run"], 1, "127.0.0.1:1"),
        (["saturday", "--dry-run"], 1, "127.0.0.1:2"),
        (["saturday", "--rollback"], 1, "127.0.0.1:2"),
    ],
)
def test_what_keeps_a_switch_from_being_looked_at_is_one_error(
    arguments: list[str], status: int, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(_CONFIG)
    options = ["--config", str(file), "--folder", str(tmp_path / "proofs")]
    result = CliRunner().invoke(app, ["cutover", *arguments, *options])
    assert result.exit_code == status, result.output
    assert line in result.stderr
    assert "Traceback" not in result.output
