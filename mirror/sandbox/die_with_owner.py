"""A script that replaces itself by a program which the kernel kills when the process that started it dies.

Usage: ``python -I -S die_with_owner.py OWNER_PID PROGRAM ARGUMENT...``. This works on Linux only (``prctl(2)``,
PR_SET_PDEATHSIG, preserved across ``execve``); elsewhere the program runs without that guard. Popen's ``preexec_fn``
is no alternative: it runs Python between fork and exec in a process with threads, which may hang.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(owner: int, command: list[str]) -> None:
    """Replace this process by ``command``, unless ``owner`` has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != owner:  # the owner died before the call above, so no signal will come
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  replacing this process is the purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
