"""Logins of clouds: brokers whose login handlers verify what the clouds' own libraries make, and its expiry."""

from __future__ import annotations

import datetime as dt
import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from mirror.client import Admin, TokenRequest
from mirror.errors import AuthenticationFailed
from mirror.runtime.network import aws_tokens, gcp_tokens
from tests.security.clouds import ACCOUNT, AZURE_HEADER, GOOGLE_TOKEN
from tests.security.conftest import AWS_KEY, AWS_KEY_ID, Secured
from tests.security.test_protocols import round_trip

pytestmark = pytest.mark.brokers

HOST = "b-1.demo.abcdef.c2.kafka.eu-central-1.amazonaws.com"


@pytest.fixture(autouse=True)
def no_credentials_of_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", AWS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_KEY)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")


def test_amazon_s_signature(secured: Secured, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mirror")
    round_trip(secured.options("CLOUD", sasl_mechanism="AWS_MSK_IAM"), unique("amazon"))
    assert "X-Amz-Signature" not in caplog.text


def test_amazon_s_wrong_key(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-access-key")
    refused(secured.options("CLOUD", sasl_mechanism="AWS_MSK_IAM"), "bad_signature", "another-access-key")


def test_amazon_s_expired_signature(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=930)
    with monkeypatch.context() as earlier:
        earlier.setattr("botocore.auth.get_current_datetime", lambda *_, **__: before)
        token, _ = aws_tokens.token(TokenRequest("", (HOST,)))
    refused(secured.options("CLOUD") | given(token), "expired", token)


def test_google_s_access_token(
    secured: Secured, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(secured.clouds.google_file(tmp_path / "key.json")))
    round_trip(secured.options("CLOUD") | provider("gcp"), unique("google"))


@pytest.mark.parametrize(
    ("access_token", "account", "lifetime_s", "status"),
    [
        (GOOGLE_TOKEN, ACCOUNT, -60, "expired"),
        (GOOGLE_TOKEN, "other@demo", 600, "bad_account"),
        ("ya29.other", ACCOUNT, 600, "unknown_token"),
    ],
)
def test_what_google_s_brokers_refuse(
    secured: Secured, access_token: str, account: str, lifetime_s: int, status: str
) -> None:
    now = dt.datetime.now(dt.UTC).timestamp()
    token, _ = gcp_tokens.wrapped(access_token, account, now + lifetime_s, now)
    refused(secured.options("CLOUD") | given(token), status, token)


def test_azure_s_token(
    secured: Secured,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka's own handler verifies it, and ends the session with it."""
    caplog.set_level(logging.DEBUG)
    for name, value in secured.clouds.azure_host().items():
        monkeypatch.setenv(name, value)
    round_trip(secured.options("SASLTLS") | provider("azure"), unique("azure"))
    assert AZURE_HEADER not in caplog.text


def provider(name: str) -> dict[str, object]:
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": name}


def given(token: str) -> dict[str, object]:
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": lambda: (token, 60_000)}


def refused(options: dict[str, object], status: str, secret: str) -> None:
    with Admin(options) as admin, pytest.raises(AuthenticationFailed) as caught:
        admin.describe_cluster()
    assert f"({status})" in str(caught.value)
    assert secret not in "".join(traceback.format_exception(caught.value))
