"""One real broker with a listener for every protocol, and for every way to get them wrong."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from mirror.sandbox.cluster import Cluster
from mirror.sandbox.distribution import LATEST, Distribution
from mirror.sandbox.fetch import class_path, fetch
from tests import jvm
from tests.security.certificates import Authority, Identity
from tests.security.clouds import Clouds
from tests.security.tokens import AUDIENCE, Issuer, TokenEndpoint

USER = "mirror"
PASSWORD = 'pa,ss=wo"rd-ölwechsel-①'
"""Its last character is one that RFC 4013 would replace, and brokers do not."""
CLIENT_ID = "mirror-client"
CLIENT_SECRET = "client-credential-7"
TOPIC = "secured"

LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "STRANGER": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "RENEW": "SASL_SSL",
    "CLOUD": "SASL_SSL",
}
AWS_KEY_ID, AWS_KEY = "AKIDEXAMPLE", "a-secret-access-key"
_CLOUD_TOKENS = Path(__file__).parent / "java" / "CloudTokens.java"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RENEW_MS = 8_000
"""A session's lifetime at the listener RENEW. A twentieth of it at least is between the last request that still fits
and its end: what a request may take on a busy machine. Brokers allow one re-authentication a second."""


@dataclass(frozen=True)
class Secured:
    """The broker, and what a client needs for it."""

    cluster: Cluster
    authority: Authority
    other_authority: Authority
    client: Identity
    locked_client: Identity
    issuer: Issuer
    endpoint: TokenEndpoint
    clouds: Clouds

    def options(self, listener: str, **more: object) -> dict[str, object]:
        """The protocol's keys for ``listener``; ``more`` with ``_`` for ``.``."""
        protocol = LISTENERS.get(listener, "PLAINTEXT")
        found: dict[str, object] = {
            "bootstrap.servers": self.cluster.bootstrap(listener),
            "security.protocol": protocol,
            "default.api.timeout.ms": 60_000,
            "request.timeout.ms": 30_000,
        }
        if protocol.endswith("SSL"):
            found["ssl.truststore.location"] = str(self.authority.path)
        return found | {key.replace("_", "."): value for key, value in more.items()}

    def password(self, mechanism: str, password: str = PASSWORD, user: str = USER) -> dict[str, object]:
        return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}

    def credentials(self, mechanism: str) -> dict[str, object]:
        if mechanism != "OAUTHBEARER":
            return self.password(mechanism)
        return {
            "sasl.mechanism": mechanism,
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.scope": "kafka",
            "ssl.truststore.location": str(self.authority.path),
        }


def _tls(listener: str, identity: Identity, **more: str) -> dict[str, str]:
    name = f"listener.name.{listener.lower()}"
    keys = {"type": "PEM", "location": str(identity.path)}
    return {f"{name}.ssl.keystore.{key}": value for key, value in keys.items()} | {
        f"{name}.{key}": value for key, value in more.items()
    }


def _sasl(listener: str, jwks: Path, **more: str) -> dict[str, str]:
    name = f"listener.name.{listener.lower()}"
    security = "org.apache.kafka.common.security"
    escaped = PASSWORD.replace('"', '\\"')
    scram = f"{security}.scram.ScramLoginModule required;"
    found = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "plain.sasl.jaas.config": f'{security}.plain.PlainLoginModule required user_{USER}="{escaped}";',
        "scram-sha-256.sasl.jaas.config": scram,
        "scram-sha-512.sasl.jaas.config": scram,
        "oauthbearer.sasl.jaas.config": f"{security}.oauthbearer.OAuthBearerLoginModule required;",
        "oauthbearer.sasl.server.callback.handler.class": f"{security}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    return {f"{name}.{key}": value for key, value in (found | more).items()}


def _properties(authority: Authority, issuer: Issuer) -> Mapping[str, str]:
    good = authority.identity("broker", "127.0.0.1", "localhost")
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.path)}
    tokens = {"delegation.token.secret.key": "of-the-brokers-alone"}
    renew = {f"{name.lower()}.connections.max.reauth.ms": str(RENEW_MS) for name in MECHANISMS}
    return {
        **tokens,
        **_tls("TLS", good),
        **_tls("MUTUAL", good, **{"ssl.client.auth": "required", **trust}),
        **_tls("EXPIRED", authority.identity("expired-broker", "127.0.0.1", expired=True)),
        **_tls("STRANGER", authority.identity("stranger", "stranger.example.com", "10.1.2.3")),
        **_tls("SASLTLS", good),
        **_tls("RENEW", good),
        **_tls("CLOUD", good),
        **_sasl("SASL", issuer.jwks),
        **_sasl("SASLTLS", issuer.jwks),
        **_sasl("RENEW", issuer.jwks, **renew),
        **_sasl("CLOUD", issuer.jwks, **{"oauthbearer.sasl.server.callback.handler.class": _CLOUD_TOKENS.stem}),
    }


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("security")
    authority, other = Authority(folder, "authority"), Authority(folder, "other-authority")
    issuer = Issuer(folder)
    endpoint = TokenEndpoint(issuer, authority.identity("endpoint", "127.0.0.1").path, CLIENT_ID, CLIENT_SECRET)
    clouds = Clouds(issuer)
    java = {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": issuer.jwks.as_uri(),
        "clouds.aws.key.id": AWS_KEY_ID,
        "clouds.aws.key": AWS_KEY,
        "clouds.issuer": clouds.url,
    }
    heap = (*jvm.BROKER, *(f"-D{name}={value}" for name, value in java.items()))
    properties, distribution = _properties(authority, issuer), _with(_CLOUD_TOKENS, folder)
    try:
        with Cluster(distribution=distribution, properties=properties, listeners=LISTENERS, heap=heap) as cluster:
            _prepare(cluster)
            client = authority.identity("client")
            locked = authority.identity("locked-client", password=PASSWORD)
            yield Secured(cluster, authority, other, client, locked, issuer, endpoint, clouds)
    finally:
        endpoint.close()
        clouds.close()


def _with(source: Path, folder: Path) -> Distribution:
    """The release with a class of the tests', in a jar: a folder of classes rules archives of classes out."""
    jar = folder / f"{source.stem}.jar"
    classes = jvm.compiled(source, folder, class_path(fetch()))
    with zipfile.ZipFile(jar, "w") as file:
        for each in classes.glob("*.class"):
            file.write(each, each.name)
    return Distribution(jars=lambda on_progress: [*LATEST.jars(on_progress), jar], java_options=LATEST.java_options)


def _prepare(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    for kind in kinds:  # a broker takes a user once per request
        user = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([user])[USER].result(timeout=60)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(timeout=60)


@pytest.fixture(autouse=True)
def fresh_endpoint(request: pytest.FixtureRequest) -> Iterator[None]:
    """The endpoint behaves again after a test that had it misbehave."""
    yield
    if "secured" in request.fixturenames:
        endpoint: TokenEndpoint = request.getfixturevalue("secured").endpoint
        endpoint.mode, endpoint.lifetime_s = "issue", 300
