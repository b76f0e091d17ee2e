"""Flows that are wrong are left out, and everything else must be right."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from mirror.config.load import load_valid_flows
from mirror.config.models import MirrorConfig
from mirror.errors import ConfigError

CLUSTERS: Final = """
[clusters.a]
"bootstrap.servers" = "a:1"
[clusters.b]
"bootstrap.servers" = "b:1"
"""
RIGHT: Final = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["f"]\n'


def valid(folder: Path, text: str) -> tuple[MirrorConfig, dict[str, ConfigError]]:
    path = folder / "mirror.toml"
    return load_valid_flows(path, environ={}, text=(CLUSTERS + text).encode())


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ('source = "a"\ntarget = "b"\n', "topics"),
        ('source = "a"\ntarget = "gone"\ntopics = ["g"]\n', "target"),
        ('source = "a"\ntarget = "a"\ntopics = ["g"]\n', ""),
        ('source = "a"\ntarget = "b"\ntopics = ["g"]\nnonsense = 1\nrefresh-ms = 1\n', "nonsense"),
        ('source = "a"\ntarget = "b"\ntopics = ["g"]\n[flows.g.producer]\n"linger.ms" = "x"\n', 'producer."linger.ms"'),
    ],
)
def test_a_wrong_flow_is_left_out(tmp_path: Path, table: str, key: str) -> None:
    config, wrong = valid(tmp_path, f"{RIGHT}[flows.f-2]\n{RIGHT.partition(chr(10))[2]}[flows.g]\n{table}")
    assert list(config.flows) == ["f", "f-2"]
    assert list(config.clusters) == ["a", "b"]
    assert list(wrong) == ["g"]
    assert any(problem.key == f"flows.g.{key}".rstrip(".") for problem in wrong["g"].problems)


def test_all_flows_may_be_wrong(tmp_path: Path) -> None:
    config, wrong = valid(tmp_path, RIGHT.replace("topics", "topcis"))
    assert (config.flows, list(wrong)) == ({}, ["f"])


@pytest.mark.parametrize(
    "text",
    [
        RIGHT + "[flows.",
        RIGHT + '[clusters.c]\n"bootstrap.severs" = "c:1"\n',
        RIGHT + '[flows.g]\nsource = "b"\ntarget = "a"\ntopics = ["f"]\nnaming = "identity"\n'
        '[flows.h]\nsource = "a"\ntarget = "b"\ntopics = ["f"]\nnaming = "identity"\n',
        "",
    ],
)
def test_what_is_not_of_one_flow_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        valid(tmp_path, text)


def test_a_wrong_flow_is_not_taken_for_one_whose_name_it_begins_with(tmp_path: Path) -> None:
    _, wrong = valid(tmp_path, f'{RIGHT}[flows.f-2]\nsource = "a"\ntarget = "b"\n')
    assert list(wrong) == ["f-2"]
