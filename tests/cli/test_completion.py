"""A shell completes commands, options, files and flows by the script that mirror completion prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer._completion_classes import completion_init
from typer.testing import CliRunner

from mirror.cli.app import app

_ROOT: Final = Path(__file__).parents[2]
_FLOWS: Final = "[flows.paris-berlin]\n[flows.paris-oslo]\n[flows.rome]\n"
_IN_BASH: Final = """
eval "$(mirror completion bash)"
COMP_WORDS=(mirror status --flow paris)
COMP_CWORD=3
$(complete -p mirror | sed 's/.*-F \\([^ ]*\\) .*/\\1/') mirror
echo "${COMPREPLY[@]}"
"""


def _completed(line: str, config: str | None = None) -> list[str]:
    """What a shell is answered about ``line``."""
    completion_init()  # as main() does
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    environment = {"_MIRROR_COMPLETE": "complete_bash", "MIRROR_CONFIG": config, **words}
    result = CliRunner().invoke(app, [], env=environment, prog_name="mirror")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.split()


def test_bash_completes(tmp_path: Path) -> None:
    command = tmp_path / "mirror"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mirror.cli "$@"\n')
    command.chmod(0o755)
    config = tmp_path / "mirror.toml"
    config.write_text(_FLOWS)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(_ROOT), "MIRROR_CONFIG": str(config)}
    found = subprocess.run(
        ["bash", "--norc", "-c", _IN_BASH], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert (found.stdout, found.stderr) == ("paris-berlin paris-oslo\n", "")


def test_commands_and_their_options_are_completed() -> None:
    assert _completed("mirror pl") == ["plan"]
    assert {"--config", "--flow", "--timeout"} <= set(_completed("mirror plan --"))
    assert _completed("mirror plan --config mir") == []  # then the shell completes a file


def test_flows_are_those_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(_FLOWS)
    assert _completed(f"mirror run --config {file} --flow r") == ["rome"]
    assert _completed("mirror run --flow ", str(file)) == ["paris-berlin", "paris-oslo", "rome"]


@pytest.mark.parametrize("text", ["flows = ", "flows = 'abc'", ""])
def test_no_flows_are_completed_of_a_file_that_has_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(text)
    assert _completed("mirror run --flow ", str(file)) == []
    assert _completed("mirror run --flow ", str(tmp_path / "missing.toml")) == []
    assert _completed("mirror run --flow ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_MIRROR_COMPLETE=complete_{shell}" in result.stdout
