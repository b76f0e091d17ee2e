"""Another user of this host, whose files, folders and sockets a test meets."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from mirror import local_users

NOBODY: Final = 65534

_CLIENT: Final = """
import contextlib, os, socket, sys
path, request, user = sys.argv[1:]
os.setuid(int(user))
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(30)
    client.connect(path)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(request.encode())
        sys.stdout.buffer.write(client.recv(1))
"""


class OtherUser:
    """Another user, if the tests run as root. Otherwise this one, for whom the code under test is then another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._me = os.geteuid()

    def owns(self, *paths: Path) -> None:
        """Have these paths, also symbolic links, belong to that user from now on."""
        for path in paths if self._me == 0 else ():
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        self._become()

    def received(self, path: Path, request: str) -> bytes:
        """Connect to a Unix socket as that user, in a process of its own, and return the first byte of the answer."""
        self._become()
        user = str(NOBODY if self._me == 0 else self._me)
        command = [sys.executable, "-c", _CLIENT, str(path), request, user]
        return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout

    @contextlib.contextmanager
    def acts(self) -> Iterator[None]:
        """Be that user while the block runs, with all threads of this process."""
        if self._me == 0:
            os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(self._me)
            self._become()

    def _become(self) -> None:
        if self._me != 0:
            self._monkeypatch.setattr(os, "geteuid", lambda: self._me + 1)
            self._monkeypatch.setattr(local_users, "_owner_of_new_files", lambda _: self._me + 1)
