"""Processes: identified by id and start time, stopped within a time, and ended with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mirror.sandbox.process import Process, launch, start_time, stop
from tests.polling import eventually

IGNORES_SIGTERM = (
    "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def sleeper(output: Path) -> Iterator[Process]:
    process = launch(["/bin/sleep", "60"], output=output, outlives_owner=False)
    yield process
    stop([process], grace_s=0)


def test_stop_terminates_a_process(sleeper: Process) -> None:
    assert sleeper.alive()
    stop([sleeper], grace_s=10)
    assert not sleeper.alive()
    assert sleeper.child is not None
    assert sleeper.child.returncode == -signal.SIGTERM


def test_stop_kills_a_process_that_ignores_sigterm(output: Path) -> None:
    stubborn = launch([sys.executable, "-c", IGNORES_SIGTERM], output=output, outlives_owner=False)
    eventually(lambda: output.read_text() == "ready\n", what="the process ignores SIGTERM")
    stop([stubborn], grace_s=0.2)
    assert stubborn.child is not None
    assert stubborn.child.returncode == -signal.SIGKILL


def test_stop_terminates_a_paused_process(sleeper: Process) -> None:
    sleeper.send(signal.SIGSTOP)
    eventually(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED)
    began = time.monotonic()
    stop([sleeper], grace_s=120)
    assert time.monotonic() - began < 60


def test_process_has_its_own_session(sleeper: Process) -> None:
    assert os.getsid(sleeper.pid) == sleeper.pid != os.getsid(0)


def test_process_outlives_the_launching_thread(output: Path) -> None:
    launched: list[Process] = []
    thread = threading.Thread(
        target=lambda: launched.append(launch(["/bin/sleep", "60"], output=output, outlives_owner=False))
    )
    thread.start()
    thread.join()
    try:
        # The kernel's death signal follows the thread that forked: it would arrive immediately.
        with pytest.raises(subprocess.TimeoutExpired):
            launched[0].child.wait(timeout=0.3)  # type: ignore[union-attr]  # a child, since it was launched here
    finally:
        stop(launched, grace_s=0)


@pytest.mark.skipif(sys.platform != "linux", reason="the guard is Linux's")
def test_process_dies_with_its_killed_owner(tmp_path: Path) -> None:
    program = f"""
import time
from pathlib import Path
from mirror.sandbox.process import launch
process = launch(["/bin/sleep", "60"], output=Path({str(tmp_path / "log")!r}), outlives_owner=False)
print(process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        try:
            eventually(lambda: psutil.Process(pid).name() == "sleep", what="the guard became the program")
        finally:
            owner.kill()
    eventually(lambda: start_time(pid) is None, what="it died with its owner")


def test_reused_process_id_is_not_mistaken(sleeper: Process) -> None:
    other = Process(sleeper.pid, "another time")
    assert not other.alive()
    stop([other], grace_s=0)
    assert sleeper.alive()
    assert Process(sleeper.pid, sleeper.started).alive()


def test_zombie_is_dead(output: Path) -> None:
    process = launch(["/bin/sleep", "60"], output=output, outlives_owner=False)
    os.kill(process.pid, signal.SIGKILL)
    # Not reaped yet: the child handle has not been asked.
    eventually(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert start_time(process.pid) is None
    assert not process.alive()


def test_missing_process_has_no_start_time() -> None:
    assert start_time(2**22 + 1) is None
