"""Certificates made for a test: a CA, and what it signs, as PEM files that brokers and clients read."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: str = "") -> str:
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        how = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how).decode()


@dataclass(frozen=True)
class Identity:
    """A key and its certificate. ``path`` holds both, as ``ssl.keystore.location`` wants them."""

    key: ec.EllipticCurvePrivateKey
    chain: str
    path: Path


class Authority:
    """A CA; ``path`` is its certificate, as ``ssl.truststore.location`` wants it."""

    def __init__(self, folder: Path, name: str, issuer: Authority | None = None) -> None:
        """``issuer`` is the CA that signs this one's certificate; None: it is a root. No CA has key identifiers."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        now = dt.datetime.now(dt.UTC)
        signer = issuer or self
        builder = _builder(self._name, signer._name, self._key, now - 30 * _DAY, now + 30 * _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = _pem(builder.sign(signer._key, hashes.SHA256()))
        self.path = folder / f"{name}.pem"
        self.path.write_text(self.pem)

    def identity(self, file: str, *names: str, expired: bool = False, password: str = "") -> Identity:
        """A certificate for host ``names`` (or for a client), valid now or, when ``expired``, until yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        until = now - _DAY if expired else now + 10 * _DAY
        builder = _builder(_name(file), self._name, key, now - 10 * _DAY, until)
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        chain = _pem(builder.sign(self._key, hashes.SHA256()))
        path = self._folder / f"{file}.pem"
        path.write_text(key_pem(key, password) + chain)
        return Identity(key, chain, path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: dt.datetime, until: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
