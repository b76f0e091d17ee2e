"""Hostile configurations: one clear error each, in bounded time and memory, without control characters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.config.models import FlowConfig
from mirror.config.patterns import matches
from mirror.errors import ConfigError, MirrorError, printable

from .conftest import CLUSTERS, FLOW, Load, Problems

MARKER = "hunter2-marker"
TIME_S = 20
"""A machine that is busy may take ten times what an idle one does."""

NUMBERS = (
    "9223372036854775808",
    "-1",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "2026-01-01",
    "12:00:00",
    "9" * 400,
    "[1]",
    "{a = 1}",
)


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("key", ["commit-interval-ms", "period-ms", "max-bytes-per-second", 'producer."linger.ms"'])
def test_a_value_out_of_any_range_is_one_problem(problems: Problems, key: str, value: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW + f"{key} = {value}")
    assert "must be" in problem
    assert problem.isprintable()


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("x = " + "[" * 100_000, "nested too deeply"),
        ("x = " + "{a = " * 20_000, "nested too deeply"),
        ("[" + ".".join("a" * 5_000) + "]", "nested too deeply"),
        ('x = "\0"', r"not TOML: Illegal character '\x00'"),
        ('"\x1b[31mred" = 1', r"not TOML: Illegal character '\x1b'"),
        ('"\\u001b[31mred\\n" = 1\n"\\u001b[31mred\\n" = 2', "not TOML: line 2: the key "),
        ("x = " + "9" * 5_000, "not TOML"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_problem(problems: Problems, toml: str, why: str) -> None:
    began = time.monotonic()
    (problem,) = problems(toml)
    assert why in problem
    assert problem.isprintable()
    assert time.monotonic() - began < TIME_S


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\nb", "\x9b1m", "\u202egnp", "<script>alert(1)</script>"])
def test_names_are_escaped_for_terminals(problems: Problems, name: str) -> None:
    quoted = '"' + "".join(f"\\u{ord(char):04x}" for char in name) + '"'
    for toml in (f"{quoted} = 1", f"[clusters.{quoted}]", f"[flows.{quoted}]", f'[flows.f.producer]\n{quoted} = "x"'):
        for problem in problems(CLUSTERS + FLOW + toml):
            assert problem.isprintable()


_AS_ANYBODY = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()):
    raise OSError(ctypes.get_errno(), "capset")
"""
"""Root is root by its capabilities: without them the modes of its own files hold for it (capabilities(7))."""


def _of_its_own(*arguments: str, rights: bool = True) -> tuple[int, str, str]:
    """(status, stderr, what else) of ``mirror check-config`` in a process of 600 MB, with this user's ``rights``."""
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20)); "
    script = (
        ("" if rights else _AS_ANYBODY)
        + limited
        + "from mirror.cli.app import main; sys.argv = ['mirror', *sys.argv[1:]]; main()"
    )
    command = [sys.executable, "-c", script, "check-config", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, done.stdout


@pytest.mark.parametrize("kind", ["folder", "fifo", "/dev/zero", "/dev/urandom", "loop", "large", "unreadable"])
def test_special_and_oversized_files_are_refused(tmp_path: Path, kind: str) -> None:
    path = Path(kind) if kind.startswith("/") else tmp_path / "it"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(2 << 30)
    elif kind == "unreadable":
        path.write_text(CLUSTERS + FLOW, encoding="utf-8")
        path.chmod(0)
    # Who runs this may be root, who can read everything.
    status, said, printed = _of_its_own("--config", str(path), rights=not os.access(path, os.R_OK))
    assert (status, printed) == (1, "")
    (line,) = said.splitlines()
    assert line.startswith(f"mirror: {path}: ")


@pytest.mark.cluster
def test_ten_thousand_flows_are_checked_in_seconds(tmp_path: Path) -> None:
    """Half of them one way and half the other, which each could feed."""
    path = tmp_path / "mirror.toml"
    flows = "".join(
        f'[flows.f{n}]\nsource = "{("paris", "berlin")[n % 2]}"\ntarget = "{("berlin", "paris")[n % 2]}"\n'
        f'topics = ["t{n}"]\nnaming = "identity"\n'
        for n in range(10_000)
    )
    path.write_text(CLUSTERS + flows, encoding="utf-8")
    began_s = time.thread_time()
    assert len(load(path, environ={}).flows) == 10_000
    assert time.thread_time() - began_s < 3 * TIME_S


def test_a_cycle_of_a_thousand_clusters_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mirror.toml"
    clusters = "".join(f'[clusters.c{n}]\n"bootstrap.servers" = "c{n}:1"\n' for n in range(1_000))
    flows = "".join(
        f'[flows.f{n}]\nsource = "c{n}"\ntarget = "c{(n + 1) % 1_000}"\ntopics = ["t"]\nnaming = "identity"\n'
        for n in range(1_000)
    )
    path.write_text(clusters + flows, encoding="utf-8")
    with pytest.raises(ConfigError, match="these flows feed each other"):
        load(path, environ={})


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}", "(a*)*b"])
def test_no_pattern_takes_exponential_time(read: Load, pattern: str) -> None:
    flow: FlowConfig = read(CLUSTERS + FLOW.replace('"orders"', f"'{pattern}'")).flows["paris-berlin"]
    began = time.monotonic()
    assert not flow.includes("a" * 249 + "!")
    assert matches(("(a+)+!$",), "a" * 249 + "!")
    assert time.monotonic() - began < TIME_S


@pytest.mark.parametrize(
    "pattern", ["(a{1000}){1000}", "((((a{50}){50}){50}){50})", "a" * 3_000_000, "(" * 6_000 + ")" * 6_000]
)
def test_a_pattern_that_is_too_large_is_one_problem(problems: Problems, pattern: str) -> None:
    began = time.monotonic()
    (problem,) = problems(CLUSTERS + FLOW.replace('"orders"', f"'{pattern}'"))
    assert "not a regular expression" in problem
    assert len(problem) < 1_000
    assert time.monotonic() - began < TIME_S


def test_variables_with_garbage_are_problems(problems: Problems) -> None:
    environ = {
        "MIRROR_FLOWS__PARIS_BERLIN__TOPICS": '["' + "[" * 100_000,
        "MIRROR_FLOWS__PARIS_BERLIN__COMMIT_INTERVAL_MS": "\x1b[31m" + "9" * 1_000,
        "MIRROR_FLOWS__PARIS_BERLIN__HEADERS": "{" * 50_000,
        "MIRROR_CLUSTERS__\x1b[31m": "\udcff",
        "MIRROR_CLUSTERS__PARIS__SASL_PASSWORD": MARKER + "\udcff",
    }
    found = problems(CLUSTERS + FLOW, environ)
    assert all(problem.isprintable() and len(problem) < 1_000 and MARKER not in problem for problem in found)
    assert len(found) >= 4


@pytest.mark.parametrize("kind", ["loop", "fifo", "folder", "junk", "large", "device"])
def test_files_in_the_secrets_folder_that_hold_no_value_are_problems(tmp_path: Path, kind: str) -> None:
    config, folder = tmp_path / "mirror.toml", tmp_path / "secrets"
    config.write_text(CLUSTERS + FLOW, encoding="utf-8")
    folder.mkdir()
    path = folder / "clusters__paris__sasl_password"
    if kind == "loop":
        path.symlink_to(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "junk":
        path.write_bytes(b"\xff\xfe\0" * 100)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(2 << 30)
    else:
        path.symlink_to("/dev/zero")
    status, said, printed = _of_its_own("--config", str(config), "--secrets-dir", str(folder))
    assert (status, printed) == (1, "")
    (line,) = said.splitlines()
    assert line.startswith(f"mirror: secrets file {path}: ")


def test_every_error_is_one_line_without_control_characters() -> None:
    result = str(MirrorError("topic \x1b]0;owned\x07\n\x1b[2Jmirror: all is well \u202e"))
    assert result == r"topic \x1b]0;owned\x07\n\x1b[2Jmirror: all is well \u202e"
    assert printable("München, 東京") == "München, 東京"
