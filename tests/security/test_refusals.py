"""Whatever is wrong is said at once, in one line with the broker's address and the reason, and without the secret."""

from __future__ import annotations

import logging
import time
import traceback
from pathlib import Path

import pytest

from mirror.client import Admin, Consumer, Producer, TopicPartition
from mirror.errors import AuthenticationFailed, ConfigError, KafkaTimeout
from tests.fakes.record_batches import batch, build
from tests.security.conftest import CLIENT_SECRET, MECHANISMS, PASSWORD, Secured

pytestmark = pytest.mark.brokers

WRONG = "wrong-password-1"
PASSWORDS = MECHANISMS[:3]
AT_ONCE_S = 40.0
"""Far below the timeouts of :data:`LONG`, and well above what a busy machine needs."""
LONG: dict[str, object] = {"default.api.timeout.ms": 120_000, "request.timeout.ms": 100_000}


@pytest.fixture(autouse=True)
def no_secret_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def refused(options: dict[str, object], caplog: pytest.LogCaptureFixture) -> str:
    """The text of the error that a call ends with, at once."""
    began = time.monotonic()
    with Admin(options | LONG) as admin, pytest.raises(AuthenticationFailed) as caught:
        admin.describe_cluster()
    assert time.monotonic() - began < AT_ONCE_S
    text = str(caught.value)
    assert "\n" not in text
    everything = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text
    for secret in (PASSWORD, WRONG, CLIENT_SECRET):
        assert secret not in everything
    return text


def at(secured: Secured, listener: str) -> str:
    return f"bootstrap server at {secured.cluster.bootstrap(listener)}: "


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("user", ["mirror", "nobody"])
def test_a_wrong_password_or_user(
    secured: Secured, caplog: pytest.LogCaptureFixture, mechanism: str, user: str
) -> None:
    text = refused(secured.options("SASLTLS") | secured.password(mechanism, WRONG, user), caplog)
    assert text.startswith(
        at(secured, "SASLTLS") + f"{mechanism} authentication of user '{user}' failed: Authentication failed"
    )


def test_a_poll_does_not_wait_with_a_wrong_password(secured: Secured) -> None:
    began = time.monotonic()
    with Consumer(secured.options("SASLTLS") | secured.password("PLAIN", WRONG) | LONG) as consumer:
        consumer.assign([TopicPartition("any", 0)])
        with pytest.raises(AuthenticationFailed):
            consumer.poll(120_000)
    assert time.monotonic() - began < AT_ONCE_S


def test_a_batch_does_not_wait_with_a_wrong_password(secured: Secured) -> None:
    began = time.monotonic()
    with Producer(secured.options("SASLTLS") | secured.password("PLAIN", WRONG) | LONG) as producer:
        sent = producer.send_batch(TopicPartition("any", 0), batch(build((b"value",))), block=False)
        with pytest.raises(AuthenticationFailed):
            sent.result(AT_ONCE_S)
    assert time.monotonic() - began < AT_ONCE_S


def test_a_mechanism_that_the_client_cannot_use(secured: Secured) -> None:
    options = secured.options("SASLTLS") | secured.password("PLAIN") | {"sasl.mechanism": "DIGEST-MD5"}
    with pytest.raises(ConfigError, match=r"sasl.mechanism = 'DIGEST-MD5': must be 'PLAIN' or 'SCRAM-SHA-256'"):
        Admin(options)


def test_a_token_for_somebody_else(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    token = secured.issuer.token("application", audience="another-service")
    own = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": lambda: (token, 60_000)}
    text = refused(secured.options("SASLTLS") | own, caplog)
    assert text.startswith(at(secured, "SASLTLS") + "OAUTHBEARER authentication of the token's owner failed: ")
    assert "invalid_token" in text
    assert token not in text


@pytest.mark.parametrize(
    ("listener", "reason"),
    [
        ("EXPIRED", "the broker's certificate, or one of its CAs', has expired"),
        ("STRANGER", "the broker's certificate is not for '127.0.0.1'"),
        ("MUTUAL", "the broker refused the TLS handshake"),
    ],
)
def test_certificates(secured: Secured, caplog: pytest.LogCaptureFixture, listener: str, reason: str) -> None:
    text = refused(secured.options(listener), caplog)
    assert text.startswith(at(secured, listener) + reason)
    assert listener != "MUTUAL" or "ssl.keystore.location" in text


@pytest.mark.parametrize("trust", ["another authority", "the system's authorities"])
def test_a_broker_that_is_not_trusted(secured: Secured, caplog: pytest.LogCaptureFixture, trust: str) -> None:
    options = secured.options("SASLTLS") | secured.password("PLAIN")
    if trust == "another authority":
        options["ssl.truststore.location"] = str(secured.other_authority.path)
    else:
        del options["ssl.truststore.location"]
    text = refused(options, caplog)
    assert text.startswith(
        at(secured, "SASLTLS") + "the broker's certificate is not trusted (unable to get local issuer"
    )


def test_a_client_certificate_of_another_authority(
    secured: Secured, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    del tmp_path
    stranger = secured.other_authority.identity("strange-client")
    text = refused(secured.options("MUTUAL", ssl_keystore_location=str(stranger.path)), caplog)
    assert text.startswith(at(secured, "MUTUAL") + "the broker refused the TLS handshake")


WANTS_TLS = "the listener speaks TLS; set security.protocol to SSL or SASL_SSL"
NO_TLS = "the listener does not speak TLS; set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
WANTS_SASL = "the listener wants SASL; set security.protocol to SASL_SSL or SASL_PLAINTEXT, and sasl.mechanism"
NO_SASL = "the listener does not use SASL; set security.protocol to PLAINTEXT or SSL"


@pytest.mark.parametrize(
    ("spoken", "listener", "reason"),
    [
        ("PLAINTEXT", "TLS", WANTS_TLS),
        ("SASL", "SASLTLS", WANTS_TLS),
        ("TLS", "PLAINTEXT", NO_TLS),
        ("SASLTLS", "SASL", NO_TLS),
        ("PLAINTEXT", "SASL", WANTS_SASL),
        ("TLS", "SASLTLS", WANTS_SASL),
        ("SASL", "PLAINTEXT", NO_SASL),
        ("SASLTLS", "TLS", NO_SASL),
    ],
)
def test_the_wrong_protocol(
    secured: Secured, caplog: pytest.LogCaptureFixture, spoken: str, listener: str, reason: str
) -> None:
    options = secured.options(spoken) | {"bootstrap.servers": secured.cluster.bootstrap(listener)}
    if spoken.startswith("SASL"):
        options |= secured.password("PLAIN")
    text = refused(options, caplog)
    assert text.startswith(at(secured, listener))
    assert reason in text


def test_a_consumer_is_reported_too(secured: Secured) -> None:
    with Consumer(secured.options("SASLTLS") | secured.password("PLAIN", WRONG) | LONG) as consumer:
        with pytest.raises(AuthenticationFailed, match="PLAIN authentication of user 'mirror' failed") as caught:
            consumer.list_topics()
        assert WRONG not in str(caught.value) + repr(consumer) + repr(consumer.network_thread.settings)


def test_a_refused_client_secret(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    own = secured.credentials("OAUTHBEARER") | {"sasl.oauthbearer.client.credentials.client.secret": WRONG}
    text = refused(secured.options("SASLTLS") | own, caplog)
    assert text == at(secured, "SASLTLS") + f"token endpoint {secured.endpoint.url}: HTTP status 401 (invalid_client)"


def test_a_token_endpoint_that_sends_us_elsewhere_gets_no_secret_there(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    secured.endpoint.mode = "redirect"
    secured.endpoint.requests.clear()
    text = refused(secured.options("SASLTLS") | secured.credentials("OAUTHBEARER"), caplog)
    assert text.endswith("HTTP status 302")
    assert len(secured.endpoint.requests) == 1


def test_a_token_endpoint_in_trouble_is_tried_again(secured: Secured) -> None:
    secured.endpoint.mode = "broken"
    options = secured.options("SASLTLS") | secured.credentials("OAUTHBEARER")
    secured.endpoint.requests.clear()
    with Admin(options) as admin:
        with pytest.raises(KafkaTimeout, match="HTTP status 503") as caught:
            admin.describe_cluster(timeout_ms=5_000)
        assert CLIENT_SECRET not in "".join(traceback.format_exception(caught.value))
        assert len(secured.endpoint.requests) > 1
        secured.endpoint.mode = "issue"
        assert admin.describe_cluster().brokers


def test_an_endpoint_that_is_not_trusted(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    options = secured.options("SASL") | secured.credentials("OAUTHBEARER")
    text = refused(options | {"ssl.truststore.location": str(secured.other_authority.path)}, caplog)
    assert text.startswith(
        at(secured, "SASL") + f"token endpoint {secured.endpoint.url}: the endpoint's certificate is"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ssl.truststore.location": "nowhere.pem"}, "'nowhere.pem': cannot be read: No such file or directory"),
        ({"ssl.truststore.location": __file__}, "it must be PEM, PKCS12 or JKS"),
        ({"ssl.truststore.certificates": "nothing"}, "ssl.truststore.certificates = (its text): must be PEM"),
        ({"ssl.keystore.location": "nowhere.pem"}, "cannot be read: No such file or directory"),
        ({"ssl.keystore.location": "LOCKED"}, "ssl.key.password is missing or wrong"),
        ({"ssl.keystore.location": "LOCKED", "ssl.key.password": WRONG}, "ssl.key.password is missing or wrong"),
        ({"ssl.keystore.key": WRONG, "ssl.keystore.certificate.chain": WRONG}, "ssl.keystore.key = ***: not usable"),
    ],
)
def test_files_that_are_not_what_they_must_be(secured: Secured, options: dict[str, str], problem: str) -> None:
    paths = {"LOCKED": str(secured.locked_client.path)}
    given = {key: paths.get(value, value) for key, value in options.items()}
    trust = {} if "ssl.truststore.certificates" in given else {"ssl.truststore.location": str(secured.authority.path)}
    with pytest.raises(ConfigError) as caught:
        Admin({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL"} | trust | given)
    assert problem in str(caught.value)
    assert WRONG not in "".join(traceback.format_exception(caught.value))
