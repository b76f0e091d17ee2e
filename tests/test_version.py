"""One version: of the package, the command, the changelog, and all that brokers and telemetry backends are shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from setuptools.config.pyprojecttoml import read_configuration

from mirror.telemetry.export.otlp import resource
from mirror.version import VERSION
from mirror.wire.messages.session import ApiVersionsRequest
from tests.cluster.probes import ByHand

ROOT = Path(__file__).parents[1]


def test_package_is_built_with_the_version_of_the_module() -> None:
    assert read_configuration(ROOT / "pyproject.toml")["project"]["version"] == VERSION


def test_mirror_version_prints_it() -> None:
    command = [sys.executable, "-m", "mirror.cli", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mirror {VERSION}\n", "")


def test_brokers_and_backends_are_shown_it() -> None:
    hand = ByHand()
    hand.session.start(0)
    ((_, _, _, request),) = hand.read()
    assert isinstance(request, ApiVersionsRequest)
    assert request.client_software_version == VERSION
    assert resource().attributes["service.version"] == VERSION


def test_changelog_begins_with_it() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == VERSION
