"""What a command says if the part of the package that it needs is not installed."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror import extras
from mirror.cli import app as frame
from mirror.cluster.auth.oauth_settings import SHIPPED
from mirror.errors import ConfigError
from mirror.telemetry.settings import TelemetrySettings
from mirror.version import VERSION

ROOT = Path(__file__).parents[2]
NEEDING = sorted(name for name, lazy in frame._COMMANDS.items() if lazy.extra)


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation of the base alone."""
    for module in ("pyspark", "plotly", "opentelemetry.exporter.otlp.proto.grpc"):
        monkeypatch.setitem(sys.modules, module, None)


def test_each_extra_that_a_message_names_is_one_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == extras.DISTRIBUTION
    named = {*extras._PARTS, extras.GSSAPI, *SHIPPED}
    assert project["optional-dependencies"].keys() - {"dev"} == named


def test_the_document_names_the_commands_of_each_extra() -> None:
    table = (ROOT / "jobs" / "INSTALL.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `?(none|spark|report)`? \| (.*) \|$", table, re.MULTILINE))
    listed = {name: set(re.findall("`([^`]+)`", row)) for name, row in rows.items()}
    for extra, name in (("", "none"), ("spark", "spark"), ("report", "report")):
        commands = {one for one, lazy in frame._COMMANDS.items() if lazy.extra == extra} - {"sandbox"}
        assert commands == listed[name] & frame._COMMANDS.keys() - {"sandbox"}, name
    assert {"rehearse --html", "status --html"} <= listed["report"]


def test_an_extra_is_installed_from_the_wheel_for_this_python() -> None:
    """``pip`` on the PATH may be that of another environment, as after pipx; the package is in no index."""
    wheel = f"dist/kafka_spark_mirror-{VERSION}-py3-none-any.whl"
    assert wheel in (ROOT / "jobs" / "INSTALL.md").read_text("utf-8")
    assert extras.install("spark") == f"{sys.executable} -m pip install '{wheel}[spark]'"


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("name", NEEDING)
def test_a_command_names_the_extra_that_it_lacks(name: str, tmp_path: Path) -> None:
    arguments = [] if name in {"report", "demo"} else ["--config", str(tmp_path / "none.toml")]
    arguments += ["a-switch"] if name == "cutover" else []
    extra = frame._COMMANDS[name].extra
    words = {"spark": "PySpark", "report": "Plotly and Jinja"}[extra]
    result = CliRunner().invoke(frame.app, [name, *arguments])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"mirror: mirror {name} needs {words}: {extras.install(extra)}\n"


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("name", NEEDING)
def test_the_help_of_a_command_needs_no_extra(name: str) -> None:
    assert CliRunner().invoke(frame.app, [name, "--help"]).exit_code == 0


@pytest.mark.usefixtures("base")
def test_a_page_of_a_rehearsal_is_refused_before_it_begins(tmp_path: Path) -> None:
    arguments = ["--config", str(tmp_path / "none.toml"), "--html", str(tmp_path / "page.html")]
    result = CliRunner().invoke(frame.app, ["rehearse", *arguments])
    assert result.stderr == f"mirror: --html needs Plotly and Jinja: {extras.install('report')}\n"


@pytest.mark.usefixtures("base")
def test_a_backend_by_grpc_needs_its_exporter() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
    with pytest.raises(ConfigError) as caught:
        TelemetrySettings.of(environment)
    assert str(caught.value) == (
        "environment: OTEL_EXPORTER_OTLP_TRACES_PROTOCOL = grpc: needs OpenTelemetry's exporter for gRPC:"
        f" {extras.install('otlp-grpc')}, on every host"
    )
