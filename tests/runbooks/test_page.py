"""Each command of jobs/RUNBOOKS.md is one of the command line, says its exit status, and is run by a test here."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer

from mirror.cli.app import app
from mirror.config.load import load
from tests.runbooks.page import NIGHT, PAGE, SATURDAY, STRIMZI, SUNDAY, blocks, steps

TITLES = (SATURDAY, SUNDAY, NIGHT, STRIMZI)
COMMANDS = sorted({step.command for title in TITLES for step in steps(title) if step.command.startswith("mirror ")})


def test_the_page_has_the_sections_that_are_tested() -> None:
    found = [line[3:] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("## ")]
    assert sorted(found) == sorted(TITLES)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MIRROR_CONFIG", "mirror.toml")
    for file in ("mirror.toml", "mm2.yaml"):
        Path(file).touch()
    program, name, *arguments = shlex.split(command)
    group = typer.main.get_group(app)
    with group.make_context(program, [name, *arguments]) as context:
        _, found, rest = group.resolve_command(context, [name, *arguments])
        assert found is not None
        found.make_context(name, rest, parent=context)


def test_the_configuration_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text("".join(text for title in (SATURDAY, SUNDAY, NIGHT) for text in blocks(title, "toml")))
    config = load(file)
    assert {*config.switches} == {"saturday", "sunday", "night", "home"}
