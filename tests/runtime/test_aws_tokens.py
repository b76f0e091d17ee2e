"""Tokens for Amazon MSK, by Amazon's own signer: their signature and their times, as the brokers check them."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import logging
import random
import sys
import time
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest

from mirror.backoff import Backoff
from mirror.client import TokenRequest
from mirror.cluster.settings import ClusterSettings
from mirror.errors import AuthenticationFailed, ConfigError
from mirror.runtime.network import aws_tokens
from mirror.runtime.network.background import Background
from mirror.runtime.network.credentials import Credentials
from mirror.runtime.network.token_providers import load_provider
from tests.security.tokens import decoded

KEY_ID, KEY = "AKIDEXAMPLE", "a-secret-access-key"
HOST: Final = "b-1.demo.abcdef.c2.kafka.eu-central-1.amazonaws.com"
OPTIONS: Final = {
    "bootstrap.servers": f"{HOST}:9098",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
}


@pytest.fixture(autouse=True)
def _host_of_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials in the environment; no files of the user's, and no service of a host."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)


def checked(token: str) -> dict[str, str]:
    """The query of a token whose signature (version 4) is that of the key, computed as AWS's documents describe it."""
    url = urlsplit(decoded(token).decode())
    query = dict(parse_qsl(url.query))
    signature = query.pop("X-Amz-Signature")
    of_signature = sorted((name, value) for name, value in query.items() if name != "User-Agent")
    date, region, service, last = query["X-Amz-Credential"].split("/")[1:]
    canonical = "\n".join(
        ["GET", "/", urlencode(of_signature, quote_via=quote, safe="-_.~"), f"host:{url.hostname}", "", "host"]
    )
    request = f"{canonical}\n{hashlib.sha256(b'').hexdigest()}"
    scope = f"{date}/{region}/{service}/{last}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{KEY}".encode()
    for part in (date, region, service, last, f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"):
        key = hmac.digest(key, part.encode(), "sha256")
    assert key.hex() == signature
    assert url.hostname == f"kafka.{region}.amazonaws.com"
    return query | {"region": region}


def test_a_token_is_signed_for_the_region_of_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token, lifetime_ms = aws_tokens.token(TokenRequest("", (HOST,)))
    query = checked(token)
    assert (query["Action"], query["region"]) == ("kafka-cluster:Connect", "eu-central-1")
    made = dt.datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
    assert 0 <= time.time() - made.timestamp() < 60
    assert query["X-Amz-Expires"] == "900"
    assert 840_000 < lifetime_ms <= 900_000
    signature = dict(parse_qsl(urlsplit(decoded(token).decode()).query))["X-Amz-Signature"]
    assert not [each for each in (token, signature, KEY) if each in caplog.text]


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-central-1"),
        ("boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com", "us-east-1"),
        ("B-2-public.demo.abc.c3.kafka.CN-North-1.amazonaws.com.cn", "cn-north-1"),
        ("kafka.example.com", ""),
    ],
)
def test_the_region_in_a_broker_s_name(host: str, region: str) -> None:
    assert aws_tokens.region_of((host,)) == region


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_by_other_names_the_region_is_that_of_the_host(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "us-west-2")
    assert checked(aws_tokens.token(TokenRequest("", ("kafka.example.com",)))[0])["region"] == "us-west-2"


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationFailed, match="set AWS_REGION"):
        aws_tokens.token(TokenRequest("", ("kafka.example.com",)))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AuthenticationFailed, match="there are no credentials of AWS"):
        aws_tokens.token(TokenRequest("", (HOST,)))


@pytest.mark.parametrize("line", [{}, {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}])
def test_java_s_mechanism_sends_such_a_token_by_oauthbearer(line: dict[str, str]) -> None:
    settings, rng = ClusterSettings.parse(OPTIONS | line), random.Random(1)
    backoff = Backoff(1, 1, rng)
    client = Credentials(settings.security, 1_000, Background(lambda: None), backoff, rng, [HOST])
    login = client.login_to("a")
    assert login is not None
    until = time.monotonic() + 30
    while (mechanism := login.begin(0)) is None:
        assert time.monotonic() < until
    assert mechanism.name == "OAUTHBEARER"
    checked(mechanism.first().partition(b"auth=Bearer ")[2].split(b"\x01")[0].decode())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sasl.username": "me"}, "sasl.username = ***: AWS_MSK_IAM does not use it"),
        ({"sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope = ***: AWS_MSK_IAM does not use it"),
        (
            {"sasl.jaas.config": 'a.IAMLoginModule required awsProfileName="x";'},
            "its options (aws...) are not supported: set AWS_PROFILE to the profile",
        ),
    ],
)
def test_keys_that_the_mechanism_does_not_use(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterSettings.parse(OPTIONS | options)
    assert reason in str(caught.value)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r".* -m pip install 'dist/kafka_spark_mirror-.*\[aws\]', on every host"):
        load_provider("aws")
