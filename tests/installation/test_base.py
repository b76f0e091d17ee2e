"""The wheel without any extra, beside the oldest packages that it allows: it is built, installed, and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from mirror.version import VERSION
from tests.installation.lowest import BASE, LOCK, LOWEST, ROOT, asked, lowest, outside, python_of

EXAMPLE: Final = ROOT / "config" / "example.toml"
_WHEEL: Final = f"kafka_spark_mirror-{VERSION}-py3-none-any.whl"
_NOT_IN_THE_BASE: Final = frozenset(
    {"pyspark", "py4j", "plotly", "jinja2", "markupsafe", "confluent_kafka", "openlineage"}
)
pytestmark = pytest.mark.timeout(480)  # without `make test`, the first one downloads the environment
_IMPORT_ALL: Final = """
import importlib, json, pkgutil, mirror
missing = {}
for module in pkgutil.walk_packages(mirror.__path__, "mirror."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            missing.setdefault((error.name or str(error)).split(".")[0], []).append(module.name)
print(json.dumps(missing))
"""


def built(folder: Path) -> Path:
    """The wheel, from a copy of what it is made of: setuptools writes beside it, while other tests read there."""
    sources = folder / "sources"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "mirror", sources / "mirror", ignore=ignored)
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    pip = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(sources)]
    subprocess.run(pip, cwd=folder, env={**outside(), "PYTHONWARNINGS": "ignore"}, check=True)
    return folder / _WHEEL


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content; the environment is shared by runs of the suite."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(built(folder))]
    subprocess.run(pip, cwd=folder, env=outside(), check=True)
    return folder / "site"


def python(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [str(python_of(BASE)), *arguments]
    return subprocess.run(
        command, cwd=installed.parent, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_base_imports_everything_but_what_its_extras_bring(installed: Path) -> None:
    result = python(installed, "-W", "error", "-c", _IMPORT_ALL)
    assert (result.returncode, result.stderr) == (0, "")
    missing: dict[str, list[str]] = json.loads(result.stdout)
    assert missing.keys() <= _NOT_IN_THE_BASE, missing
    assert all(name.startswith("mirror.spark.") for name in missing["pyspark"])


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--version"], 0, f"mirror {VERSION}"),
        (["check-config", "--config", str(EXAMPLE)], 0, "bootstrap.servers"),
        (["plan", "--config", "away.toml", "--timeout", "1"], 1, "does not answer"),
        (["status", "--config", "away.toml", "--timeout", "1"], 1, "does not answer"),
        (["run", "--config", "away.toml"], 1, "mirror run needs PySpark: "),
        (["report"], 1, "mirror report needs Plotly and Jinja: "),
    ],
)
def test_a_command_of_the_base(installed: Path, arguments: list[str], status: int, said: str) -> None:
    flow = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["x"]\n'
    servers = {"a": '"127.0.0.1:1"', "b": '"127.0.0.1:2"'}
    clusters = "".join(f'[clusters.{name}]\n"bootstrap.servers" = {server}\n' for name, server in servers.items())
    (installed.parent / "away.toml").write_text(clusters + flow)
    result = python(installed, "-W", "error", "-m", "mirror.cli", *arguments)
    assert result.returncode == status, result.stderr
    assert said in (result.stderr if status else result.stdout)


def test_the_lock_has_the_lowest_versions_that_are_allowed() -> None:
    locked = {line.split(" ")[0] for line in LOCK.read_text("utf-8").splitlines() if "==" in line}
    versions = dict(line.split("==") for line in locked)
    for requirement in asked(LOWEST):
        name, version = lowest(requirement).split("==")
        assert same(versions[name.split("[")[0]], version), requirement


def same(one: str, other: str) -> bool:
    """Whether these are one version: 3.1 is 3.1.0."""
    return one.removesuffix(".0").removesuffix(".0") == other.removesuffix(".0").removesuffix(".0")
