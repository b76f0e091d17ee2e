"""Sources with TLS, SASL and an authorizer as brokers of their time have them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from mirror.client import AclBinding, AclOperation, Admin, ResourceType
from mirror.errors import AuthenticationFailed, AuthorizationFailed
from mirror.relay.model.ranges import Outcome
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.fetch import class_path
from mirror.sandbox.java import find_java
from tests import jvm
from tests.conftest import NewCluster
from tests.copying.pair import TwoClusters
from tests.polling import eventually
from tests.releases.releases import OTHERS, authorizer
from tests.security.certificates import Authority

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_USER: Final = "mirror"
_PASSWORD: Final = "secret-7"
_LISTENER: Final = "SECURE"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PLAIN: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{_USER}="{_PASSWORD}";'
_BRIEFLY: Final = {"default.api.timeout.ms": 6_000, "request.timeout.ms": 5_000}
"""A topic without permission fails only after this: the permission may be on its way."""
CERTIFICATE: Final = "certificate"
LOGINS: Final = (
    ("2.1.1", "SCRAM-SHA-256"),
    ("2.1.1", "PLAIN"),
    ("2.1.1", CERTIFICATE),
    ("2.4.1", "SCRAM-SHA-256"),
    ("2.8.2", "SCRAM-SHA-512"),
    ("2.8.2", "PLAIN"),
    ("2.8.2", CERTIFICATE),
)
"""A release, and a SASL mechanism or a certificate of the client."""


def _properties(version: str, login: str, authority: Authority) -> dict[str, str]:
    name = f"listener.name.{_LISTENER.lower()}"
    keys = {"type": "PKCS12", "location": str(_keystore(authority)), "password": _PASSWORD}
    own = {**authorizer(version), f"{name}.ssl.key.password": _PASSWORD}
    own |= {f"{name}.ssl.keystore.{key}": value for key, value in keys.items()}
    if login == CERTIFICATE:
        trusted = {"type": "PKCS12", "location": str(_truststore(authority)), "password": _PASSWORD}
        own |= {f"{name}.ssl.truststore.{key}": value for key, value in trusted.items()}
        return {**own, f"{name}.ssl.client.auth": "required"}
    jaas = _PLAIN if login == "PLAIN" else _SCRAM
    return {**own, "sasl.enabled.mechanisms": login, f"{name}.{login.lower()}.sasl.jaas.config": jaas}


def _keystore(authority: Authority) -> Path:
    """Write the key of a broker as PKCS12: brokers before 2.7 do not read PEM (KIP-651)."""
    broker = authority.identity("broker", "127.0.0.1")
    certificate = x509.load_pem_x509_certificate(broker.chain.encode())
    encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
    path = broker.path.with_suffix(".p12")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", broker.key, certificate, None, encryption))
    return path


def _truststore(authority: Authority) -> Path:
    """Write the authority's certificate as PKCS12, marked as trusted: without the mark Java ignores it."""
    certificate = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(authority.pem.encode()), b"authority")
    encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
    path = authority.path.with_suffix(".trusted.p12")
    path.write_bytes(pkcs12.serialize_java_truststore([certificate], encryption))
    return path


def _add_user(cluster: Cluster, version: str, mechanism: str) -> None:
    """Before 2.7 only the tool beside ZooKeeper adds users (KIP-554)."""
    release = OTHERS[version]
    credential = f"{mechanism}=[iterations=4096,password={_PASSWORD}]"
    tool = ["kafka.admin.ConfigCommand", "--zookeeper", cluster.zookeeper, "--alter", "--add-config", credential]
    options = [*jvm.PLAIN, *release.distribution.java_options, "-cp", class_path(release.jars())]
    command: list[str | Path] = [find_java().path, *options, *tool, "--entity-type", "users", "--entity-name", _USER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _options(cluster: Cluster, login: str, authority: Authority) -> dict[str, object]:
    """Return what a client needs that logs in as the user, or by a certificate of that name."""
    shared: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap(_LISTENER),
        "ssl.truststore.location": str(authority.path),
    }
    if login == CERTIFICATE:
        return {**shared, "security.protocol": "SSL", "ssl.keystore.location": str(authority.identity(_USER).path)}
    sasl = {"sasl.mechanism": login, "sasl.username": _USER, "sasl.password": _PASSWORD}
    return {**shared, "security.protocol": "SASL_SSL", **sasl}


def _refused(options: dict[str, object], login: str, folder: Path) -> dict[str, object]:
    """Return ``options`` with what the brokers refuse: another password, or another authority's certificate."""
    if login == CERTIFICATE:
        return {**options, "ssl.keystore.location": str(Authority(folder, "foreign").identity("foreigner").path)}
    return {**options, "sasl.password": "wrong"}


@pytest.mark.parametrize(("version", "login"), LOGINS)
def test_a_flow_logs_in_and_reads_what_acls_allow(
    new_cluster: NewCluster,
    target_cluster: Cluster,
    unique: Callable[[str], str],
    version: str,
    login: str,
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "authority")
    protocol = "SSL" if login == CERTIFICATE else "SASL_SSL"
    properties = _properties(version, login, authority)
    source = new_cluster(release=version, listeners={_LISTENER: protocol}, properties=properties)
    if login.startswith("SCRAM"):
        _add_user(source, version, login)
    principal = f"User:CN={_USER}" if login == CERTIFICATE else f"User:{_USER}"
    pair = TwoClusters(source, target_cluster, unique, unique("flow"))
    allowed, hidden = pair.topics(2), pair.topics()
    for partition in range(2):
        pair.source.fill(allowed, [b"%d" % number for number in range(100)], partition)
    pair.source.fill(hidden, [b"hidden"])
    reading = _options(source, login, authority)
    with Admin({"bootstrap.servers": source.bootstrap_servers}) as admin, Admin(reading) as limited:
        operations = (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
        bindings = [AclBinding(ResourceType.TOPIC, allowed, principal, one) for one in operations]
        admin.create_acls(bindings)
        eventually(lambda: set(limited.list_topics()) == {allowed}, what="the ACLs")
        assert set(admin.describe_acls()) == set(bindings)
        with pytest.raises(AuthorizationFailed, match="Describe"):
            limited.describe_acls()
    pair.complete(allowed, reading=reading)
    pair.equal(allowed, 2)
    (result,) = pair.copy(hidden, reading={**reading, **_BRIEFLY})
    assert (result.outcome, len(pair.target.records(hidden))) == (Outcome.FAILED, 0)
    assert "TOPIC_AUTHORIZATION_FAILED" in (result.error or "")
    advice = "ssl.keystore.location" if login == CERTIFICATE else None
    with Admin(_refused(reading, login, tmp_path)) as refused, pytest.raises(AuthenticationFailed, match=advice):
        refused.list_topics()
