"""Tokens in files, assertions, and the functions that a configuration names."""

from __future__ import annotations

import json
import random
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from cryptography.hazmat.primitives.hashes import SHA256

from mirror.backoff import Backoff
from mirror.client import TokenRequest
from mirror.cluster.auth.oauth_settings import AssertionSettings
from mirror.cluster.auth.security import SaslSettings, Security
from mirror.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KafkaError
from mirror.runtime.network.background import Background
from mirror.runtime.network.credentials import Credentials
from mirror.runtime.network.oauth import from_endpoint
from mirror.runtime.network.token_files import assertion, from_file, made
from tests.security.certificates import Authority, key_pem
from tests.security.tokens import Issuer, TokenEndpoint, decoded

SECRET = "hunter2"


def test_a_token_file_is_read_for_each_token(tmp_path: Path) -> None:
    issuer, path = Issuer(tmp_path), tmp_path / "a token"
    fetch = from_file(path.as_uri())
    for lifetime_s in (300, 7_200):
        path.write_text(issuer.token("me", lifetime_s) + "\n")
        token = fetch()
        assert token.value == path.read_text().strip()
        assert lifetime_s - 5 <= token.lifetime_ms / 1000 <= lifetime_s


def test_a_token_that_is_no_jwt_is_read_again_soon(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET)
    assert from_file(path.as_uri())().lifetime_ms == 300_000


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        (None, ConnectionFailed, "cannot be read: No such file or directory"),
        (b"", ConnectionFailed, "is empty"),
        (b"\xff\xfe", AuthenticationFailed, "is no text"),
        ("expired", ConnectionFailed, "has expired: it must be replaced"),
    ],
)
def test_a_token_file_without_a_valid_token_is_named(
    tmp_path: Path, content: bytes | str | None, kind: type[KafkaError], reason: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else Issuer(tmp_path).token("me", -60).encode())
    with pytest.raises(kind) as caught:
        from_file(path.as_uri())()
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_what_an_assertion_is_made_of() -> None:
    template = {"header": {"kid": "k1", "alg": "none"}, "payload": {"iss": "template", "tenant": 7, "exp": 1}}
    settings = AssertionSettings(claims=(("iss", "me"), ("aud", "https://a")), lifetime_s=90, with_id=True)
    header, payload = made(settings, template, 1_000, "id-1")
    assert header == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    assert payload == {
        "iss": "me", "aud": "https://a", "tenant": 7, "iat": 1_000, "nbf": 940, "exp": 1_090, "jti": "id-1"
    }  # fmt: skip
    assert "jti" not in made(AssertionSettings(), {}, 0, "id-2")[1]


def test_an_assertion_is_exchanged_for_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint checks its signature and its times."""
    authority, key = Authority(tmp_path, "authority"), rsa.generate_private_key(65537, 2048)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    path = tmp_path / "key.pem"
    path.write_text(key_pem(key, SECRET))
    endpoint = TokenEndpoint(Issuer(tmp_path), authority.identity("endpoint", "127.0.0.1").path, "-", "-")
    try:
        endpoint.clients["me"] = key.public_key()
        own = AssertionSettings(
            private_key_file=str(path), passphrase=SECRET, claims=(("iss", "me"), ("sub", "me"), ("aud", endpoint.url))
        )
        settings = SaslSettings("OAUTHBEARER", token_endpoint_url=endpoint.url, scope="kafka", assertion=own)
        token = from_endpoint(settings, ssl.create_default_context, 30_000, lambda: assertion(own))()
        assert json.loads(decoded(token.value.split(".")[1]))["sub"] == "me"
        assert endpoint.requests[0]["scope"] == ["kafka"]
        ready = tmp_path / "assertion"
        ready.write_text(assertion(own))
        of_file = AssertionSettings(file=str(ready))
        assert from_endpoint(settings, ssl.create_default_context, 30_000, lambda: assertion(of_file))().value
        ready.write_text(ready.read_text()[:-8] + "AAAAAAAA")
        with pytest.raises(AuthenticationFailed, match=r"HTTP status 400 \(invalid_grant\)"):
            from_endpoint(settings, ssl.create_default_context, 30_000, lambda: assertion(of_file))()
        assert SECRET not in repr(own) + repr(settings)
    finally:
        endpoint.close()


def test_an_assertion_by_es256(tmp_path: Path) -> None:
    key, path = ec.generate_private_key(ec.SECP256R1()), tmp_path / "key.pem"
    path.write_text(key_pem(key))
    signed, _, signature = assertion(AssertionSettings(private_key_file=str(path), algorithm="ES256")).rpartition(".")
    raw = decoded(signature)
    numbers = (int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    key.public_key().verify(utils.encode_dss_signature(*numbers), signed.encode(), ec.ECDSA(SHA256()))
    with pytest.raises(AuthenticationFailed, match=r"is no key for .*algorithm RS256"):
        assertion(AssertionSettings(private_key_file=str(path)))


@pytest.mark.parametrize(
    ("key", "settings", "reason"),
    [
        (SECRET, AssertionSettings(), "key.pem is no PEM private key, or its passphrase is wrong"),
        ("locked", AssertionSettings(passphrase=SECRET), "key.pem is no PEM private key, or its passphrase is wrong"),
        ("locked", AssertionSettings(), "key.pem is no PEM private key, or its passphrase is wrong"),
        (None, AssertionSettings(), "key.pem cannot be read: No such file or directory"),
        (
            None,
            AssertionSettings(template_file="README.md"),
            'README.md must be JSON with the objects "header" and "payload"',
        ),
    ],
)
def test_why_no_assertion_is_made(tmp_path: Path, key: str | None, settings: AssertionSettings, reason: str) -> None:
    path = tmp_path / "key.pem"
    if key:
        locked = key_pem(ec.generate_private_key(ec.SECP256R1()), "other")
        path.write_text(locked if key == "locked" else key)
    with pytest.raises(KafkaError) as caught:
        assertion(replace(settings, private_key_file=str(path)))
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


MODULE = """
import time
def token(request):
    return f"{request.scope}@{','.join(request.hosts)}", 60_000
def broken(request):
    raise ValueError("hunter2")
number = 5
"""


def login(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, scope: str = "") -> Credentials:
    monkeypatch.syspath_prepend(folder)
    (folder / "own_tokens.py").write_text(MODULE)
    (folder / "own_broken.py").write_text("raise RuntimeError('hunter2')")
    sasl, rng = SaslSettings("OAUTHBEARER", token_provider=name, scope=scope), random.Random(1)
    security = Security("SASL_SSL", sasl=sasl)
    return Credentials(security, 1_000, Background(lambda: None), Backoff(1, 1, rng), rng, ["a", "b"])


def begun(client: Credentials) -> bytes:
    login = client.login_to("a")
    assert login is not None
    until = time.monotonic() + 30
    while (mechanism := login.begin(0)) is None:
        assert time.monotonic() < until
    return mechanism.first()


def test_a_function_that_the_configuration_names_gives_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = begun(login("own_tokens:token", tmp_path, monkeypatch, "s"))
    assert b"auth=Bearer s@a,b\x01" in first
    assert TokenRequest("s", ("a", "b")).hosts == ("a", "b")


def test_a_function_that_fails_is_named_without_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        begun(login("own_tokens:broken", tmp_path, monkeypatch))
    assert str(caught.value) == "sasl.oauthbearer.token.provider own_tokens:broken raised ValueError"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:token", "there is no module 'no_such_module'; the search path is PYTHONPATH"),
        ("own_tokens:other", f"cannot be loaded on host {socket.gethostname()}: AttributeError"),
        ("own_broken:token", ": RuntimeError"),
        ("own_tokens:number", "must be a function that takes a TokenRequest"),
    ],
)
def test_a_function_that_cannot_be_used_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        login(name, tmp_path, monkeypatch)
    assert f"sasl.oauthbearer.token.provider = {name!r}: " in str(caught.value)
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)
