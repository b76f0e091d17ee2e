"""Tokens and assertions that are in files, which others replace before they expire, and assertions made for a key."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mirror.cluster.auth.oauth_settings import ASSERTION, URL, AssertionSettings, path_of
from mirror.errors import AuthenticationFailed, ConnectionFailed
from mirror.runtime.network.oauth import DEFAULT_LIFETIME_MS, Token

_LARGEST_FILE: Final = 1024 * 1024
_PART_BYTES: Final = 32
"""The length of each of the two numbers in a signature by ES256."""


def from_file(url: str) -> Callable[[], Token[str]]:
    """Return a source of tokens from the file at ``url`` (``file:///...``), which is read for each of them."""
    path = path_of(url)

    def fetch() -> Token[str]:
        value = _text(URL, path)
        lifetime_ms = _lifetime_ms(value, int(time.time() * 1000))
        if lifetime_ms <= 0:
            # Not final: who writes the file may be late.
            raise ConnectionFailed(f"{URL}: the token in {path} has expired: it must be replaced")
        return Token(value, lifetime_ms)

    return fetch


def _lifetime_ms(token: str, now_ms: int) -> int:
    """Return how long a JSON Web Token is valid yet; of another token, a short time after which it is read again."""
    try:
        return int(claims_of(token)["exp"] * 1000) - now_ms
    except (LookupError, TypeError, ValueError, OverflowError):
        return DEFAULT_LIFETIME_MS


def claims_of(token: str) -> Mapping[str, Any]:
    """Return the claims of a JSON Web Token, which is not verified; of another text, none."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, LookupError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _text(key: str, path: str) -> str:
    """Return what is in the file of ``key``. Raises ConnectionFailed: it may be replaced at this moment."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_FILE).decode().strip()
    except OSError as error:
        raise ConnectionFailed(f"{key}: {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise AuthenticationFailed(f"{key}: {path} is no text") from None
    if not text:
        raise ConnectionFailed(f"{key}: {path} is empty")
    return text


def assertion(settings: AssertionSettings) -> str:
    """Return the assertion in the file, or one that is made now. Raises KafkaError."""
    if settings.file:
        return _text(f"{ASSERTION}.file", settings.file)
    header, payload = made(settings, _template(settings.template_file), int(time.time()), secrets.token_hex(16))
    signed = f"{_part(header)}.{_part(payload)}"
    return f"{signed}.{_encoded(_signature(settings, signed.encode()))}"


def made(
    settings: AssertionSettings, template: Mapping[str, Any], now_s: int, own_id: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the payload of an assertion. Keys take precedence over the template, times over both."""
    header = {**template.get("header", {}), "typ": "JWT", "alg": settings.algorithm}
    times = {"iat": now_s, "nbf": now_s - settings.not_before_s, "exp": now_s + settings.lifetime_s}
    own = {"jti": own_id} if settings.with_id else {}
    return header, {**template.get("payload", {}), **dict(settings.claims), **times, **own}


def _template(path: str) -> Mapping[str, Any]:
    if not path:
        return {}
    key = f"{ASSERTION}.template.file"
    try:
        found = json.loads(_text(key, path))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(part, {}), dict) for part in ("header", "payload")):
        raise AuthenticationFailed(f'{key}: {path} must be JSON with the objects "header" and "payload"')
    return found


def _signature(settings: AssertionSettings, data: bytes) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    name, path = f"{ASSERTION}.private.key.file", settings.private_key_file
    try:
        pem, passphrase = _text(name, path).encode(), settings.passphrase.encode()
        key = load_pem_private_key(pem, passphrase or None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise AuthenticationFailed(f"{name}: {path} is no PEM private key, or its passphrase is wrong") from None
    if settings.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    if settings.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        numbers = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(_PART_BYTES) for number in numbers)
    raise AuthenticationFailed(f"{name}: {path} is no key for {ASSERTION}.algorithm {settings.algorithm}")


def _part(value: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
