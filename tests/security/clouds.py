"""What hosts of Google and Azure have: the servers that issue tokens, on one port of this machine."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.security.certificates import key_pem
from tests.security.tokens import Issuer, decoded

ACCOUNT = "copies@demo.iam.gserviceaccount.com"
GOOGLE_TOKEN = "ya29.an-access-token"
USER, REFRESH_TOKEN = "user@example.com", "a-refresh-token"
AZURE_HEADER = "of-this-host"
LIFETIME_S = 3_600
_AUDIENCE = "https://oauth2.googleapis.com/token"
_FLAVOR = {"Metadata-Flavor": "Google"}
_ACCOUNTS = "/computeMetadata/v1/instance/service-accounts"


class Clouds:
    """Issues Google's tokens for keys of a service account and on a host, and Azure's on a host.

    ``mode`` says how it behaves: "issue", "refuse" or "broken". ``requests`` are the paths and what they asked.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.mode = "issue"
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        self._issuer = issuer
        self._key = rsa.generate_private_key(65537, 2048)
        clouds = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                self.answer(url.path, parse_qs(url.query))

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self.answer(urlsplit(self.path).path, parse_qs(form))

            def answer(self, path: str, query: dict[str, list[str]]) -> None:
                clouds.requests.append((path, query))
                status, body = clouds.answer(path, query, self.headers.get("X-IDENTITY-HEADER", ""))
                self.send_response(status)
                for name, value in _FLAVOR.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json" if isinstance(body, dict) else "text/plain")
                self.end_headers()
                self.wfile.write((json.dumps(body) if isinstance(body, dict) else body).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def answer(self, path: str, query: dict[str, list[str]], identity_header: str) -> tuple[int, dict[str, Any] | str]:
        if path == "/tokeninfo":  # Google's own brokers ask for it, whatever clients get
            known = query["access_token"] == [GOOGLE_TOKEN]
            return (200, {"email": ACCOUNT}) if known else (400, {"error": "invalid_token"})
        if self.mode == "broken":
            return 503, {}
        if path == "/google" and "assertion" in query:
            return self._google(self._is_signed(query["assertion"][0]))
        if path == "/google":
            return self._google(query["refresh_token"] == [REFRESH_TOKEN])
        return self._azure(identity_header) if path == "/azure" else self._google_host(path)

    def _google(self, is_known: bool) -> tuple[int, dict[str, Any] | str]:
        if not is_known or self.mode == "refuse":
            return 400, {"error": "invalid_grant", "error_description": "no such account"}
        own = self._issuer.token("1", email=USER)
        return 200, {"access_token": GOOGLE_TOKEN, "id_token": own, "expires_in": LIFETIME_S, "token_type": "Bearer"}

    def _google_host(self, path: str) -> tuple[int, dict[str, Any] | str]:
        if path.endswith("/token"):
            return self._google(is_known=True)
        if path.startswith(_ACCOUNTS):
            return 200, {"email": ACCOUNT, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
        return 200, "demo"

    def _azure(self, identity_header: str) -> tuple[int, dict[str, Any] | str]:
        if identity_header != AZURE_HEADER:
            return 401, {"error": "unauthorized", "error_description": "no such identity"}
        token, expires = self._issuer.token("azure-host", LIFETIME_S), int(time.time()) + LIFETIME_S
        return 200, {"access_token": token, "expires_on": str(expires), "token_type": "Bearer"}

    def _is_signed(self, assertion: str) -> bool:
        signed, _, signature = assertion.rpartition(".")
        claims = json.loads(decoded(signed.split(".")[1]))
        try:
            self._key.public_key().verify(decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return bool(claims["iss"] == ACCOUNT and claims["aud"] == _AUDIENCE and claims["exp"] > time.time())

    def google_file(self, path: Path) -> Path:
        """Write the file of a service account's key, for GOOGLE_APPLICATION_CREDENTIALS."""
        values = {
            "type": "service_account",
            "project_id": "demo",
            "private_key_id": "k1",
            "private_key": key_pem(self._key),
            "client_email": ACCOUNT,
            "token_uri": f"{self.url}/google",
        }
        path.write_text(json.dumps(values))
        return path

    def google_user_file(self, path: Path) -> Path:
        """Write what ``gcloud auth application-default login`` does."""
        values = {
            "type": "authorized_user",
            "client_id": "gcloud",
            "client_secret": "-",
            "refresh_token": REFRESH_TOKEN,
        }
        path.write_text(json.dumps(values))
        return path

    def google_host(self) -> dict[str, str]:
        """The environment of a host of Google's, as its library sees it."""
        return {"GCE_METADATA_HOST": self.address, "GCE_METADATA_IP": self.address}

    def azure_host(self) -> dict[str, str]:
        """The environment of a host of Azure's App Service."""
        return {"IDENTITY_ENDPOINT": f"{self.url}/azure", "IDENTITY_HEADER": AZURE_HEADER}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)
