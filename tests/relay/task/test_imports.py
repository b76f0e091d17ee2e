"""The modules that a task's process loads before it copies: every epoch may start processes."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["scramp", "hypothesis"])
def test_optional_module_is_not_loaded_by_every_task(module: str) -> None:
    script = f"import sys, mirror.relay.task.copy_ranges; sys.exit('{module}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_hypothesis_can_still_be_loaded() -> None:
    script = "import mirror.relay.task.copy_ranges, hypothesis.strategies; hypothesis.strategies.integers()"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
