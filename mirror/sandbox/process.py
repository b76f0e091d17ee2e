"""Starts processes that end with, or outlive, their owner; finds them again; and stops them within a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mirror.errors import SandboxError

_POLL_S: Final = 0.02
_SIGNAL_TIMEOUT_S: Final = 10.0
_DEAD: Final = frozenset({"", "Z", "X"})
_STOPPED: Final = frozenset({"T", "t"})
_GUARD: Final = Path(__file__).with_name("die_with_owner.py")
_LAUNCHER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-launcher")
"""Starts every guarded process: the kernel's "owner" is the *thread* that forked, and this thread never ends."""


# Invariant: A process is identified by its id and its start time: another one with a reused id is not mistaken for it.
# Test: tests/sandbox/test_process.py::test_reused_process_id_is_not_mistaken
@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified by its id and its start time, because the system may reuse the id."""

    pid: int
    started: str
    """The start time in the system's own format."""
    child: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)
    """Only in the process that started it, and has to reap it."""

    def alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return start_time(self.pid) == self.started

    def send(self, sign: signal.Signals) -> None:
        """Send a signal if the process is alive; the system cannot reuse a child's id before it is reaped."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sign)


def launch(command: Sequence[str | Path], *, output: Path, outlives_owner: bool) -> Process:
    """Start ``command`` (its program as an absolute path) in its own session, and append its output to a file.

    Because of the session, Ctrl-C in the terminal reaches only the owner, which then stops the process. Unless
    ``outlives_owner``, the kernel kills the process when this one dies, even if it is killed (Linux).
    """
    line = [str(part) for part in command]
    if outlives_owner:
        child = _spawn(line, output)
    else:
        guarded = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *line]
        child = _LAUNCHER.submit(_spawn, guarded, output).result()
    return Process(child.pid, start_time(child.pid) or "", child)


def _spawn(line: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("ab") as log:
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def start_time(pid: int) -> str | None:
    """Return when the process ``pid`` started as an opaque, constant text; None if it is dead."""
    state, started = _state_and_start(pid)
    return None if state in _DEAD else started


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return the letter of the state, as in ``ps``, and the start time; both are empty if there is no such process."""
    try:
        # Fields after the name, which may contain blanks and brackets: the 1st is the state, the 20th the start time
        # (proc_pid_stat(5)).
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ("", "") if Path("/proc/self").exists() else _state_and_start_by_ps(pid)
    return fields[0], fields[19]


def _state_and_start_by_ps(pid: int) -> tuple[str, str]:
    result = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = result.stdout.strip().partition(" ")
    return state[:1], started.strip()


def pause(process: Process) -> None:
    """Send SIGSTOP, and wait until all threads have stopped, because the signal is asynchronous."""
    process.send(signal.SIGSTOP)
    until = time.monotonic() + _SIGNAL_TIMEOUT_S
    while _state_and_start(process.pid)[0] not in _STOPPED:
        if time.monotonic() > until or not process.alive():
            raise SandboxError(f"could not pause the process {process.pid}")
        time.sleep(_POLL_S)


def stop(processes: Iterable[Process], grace_s: float) -> None:
    """Send SIGTERM, and SIGKILL after ``grace_s`` or if the wait is interrupted.

    Raises SandboxError if a process cannot be killed.
    """
    alive = [process for process in processes if process.alive()]
    try:
        for process in alive:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a paused process would not handle SIGTERM
        alive = _wait(alive, grace_s)
    finally:
        for process in alive:
            process.send(signal.SIGKILL)
        alive = _wait(alive, _SIGNAL_TIMEOUT_S)
    if alive:
        pids = ", ".join(str(process.pid) for process in alive)
        raise SandboxError(f"could not kill the broker processes {pids}: kill them manually")


def _wait(processes: list[Process], timeout_s: float) -> list[Process]:
    """Return the processes that are still alive after ``timeout_s``."""
    until = time.monotonic() + timeout_s
    while (alive := [process for process in processes if process.alive()]) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return alive
