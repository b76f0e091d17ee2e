"""Reads Java's key and trust stores from their bytes, which show whether they are PKCS12 or JKS, as in Java.

JKS is read here (``sun.security.provider.JavaKeyStore`` has written it since 1998), not by ``keytool``: a store that
changes is read again on the network thread, which must not wait for a JVM, and a key that is converted would be on
the disk. Nothing here reads or writes files.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JKS: Final = b"\xfe\xed\xfe\xed"
_JCEKS: Final = b"\xce\xce\xce\xce"
_DER_SEQUENCE, _LONG = 0x30, 0x80
_DIGEST_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_NO_KEY: Final = "it contains no private key"
_WITH_TYPES: Final = 2
"""The version of a JKS store since which each certificate is preceded by its type."""
_KEY_PROTECTOR: Final = bytes.fromhex("060a2b060104012a02110101")
"""The algorithm 1.3.6.1.4.1.42.2.17.1.1, in DER, by which JKS encrypts keys (``KeyProtector``)."""


class JavaStoreError(ValueError):
    """A store that cannot be read. The text says why, and what to do, without any password."""


def is_java_store(data: bytes) -> bool:
    """Return whether these bytes begin as a PKCS12, JKS or JCEKS store does; PEM begins otherwise."""
    is_der = len(data) > 1 and data[0] == _DER_SEQUENCE and bool(data[1] & _LONG)
    return is_der or data.startswith((_JKS, _JCEKS))


def read_trust_store(data: bytes, password: str) -> str:
    """Return all certificates of a trust store as PEM. Raises JavaStoreError."""
    from cryptography.hazmat.primitives.serialization import Encoding

    if _is_jks(data):
        if password:
            _check_jks(data, "truststore", password)
        keys, certificates = _jks_entries(data)
        certificates += [each for _, chain in keys for each in chain]
    else:
        found = _load_pkcs12(data, "truststore", password)
        certificates = [
            each.certificate.public_bytes(Encoding.DER) for each in (found.cert, *found.additional_certs) if each
        ]
    if not certificates:
        raise JavaStoreError("it contains no certificate")
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in certificates)


def read_key_store(data: bytes, password: str, key_password: str) -> str:
    """Return the private key of a key store, not encrypted, and its chain, as PEM. Raises JavaStoreError.

    Only the key of a JKS store can have another password than the store.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if _is_jks(data):
        key, chain = _jks_key(data, password, key_password)
    else:
        found = _load_pkcs12(data, "keystore", password or key_password)
        if found.key is None or found.cert is None:
            raise JavaStoreError(_NO_KEY)
        key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        certificates = _chain(found.cert.certificate, [each.certificate for each in found.additional_certs])
        chain = [each.public_bytes(Encoding.DER) for each in certificates]
    body = base64.encodebytes(key).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n" + "".join(
        ssl.DER_cert_to_PEM_cert(each) for each in chain
    )


def _load_pkcs12(data: bytes, kind: str, password: str) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, password.encode() if password else None)
    except (ValueError, UnsupportedAlgorithm):
        what = "is wrong, or the PKCS12 store is damaged" if password else "is missing: the PKCS12 store has one"
        raise JavaStoreError(f"ssl.{kind}.password {what}") from None


def _chain(first: Certificate, others: Sequence[Certificate]) -> list[Certificate]:
    """Return ``first`` and its issuers in their order: a PKCS12 store has none, and may have other certificates."""
    chain, rest = [first], list(others)
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in rest if each.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        rest.remove(issuer)
        chain.append(issuer)
    return chain


def _is_jks(data: bytes) -> bool:
    if data.startswith(_JCEKS):
        raise JavaStoreError("it is a JCEKS store: convert it with keytool -importkeystore -deststoretype PKCS12")
    return data.startswith(_JKS)


def _check_jks(data: bytes, kind: str, password: str) -> None:
    digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:-_DIGEST_BYTES], usedforsecurity=False).digest()
    if digest != data[-_DIGEST_BYTES:]:
        raise JavaStoreError(f"ssl.{kind}.password is wrong, or the JKS store is damaged")


def _jks_key(data: bytes, password: str, key_password: str) -> tuple[bytes, list[bytes]]:
    if password:
        _check_jks(data, "keystore", password)
    elif not key_password:
        raise JavaStoreError("ssl.keystore.password is missing: the JKS store has one")
    keys, _ = _jks_entries(data)
    if len(keys) > 1:
        raise JavaStoreError(f"it contains {len(keys)} private keys, and a client uses one")
    if not keys:
        raise JavaStoreError(_NO_KEY)
    (key, chain) = keys[0]
    return _decrypted(key, key_password or password), chain


def _jks_entries(data: bytes) -> tuple[list[tuple[bytes, list[bytes]]], list[bytes]]:
    """Return the keys, encrypted, each with its chain, and the trusted certificates, all in DER."""
    try:
        return _read_entries(_Reader(data[:-_DIGEST_BYTES]))
    except (ValueError, struct.error):
        raise JavaStoreError("the JKS store is damaged") from None


def _read_entries(reader: _Reader) -> tuple[list[tuple[bytes, list[bytes]]], list[bytes]]:
    _, version, count = reader.integers(3)
    keys, trusted = [], []
    for _ in range(count):
        (tag,) = reader.integers(1)
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if tag == _KEY_ENTRY:
            key = reader.block()
            keys.append((key, [reader.certificate(version) for _ in range(reader.integers(1)[0])]))
        elif tag == _CERTIFICATE_ENTRY:
            trusted.append(reader.certificate(version))
        else:
            raise ValueError(f"no entry has the tag {tag}")
    return keys, trusted


class _Reader:
    """Reads as Java's ``DataInputStream`` does. Raises ValueError or struct.error at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("the bytes end too early")
        self._at += size
        return found

    def integers(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}I", self.take(4 * count))

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(2)))

    def block(self) -> bytes:
        return self.take(self.integers(1)[0])

    def certificate(self, version: int) -> bytes:
        if version >= _WITH_TYPES:
            self.text()
        return self.block()


def _decrypted(info: bytes, password: str) -> bytes:
    """Return the key of an ``EncryptedPrivateKeyInfo`` (salt, key XOR digests, digest of the key) as PKCS8."""
    algorithm, after = _der_content(_der_content(info)[0])
    if not algorithm.startswith(_KEY_PROTECTOR):
        raise JavaStoreError("its key is not encrypted as a JKS store encrypts keys")
    protected, _ = _der_content(after)
    secret = _utf16(password)
    digest, encrypted = protected[:_DIGEST_BYTES], protected[_DIGEST_BYTES:-_DIGEST_BYTES]
    stream = bytearray()
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    key = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
    if hashlib.sha1(secret + key, usedforsecurity=False).digest() != protected[-_DIGEST_BYTES:]:
        raise JavaStoreError("ssl.key.password is missing or wrong")
    return key


def _der_content(data: bytes) -> tuple[bytes, bytes]:
    """Return the content of the DER element with which ``data`` begins, and what follows it."""
    size, at = int.from_bytes(data[1:2]), 2
    if size & _LONG:
        at += size & ~_LONG
        size = int.from_bytes(data[2:at])
    return data[at : at + size], data[at + size :]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")  # an environment variable may have them
