from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.campaign.chaos.wall_clock import WallClock, library

LIBRARY = library()
PROBE = """
import sys, time
while sys.stdin.readline():
    began = time.monotonic()
    time.sleep(0.05)
    print(time.time(), time.monotonic() - began, flush=True)
"""


@pytest.mark.cluster
def test_process_sees_each_step_and_its_sleeps_are_unaffected(tmp_path: Path) -> None:
    assert LIBRARY is not None, "there is no libfaketime: make faketime"
    clock = WallClock(tmp_path / "clock", LIBRARY)
    with subprocess.Popen(
        [clock.python(), "-c", PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:

        def measured() -> tuple[float, float]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            wall, slept = map(float, child.stdout.readline().split())
            return wall - time.time(), slept

        for seconds in (0, 3_600, -3_600, 5):
            clock.step(seconds)
            until = time.monotonic() + 20
            while abs(measured()[0] - seconds) > 1:
                assert time.monotonic() < until, f"a clock at {measured()[0]:+.1f} s, not {seconds:+d}"
            assert 0.04 < measured()[1] < 5
        child.communicate()


def test_java_is_started_without_the_library(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock", Path("anything"))
    home = clock.java_home(Path("env"))
    said = subprocess.run([home / "bin/java"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "LD_PRELOAD=" in said
