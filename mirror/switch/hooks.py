"""Runs a hook: a command of the user's, with the facts of a step as JSON on its standard input."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mirror.errors import brief
from mirror.switch.machine import StepResult

_log: Final = logging.getLogger(__name__)


def run_hook(command: Sequence[str], facts: Mapping[str, Any], timeout_s: float) -> StepResult:
    """Run ``command`` without a shell; its exit status decides. Its output goes to the log, a line each."""
    given = json.dumps(facts) + "\n"
    try:
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s,
            check=False, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return StepResult(ok=False, why=f"hook {command[0]} has not ended within {timeout_s:g} s (hook-seconds)")
    except OSError as error:
        return StepResult(ok=False, why=f"hook {command[0]} cannot be started: {error.strerror}")
    for line in done.stdout.splitlines():
        _log.info("hook %s: %s", command[0], brief(line))
    if done.returncode:
        last = brief(done.stdout.splitlines()[-1]) if done.stdout.strip() else "it has printed nothing"
        return StepResult(ok=False, why=f"hook {command[0]} has ended with exit status {done.returncode}: {last}")
    return StepResult(ok=True)
