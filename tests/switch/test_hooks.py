"""Hooks: commands that get the facts of a step and decide by their exit status."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from pathlib import Path

import pytest

from mirror.switch.hooks import run_hook


def test_a_hook_gets_the_facts_of_the_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "given"
    code = f"import sys; open({str(file)!r}, 'w').write(sys.stdin.read()); print('pointed at \\x1b[1m it')"
    with caplog.at_level(logging.INFO):
        assert run_hook([sys.executable, "-c", code], {"step": "switch"}, 30).ok
    assert json.loads(file.read_text()) == {"step": "switch"}
    assert "pointed at \\x1b[1m it" in caplog.text


@pytest.mark.parametrize(
    ("command", "timeout_s", "why"),
    [
        ([sys.executable, "-c", "print('password=x'); exit(3)"], 30, "ended with exit status 3"),
        ([sys.executable, "-c", "import signal; signal.pause()"], 0.3, "has not ended within 0.3 s (hook-seconds)"),
        (["/no/such"], 30, "hook /no/such cannot be started: No such file"),
    ],
)
def test_a_hook_that_fails_says_why(command: list[str], timeout_s: float, why: str) -> None:
    result = run_hook(command, {}, timeout_s)
    assert not result.ok
    assert why in result.why
    assert "password" not in result.why


def test_what_a_late_hook_has_started_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "open"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # The shell's child opens the file before it does anything else.
        assert not run_hook(["/bin/sh", "-c", f"(exec sleep 1000 > {fifo}) & wait"], {}, 1).ok
        assert select.select([reader], [], [], 10)[0], "the child still has the file open"
    finally:
        os.close(reader)


def test_a_hook_has_ended_although_it_leaves_a_process_behind(tmp_path: Path) -> None:
    fifo = tmp_path / "wait"
    os.mkfifo(fifo)
    child = f"open({str(fifo)!r})"  # until this test opens the other end
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}])"
    assert run_hook([sys.executable, "-c", code], {}, 10).ok
    fifo.open("w").close()
