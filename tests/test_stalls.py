"""What the bounds of times lean on: a stall is seen, and where there was none nothing is forgiven."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.stalls import Stalls

CHILD = """
from tests.stalls import Stalls, now_ms
with Stalls() as stalls:
    began = now_ms()
    print("ready", flush=True)
    input()
    print(stalls.between(began, now_ms()))
"""
STOPPED_S = 0.4


def test_a_process_that_was_stopped_knows_for_how_long() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, bufsize=1
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            child.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)
            child.send_signal(signal.SIGCONT)
            child.stdin.write("\n")
            assert float(child.stdout.readline()) >= STOPPED_S * 1000 - 20
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "stalled_ms"),
    [
        (0, 100, 0),
        (105, 110, 5),  # of a beat of 50 that stood still for 30: no more than the time in question
        (0, 150, 30),
        (120, 400, 31),
        (150.5, 400, 1),
        (160.5, 400, 0),
        (90, 1_000, 31),
    ],
)
def test_stalls_of_a_time_are_those_of_the_beats_that_touch_it(
    begin_ms: float, end_ms: float, stalled_ms: float
) -> None:
    stalls = Stalls()
    for until, lost in ((0, 0), (100, 0), (150, 30), (160, 31), (1_000, 31)):
        stalls._until.append(until)
        stalls._lost.append(lost)
    assert stalls.between(begin_ms, end_ms) == pytest.approx(stalled_ms)
