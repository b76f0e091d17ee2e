"""The configuration that a stream has in force, for the processes of its host; it is kept in no file.

It may hold secrets, and a file would outlive a stream that is killed. The source's planner has it in memory and answers
on a Unix socket in a folder that only its user can enter; the ledger says where that is. Without an answer (the planner
is gone, or this is another host) a process reads the configuration file itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import Final

from mirror.spark.ledger.atomic_write import write_atomically

_ADDRESS: Final = "config.socket"
"""In a stream's ledger: the socket's path."""
_PREFIX, _NAME = "mirror-config-", "socket"
_LONGEST_PATH: Final = 100
"""Bytes that a socket's path may have everywhere (sun_path)."""
_SIZE: Final = struct.Struct(">I")
_WITHIN_S: Final = 5.0
_PAUSE_S: Final = 0.1


class LiveConfigStore:
    """Answers every process that connects with the text that was published last. Safe to use from any thread."""

    def __init__(self, ledger: Path) -> None:
        self._ledger: Final = ledger
        self._text = b""
        self._listener: socket.socket | None = None
        self._closed: Final = threading.Event()

    def publish(self, text: bytes) -> None:
        """From now on this is the answer. Raises OSError where no socket can be made."""
        self._text = text
        if self._listener is None:
            self._listen()

    def _listen(self) -> None:
        folder = tempfile.mkdtemp(prefix=_PREFIX)  # for its owner only
        if len(os.fsencode(folder)) + len(_NAME) + 1 > _LONGEST_PATH:
            Path(folder).rmdir()
            folder = tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp")
        path = str(Path(folder, _NAME))
        write_atomically(self._ledger / _ADDRESS, path.encode())
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(path)
            listener.listen()
        except BaseException:
            listener.close()
            remove_socket(self._ledger)
            raise
        self._listener = listener
        threading.Thread(target=self._answer_all, args=(listener,), name="mirror-config", daemon=True).start()

    def _answer_all(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                self._closed.wait(_PAUSE_S)  # closed; or this process has too many open files for the moment
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_WITHIN_S)
                text = self._text
                connection.sendall(_SIZE.pack(len(text)) + text)

    def close(self) -> None:
        """The run has ended; safe to call again."""
        self._closed.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            listener.close()
            remove_socket(self._ledger)


def read_live_config(ledger: Path) -> bytes | None:
    """The text that the stream with this ledger has published; None where it is not there to be asked."""
    try:
        address = (ledger / _ADDRESS).read_text(encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_WITHIN_S)
            asking.connect(address)
            with asking.makefile("rb") as answer:
                (size,) = _SIZE.unpack(answer.read(_SIZE.size))
                text = answer.read(size)
    except (OSError, ValueError, struct.error):
        return None
    return text if len(text) == size else None


def remove_socket(ledger: Path) -> None:
    """Remove what a planner, which may have been killed, has left of its socket."""
    with contextlib.suppress(OSError, ValueError):
        path = Path((ledger / _ADDRESS).read_text(encoding="utf-8"))
        (ledger / _ADDRESS).unlink()
        if path.name == _NAME and path.parent.name.startswith(_PREFIX):
            path.unlink(missing_ok=True)
            path.parent.rmdir()
