"""What a task's process loads before it can copy: each epoch may begin some."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["scramp", "hypothesis"])
def test_what_only_some_use_is_loaded_by_them_only(module: str) -> None:
    script = f"import sys, mirror.relay.task.copy_ranges; sys.exit('{module}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_hypothesis_can_still_be_loaded() -> None:
    script = "import mirror.relay.task.copy_ranges, hypothesis.strategies; hypothesis.strategies.integers()"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
