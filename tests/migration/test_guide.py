"""The guide "Coming from MirrorMaker 2" says what the importer, the commands and the metrics do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from mirror.cli.app import app
from mirror.migration import known_keys
from mirror.migration.tables.equivalents import CLIENT, CONNECTOR, remark
from tests.migration.guide import GUIDE, JMX_ATTRIBUTES, METRICS, commands, with_table

TEXT = GUIDE.read_text("utf-8")
COMMANDS = commands()


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_guide_is_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mm2.properties").touch()
    Path("mirror.toml").touch()
    Path("mirror-secrets").mkdir()
    program, name, *arguments = shlex.split(command)
    group = typer.main.get_group(app)
    with group.make_context(program, [name, *arguments]) as context:
        _, found, rest = group.resolve_command(context, [name, *arguments])
        assert found is not None
        found.make_context(name, rest, parent=context)


def test_guide_has_the_whole_afternoon() -> None:
    used = {command.split()[1] for command in COMMANDS}
    assert used == {
        *("lint", "import", "check-config", "plan", "takeover", "stream", "status", "groups", "offsets", "stop")
    }


def test_settings_without_a_key_are_those_of_the_importer() -> None:
    assert with_table(TEXT) == TEXT, "run python -m tests.migration.guide"


def test_every_setting_of_mirrormaker_is_in_the_guide() -> None:
    """It is in the table of settings, or the importer has a remark about it, which is in the other one."""
    named = set(re.findall(r"`(?:[AB](?:->[AB])?\.)?([a-z][a-z.-]+)`", section("Settings")))
    own = known_keys.CONNECTORS - known_keys.CLIENT - {"enabled", "source.cluster.alias", "target.cluster.alias"}
    assert {key for key in own if key not in named and remark(CONNECTOR, key) is None} == set()
    written = {"topics", "groups", "sync.topic.configs.enabled", "replication.factor", "refresh.topics.enabled"}
    assert written <= named


def test_every_metric_of_mirrormaker_has_its_equal() -> None:
    theirs = [name for attributes, _, _ in METRICS for name in attributes]
    assert sorted(theirs) == sorted(name for name in JMX_ATTRIBUTES if not name.endswith(("-min", "-max", "-avg")))
    assert all(ours for _, ours, _ in METRICS)
    assert {remarks["metric"].action for remarks in (CONNECTOR, CLIENT)} == {
        "see Metrics in mirror/migration/README.md"
    }
    assert section("Metrics")
