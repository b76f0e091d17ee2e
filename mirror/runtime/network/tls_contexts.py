"""The TLS contexts of a cluster's connections, from PEM files or texts. Files that change are read again."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mirror.cluster.auth.security import TlsSettings
from mirror.errors import ConfigError, Problem

_log = logging.getLogger(__name__)

_PEM: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)\s*(.*?)\s*(-----END [A-Z0-9 ]+-----)", re.DOTALL)
_FLAGS_SET: Final = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
"""Java's trust managers accept any certificate of the truststore: an intermediate CA's, or the broker's own."""
_FLAGS_CLEARED: Final = ssl.VerifyFlags.VERIFY_X509_STRICT
"""Python 3.13 sets it, and then refuses CAs without an Authority Key Identifier, such as Strimzi makes."""

_FileState = tuple[int, int, int, int] | str
"""The times of change in ns, the size in bytes and the inode of a file, or why it cannot be found."""


class TlsContexts:
    """The context of each new connection, from the files as they are then.

    Certificates are renewed while a client lives. Files that are not whole yet leave the context as it is. Used by
    the network thread and by those that fetch tokens.
    """

    def __init__(self, tls: TlsSettings) -> None:
        """Read the files. Raises ConfigError if one cannot be read or is not valid."""
        self._tls = tls
        self._paths = [path for path in (tls.truststore_location, tls.keystore_location) if path]
        self._lock = threading.Lock()
        self._states = self._file_states()
        self._context = make_context(tls)

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if not self._paths:
            return self._context
        with self._lock:
            states = self._file_states()
            if states != self._states:
                self._states = states  # as of before they are read: what changes meanwhile is read the next time
                try:
                    self._context = make_context(self._tls)
                except ConfigError as error:
                    for problem in error.problems:
                        line = f"{problem.key}: {problem.value} has changed: {problem.allowed}"
                        _log.warning("%s; what was read from it before is used until it changes again", line)
            return self._context

    def _file_states(self) -> list[_FileState]:
        return [_file_state(path) for path in self._paths]


def _file_state(path: str) -> _FileState:
    try:
        found = Path(path).stat()
    except OSError as error:
        return error.strerror or type(error).__name__
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def make_context(tls: TlsSettings) -> ssl.SSLContext:
    """Create the context of ``tls``. Raises ConfigError if a file cannot be read or is not valid."""
    with _naming_key("ssl.truststore.location", tls.truststore_location):
        context = ssl.create_default_context(cafile=tls.truststore_location or None, cadata=_inline_trust(tls) or None)
    context.verify_flags = (context.verify_flags | _FLAGS_SET) & ~_FLAGS_CLEARED
    context.check_hostname = tls.check_host_name
    if tls.keystore_location:
        with _naming_key("ssl.keystore.location", tls.keystore_location):
            _load_key(context, tls.keystore_location, tls.key_password)
    elif tls.keystore_key:
        with _naming_key("ssl.keystore.key", "***"), _private_file(tls.keystore_key, tls.keystore_chain) as path:
            _load_key(context, path, tls.key_password)
    return context


def _inline_trust(tls: TlsSettings) -> str:
    text = normal_pem(tls.truststore_certificates)
    if tls.truststore_certificates and not text:
        raise ConfigError([Problem("", "ssl.truststore.certificates", "(its text)", "must be PEM certificates")])
    return text


def _load_key(context: ssl.SSLContext, path: str, password: str) -> None:
    # Without a password OpenSSL would prompt for one at the terminal.
    try:
        context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        if b"PRIVATE KEY-----" in Path(path).read_bytes():
            raise
        error.reason = "it contains no private key"
        raise


@contextlib.contextmanager
def _naming_key(key: str, value: str) -> Iterator[None]:
    """Raise any error with the file or text of ``key`` as a ConfigError."""
    shown = value if value == "***" else repr(value)
    try:
        yield
    except ssl.SSLError as error:
        allowed = f"not usable ({_key_reason(error)}); it must be PEM"
        raise ConfigError([Problem("", key, shown, allowed)]) from None
    except OSError as error:
        raise ConfigError([Problem("", key, shown, f"cannot be read: {error.strerror}")]) from None


def _key_reason(error: ssl.SSLError) -> str:
    reason = (error.reason or "").lower().replace("_", " ")
    if "decrypt" in reason or not reason:
        return "ssl.key.password is missing or wrong"
    if "mismatch" in reason or reason == "no certificate assigned":
        return "the first certificate is not that of the key"
    return reason


@contextlib.contextmanager
def _private_file(*texts: str) -> Iterator[str]:
    """Write a private key to a file that only this user may read, and delete it again: ``ssl`` reads files only."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(normal_pem(text) or text for text in texts))
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def normal_pem(text: str) -> str:
    """Return the PEM blocks of ``text`` on separate lines: properties files often have them in a single line."""
    blocks = []
    for begin, body, end in _PEM.findall(text):
        # Headers of old encrypted keys keep their lines; their colon distinguishes them from base64.
        content = body if ":" in body else "\n".join(_lines("".join(body.split())))
        blocks.append(f"{begin}\n{content}\n{end}\n")
    return "".join(blocks)


def _lines(text: str) -> Iterator[str]:
    for start in range(0, len(text), 64):
        yield text[start : start + 64]
