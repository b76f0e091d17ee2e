"""Every secret that a client can be given, in every object that could be shown, logged, pickled or sent on."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cluster.auth.security import SECURITY_KEYS
from mirror.cluster.settings import ClusterSettings
from mirror.consumer.settings import ConsumerSettings
from mirror.errors import ConfigError
from mirror.producer.settings import ProducerSettings
from mirror.spark.tasks.options import FlowOptions
from tests.security.certificates import Authority, key_pem
from tests.security.marker import Search

MARKER = "m4rk3r-of-a-secret"
SEARCH = Search({"it": MARKER})
_MODULES = "org.apache.kafka.common.security"
WAYS: Mapping[str, Mapping[str, str]] = {
    "password": {"sasl.mechanism": "PLAIN", "sasl.username": "tim", "sasl.password": MARKER},
    "login line": {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{_MODULES}.scram.ScramLoginModule required username="tim" password="{MARKER}";',
    },
    "client secret": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": MARKER,
    },
    "key of assertions": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "sasl.oauthbearer.assertion.private.key.file": "key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase": MARKER,
    },
    "login line of a token": {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "sasl.jaas.config": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="me" '
        f'clientSecret="{MARKER}" extension_logicalCluster="{MARKER}";',
    },
    "passphrase": {"security.protocol": "SSL", "ssl.keystore.location": "keys.pem", "ssl.key.password": MARKER},
    "stores": {
        "security.protocol": "SSL",
        "ssl.truststore.location": "trust.jks",
        "ssl.truststore.password": MARKER,
        "ssl.keystore.location": "keys.jks",
        "ssl.keystore.password": MARKER,
    },
    "key": {"security.protocol": "SSL", "ssl.keystore.key": MARKER, "ssl.keystore.certificate.chain": "public"},
}


def options(way: str) -> dict[str, str]:
    return {"bootstrap.servers": "paris-1:9092", "security.protocol": "SASL_SSL", **WAYS[way]}


def test_every_secret_key_is_among_them() -> None:
    secret = {key for key, of in SECURITY_KEYS.items() if of.kind == "secret"}
    assert secret == {key for way in WAYS.values() for key, value in way.items() if MARKER in value}


@pytest.mark.parametrize("kind", [ClusterSettings, ConsumerSettings, ProducerSettings])
@pytest.mark.parametrize("way", WAYS)
def test_no_settings_show_it(kind: type[ClusterSettings], way: str) -> None:
    settings = kind.parse(options(way))
    shown = "".join(f(each) for f in (repr, str, "{}".format) for each in (settings, [settings], vars_of(settings)))
    assert SEARCH.found("settings", shown.encode()) == []


def vars_of(settings: object) -> dict[str, object]:
    """What a debugger or a log of fields shows of it."""
    return {name: getattr(settings, name) for name in dir(settings) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [ClusterSettings, ConsumerSettings, ProducerSettings])
@pytest.mark.parametrize("key", [key for key, of in SECURITY_KEYS.items() if of.kind == "secret"])
@pytest.mark.parametrize("value", [MARKER, [MARKER], {MARKER: MARKER}, MARKER.encode(), f"{MARKER}\0"])
def test_no_error_shows_or_carries_it(kind: type[ClusterSettings], key: str, value: object) -> None:
    """Where it does not belong, or is of another type."""
    with pytest.raises(ConfigError) as caught:
        kind.parse({"bootstrap.servers": "paris-1:9092", key: value, "no.such.key": value})
    error = caught.value
    assert SEARCH.found("error", (str(error) + repr(error) + repr(error.problems)).encode()) == []
    assert SEARCH.found("pickle", pickle.dumps(error)) == []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file with a cluster for every way, and a flow of each."""
    lines, secrets = list[str](), tmp_path / "secrets"
    secrets.mkdir()
    for number, way in enumerate(WAYS):
        lines.append(f"[clusters.c{number}]")
        for key, value in {**options(way), **loadable(way, tmp_path)}.items():
            if MARKER in value:
                (secrets / f"clusters__c{number}__{key.replace('.', '_')}").write_text(value)
            else:
                lines.append(f'"{key}" = {json.dumps(value)}')
        lines.append(f'[flows.f{number}]\nsource = "c{number}"\ntarget = "plain"\ntopics = ["t"]')
    lines.append('[clusters.plain]\n"bootstrap.servers" = "berlin-1:9092"')
    file = tmp_path / "mirror.toml"
    file.write_text("\n".join(lines))
    return file


def loadable(way: str, folder: Path) -> dict[str, str]:
    """What TLS of ``way`` reads, with the same secrets: files, or a key with the marker in front of it."""
    authority = Authority(folder, "root")
    if way == "passphrase":
        return {"ssl.keystore.location": str(authority.identity("keys", password=MARKER).path)}
    if way == "stores":
        client = authority.identity("client")
        chain, root = (x509.load_pem_x509_certificate(each.encode()) for each in (client.chain, authority.pem))
        sealed, trust, keys = BestAvailableEncryption(MARKER.encode()), folder / "trust.p12", folder / "keys.p12"
        trust.write_bytes(pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(root, b"root")], sealed))
        keys.write_bytes(pkcs12.serialize_key_and_certificates(b"client", client.key, chain, None, sealed))
        return {"ssl.truststore.location": str(trust), "ssl.keystore.location": str(keys)}
    if way == "key":
        client = authority.identity("client")
        return {
            "ssl.keystore.key": f"{MARKER}\n{key_pem(client.key)}",
            "ssl.keystore.certificate.chain": client.chain,
        }
    return {}


@pytest.mark.parametrize("by", ["folder", "environment"])
@pytest.mark.parametrize("how", [[], ["--json"]])
def test_check_config_shows_that_it_is_there_and_no_more(config: Path, how: list[str], by: str) -> None:
    secrets = config.parent / "secrets"
    of_folder = ["--secrets-dir", str(secrets)] if by == "folder" else []
    environ = {} if of_folder else {f"MIRROR_{each.name.upper()}": each.read_text() for each in secrets.iterdir()}
    result = CliRunner().invoke(app, ["check-config", "--config", str(config), *of_folder, *how], env=environ)
    assert result.exit_code == 0, result.stderr
    if how:
        described = json.loads(result.stdout)["clusters"]
        hidden = {key for way in WAYS.values() for key, value in way.items() if MARKER in value}
        assert all(value == "***" for cluster in described.values() for key, value in cluster.items() if key in hidden)
    assert result.stdout.count("***") >= len(WAYS)
    assert SEARCH.found("output", (result.stdout + result.stderr).encode()) == []


def test_what_spark_is_given_holds_none(config: Path, tmp_path: Path) -> None:
    """It is pickled into tasks."""
    given = FlowOptions(config, "f0", tmp_path / "ledger", config.parent / "secrets")
    loaded, flow = given.load()
    assert loaded.clusters[flow.source].client_options()["sasl.password"] == MARKER
    shown = repr(given) + repr(loaded) + repr(loaded.clusters) + str(flow)
    assert SEARCH.found("options", shown.encode()) == []
    assert SEARCH.found("pickles", pickle.dumps(given) + pickle.dumps(flow)) == []
