"""What the bounds of times lean on: a stall is seen, and where there was none nothing is forgiven."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
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


@pytest.mark.parametrize(("worked_ms", "forgiven_ms"), [(0, 40), (15, 25), (35, 0), (45, 0)])
def test_a_beat_that_is_late_because_other_threads_worked_is_not_forgiven(
    worked_ms: float, forgiven_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy loop holds the interpreter, and the thread that beats waits for it."""
    monkeypatch.setattr("tests.stalls._run_delay_ms", lambda _: 0.0)
    monkeypatch.setattr("tests.stalls.now_ms", lambda: 1_050.0)
    monkeypatch.setattr("tests.stalls._worked_ms", lambda: 200.0 + worked_ms)
    stalls = Stalls()
    stalls.until, stalls.lost, stalls.worked = [1_000.0], [0.0], 200.0
    stalls.look()
    assert stalls.between(1_000, 1_050) == pytest.approx(forgiven_ms)


def test_what_other_threads_wait_for_a_cpu_is_not_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy loop in one of them waits all the time where the machine is busy."""
    me, times, over = threading.get_native_id(), iter(range(1_000_000)), threading.Event()
    monkeypatch.setattr("tests.stalls._run_delay_ms", lambda thread: 0.0 if thread == me else 50.0 * next(times))
    monkeypatch.setattr("tests.stalls.now_ms", lambda: 1_000.0)
    stalls = Stalls()
    stalls.until, stalls.lost = [990.0], [0.0]
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        stalls.look()
        stalls.look()
    finally:
        over.set()
        other.join()
    assert stalls.lost == [0.0, 0.0, 0.0]


def test_what_any_thread_waits_for_a_cpu_is_forgiven_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that began a moment ago, and what is left when one has ended."""
    me, over = threading.get_native_id(), threading.Event()
    waited = {me: 3.0}
    monkeypatch.setattr("tests.stalls._run_delay_ms", lambda thread: waited.get(thread, 0.0))
    monkeypatch.setattr("tests.stalls.now_ms", lambda: 1_000.0)
    stalls = Stalls(all_threads=True)
    stalls.until, stalls.lost, stalls.waited = [900.0], [0.0], {me: 1.0, -1: 1e9}
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        waited[other.native_id or -1] = 40.0
        stalls.look()
    finally:
        over.set()
        other.join()
    stalls.until[-1] = 990.0
    stalls.look()
    assert stalls.lost == [0.0, 42.0, 42.0]


def test_what_the_measuring_thread_waited_for_a_cpu_is_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is not the one that entered the context."""
    waited = {"ms": 0.0}
    me = threading.get_native_id()
    monkeypatch.setattr("tests.stalls._run_delay_ms", lambda thread: waited["ms"] if thread == me else 1e9)
    stalls = Stalls()
    stalls.thread_id, stalls.waited = -1, {-1: 1e9}
    stalls.until, stalls.lost = [0.0, 1e12], [0.0, 0.0]
    with stalls.timing() as took:
        time.sleep(0.02)
        waited["ms"] = 15
    assert took.running_ms == pytest.approx(took.ms - 15)


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
        stalls.until.append(until)
        stalls.lost.append(lost)
    assert stalls.between(begin_ms, end_ms) == pytest.approx(stalled_ms)
