"""Sources with TLS, SASL and an authorizer as brokers of their time have them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
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
from tests.releases.releases import OLDER, authorizer
from tests.security.certificates import Authority

pytestmark = [pytest.mark.brokers, pytest.mark.cluster, pytest.mark.timeout(300)]

_USER: Final = "mirror"
_PASSWORD: Final = "secret-7"
_LISTENER: Final = "SECURE"
_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
MECHANISMS: Final = {"2.1.1": "SCRAM-SHA-256", "2.8.2": "SCRAM-SHA-512"}


def _properties(version: str, authority: Authority) -> dict[str, str]:
    mechanism, name = MECHANISMS[version], f"listener.name.{_LISTENER.lower()}"
    keys = {"type": "PKCS12", "location": str(_keystore(authority)), "password": _PASSWORD}
    return {
        **authorizer(version),
        "sasl.enabled.mechanisms": mechanism,
        f"{name}.{mechanism.lower()}.sasl.jaas.config": _JAAS,
        f"{name}.ssl.key.password": _PASSWORD,
        **{f"{name}.ssl.keystore.{key}": value for key, value in keys.items()},
    }


def _keystore(authority: Authority) -> Path:
    """Write the key of a broker as PKCS12: brokers before 2.7 do not read PEM (KIP-651)."""
    broker = authority.identity("broker", "127.0.0.1")
    certificate = x509.load_pem_x509_certificate(broker.chain.encode())
    encryption = serialization.BestAvailableEncryption(_PASSWORD.encode())
    path = broker.path.with_suffix(".p12")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", broker.key, certificate, None, encryption))
    return path


def _add_user(cluster: Cluster, version: str) -> None:
    """Before 2.7 only the tool beside ZooKeeper adds users (KIP-554)."""
    release = OLDER[version]
    credential = f"{MECHANISMS[version]}=[iterations=4096,password={_PASSWORD}]"
    tool = ["kafka.admin.ConfigCommand", "--zookeeper", cluster.zookeeper, "--alter", "--add-config", credential]
    options = [*jvm.PLAIN, *release.distribution.java_options, "-cp", class_path(release.jars())]
    command: list[str | Path] = [find_java().path, *options, *tool, "--entity-type", "users", "--entity-name", _USER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _options(cluster: Cluster, version: str, authority: Authority, **more: str) -> Mapping[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap(_LISTENER),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(authority.path),
        "sasl.mechanism": MECHANISMS[version],
        "sasl.username": _USER,
        "sasl.password": _PASSWORD,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


@pytest.mark.parametrize("version", MECHANISMS)
def test_a_flow_logs_in_and_reads_what_acls_allow(
    new_cluster: NewCluster, target_cluster: Cluster, unique: Callable[[str], str], version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    source = new_cluster(release=version, listeners={_LISTENER: "SASL_SSL"}, properties=_properties(version, authority))
    _add_user(source, version)
    pair = TwoClusters(source, target_cluster, unique, unique("flow"))
    allowed, hidden = pair.topics(2), pair.topics()
    for partition in range(2):
        pair.source.fill(allowed, [b"%d" % number for number in range(100)], partition)
    pair.source.fill(hidden, [b"hidden"])
    login = _options(source, version, authority)
    with Admin({"bootstrap.servers": source.bootstrap_servers}) as admin, Admin(login) as limited:
        operations = (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
        bindings = [AclBinding(ResourceType.TOPIC, allowed, f"User:{_USER}", one) for one in operations]
        admin.create_acls(bindings)
        eventually(lambda: set(limited.list_topics()) == {allowed}, what="the ACLs")
        assert set(admin.describe_acls()) == set(bindings)
        with pytest.raises(AuthorizationFailed, match="Describe"):
            limited.describe_acls()
    pair.complete(allowed, reading=login)
    pair.equal(allowed, 2)
    (result,) = pair.copy(hidden, reading=login)
    assert (result.outcome, len(pair.target.records(hidden))) == (Outcome.FAILED, 0)
    assert "TOPIC_AUTHORIZATION_FAILED" in (result.error or "")
    with (
        Admin(_options(source, version, authority, sasl_password="wrong")) as refused,
        pytest.raises(AuthenticationFailed),
    ):
        refused.list_topics()
