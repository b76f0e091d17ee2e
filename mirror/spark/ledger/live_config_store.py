"""Serves a stream's live configuration to the processes of its host, without writing it to a file.

It may hold secrets, and a file would outlive a stream that is killed. The source's planner has it in memory and answers
on a Unix socket in a folder that only its user can enter; the ledger has the socket's path. Without an answer (the
planner has ended, or this is another host) a process reads the configuration file itself.
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

from mirror.local_users import is_same_user
from mirror.spark.ledger.atomic_write import write_atomically

_ADDRESS: Final = "config.socket"
"""The file in a stream's ledger that has the socket's path."""
_PREFIX, _NAME = "mirror-config-", "socket"
_MAX_PATH_BYTES: Final = 100
"""A socket's path may be this long on every system (``sun_path``)."""
_SIZE: Final = struct.Struct(">I")
_CALL_TIMEOUT_S: Final = 5.0
_PAUSE_S: Final = 0.1


class LiveConfigStore:
    """Sends the last published text to every process that connects. Thread-safe."""

    def __init__(self, ledger: Path) -> None:
        self._ledger: Final = ledger
        self._text = b""
        self._listener: socket.socket | None = None
        self._closed: Final = threading.Event()

    def publish(self, text: bytes) -> None:
        """Serve ``text`` from now on. Raises OSError if no socket can be created."""
        self._text = text
        if self._listener is None:
            self._listen()

    def _listen(self) -> None:
        folder = tempfile.mkdtemp(prefix=_PREFIX)  # Only its owner may enter it.
        if len(os.fsencode(folder)) + len(_NAME) + 1 > _MAX_PATH_BYTES:
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
                self._closed.wait(_PAUSE_S)  # The listener is closed, or this process has too many open files.
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_CALL_TIMEOUT_S)
                if not is_same_user(connection):
                    continue
                text = self._text
                connection.sendall(_SIZE.pack(len(text)) + text)

    def close(self) -> None:
        """Stop serving and remove the socket. May be called again."""
        self._closed.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # It wakes the thread.
            listener.close()
            remove_socket(self._ledger)


def read_live_config(ledger: Path) -> bytes | None:
    """Return the text that the stream with this ledger has published; None if it does not answer.

    Secrets of this process's environment are added to what it says: that of another user is not read.
    """
    try:
        address = (ledger / _ADDRESS).read_text(encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_CALL_TIMEOUT_S)
            client.connect(address)
            if not is_same_user(client):
                return None
            with client.makefile("rb") as answer:
                (size,) = _SIZE.unpack(answer.read(_SIZE.size))
                text = answer.read(size)
    except (OSError, ValueError, struct.error):
        return None
    return text if len(text) == size else None


def remove_socket(ledger: Path) -> None:
    """Remove the socket of a planner that has ended or was killed, and its address in the ledger."""
    with contextlib.suppress(OSError, ValueError):
        path = Path((ledger / _ADDRESS).read_text(encoding="utf-8"))
        (ledger / _ADDRESS).unlink()
        if path.name == _NAME and path.parent.name.startswith(_PREFIX):
            path.unlink(missing_ok=True)
            path.parent.rmdir()
