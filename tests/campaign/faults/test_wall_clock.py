from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.campaign.faults.wall_clock import WallClock, library

LIBRARY = library()
TELL = """
import sys, time
while sys.stdin.readline():
    began = time.monotonic()
    time.sleep(0.05)
    print(time.time(), time.monotonic() - began, flush=True)
"""


@pytest.mark.cluster
def test_a_step_is_seen_and_waits_go_on(tmp_path: Path) -> None:
    assert LIBRARY is not None, "there is no libfaketime: make faketime"
    clock = WallClock(tmp_path / "clock", LIBRARY)
    with subprocess.Popen(
        [clock.python(), "-c", TELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:

        def told() -> tuple[float, float]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            wall, slept = map(float, child.stdout.readline().split())
            return wall - time.time(), slept

        for seconds in (0, 3_600, -3_600, 5):
            clock.step(seconds)
            until = time.monotonic() + 20
            while abs(told()[0] - seconds) > 1:
                assert time.monotonic() < until, f"a clock at {told()[0]:+.1f} s, not {seconds:+d}"
            assert 0.04 < told()[1] < 5
        child.communicate()


def test_java_is_started_without_it(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock", Path("anything"))
    home = clock.java_home(Path("env"))
    said = subprocess.run([home / "bin/java"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "LD_PRELOAD=" in said
