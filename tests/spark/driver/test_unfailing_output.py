"""Output that cannot be written: it stops no run, and the end of a command says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from mirror.spark.driver.launch.submission import ENCODING, STDERR_PIPE, STDOUT_PIPE
from mirror.spark.driver.output.console import Consoles

ROOT = Path(__file__).parents[3]

SUBMITTING = r"""
import sys
from pathlib import Path
from mirror.spark.driver.launch.unfailing_output import replace_standard_streams
from tests.spark.driver.test_submission import scripted

PROGRAM = r'''
for each in (out, pipe):
    for _ in range(3000):
        each.write("\u2500" * 20 + " Z\u00fcrich \u2500\n")
sys.exit(3)
'''
replace_standard_streams()
sys.exit(scripted(PROGRAM, Path(sys.argv[1])).run())
"""
"""Submits as `mirror run` does, with a child that prints more than its pipes hold."""

CONSOLES = r"""
import sys
from mirror.spark.driver.output.console import Consoles

consoles = Consoles()
if "--json" in sys.argv:
    consoles.switch_to_json()
consoles.print_table("Z\u00fcrich \u2500")
consoles.warning("Z\u00fcrich \udcff")
consoles.write_json("Z\u00fcrich")
sys.exit(3)
"""

ENCODINGS = [
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


def run(
    program: str, *arguments: str, environment: dict[str, str] | None = None, redirect: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a Python ``program`` in a shell that redirects its output."""
    unset = ("PYTHONIOENCODING", "PYTHONUTF8", STDOUT_PIPE, STDERR_PIPE)
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-c", program, *arguments],
        env={**inherited, "PYTHONPATH": str(ROOT), **(environment or {"PYTHONUTF8": "1"})},
        capture_output=True,
        encoding="latin-1",
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("environment", ENCODINGS, ids=["latin-1", "ascii", "C"])
def test_a_run_passes_on_what_the_encoding_lacks_as_escapes(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(SUBMITTING, str(tmp_path), environment=environment)
    assert done.returncode == 3, done.stderr
    zurich = "Zürich" if "latin-1" in environment.values() else r"Z\xfcrich"
    for printed in (done.stdout, done.stderr):
        assert printed.splitlines()[-1] == r"\u2500" * 20 + rf" {zurich} \u2500"
        assert printed.count("rich") == 3000


@pytest.mark.parametrize("redirect", [">/dev/full", "2>/dev/full", ">&-", "2>&-", ">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_run_ends_with_its_status_whatever_takes_its_output(redirect: str, tmp_path: Path) -> None:
    done = run(SUBMITTING, str(tmp_path), redirect=redirect)
    assert done.returncode == 3, done.stderr
    warned = "mirror: warning: stdout: No space left on device" in done.stderr.splitlines()
    assert warned == (redirect == ">/dev/full")


@pytest.mark.parametrize(
    ("environment", "redirect", "arguments"),
    [
        *((environment, "", []) for environment in ENCODINGS),
        *((None, redirect, []) for redirect in (">/dev/full", "2>/dev/full", ">&-", "2>&-")),
        (ENCODINGS[1], "", ["--json"]),
        *((None, redirect, ["--json"]) for redirect in (">/dev/full", ">&-")),
    ],
)
def test_no_output_of_a_job_raises(environment: dict[str, str] | None, redirect: str, arguments: list[str]) -> None:
    done = run(CONSOLES, *arguments, environment=environment, redirect=redirect)
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("environment", ENCODINGS, ids=["latin-1", "ascii", "C"])
def test_a_command_prints_what_the_encoding_lacks_as_escapes(environment: dict[str, str]) -> None:
    program = "from mirror.cli.app import main; main()"
    done = run(program, "check-config", "--config", str(ROOT / "config" / "example.toml"), environment=environment)
    assert done.returncode == 0, done.stderr
    assert "paris-berlin" in done.stdout


def test_a_command_whose_output_cannot_be_written_says_so() -> None:
    program = "from mirror.cli.app import main; main()"
    arguments = ("check-config", "--json", "--config", str(ROOT / "config" / "example.toml"))
    done = run(program, *arguments, redirect=">/dev/full")
    assert (done.returncode, done.stderr) == (1, "mirror: stdout: No space left on device\n")


@pytest.mark.parametrize(("encoding", "line"), [("latin-1", "+---+"), ("utf-8", "\u2514\u2500\u2500\u2500\u2518")])
def test_a_table_has_the_lines_that_the_place_behind_the_pipe_can_show(
    encoding: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENCODING, encoding)
    for variable in (STDOUT_PIPE, STDERR_PIPE):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    consoles = Consoles()
    table = Table(show_header=False)
    table.add_row("Z")
    consoles.print_table(table)
    for console in (consoles._out, consoles.err):
        console.file.close()
    assert (tmp_path / STDOUT_PIPE).read_text(encoding="utf-8").splitlines()[-1] == line
