"""Every protocol and mechanism against a real broker: produce a ready-made batch, list offsets, fetch it again."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from mirror.client import Admin, Consumer, NewTopic, Producer, TokenRequest, TopicPartition
from mirror.cluster.connection.session import BrokerSession
from mirror.errors import AuthenticationFailed, KafkaError
from mirror.runtime.network.connection import Connection
from mirror.runtime.network.selector_network import SelectorNetwork
from mirror.sandbox.fetch import class_path, fetch
from mirror.sandbox.java import find_java
from mirror.wire.records import Batch
from tests import jvm
from tests.fakes.record_batches import build
from tests.polling import eventually
from tests.security.certificates import key_pem
from tests.security.conftest import CLIENT_SECRET, MECHANISMS, PASSWORD, USER, Secured

pytestmark = pytest.mark.brokers

STORE_PASSWORD = "store-4711"
_BETWEEN_TURNS_S = 0.1
"""Seconds until sessions end take much CPU otherwise."""


def batch(values: list[bytes]) -> Batch:
    return Batch(memoryview(build(values, timestamp=int(time.time() * 1000))))


def round_trip(options: dict[str, object], topic: str) -> None:
    """Three records, and a batch of two megabytes: many TLS records and many segments."""
    tp = TopicPartition(topic, 0)
    large = bytes(range(256)) * 8192
    with Admin(options) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"max.message.bytes": "4000000"})])
    with Producer(options | {"max.request.size": 4_000_000}) as producer:
        sent = [producer.send_batch(tp, batch(values)) for values in ([b"one", b"two", b"three"], [large])]
        assert [future.result(timeout=60).base_offset for future in sent] == [0, 3]
    with Consumer(options) as consumer:
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 4}
        consumer.assign([tp])
        consumer.seek(tp, 0)
        values: list[bytes | None] = []
        until = time.monotonic() + 60
        while len(values) < 4 and time.monotonic() < until:
            values += [record.value for fetched in consumer.poll(1000) for record in fetched.records()]
    assert values == [b"one", b"two", b"three", large]


def test_tls(secured: Secured, unique: Callable[[str], str]) -> None:
    round_trip(secured.options("TLS"), unique("tls"))


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("SASL", "SCRAM-SHA-256"),
        *(
            pytest.param("SASL", mechanism, marks=pytest.mark.cluster)
            for mechanism in MECHANISMS
            if mechanism != "SCRAM-SHA-256"
        ),
        *(("SASLTLS", mechanism) for mechanism in MECHANISMS),
    ],
)
def test_sasl(
    secured: Secured,
    unique: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
    listener: str,
    mechanism: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    round_trip(secured.options(listener) | secured.credentials(mechanism), unique("sasl"))
    assert PASSWORD not in caplog.text
    assert CLIENT_SECRET not in caplog.text


def test_a_token_of_the_applications_own(secured: Secured, unique: Callable[[str], str]) -> None:
    def token() -> tuple[str, int]:
        return secured.issuer.token("application"), 300_000

    own = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": token}
    round_trip(secured.options("SASLTLS") | own, unique("callback"))


def test_a_token_of_a_function_that_the_configuration_names(
    secured: Secured, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def token(request: TokenRequest) -> tuple[str, int]:
        return secured.issuer.token(f"{request.scope}-of-{request.hosts[0]}"), 300_000

    module = types.ModuleType("own_provider")
    module.token = token  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_provider", module)
    own = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": "own_provider:token"}
    round_trip(secured.options("SASLTLS") | own, unique("provider"))


def test_a_token_file_that_is_replaced(
    secured: Secured, tmp_path: Path, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker checks the signature, and ends a session with its token."""
    watch, path = Watch(monkeypatch), tmp_path / "token"
    path.write_text(secured.issuer.token("file", 8))
    own = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": path.as_uri()}
    client, written = Traffic(secured.options("SASLTLS") | own, unique("file")), [time.monotonic()]

    def over() -> bool:
        if time.monotonic() > written[-1] + 4:
            (tmp_path / "new").write_text(secured.issuer.token("file", 8))
            (tmp_path / "new").replace(path)
            written.append(time.monotonic())
        return max(dict(watch.authentications).values()) >= 3

    traffic([client], over)
    assert len(written) >= 2
    assert watch.broken == []


def test_a_token_for_an_assertion(secured: Secured, tmp_path: Path, unique: Callable[[str], str]) -> None:
    key, path = rsa.generate_private_key(65537, 2048), tmp_path / "key.pem"
    path.write_text(key_pem(key))
    secured.endpoint.clients["service"] = key.public_key()
    claims = {"iss": "service", "sub": "service", "aud": secured.endpoint.url}
    own = {f"sasl.oauthbearer.assertion.claim.{name}": value for name, value in claims.items()} | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": secured.endpoint.url,
        "sasl.oauthbearer.assertion.private.key.file": str(path),
    }
    round_trip(secured.options("SASLTLS") | own, unique("assertion"))


def test_a_delegation_token(secured: Secured, tmp_path: Path, unique: Callable[[str], str]) -> None:
    token_id, hmac = delegation_token(secured, tmp_path)
    line = f'a.ScramLoginModule required username="{token_id}" password="{hmac}" tokenauth="true";'
    own = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line}
    options = secured.options("SASLTLS") | own
    # The tool is answered by the controller, before the broker has the token.
    eventually(lambda: logs_in(options), what="the broker knows the token")
    round_trip(options, unique("delegation"))
    wrong = own | {"sasl.jaas.config": line.replace(hmac, "other")}
    with pytest.raises(AuthenticationFailed, match=f"authentication of delegation token '{token_id}' failed"):
        described(secured.options("SASLTLS") | wrong)


def logs_in(options: dict[str, object]) -> bool:
    try:
        return described(options) == 1
    except AuthenticationFailed:
        return False


def delegation_token(secured: Secured, folder: Path) -> tuple[str, str]:
    """The id and the HMAC of a token of the user, which Kafka's own tool creates."""
    quoted = PASSWORD.replace('"', '\\\\"')  # for the properties file, then for the login line
    escaped = "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in quoted)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="{USER}" password="{escaped}";'
    config = folder / "client.properties"
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    command = "org.apache.kafka.tools.DelegationTokenCommand"
    tool: list[str | Path] = [find_java().path, *jvm.PLAIN, "-cp", class_path(fetch()), command]
    servers = ["--bootstrap-server", secured.cluster.bootstrap("SASL"), "--command-config", str(config)]
    done = subprocess.run(
        [*tool, *servers, "--create", "--max-life-time-period", "-1"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    token_id, hmac = done.stdout.splitlines()[-1].split()[:2]
    return token_id, hmac


def described(options: dict[str, object]) -> int:
    with Admin(options) as admin:
        return len(admin.describe_cluster().brokers)


def test_a_client_certificate_from_a_file(secured: Secured, unique: Callable[[str], str]) -> None:
    round_trip(secured.options("MUTUAL", ssl_keystore_location=str(secured.client.path)), unique("mutual"))


def test_a_client_certificate_whose_key_is_locked(secured: Secured) -> None:
    path = str(secured.locked_client.path)
    assert described(secured.options("MUTUAL", ssl_keystore_location=path, ssl_key_password=PASSWORD)) == 1


@pytest.mark.parametrize("password", ["", PASSWORD])
@pytest.mark.parametrize("line_end", ["\n", " "])
def test_keys_and_certificates_as_text(secured: Secured, password: str, line_end: str) -> None:
    """Java's properties files often have such texts in one line."""
    options = secured.options("MUTUAL")
    del options["ssl.truststore.location"]
    inline = {
        "ssl.truststore.certificates": secured.authority.pem.replace("\n", line_end),
        "ssl.keystore.key": key_pem(secured.client.key, password).replace("\n", line_end),
        "ssl.keystore.certificate.chain": secured.client.chain.replace("\n", line_end),
    }
    if password:
        inline["ssl.key.password"] = password
    assert described(options | inline) == 1


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_stores_that_keytool_has_made(
    secured: Secured, tmp_path: Path, unique: Callable[[str], str], kind: str
) -> None:
    """The broker wants the client's certificate; the client trusts what the truststore has."""
    certificates = x509.load_pem_x509_certificates(secured.client.chain.encode())
    locked = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    source, keys, trust = (tmp_path / name for name in ("source.p12", "keys", "trust"))
    source.write_bytes(pkcs12.serialize_key_and_certificates(b"me", secured.client.key, certificates[0], None, locked))
    passwords = {"deststorepass": STORE_PASSWORD, "srcstorepass": STORE_PASSWORD}
    keytool("-importkeystore", "-srckeystore", source, "-destkeystore", keys, "-deststoretype", kind, **passwords)
    of_trust = ("-alias", "ca", "-file", secured.authority.path, "-keystore", trust, "-storetype", kind)
    keytool("-importcert", *of_trust, storepass=STORE_PASSWORD)
    options = secured.options("MUTUAL") | {
        "ssl.truststore.location": str(trust),
        "ssl.truststore.type": kind,
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.location": str(keys),
        "ssl.keystore.type": kind,
        "ssl.keystore.password": STORE_PASSWORD,
    }
    round_trip(options, unique("stores"))


def keytool(*command: str | Path, **passwords: str) -> None:
    of = [word for name, password in passwords.items() for word in (f"-{name}", password)]
    options = [f"-J{option}" for option in jvm.PLAIN]
    subprocess.run(["keytool", *options, *command, "-noprompt", *of], check=True, capture_output=True)


def test_a_host_name_that_nobody_checks(secured: Secured) -> None:
    assert described(secured.options("STRANGER", ssl_endpoint_identification_algorithm="")) == 1


def test_a_bootstrap_name_with_several_addresses(secured: Secured) -> None:
    """The broker listens on 127.0.0.1 alone; ``localhost`` may also be ::1."""
    options = secured.options("TLS")
    options["bootstrap.servers"] = str(options["bootstrap.servers"]).replace("127.0.0.1", "localhost")
    assert described(options) == 1


class Watch:
    """Counts each connection's authentications, and the connections that broke."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.authentications: Counter[BrokerSession] = Counter()
        self.broken: list[str] = []
        authenticated, fail = BrokerSession._authenticated, SelectorNetwork._fail

        def count(session: BrokerSession, lifetime_ms: int, now: int) -> None:
            self.authentications[session] += 1
            authenticated(session, lifetime_ms, now)

        def note(network: SelectorNetwork, connection: Connection, error: KafkaError, now: int) -> None:
            self.broken.append(str(error))
            fail(network, connection, error, now)

        monkeypatch.setattr(BrokerSession, "_authenticated", count)
        monkeypatch.setattr(SelectorNetwork, "_fail", note)


class Traffic:
    """One producer and one consumer of a topic, in turns."""

    def __init__(self, options: dict[str, object], topic: str) -> None:
        self.tp = TopicPartition(topic, 0)
        with Admin(options) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])
        self.sent = self.received = 0
        self._producer, self._consumer = Producer(options), Consumer(options)
        self._consumer.assign([self.tp])
        self._consumer.seek(self.tp, 0)

    def turn(self) -> None:
        assert self._producer.send_batch(self.tp, batch([b"x"])).result(timeout=30).base_offset == self.sent
        self.sent += 1
        until = time.monotonic() + 60
        while self.received < self.sent:
            assert time.monotonic() < until
            self.received += sum(1 for fetched in self._consumer.poll(200) for _ in fetched.records())
        assert self._consumer.last_error(self.tp) is None

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


def traffic(clients: list[Traffic], over: Callable[[], bool]) -> None:
    """Until ``over()``."""
    until = time.monotonic() + 200
    try:
        while not over():
            assert time.monotonic() < until, "not within 200 s"
            for client in clients:
                client.turn()
            time.sleep(_BETWEEN_TURNS_S)
    finally:
        for client in clients:
            client.close()


def test_traffic_goes_on_across_re_authentications(
    secured: Secured, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    times = 3
    clients = [
        Traffic(secured.options("RENEW") | secured.credentials(mechanism), unique("renew")) for mechanism in MECHANISMS
    ]

    def over() -> bool:
        # For each mechanism one connection to produce and one to fetch is busy all the time.
        busy = [count for count in dict(watch.authentications).values() if count >= times]
        return len(busy) >= 2 * len(MECHANISMS)

    traffic(clients, over)
    assert all(client.received == client.sent > times for client in clients)
    assert watch.broken == []


def test_a_token_is_replaced_before_it_expires(
    secured: Secured, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a session with its token (KIP-368), and no later than that another one is shown."""
    watch = Watch(monkeypatch)
    secured.endpoint.lifetime_s = 8
    secured.endpoint.requests.clear()
    client = Traffic(secured.options("SASLTLS") | secured.credentials("OAUTHBEARER"), unique("token"))
    traffic([client], lambda: max(dict(watch.authentications).values()) >= 3)
    assert len(secured.endpoint.requests) >= 3
    assert secured.endpoint.requests[0] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert watch.broken == []


def test_idle_connections_are_closed_and_opened_again(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    options = secured.options("SASLTLS", connections_max_idle_ms=300) | secured.password("PLAIN")
    with Admin(options) as admin:
        for _ in range(2):
            assert admin.describe_cluster().brokers
            eventually(lambda: not admin.network_thread.network._connections, what="all idle connections are closed")
    assert watch.broken == []
    assert len(watch.authentications) >= 2
