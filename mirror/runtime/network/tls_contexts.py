"""The TLS contexts of a cluster's connections, from PEM texts or from files, which are read again once they change."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mirror.cluster.auth.security import PEM, TlsSettings
from mirror.errors import ConfigError, Problem
from mirror.runtime.network.java_stores import JavaStoreError, is_java_store, read_key_store, read_trust_store

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
        location, text = _trust(tls)
        context = ssl.create_default_context(cafile=location or None, cadata=text or None)
    context.verify_flags = (context.verify_flags | _FLAGS_SET) & ~_FLAGS_CLEARED
    context.check_hostname = tls.check_host_name
    if tls.keystore_location:
        with _naming_key("ssl.keystore.location", tls.keystore_location):
            _load_key_store(context, tls)
    elif tls.keystore_key:
        texts = (normal_pem(text) or text for text in (tls.keystore_key, tls.keystore_chain))
        with _naming_key("ssl.keystore.key", "***"), _in_memory("\n".join(texts)) as path:
            _load_key(context, path, tls.key_password)
    return context


def _trust(tls: TlsSettings) -> tuple[str, str]:
    """Return the location of the trusted CAs in PEM, or their text."""
    if not tls.truststore_location:
        return "", _inline_trust(tls)
    data = _read_file(tls.truststore_location, tls.truststore_type, "truststore", tls.truststore_password)
    if not is_java_store(data):
        return tls.truststore_location, ""
    return "", read_trust_store(data, tls.truststore_password)


def _load_key_store(context: ssl.SSLContext, tls: TlsSettings) -> None:
    data = _read_file(tls.keystore_location, tls.keystore_type, "keystore", tls.keystore_password)
    if not is_java_store(data):
        _load_key(context, tls.keystore_location, tls.key_password)
        return
    with _in_memory(read_key_store(data, tls.keystore_password, tls.key_password)) as path:
        _load_key(context, path, "")


def _read_file(location: str, kind: str, store: str, password: str) -> bytes:
    """Return the bytes of a store, which must be PEM exactly if its type is. Raises JavaStoreError, OSError."""
    data = Path(location).read_bytes()
    if is_java_store(data) and kind == PEM:
        raise JavaStoreError(f"it is a Java store: set ssl.{store}.type to JKS or PKCS12")
    if not is_java_store(data) and kind not in {PEM, ""}:
        raise JavaStoreError(f"it is neither a JKS nor a PKCS12 store; PEM has ssl.{store}.type PEM")
    if not is_java_store(data) and password:
        raise JavaStoreError(f"PEM files have no ssl.{store}.password: a key has ssl.key.password")
    return data


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
        allowed = f"not usable ({_key_reason(error)}); it must be PEM, PKCS12 or JKS"
        raise ConfigError([Problem("", key, shown, allowed)]) from None
    except JavaStoreError as error:
        raise ConfigError([Problem("", key, shown, f"not usable: {error}")]) from None
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
def _in_memory(text: str) -> Iterator[str]:
    """Give a private key the path of a file that is in this process's memory: ``ssl`` reads keys from paths only."""
    descriptor = os.memfd_create("key")
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


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
