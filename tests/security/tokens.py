"""An issuer of tokens: signs JSON Web Tokens, and hands them out at an endpoint for the client-credentials grant."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE = "kafka"
KEY_ID = "test-key"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _part(value: object) -> str:
    return _text(json.dumps(value).encode())


class Issuer:
    """``jwks`` is the file of its public key, which the broker reads."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        public = self._key.public_key().public_numbers()
        entry = {
            "kty": "RSA",
            "kid": KEY_ID,
            "use": "sig",
            "alg": "RS256",
            "n": _text(public.n.to_bytes(256, "big")),
            "e": _text(public.e.to_bytes(3, "big")),
        }
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [entry]}))

    def token(self, subject: str, lifetime_s: int = 300, audience: str = AUDIENCE, **more: str) -> str:
        now = int(time.time())
        claims = {"sub": subject, "aud": audience, "iat": now - 1, "exp": now + lifetime_s, "scope": "kafka"} | more
        signed = f"{_part({'alg': 'RS256', 'typ': 'JWT', 'kid': KEY_ID})}.{_part(claims)}"
        return f"{signed}.{_text(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class TokenEndpoint:
    """An HTTPS server on a free port. ``requests`` are the forms it got; ``mode`` says how it behaves."""

    def __init__(self, issuer: Issuer, certificate: Path, client_id: str, client_secret: str) -> None:
        self.issuer = issuer
        self.requests: list[dict[str, list[str]]] = []
        self.lifetime_s = 300
        self.mode = "issue"
        self.clients: dict[str, rsa.RSAPublicKey] = {}
        """The keys of those that get tokens for an assertion, by its issuer."""
        pair = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self.authorization = f"Basic {pair}"
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.requests.append(urllib.parse.parse_qs(form))
                status, body = endpoint.answer(self.headers.get("Authorization", ""), endpoint.requests[-1])
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", endpoint.url)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, object]]:
        if self.mode == "broken":
            return 503, {}
        if self.mode == "redirect":
            return 302, {}
        if "assertion" in form:
            subject = self._subject(form["assertion"][0])
            if subject is None or form["grant_type"] != ["urn:ietf:params:oauth:grant-type:jwt-bearer"]:
                return 400, {"error": "invalid_grant"}
            token = self.issuer.token(subject, self.lifetime_s)
            return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}
        if authorization != self.authorization:
            # Some servers are this talkative.
            return 401, {"error": "invalid_client", "error_description": f"not {authorization}"}
        token = self.issuer.token("oauth-client", self.lifetime_s)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}

    def _subject(self, assertion: str) -> str | None:
        """Return the subject of an assertion whose signature, audience and times are right."""
        signed, _, signature = assertion.rpartition(".")
        header, claims = (json.loads(decoded(part)) for part in signed.split("."))
        try:
            key = self.clients[claims["iss"]]
            key.verify(decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (KeyError, InvalidSignature):
            return None
        timely = claims["nbf"] <= time.time() < claims["exp"] and claims["exp"] - claims["iat"] <= 300
        return claims["sub"] if timely and claims["aud"] == self.url and header["alg"] == "RS256" else None

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)
