"""The frame of the command line: errors as lines, exit statuses, and a quick start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mirror.cli import app as frame
from mirror.cli.app import app
from mirror.errors import FlowError, SandboxError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config" / "example.toml"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Puts a function in the place of the ``demo`` command."""

    def put(function: Callable[..., None]) -> None:
        module = types.ModuleType("mirror.cli.commands.cli_test_command")
        module.demo = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(frame._COMMANDS, "demo", frame._Lazy("cli_test_command", "demo", "help"))

    return put


def _raise(error: BaseException) -> None:
    raise error


def test_check_config_shows_the_effective_values() -> None:
    result = CliRunner().invoke(app, ["check-config", "--config", str(EXAMPLE)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for text in ["clusters.paris", "paris-1:9092", "flows.paris-berlin", '".*[.-](internal|replica)"', "exactly-once"]:
        assert text in result.stdout


def test_help_names_every_command_without_its_module() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in [
        "run",
        "stream",
        "report",
        "plan",
        "status",
        "offsets",
        "stop",
        "check-config",
        "demo",
        "sandbox",
        "--debug",
        "--version",
    ]:
        assert name in result.stdout


@pytest.mark.parametrize("command", ["cutover", "failover"])
def test_the_help_of_a_switch_names_its_table(command: str) -> None:
    assert "[switches.NAME]" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "120"}).stdout


def test_check_config_as_json() -> None:
    result = CliRunner().invoke(app, ["check-config", "--config", str(EXAMPLE), "--json"])
    described = json.loads(result.stdout)
    assert described["clusters"]["berlin"]["bootstrap.servers"] == "berlin-1:9092"
    assert described["clusters"]["berlin"]["retry.backoff.max.ms"] == 1000
    assert described["flows"]["paris-berlin"]["topics"] == ["orders", "clicks-.*"]
    assert described["flows"]["paris-berlin"]["producer"]["delivery.timeout.ms"] == 60000
    assert described["flows"]["paris-berlin"]["producer"]["transaction.timeout.ms"] == 91000
    assert "name" not in described["flows"]["paris-berlin"]


def _flow(tmp_path: Path, more: str) -> list[str]:
    """The arguments that check a configuration whose flow has ``more`` lines."""
    file = tmp_path / "mirror.toml"
    file.write_text(
        '[clusters.a]\n"bootstrap.servers" = "a:1"\n[clusters.b]\n"bootstrap.servers" = "b:1"\n'
        f'[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["t"]\n{more}\n'
    )
    return ["check-config", "--config", str(file)]


def test_check_config_marks_defaults(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, _flow(tmp_path, 'naming = "prefix"\nproducer."delivery.timeout.ms" = 60000'))
    rows = {cells[1]: cells[2:4] for line in result.stdout.splitlines() if len(cells := re.split(r" *│ *", line)) > 3}
    assert rows["naming"] == ["prefix", ""]
    assert rows["delivery"] == ["exactly-once", "default"]
    assert rows['producer."delivery.timeout.ms"'] == ["60000", ""]
    assert rows['consumer."max.partition.fetch.bytes"'] == ["4194304", "default"]
    assert rows["retry.backoff.max.ms"] == ["1000", "default"]


def test_check_config_warns_of_a_key_without_effect(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*_flow(tmp_path, 'consumer."group.id" = "x"'), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["flows"]["f"]["consumer"]["group.id"] == "x"
    (line,) = result.stderr.splitlines()
    assert line.startswith('mirror: warning: flows.f.consumer."group.id" has no effect: ')


def test_check_config_names_a_transform_that_cannot_be_imported(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, _flow(tmp_path, 'transform = "no_such_module:function"\nx = 1'))
    assert (result.exit_code, result.stdout) == (1, "")
    one, two = result.stderr.splitlines()
    assert "flows.f.x = 1: unknown key" in one
    assert two.startswith(
        f'mirror: {tmp_path}/mirror.toml: flows.f.transform = "no_such_module:function": cannot be loaded:'
        " ModuleNotFoundError: No module named 'no_such_module'; the search path is PYTHONPATH, the installed"
    )


def test_a_transform_may_be_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mirror_cli_transform.py").write_text("def change(record):\n    return record\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    result = CliRunner().invoke(app, _flow(tmp_path, 'transform = "mirror_cli_transform:change"'))
    assert (result.exit_code, result.stderr) == (0, "")
    assert sys.path == before


def test_a_local_run_checks_its_transform_before_spark_starts(tmp_path: Path) -> None:
    arguments = _flow(tmp_path, 'transform = "no_such_module:function"')[1:]
    result = CliRunner().invoke(app, ["run", *arguments, "--report-dir", str(tmp_path / "report")])
    assert result.exit_code == 1
    assert "cannot be loaded: ModuleNotFoundError" in result.stderr
    assert not (tmp_path / "report").exists()


def test_check_config_prints_each_problem_on_a_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[clusters.a]\n"sasl.password" = "hunter2"\n[flows.f]\nsource = "a"\ntarget = "b"\ntopics = []\n')
    result = CliRunner().invoke(app, ["check-config", "--config", str(file)])
    assert (result.exit_code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"mirror: {file}: ") for line in lines)
    assert "hunter2" not in result.stderr


def test_check_config_takes_overrides(tmp_path: Path) -> None:
    (tmp_path / "flows__paris_berlin__naming").write_text("identity")
    arguments = ["check-config", "--config", str(EXAMPLE), "--json", "--secrets-dir", str(tmp_path)]
    environ = {"MIRROR_CLUSTERS__PARIS__BOOTSTRAP_SERVERS": "elsewhere:1"}
    described = json.loads(CliRunner().invoke(app, arguments, env=environ).stdout)
    assert described["flows"]["paris-berlin"]["naming"] == "identity"
    assert described["clusters"]["paris"]["bootstrap.servers"] == "elsewhere:1"


@pytest.mark.parametrize("arguments", [["check-config"], ["chek-config"], ["--nonsense"], ["check-config", "--config"]])
def test_wrong_usage_has_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_an_expected_error_is_printed_as_its_lines(command: Callable[[Callable[[], None]], None]) -> None:
    command(lambda: _raise(SandboxError("it did not start\nnor this \x1b[2J")))
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stderr) == (1, "mirror: it did not start\nmirror: nor this \\x1b[2J\n")


@pytest.mark.parametrize("arguments", [["--debug", "demo"], ["demo"]])
def test_an_unexpected_error_is_one_line_with_a_hint(
    arguments: list[str], command: Callable[[Callable[[], None]], None]
) -> None:
    command(lambda: _raise(ZeroDivisionError("by\n zero")))
    result = CliRunner().invoke(app, arguments, env={"MIRROR_DEBUG": None})
    assert result.exit_code == 1
    if "--debug" in arguments:
        assert "Traceback (most recent call last)" in result.stderr
        assert result.stderr.endswith("mirror: ZeroDivisionError: by zero\n")
    else:
        assert result.stderr == (
            "mirror: ZeroDivisionError: by zero\nmirror: unexpected error; rerun with mirror --debug for a traceback\n"
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["demo"], False), (["--debug", "demo"], True), (["demo", "--debug"], True)],
)
def test_debug_reaches_a_command_that_passes_it_on(
    arguments: list[str], expected: bool, command: Callable[[Callable[..., None]], None]
) -> None:
    def demo(debug: bool = False) -> None:
        raise FlowError(f"debug is {debug}")

    command(demo)
    result = CliRunner().invoke(app, arguments, env={"MIRROR_DEBUG": None})
    assert result.stderr.endswith(f"mirror: debug is {expected}\n")
    assert ("Traceback" in result.stderr) is expected


def test_debug_can_be_set_in_the_environment(command: Callable[[Callable[[], None]], None]) -> None:
    command(lambda: _raise(FlowError("no topic matches")))
    result = CliRunner().invoke(app, ["demo"], env={"MIRROR_DEBUG": "1"})
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("mirror: no topic matches\n")


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (typer.Exit(3), 3), (typer.Exit(), 0)])
def test_interrupts_and_exits_keep_their_status(
    error: BaseException, status: int, command: Callable[[Callable[[], None]], None]
) -> None:
    command(lambda: _raise(error))
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stderr) == (status, "")


def test_the_real_command_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "mirror.cli"]
    good = subprocess.run(
        [*command, "check-config", "--config", EXAMPLE],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert (good.returncode, good.stderr) == (0, "")
    bad = subprocess.run(
        [*command, "check-config", "--config", "no.toml"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "mirror: no.toml: no such file; give the configuration's path with --config or MIRROR_CONFIG\n"


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], {"pyspark", "pydantic", "kio", "mirror.config.load"}),
        (["check-config", "--config", str(EXAMPLE)], {"pyspark", "kio", "opentelemetry"}),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], unwanted: set[str]) -> None:
    script = (
        "import sys, json\nfrom mirror.cli.app import app\n"
        "try:\n    app(json.loads(sys.argv[1]))\n"
        "except SystemExit as end:\n    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=True,
    )
    code, modules = json.loads(process.stderr)
    assert code == 0
    assert not unwanted & set(modules)
    assert "check-config" in process.stdout or "paris-1:9092" in process.stdout
