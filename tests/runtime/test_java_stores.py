"""Java's key and trust stores, as keytool has made them (see the README beside them), and damaged ones."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from mirror.cluster.auth.security import TlsSettings
from mirror.errors import ConfigError
from mirror.runtime.network.java_stores import JavaStoreError, is_java_store, read_key_store, read_trust_store
from mirror.runtime.network.tls_contexts import TlsContexts, make_context

STORES: Final = Path(__file__).parent / "java_stores"
PASSWORD, KEY_PASSWORD = "store-4711", "key-0815"


def stored(name: str) -> bytes:
    return (STORES / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "password", "key_password"),
    [
        ("client.p12", PASSWORD, ""),
        ("client.p12", PASSWORD, KEY_PASSWORD),
        ("legacy.p12", PASSWORD, ""),
        ("client.jks", PASSWORD, KEY_PASSWORD),
        ("client.jks", "", KEY_PASSWORD),
    ],
)
def test_a_key_store_holds_the_key_and_its_chain_in_order(name: str, password: str, key_password: str) -> None:
    pem = read_key_store(stored(name), password, key_password)
    key = load_pem_private_key(pem.encode(), None)
    chain = x509.load_pem_x509_certificates(pem.encode())
    assert [each.subject.rfc4514_string() for each in chain] == ["CN=client", "CN=root"]
    of_key, of_certificate = (
        each.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for each in (key.public_key(), chain[0].public_key())
    )
    assert of_key == of_certificate


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12", "trust-legacy.p12", "trust-open.p12"])
def test_a_trust_store_holds_the_certificates_that_it_trusts(name: str) -> None:
    assert read_trust_store(stored(name), PASSWORD) == (STORES / "root.pem").read_text()


@pytest.mark.parametrize("name", ["trust.jks", "trust-open.p12"])
def test_certificates_that_are_not_encrypted_need_no_password(name: str) -> None:
    assert read_trust_store(stored(name), "") == (STORES / "root.pem").read_text()


@pytest.mark.parametrize(
    ("name", "passwords", "reason"),
    [
        ("client.jks", (PASSWORD, ""), "ssl.key.password is missing or wrong"),
        ("client.jks", (PASSWORD, "other-4711"), "ssl.key.password is missing or wrong"),
        ("client.jks", ("other-4711", KEY_PASSWORD), "ssl.keystore.password is wrong, or the JKS store is damaged"),
        ("client.jks", ("", ""), "ssl.keystore.password is missing: the JKS store has one"),
        ("client.p12", ("other-4711", ""), "ssl.keystore.password is wrong, or the PKCS12 store is damaged"),
        ("client.p12", ("", ""), "ssl.keystore.password is missing: the PKCS12 store has one"),
        ("two.jks", (PASSWORD, ""), "it contains 2 private keys, and a client uses one"),
        ("trust.jks", (PASSWORD, ""), "it contains no private key"),
        ("trust.p12", (PASSWORD, ""), "it contains no private key"),
        ("client.jceks", (PASSWORD, ""), "it is a JCEKS store: convert it with keytool -importkeystore"),
    ],
)
def test_why_a_key_store_is_not_usable_is_said_without_a_password(
    name: str, passwords: tuple[str, str], reason: str
) -> None:
    location = str(STORES / name)
    tls = TlsSettings(keystore_location=location, keystore_password=passwords[0], key_password=passwords[1])
    with pytest.raises(ConfigError) as caught:
        make_context(tls)
    assert f"ssl.keystore.location = {location!r}: not usable: {reason}" in str(caught.value)
    assert "4711" not in str(caught.value) + repr(caught.value.problems)


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (TlsSettings(truststore_location="trust.jks", truststore_type="PEM"), "it is a Java store: set ssl.truststore"),
        (TlsSettings(truststore_location="root.pem", truststore_type="JKS"), "it is neither a JKS nor a PKCS12 store"),
        (TlsSettings(truststore_location="root.pem", truststore_password=PASSWORD), "PEM files have no ssl.truststore"),
        (TlsSettings(truststore_location="trust.p12"), "ssl.truststore.password is missing"),
        (TlsSettings(keystore_location="root.pem", keystore_type="PKCS12"), "it is neither a JKS nor a PKCS12 store"),
    ],
)
def test_a_file_of_another_type_than_it_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tls: TlsSettings, reason: str
) -> None:
    monkeypatch.chdir(STORES)
    with pytest.raises(ConfigError, match=rf"not usable: {reason}"):
        make_context(tls)


@pytest.mark.parametrize("kind", ["", "JKS", "PKCS12"])
@pytest.mark.parametrize("suffix", ["jks", "p12"])
def test_either_type_reads_both_as_in_java(kind: str, suffix: str) -> None:
    """``keystore.type.compat`` of the JDK: files are what their bytes are."""
    make_context(
        TlsSettings(
            truststore_location=str(STORES / f"trust.{suffix}"),
            truststore_type=kind,
            truststore_password=PASSWORD,
            keystore_location=str(STORES / f"client.{suffix}"),
            keystore_type=kind,
            keystore_password=PASSWORD,
            key_password=KEY_PASSWORD,
        )
    )


def test_a_store_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    shutil.copy(STORES / "client.p12", path)
    contexts = TlsContexts(TlsSettings(keystore_location=str(path), keystore_password=PASSWORD))
    first = contexts.current()
    assert contexts.current() is first
    shutil.copy(STORES / "legacy.p12", path)
    second = contexts.current()
    assert second is not first
    path.write_bytes(stored("legacy.p12")[:500])
    assert contexts.current() is second


def test_no_private_key_is_written_to_a_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key of a store, or of a text, gets to OpenSSL through memory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    store = TlsSettings(keystore_location=str(STORES / "client.p12"), keystore_password=PASSWORD)
    make_context(store)
    key, _, chain = read_key_store(stored("client.p12"), PASSWORD, "").partition("-----BEGIN CERTIFICATE")
    make_context(TlsSettings(keystore_key=key, keystore_chain="-----BEGIN CERTIFICATE" + chain))
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_a_damaged_store_is_an_error_that_says_so(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["client.jks", "trust.jks", "client.p12", "trust-open.p12"]))
    whole = stored(name)
    at = data.draw(st.integers(4, len(whole) - 1))
    broken = data.draw(st.sampled_from([whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]]))
    assert is_java_store(broken)
    for password in (PASSWORD, ""):
        try:
            read_trust_store(broken, password)
            read_key_store(broken, password, KEY_PASSWORD)
        except JavaStoreError as error:
            assert "4711" not in str(error)  # noqa: PT017 - some changes do no harm
