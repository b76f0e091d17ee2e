"""Converts Java's key and trust stores to PEM, by the JDK's keytool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mirror.errors import MigrationError, brief
from mirror.migration.parsing.entries import Setting
from mirror.migration.references import references
from mirror.migration.tables.clusters import Store

_TIMEOUT_S: Final = 60
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY_ENTRY: Final = re.compile(r"^(.+?), .*PrivateKeyEntry", re.MULTILINE)
_STORE_PASSWORD, _KEY_PASSWORD, _NEW_PASSWORD = "STORE_PASSWORD", "KEY_PASSWORD", "NEW_PASSWORD"
_TEMPORARY: Final = "temporary"
_PLAIN_ENGLISH: Final = ("-J-Duser.language=en", "-J-Duser.country=US")


def find_keytool(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the ``keytool`` of ``JAVA_HOME``, or else the first one on ``PATH``. Raises MigrationError."""
    home = environ.get("JAVA_HOME")
    path = Path(home) / "bin" / "keytool" if home else None
    found = str(path) if path and os.access(path, os.X_OK) else shutil.which("keytool", path=environ.get("PATH", ""))
    if found is None:
        raise MigrationError("there is no keytool: install a JDK, or point JAVA_HOME to one")
    return Path(found)


def to_pem(store: Store, keytool: Path) -> bytes:
    """Return the certificates of a trust store, or the key and certificates of a key store, as PEM.

    The key is not encrypted. Raises MigrationError that names the store, and what is missing.
    """
    source = Path(store.source)
    if not source.is_file():
        raise MigrationError(f"line {store.line}: there is no store {source}: run the import where it is")
    password = _password(store, store.password, "its password", f"ssl.{store.kind}.password")
    if store.kind == "truststore":
        listed = _run(
            keytool, store, "-list", "-rfc", "-keystore", _argument(store), passwords={_STORE_PASSWORD: password}
        )
        certificates = _CERTIFICATE.findall(listed)
        if not certificates:
            raise MigrationError(f"line {store.line}: {source} has no certificate")
        return ("\n".join(certificates) + "\n").encode()
    return _key_and_certificates(store, keytool, password)


def _password(store: Store, setting: Setting | None, what: str, key: str) -> str:
    if setting is None or not setting.value:
        raise MigrationError(f"line {store.line}: {store.source} cannot be converted without {what}: set {key}")
    if references(setting):
        text = f"{what} is a reference: write it into a copy of the file for the conversion"
        raise MigrationError(f"line {setting.line}: {store.source} cannot be converted, because {text}")
    return setting.value


def _key_and_certificates(store: Store, keytool: Path, password: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    passwords = {_STORE_PASSWORD: password}
    listed = _run(keytool, store, "-list", "-keystore", _argument(store), passwords=passwords)
    aliases = _KEY_ENTRY.findall(listed)
    if len(aliases) != 1:
        found = f"{len(aliases)} private keys ({', '.join(aliases)})" if aliases else "no private key"
        raise MigrationError(f"line {store.line}: {store.source} has {found}: a client uses one")
    if store.key_password is not None:
        passwords[_KEY_PASSWORD] = _password(store, store.key_password, "the password of its key", "ssl.key.password")
    with tempfile.TemporaryDirectory() as folder:  # Only its owner may read it.
        copy = Path(folder) / "keys.p12"
        target = ("-destkeystore", str(copy), "-deststoretype", "PKCS12", "-deststorepass:env", _NEW_PASSWORD)
        command = ("-importkeystore", "-srckeystore", _argument(store), "-srcalias", aliases[0], *target, "-noprompt")
        _run(keytool, store, *command, passwords=passwords | {_NEW_PASSWORD: _TEMPORARY}, of_source="src")
        key, certificate, others = pkcs12.load_key_and_certificates(copy.read_bytes(), _TEMPORARY.encode())
    if key is None or certificate is None:
        raise MigrationError(f"line {store.line}: the key of {store.source} has no certificate")
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
    parts += [each.public_bytes(Encoding.PEM) for each in (certificate, *others)]
    return b"".join(parts)


def _argument(store: Store) -> str:
    """Return the store's absolute path.

    The JDK's launcher takes each argument that begins with ``-J`` for an option of its JVM, and some run commands.
    """
    return str(Path(store.source).absolute())


def _run(keytool: Path, store: Store, *command: str, passwords: Mapping[str, str], of_source: str = "") -> str:
    """Run keytool, which gets passwords by its environment: others can see a command's arguments."""
    options = [f"-{of_source}storepass:env", _STORE_PASSWORD]
    if of_source and _KEY_PASSWORD in passwords:
        options += ["-srckeypass:env", _KEY_PASSWORD, "-destkeypass:env", _NEW_PASSWORD]
    try:
        result = subprocess.run(
            [keytool, *_PLAIN_ENGLISH, *command, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **passwords},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MigrationError(f"line {store.line}: {keytool} does not run: {type(error).__name__}") from None
    if result.returncode != 0:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if "error" in line.lower()]
        raise MigrationError(f"line {store.line}: {store.source} is not read: {_reason(lines)}")
    return result.stdout


def _reason(lines: list[str]) -> str:
    """Return keytool's error without its decoration; it names no password."""
    return brief(lines[0].removeprefix("keytool error: ").rpartition("Exception: ")[2]) if lines else "keytool failed"
