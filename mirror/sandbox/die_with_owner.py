"""Run as a script: becomes another program that the kernel kills when the process that started it dies.

Usage: ``python -I -S die_with_owner.py OWNER_PID PROGRAM ARGUMENT...``. Linux only (``prctl(2)``, PR_SET_PDEATHSIG,
kept across ``execve``); elsewhere the program runs without that guard. Not Popen's ``preexec_fn``: that would run
Python between fork and exec in a process with threads, which may hang.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(owner: int, command: list[str]) -> None:
    """Replace this process by ``command`` unless ``owner`` is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != owner:  # died before the line above: no signal will come
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  replacing this process is the whole point


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
