"""``mirror failover``: what is wrong before anything is done, and a target that does not answer."""

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
[switches.night]
flows = ["f"]
"""


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["day"], 1, 'switch = "day": no such switch'),
        (["night", "--until", "fenced"], 2, "must be one of ready, moved, OPEN"),
        ([], 2, "Missing argument 'NAME'"),
        (["night"], 1, "127.0.0.1:2"),
        (["night", "--assess"], 1, "127.0.0.1:2"),
        (["night", "--dry-run", "--although-reachable"], 1, "127.0.0.1:2"),
        (["night", "--rollback"], 1, "127.0.0.1:2"),
        (["night", "--status"], 1, "127.0.0.1:2"),
    ],
)
def test_a_failover_needs_the_target_only_and_names_it(
    arguments: list[str], status: int, line: str, tmp_path: Path
) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(_CONFIG)
    result = CliRunner().invoke(app, ["failover", *arguments, "--config", str(file)])
    assert result.exit_code == status, result.output
    assert line in result.stderr
    assert "127.0.0.1:1" not in result.stderr
    assert "Traceback" not in result.output
