"""What `mirror demo` needs before it starts its clusters."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cli.commands import demo
from mirror.errors import SandboxError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise SandboxError("clusters are started")

    monkeypatch.setattr(demo, "Cluster", start)


@pytest.mark.parametrize("text", [None, "[flows]\n"])
def test_a_wrong_configuration_is_refused_before_clusters_start(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    if text is not None:
        path.write_text(text)
    result = CliRunner().invoke(app, ["demo", "--config", str(path)])
    assert result.exit_code == 1
    assert str(path) in result.stderr
    assert "cluster 'source'" not in result.stderr


def test_its_own_configuration_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo"])
    assert result.stderr.endswith("mirror: clusters are started\n")


def test_its_own_configuration_is_in_the_wheel() -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    folder = demo.DEMO_CONFIG.parent
    package = ".".join(folder.relative_to(ROOT).parts)
    assert demo.DEMO_CONFIG in [path for pattern in packaged[package] for path in folder.glob(pattern)]
