"""Tokens of Google and Azure, by their own libraries, from servers on this machine in the place of theirs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import azure.core.exceptions
import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)

from mirror.client import TokenRequest
from mirror.errors import AuthenticationFailed, ConfigError, ConnectionFailed, KafkaError
from mirror.runtime.network import azure_tokens, gcp_tokens
from mirror.runtime.network.token_providers import load_provider
from tests.security.clouds import ACCOUNT, AZURE_HEADER, GOOGLE_TOKEN, LIFETIME_S, USER, Clouds
from tests.security.tokens import Issuer, decoded

NAMESPACE: Final = "demo.servicebus.windows.net"
NOTHING: Final = "127.0.0.1:9"
GOOGLE, AZURE = (
    TokenRequest("", ("bootstrap.demo.europe-west3.managedkafka.demo.cloud.goog",)),
    TokenRequest("", (NAMESPACE,)),
)


@pytest.fixture(scope="module")
def issuing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    clouds = Clouds(Issuer(tmp_path_factory.mktemp("issuer")))
    yield clouds
    clouds.close()


@pytest.fixture
def clouds(issuing: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clouds:
    """The servers, and an environment that names no credentials."""
    for name in os.environ:
        if name.startswith(("AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://{NOTHING}")
    issuing.mode = "issue"
    issuing.requests.clear()
    return issuing


def parts(token: str) -> tuple[dict[str, object], dict[str, object], str]:
    header, claims, last = (decoded(part) for part in token.split("."))
    return json.loads(header), json.loads(claims), last.decode()


def test_google_s_token_is_in_the_form_of_its_brokers() -> None:
    token, lifetime_ms = gcp_tokens.wrapped("ya29.x", "me@demo", 1_700_003_600.5, 1_700_000_000.25)
    claims = {"iss": "Google", "sub": "me@demo", "scope": "kafka", "iat": 1_700_000_000, "exp": 1_700_003_600}
    assert parts(token) == ({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}, claims, "ya29.x")
    assert "=" not in token
    assert lifetime_ms == 3_600_250


def test_a_service_account_of_google(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(clouds.google_file(tmp_path / "key.json")))
    token, lifetime_ms = load_provider("gcp")(GOOGLE)
    _, claims, access_token = parts(token)
    assert (claims["sub"], access_token) == (ACCOUNT, GOOGLE_TOKEN)
    assert abs(lifetime_ms / 1000 - LIFETIME_S) < 60
    assert abs(float(str(claims["exp"])) - time.time() - LIFETIME_S) < 60
    assert not [each for each in (token, GOOGLE_TOKEN, "PRIVATE KEY") if each in caplog.text]


def test_a_user_of_google(clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library lets no setting change the address."""
    monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{clouds.url}/google")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(clouds.google_user_file(tmp_path / "user.json")))
    _, claims, access_token = parts(gcp_tokens.token(GOOGLE)[0])
    assert (claims["sub"], access_token) == (USER, GOOGLE_TOKEN)


@pytest.mark.parametrize(("mode", "kind"), [("refuse", AuthenticationFailed), ("broken", ConnectionFailed)])
def test_google_s_answers_that_are_no_token(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str, kind: type[KafkaError]
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(clouds.google_file(tmp_path / "key.json")))
    monkeypatch.setattr("google.auth._exponential_backoff.time", types.SimpleNamespace(sleep=lambda _: None))
    clouds.mode = mode
    with pytest.raises(kind, match=r"Google refuses the credentials|there is no answer of Google"):
        gcp_tokens.token(GOOGLE)


def test_what_google_s_library_does_not_find(clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    del clouds
    path = tmp_path / "none.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(AuthenticationFailed, match=f"finds no credentials: File {path} was not found"):
        gcp_tokens.token(GOOGLE)


def test_the_account_of_a_host_of_google(clouds: Clouds) -> None:
    """In a process of its own, for the library reads the addresses when it is imported."""
    program = (
        "from mirror.client import TokenRequest\n"
        "from mirror.runtime.network.gcp_tokens import token\n"
        "print(*token(TokenRequest('', ())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | clouds.google_host(),
        check=True,
        capture_output=True,
        text=True,
    )
    token, lifetime_ms = done.stdout.split()
    assert (parts(token)[1]["sub"], parts(token)[2]) == (ACCOUNT, GOOGLE_TOKEN)
    assert abs(int(lifetime_ms) / 1000 - LIFETIME_S) < 60


@pytest.mark.parametrize("scope", ["", "api://a-scope/.default"])
def test_the_identity_of_a_host_of_azure(
    clouds: Clouds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, scope: str
) -> None:
    caplog.set_level(logging.DEBUG)
    for name, value in clouds.azure_host().items():
        monkeypatch.setenv(name, value)
    token, lifetime_ms = load_provider("azure")(TokenRequest(scope, (NAMESPACE, "other")))
    assert parts_of_jwt(token)["sub"] == "azure-host"
    assert abs(lifetime_ms / 1000 - LIFETIME_S) < 60
    resource = scope.removesuffix("/.default") or f"https://{NAMESPACE}"
    assert [query["resource"] for path, query in clouds.requests if path == "/azure"] == [[resource]]
    assert token not in caplog.text
    assert AZURE_HEADER not in caplog.text


def parts_of_jwt(token: str) -> dict[str, object]:
    claims: dict[str, object] = json.loads(decoded(token.split(".")[1]))
    return claims


def with_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ClientAuthenticationError("no"), AuthenticationFailed),
        (with_cause(ClientAuthenticationError("no"), ServiceRequestError("away")), ConnectionFailed),
        (ServiceResponseError("away"), ConnectionFailed),
        (HttpResponseError("busy", types.SimpleNamespace(status_code=503, reason="")), ConnectionFailed),
    ],
)
def test_what_ends_azure_s_chain(error: Exception, kind: type[KafkaError]) -> None:
    assert type(azure_tokens._failure([error], azure.core.exceptions)) is kind


def test_a_host_of_azure_whose_server_is_away(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.core.pipeline.policies.RetryPolicy.sleep", lambda *_, **__: None)
    for name, value in (clouds.azure_host() | {"IDENTITY_ENDPOINT": f"http://{NOTHING}/azure"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConnectionFailed, match="no answer of Azure to a request for a token"):
        azure_tokens.token(AZURE)


def test_what_azure_s_library_does_not_find(clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    del clouds
    monkeypatch.setattr("azure.core.pipeline.policies.RetryPolicy.sleep", lambda *_, **__: None)
    with pytest.raises(AuthenticationFailed, match="Azure's library finds no credentials: set AZURE_CLIENT_ID"):
        azure_tokens.token(AZURE)


@pytest.mark.parametrize(("name", "needed"), [("gcp", "google.auth"), ("azure", "azure.identity")])
def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, name: str, needed: str) -> None:
    monkeypatch.setitem(sys.modules, needed, None)
    reason = rf"'{name}': needs '{needed}': .* -m pip install 'dist/kafka_spark_mirror-.*\[{name}\]', on every host"
    with pytest.raises(ConfigError, match=reason):
        load_provider(name)
