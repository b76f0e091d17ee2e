"""Every value of Strimzi's resources is carried over, or named in a finding."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from mirror.migration.configuration import Imported
from mirror.migration.findings import Kind
from mirror.migration.importing import import_source
from mirror.migration.sources import read
from tests.migration.generated_resources import resource

BROKERS: Final = {"secretName": "near-ca", "pattern": "*.crt"}
ENDPOINT: Final = {"secretName": "login-ca", "certificate": "ca.crt"}
OAUTH: Final = {
    "type": "oauth",
    "tokenEndpointUri": "https://login.example.org/token",
    "clientId": "copier",
    "clientSecret": {"secretName": "copier", "key": "secret"},
}


def imported(cluster: dict[str, Any], **mirror: Any) -> Imported:
    """What becomes of a resource whose source has the keys of ``cluster``."""
    mirrors = [{"sourceCluster": "near", "targetCluster": "far", "sourceConnector": {"config": {}}, **mirror}]
    clusters = [
        {"alias": "near", "bootstrapServers": "near:1", **cluster},
        {"alias": "far", "bootstrapServers": "far:1"},
    ]
    document = {"kind": "KafkaMirrorMaker2", "apiVersion": "kafka.strimzi.io/v1beta2"}
    text = yaml.safe_dump(document | {"spec": {"connectCluster": "far", "clusters": clusters, "mirrors": mirrors}})
    return import_source(read(text.encode(), "file"), name="file")


def named(found: Imported, key: str) -> dict[str, Kind]:
    """The findings about keys of the source's authentication and TLS, by the rest of the key."""
    prefix = "spec.clusters[0]."
    return {
        one.key.removeprefix(prefix): one.kind
        for one in found.findings
        if one.key.startswith(prefix) and key in one.key and " as " not in one.key
    }


def test_scope_and_extensions_of_a_token_are_carried_over() -> None:
    found = imported({"tls": {}, "authentication": OAUTH | {"scope": "kafka.read", "saslExtensions": {"pool": "p1"}}})
    assert found.file
    assert '"sasl.oauthbearer.scope" = "kafka.read"' in found.file.text
    assert 'extension_pool="p1"' in found.file.secrets["clusters__near__sasl_jaas_config"]
    assert "near" in found.file.check().clusters


@pytest.mark.parametrize(
    "other",
    [
        {"accessToken": {"secretName": "copier", "key": "token"}},
        {"accessTokenLocation": "/var/token"},
        {"refreshToken": {"secretName": "copier", "key": "token"}},
        {"clientAssertion": {"secretName": "copier", "key": "jwt"}},
        {"clientAssertionLocation": "/var/jwt", "clientAssertionType": "urn:x"},
        {"username": "u", "passwordSecret": {"secretName": "copier", "password": "p"}},
        {"grantType": "password"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_login_that_the_client_has_not_is_no_login_by_other_means(other: dict[str, Any]) -> None:
    found = imported({"tls": {}, "authentication": OAUTH | other})
    assert found.file is None
    kinds = named(found, "authentication")
    assert {f"authentication.{name}": Kind.LEFT_OUT for name in other}.items() <= kinds.items()


def test_an_unknown_login_is_no_connection_without_one() -> None:
    found = imported({"authentication": {"type": "kerberos"}})
    assert found.file is None
    assert named(found, "type") == {"authentication.type": Kind.LEFT_OUT}


def test_an_audience_is_left_to_do() -> None:
    assert named(imported({"tls": {}, "authentication": OAUTH | {"audience": "kafka"}}), "audience") == {
        "authentication.audience": Kind.TO_DO
    }


def test_the_endpoint_is_trusted_with_the_brokers_certificates() -> None:
    own = OAUTH | {"tlsTrustedCertificates": [ENDPOINT]}
    both = imported({"tls": {"trustedCertificates": [BROKERS]}, "authentication": own})
    references = "${strimzisecrets:NAMESPACE/near-ca:*.crt}, ${strimzisecrets:NAMESPACE/login-ca:ca.crt}"
    assert both.file
    assert "SSL_TRUSTSTORE_CERTIFICATES" in both.file.text
    assert references in both.file.text
    system = imported({"tls": {"trustedCertificates": []}, "authentication": own})
    assert named(system, "tlsTrusted") == {"authentication.tlsTrustedCertificates": Kind.TO_DO}
    assert system.file
    assert "TRUSTSTORE" not in system.file.text
    brokers = imported({"tls": {"trustedCertificates": [BROKERS]}, "authentication": OAUTH})
    assert Kind.TO_DO in named(brokers, "tls.trustedCertificates").values()
    alone = imported({"authentication": own | {"disableTlsHostnameVerification": True}})
    assert alone.file
    assert '"security.protocol" = "SASL_PLAINTEXT"' in alone.file.text
    assert "${strimzisecrets:NAMESPACE/login-ca:ca.crt}" in alone.file.text
    assert '"ssl.endpoint.identification.algorithm" = ""' in alone.file.text


@pytest.mark.parametrize(("off", "kind"), [(True, Kind.TO_DO), (False, Kind.NOT_NEEDED)])
def test_whether_the_endpoints_name_is_checked_is_named(off: bool, kind: Kind) -> None:
    found = imported({"tls": {}, "authentication": OAUTH | {"disableTlsHostnameVerification": off}})
    assert named(found, "disable") == {"authentication.disableTlsHostnameVerification": kind}


def test_names_that_take_precedence_are_named() -> None:
    found = imported(
        {}, topicsExcludePattern="a", topicsBlacklistPattern="b", sourceConnector={"config": {"topics.exclude": "c"}}
    )
    assert found.file
    assert found.file.check().flows["near-far"].topics_exclude[0] == "a"
    ignored = {one.key for one in found.findings if "takes precedence" in one.meaning}
    assert ignored == {
        "spec.mirrors[0].topicsBlacklistPattern",
        "spec.mirrors[0].sourceConnector.config.topics.exclude",
    }


STRUCTURE: Final = ("kind", "connectCluster", "sourceCluster", "targetCluster", "authentication.type", "secretName")
"""Values that say where others belong."""
OF_LOGINS: Final = ("authentication.username", "passwordSecret.password", "authentication.sasl")
"""Values of which ``sasl.jaas.config`` is made, and that say whether there is one."""


def leaves(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{number}]")
    elif value is not None:
        yield path


@pytest.mark.parametrize("field", [{"config": {"replication.factor": 3}}, {"tasksMax": 8}])
def test_a_field_that_a_mirror_has_not_is_dropped_and_named_as_that(field: dict[str, Any]) -> None:
    (key,) = field
    found = imported({}, **field)
    (finding,) = (one for one in found.findings if one.key == f"spec.mirrors[0].{key}")
    assert finding.kind is Kind.IGNORED
    assert finding.meaning.startswith("a mirror has no such field, and Kubernetes drops it")
    assert found.file is not None
    assert "replication-factor = 3" not in found.file.text


def test_every_value_of_generated_resources_is_used_or_named() -> None:
    rng = random.Random(7)
    written = 0
    for _ in range(100):
        document = resource(rng)
        found = import_source(read(yaml.safe_dump(document).encode(), "file"), name="file")
        written += found.file is not None
        keys = {one.key for one in found.findings} | {key for _, key in found.used}
        keys = {key for key in keys if " as " not in key}
        for path in leaves(document):
            if path.endswith((*STRUCTURE, *OF_LOGINS)):
                continue
            assert any(path == key or path.startswith((f"{key}.", f"{key}[")) for key in keys), (path, document)
    assert written > 20
