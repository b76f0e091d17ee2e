"""What a task's process loads before it can copy: each epoch may begin some."""

from __future__ import annotations

import subprocess
import sys


def test_scram_s_library_is_loaded_by_those_only_that_use_it() -> None:
    script = "import sys, mirror.relay.copy; sys.exit('scramp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
