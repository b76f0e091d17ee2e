"""Fixtures that write a configuration into a file of its own and load it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.config.models import MirrorConfig
from mirror.errors import ConfigError

CLUSTERS = """
[clusters.paris]
"bootstrap.servers" = "paris-1:9092"
[clusters.berlin]
"bootstrap.servers" = "berlin-1:9092"
"""

FLOW = """
[flows.paris-berlin]
source = "paris"
target = "berlin"
topics = ["orders"]
"""

Load = Callable[..., MirrorConfig]
Problems = Callable[..., list[str]]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    """``read(toml, environ, secrets)``: what the configuration says."""

    def _read(
        toml: str = CLUSTERS + FLOW, environ: Mapping[str, str] | None = None, secrets: Mapping[str, str] | None = None
    ) -> MirrorConfig:
        file = tmp_path / "mirror.toml"
        file.write_text(toml, encoding="utf-8")
        directory = None
        if secrets is not None:
            directory = tmp_path / "secrets"
            directory.mkdir()
            for name, text in secrets.items():
                (directory / name).write_text(text, encoding="utf-8")
        return load(file, environ=environ or {}, secrets_dir=directory)

    return _read


@pytest.fixture
def problems(read: Load, tmp_path: Path) -> Problems:
    """``problems(toml, environ, secrets)``: its problems, one line each, without the folder's name."""

    def _problems(*args: object) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            read(*args)
        lines = str(caught.value).splitlines()
        assert len(lines) == len(caught.value.problems), "a problem is one line"
        return [line.replace(f"{tmp_path}/", "") for line in lines]

    return _problems
