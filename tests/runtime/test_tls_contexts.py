"""Which certificates a client trusts and shows: with real handshakes, and files that are renewed while it lives."""

from __future__ import annotations

import random
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from mirror.backoff import Backoff
from mirror.cluster.auth.security import Security, TlsSettings
from mirror.cluster.settings import ClusterSettings
from mirror.errors import AuthenticationFailed, ConfigError
from mirror.runtime.network.background import Background
from mirror.runtime.network.credentials import Credentials
from tests.security.certificates import Authority, Identity, key_pem
from tests.security.tokens import Issuer, TokenEndpoint

WAIT_S: Final = 30.0
HOST: Final = "127.0.0.1"


class Server:
    """A listener for TLS that keeps the serial number of each client's certificate (None: it showed none)."""

    def __init__(self, identity: Identity, clients: Authority | None = None) -> None:
        self.serials: list[int | None] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(identity.path)
        if clients is not None:
            self._context.load_verify_locations(cadata=clients.pem)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server((HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            accepted.settimeout(WAIT_S)
            try:
                with self._context.wrap_socket(accepted, server_side=True) as secured:
                    certificate = secured.getpeercert()
                    self.serials.append(int(str(certificate["serialNumber"]), 16) if certificate else None)
                    secured.sendall(b"!")
            except OSError:
                accepted.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(WAIT_S)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def mutual(authority: Authority) -> Iterator[Server]:
    server = Server(authority.identity("broker", HOST), authority)
    yield server
    server.close()


def credentials(tls: TlsSettings) -> Credentials:
    rng = random.Random(1)
    return Credentials(Security("SSL", tls), 1000, Background(lambda: None), Backoff(1, 1, rng), rng)


def connect(client: Credentials, port: int) -> bytes:
    """Do a handshake as the network thread does, and read what the server answers. Raises ssl.SSLError."""
    assert client.wrap is not None
    with socket.create_connection((HOST, port), timeout=WAIT_S) as sock:
        sock.setblocking(False)
        transport = client.wrap(sock, HOST)
        while not transport.handshake():
            assert select.select([sock], [], [], WAIT_S)[0]
        answer = memoryview(bytearray(1))
        while True:
            transport.begin_turn()
            try:
                count = transport.read_into(answer)
            except BlockingIOError:
                assert select.select([sock], [], [], WAIT_S)[0]
            else:
                return bytes(answer[:count])


def accepts(tls: TlsSettings, identity: Identity) -> bool:
    server = Server(identity)
    try:
        return connect(credentials(tls), server.port) == b"!"
    except ssl.SSLCertVerificationError:
        return False
    finally:
        server.close()


def serial(identity: Identity) -> int:
    return x509.load_pem_x509_certificate(identity.chain.encode()).serial_number


# --- whom it trusts


@pytest.mark.parametrize("python_is_strict", [False, True], ids=["as it is", "as Python 3.13"])
@pytest.mark.parametrize("trusted", ["root", "intermediate", "broker"])
def test_any_certificate_of_the_chain_may_be_the_trusted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: str, python_is_strict: bool
) -> None:
    """As in Java. No CA here has an Authority Key Identifier, which VERIFY_X509_STRICT of Python 3.13 wants."""
    if python_is_strict:
        create = ssl.create_default_context

        def strict(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
            context = create(cafile=cafile, cadata=cadata)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
            return context

        monkeypatch.setattr(ssl, "create_default_context", strict)
    root = Authority(tmp_path, "root")
    middle = Authority(tmp_path, "middle", root)
    broker = middle.identity("broker", HOST)
    broker.path.write_text(broker.path.read_text() + middle.pem)
    pem = {"root": root.pem, "intermediate": middle.pem, "broker": broker.chain}[trusted]
    (tmp_path / "trust.pem").write_text(pem)
    assert accepts(TlsSettings(truststore_location=str(tmp_path / "trust.pem")), broker)
    assert accepts(TlsSettings(truststore_certificates=pem), broker)


def test_strangers_other_names_and_expired_certificates_are_refused(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "other")
    trust = TlsSettings(truststore_location=str(authority.path))
    assert not accepts(trust, other.identity("stranger", HOST))
    assert not accepts(trust, authority.identity("elsewhere", "10.1.2.3"))
    assert not accepts(trust, authority.identity("expired", HOST, expired=True))
    expired = authority.identity("own-expired", HOST, expired=True)
    assert not accepts(TlsSettings(truststore_certificates=expired.chain), expired)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_the_name_of_a_token_endpoint_is_checked_where_those_of_brokers_are_not(
    tmp_path: Path, authority: Authority, protocol: str
) -> None:
    """The client's secret goes there; in Java, too, ssl.endpoint.identification.algorithm is about brokers."""
    endpoint = TokenEndpoint(Issuer(tmp_path), authority.identity("other", "other.example").path, "me", "secret")
    try:
        settings = ClusterSettings.parse(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "security.protocol": protocol,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": endpoint.url,
                "sasl.oauthbearer.client.credentials.client.id": "me",
                "sasl.oauthbearer.client.credentials.client.secret": "secret",
                "ssl.truststore.certificates": authority.pem,
                "ssl.endpoint.identification.algorithm": "",
            }
        )
        fetched, rng = threading.Event(), random.Random(1)
        client = Credentials(settings.security, 30_000, Background(fetched.set), Backoff(1_000, 1_000, rng), rng)
        login = client.login_to("a")
        assert login is not None
        assert login.begin(0) is None
        assert fetched.wait(WAIT_S)
        with pytest.raises(AuthenticationFailed, match=f"the endpoint's certificate is not for '{HOST}'") as caught:
            login.begin(0)
        assert "algorithm" not in str(caught.value), "it would not help"
        assert endpoint.requests == []
    finally:
        endpoint.close()


# --- files that change


def test_new_connections_show_the_certificate_as_it_is_now(authority: Authority, mutual: Server) -> None:
    old = authority.identity("client")
    client = credentials(TlsSettings(truststore_location=str(authority.path), keystore_location=str(old.path)))
    first = serial(old)
    assert connect(client, mutual.port) == b"!"
    renewed = authority.identity("client")  # into the same file
    assert connect(client, mutual.port) == b"!"
    assert mutual.serials == [first, serial(renewed)]


def test_a_renewed_certificate_ends_the_refusals_of_an_expired_one(authority: Authority, mutual: Server) -> None:
    expired = authority.identity("client", expired=True)
    client = credentials(TlsSettings(truststore_location=str(authority.path), keystore_location=str(expired.path)))
    with pytest.raises(ssl.SSLError):
        connect(client, mutual.port)
    authority.identity("client")
    assert connect(client, mutual.port) == b"!"


@pytest.mark.parametrize("damage", ["half", "gone", "empty"])
def test_files_that_are_not_whole_are_named_and_the_former_ones_used(
    authority: Authority, mutual: Server, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    identity = authority.identity("client")
    client = credentials(TlsSettings(truststore_location=str(authority.path), keystore_location=str(identity.path)))
    first, content = serial(identity), identity.path.read_text()
    if damage == "gone":
        identity.path.unlink()
    else:
        identity.path.write_text(content[: len(content) // 2] if damage == "half" else "")
    for _ in range(2):
        assert connect(client, mutual.port) == b"!"
    (warning,) = caplog.messages  # once for each change
    assert warning.startswith(f"ssl.keystore.location: {str(identity.path)!r} has changed: ")
    assert "until it changes again" in warning
    renewed = authority.identity("client")
    assert connect(client, mutual.port) == b"!"
    assert mutual.serials == [first, first, serial(renewed)]


def test_new_cas_are_trusted_once_they_are_in_the_file(tmp_path: Path, authority: Authority) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text(authority.pem)
    other = Authority(tmp_path, "other")
    client = credentials(TlsSettings(truststore_location=str(trust)))
    server = Server(other.identity("broker", HOST))
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(client, server.port)
        replacement = tmp_path / "trust.new"
        replacement.write_text(authority.pem + other.pem)
        replacement.replace(trust)  # as Kubernetes replaces the files of a Secret
        assert connect(client, server.port) == b"!"
    finally:
        server.close()


def test_a_key_store_without_the_clients_key_or_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    client, path = authority.identity("client"), tmp_path / "mounted.pem"
    key = client.path.read_text().removesuffix(client.chain)
    of_rsa = key_pem(rsa.generate_private_key(65537, 2048))
    for text, reason in [
        (client.chain, "it contains no private key"),
        (key + authority.pem + client.chain, "the first certificate is not that of the key"),
        (of_rsa + client.chain, "the first certificate is not that of the key"),
    ]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"mounted.pem': not usable \({reason}\)"):
            credentials(TlsSettings(keystore_location=str(path)))
