"""Runs a hook: a command of the user's, with the facts of a step as JSON on its standard input."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any, Final

from mirror.errors import brief
from mirror.switch.machine import StepResult

_log: Final = logging.getLogger(__name__)
_MOST: Final = 64 * 1024
"""So many bytes of a hook's output are logged."""


# Invariant: A hook that has not ended in time changes nothing later: all that it has started is killed with it.
# Test: tests/switch/test_hooks.py::test_what_a_late_hook_has_started_is_killed
def run_hook(command: Sequence[str], facts: Mapping[str, Any], timeout_s: float) -> StepResult:
    """Run ``command`` without a shell; its exit status decides. Its output is logged, as warnings if it fails."""
    # Files, since a process that the hook leaves behind would keep a pipe open.
    with TemporaryFile() as given, TemporaryFile() as output:
        given.write(json.dumps(facts).encode() + b"\n")
        given.seek(0)
        try:
            process = subprocess.Popen(
                command, stdin=given, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            return StepResult(ok=False, why=f"hook {command[0]} cannot be started: {error.strerror}")
        why = ""
        try:
            if status := process.wait(timeout_s):
                why = f"hook {command[0]} has ended with exit status {status}"
        except subprocess.TimeoutExpired:
            why = f"hook {command[0]} has not ended within {timeout_s:g} s (hook-seconds)"
        finally:
            if process.returncode is None:
                _kill(process)
        output.seek(0)
        for line in output.read(_MOST).decode(errors="replace").splitlines():
            _log.log(logging.WARNING if why else logging.INFO, "hook %s: %s", command[0], brief(line))
    return StepResult(ok=not why, why=why)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a hook and what it has started, which has its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
