"""GSSAPI: a KDC of MIT Kerberos, and a real broker whose listener takes its tickets."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from mirror.client import Admin
from mirror.cluster.auth.gssapi import Gssapi
from mirror.cluster.auth.kerberos_settings import KerberosSettings
from mirror.errors import AuthenticationFailed, KafkaTimeout
from mirror.runtime.network.kerberos import _Context, load_gssapi, tickets
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.security.kdc import REALM, Kdc
from tests.security.test_protocols import Traffic, Watch, described, round_trip, traffic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

SERVICE: Final = "kafka/127.0.0.1"
LOGIN: Final = "com.sun.security.auth.module.Krb5LoginModule required"
REAUTHENTICATE_MS: Final = 3_000
NAMES: Final = (f"user-{number}" for number in itertools.count(1))


class Realm:
    """The KDC and the broker."""

    def __init__(self, kdc: Kdc, cluster: Cluster) -> None:
        self.kdc = kdc
        self.cluster = cluster

    def options(self, **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": self.cluster.bootstrap("KERBEROS"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "default.api.timeout.ms": 60_000,
        } | {key.replace("_", "."): value for key, value in more.items()}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        keytab = kdc.keytab("broker.keytab", SERVICE)
        line = f'{LOGIN} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}@{REALM}";'
        properties = {
            "sasl.kerberos.service.name": "kafka",
            "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.kerberos.gssapi.sasl.jaas.config": line,
            "listener.name.kerberos.gssapi.connections.max.reauth.ms": str(REAUTHENTICATE_MS),
        }
        heap = (*jvm.BROKER, f"-Djava.security.krb5.conf={kdc.config}")
        with Cluster(properties=properties, listeners={"KERBEROS": "SASL_PLAINTEXT"}, heap=heap) as cluster:
            yield Realm(kdc, cluster)


@pytest.fixture
def realm(running: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    for name in ("KRB5_CONFIG", "KRB5CCNAME"):
        monkeypatch.setenv(name, running.kdc.environment[name])
    return running


def test_a_keytab(realm: Realm, unique: Callable[[str], str]) -> None:
    """The key is used once by each of three clients: all connections of one have the same ticket."""
    user = next(NAMES)
    keytab = realm.kdc.keytab(user, user)
    round_trip(realm.options(sasl_kerberos_keytab=str(keytab)), unique("keytab"))
    assert realm.kdc.logins(user) == 3


def test_java_s_login_line(realm: Realm) -> None:
    user = next(NAMES)
    keytab = realm.kdc.keytab(user, user)
    line = f'{LOGIN} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{user}@{REALM}" serviceName="kafka";'
    assert described(realm.options(sasl_jaas_config=line, sasl_kerberos_service_name="")) == 1


@pytest.mark.parametrize("how", ["login line", "environment"])
def test_a_credential_cache(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    user, cache = next(NAMES), tmp_path / "cache"
    keytab = realm.kdc.keytab(user, user)
    realm.kdc.run("kinit", "-k", "-t", str(keytab), "-c", str(cache), user)
    if how == "login line":
        options = realm.options(sasl_jaas_config=f'{LOGIN} useTicketCache=true ticketCache="{cache}";')
    else:
        monkeypatch.setenv("KRB5CCNAME", str(cache))
        options = realm.options()
    assert described(options) == 1
    assert realm.kdc.logins(user) == 1


def test_a_cache_whose_ticket_expires_and_is_renewed(realm: Realm, tmp_path: Path) -> None:
    user, cache = next(NAMES), tmp_path / "cache"
    keytab = realm.kdc.keytab(user, user)
    kinit = ("kinit", "-k", "-t", str(keytab), "-c", str(cache))
    realm.kdc.run(*kinit, "-l", "1s", user)
    time.sleep(1.1)  # the ticket's lifetime: there is no event to wait for
    options = realm.options(sasl_jaas_config=f'{LOGIN} useTicketCache=true ticketCache="{cache}";')
    with Admin(options) as admin:
        with pytest.raises(KafkaTimeout, match=r"Kerberos: the credential cache .*: the ticket has expired"):
            admin.describe_cluster(timeout_ms=2_000)
        realm.kdc.run(*kinit, user)
        assert admin.describe_cluster().brokers


def test_traffic_goes_on_beyond_the_life_of_tickets(
    realm: Realm, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the broker's session and the ticket are renewed, several times."""
    user, watch = next(NAMES), Watch(monkeypatch)
    keytab = realm.kdc.keytab(user, user, "-maxlife", "5 seconds")
    client = Traffic(realm.options(sasl_kerberos_keytab=str(keytab)), unique("renewed"))
    began = realm.kdc.logins(user)
    traffic([client], lambda: realm.kdc.logins(user) >= began + 4 and max(watch.authentications.values()) >= 3)
    assert client.received == client.sent
    assert watch.broken == []


def test_a_kdc_that_is_away_is_asked_again(realm: Realm) -> None:
    user = next(NAMES)
    keytab = realm.kdc.keytab(user, user)
    realm.kdc.stop()
    try:
        with Admin(realm.options(sasl_kerberos_keytab=str(keytab))) as admin:
            with pytest.raises(KafkaTimeout, match=r"Kerberos: .*Cannot contact any KDC for realm 'MIRROR.TEST'"):
                admin.describe_cluster(timeout_ms=3_000)
            realm.kdc.start()
            assert admin.describe_cluster().brokers
    finally:
        realm.kdc.stop()
        realm.kdc.start()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"sasl_kerberos_keytab": "none.keytab"}, "sasl.kerberos.keytab none.keytab cannot be read: No such"),
        ({"sasl_kerberos_principal": "nobody"}, "Kerberos: sasl.kerberos.keytab .*: there is no key or"),
        (
            {"sasl_kerberos_service_name": "other"},
            "for other@127.0.0.1: the KDC has no such service: check sasl.kerberos.service.name",
        ),
        ({"sasl_kerberos_keytab": ""}, r"the credential cache \(kinit, KRB5CCNAME\): No Kerberos credentials"),
    ],
)
def test_what_is_refused_at_once(realm: Realm, more: dict[str, object], reason: str) -> None:
    user = next(NAMES)
    keytab = realm.kdc.keytab(user, user)
    given = {"sasl_kerberos_keytab": str(keytab)} | more
    with Admin(realm.options(**given)) as admin, pytest.raises(AuthenticationFailed) as caught:
        admin.describe_cluster()
    assert re.search(reason, str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_key_that_was_replaced(realm: Realm) -> None:
    user = next(NAMES)
    keytab = realm.kdc.keytab(user, user)
    realm.kdc.replace_key(user)
    options = realm.options(sasl_kerberos_keytab=str(keytab))
    reason = f"Kerberos: sasl.kerberos.keytab {keytab}: the principal has another key by now"
    with Admin(options) as admin, pytest.raises(AuthenticationFailed, match=reason):
        admin.describe_cluster()


@pytest.mark.spark
def test_spark_s_tasks(realm: Realm, source_cluster: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    user, topic, source = next(NAMES), unique("tasks"), Side(source_cluster.bootstrap_servers)
    keytab = realm.kdc.keytab(user, user)
    source.create(topic)
    source.fill(topic, [b"1", b"2"])
    site, options = Site(tmp_path), realm.options(sasl_kerberos_keytab=str(keytab))
    site.write(
        {"a": source.address, "b": str(options.pop("bootstrap.servers"))}, {"f": flow("a", "b", [topic])}, b=options
    )
    try:
        done = site.run(environ={"KRB5_CONFIG": str(realm.kdc.config)})
    finally:
        site.kill()
    assert (done.status, done.errors) == (0, []), done.err
    assert Side(realm.cluster.bootstrap_servers).read(f"a.{topic}") == [b"1", b"2"]


@pytest.mark.parametrize("answer", [b"", b"x", bytes(4_000), b"\x60\x23\x06\x09\x2a\x86\x48"])
def test_a_broker_that_does_not_have_the_service_s_key(realm: Realm, answer: bytes) -> None:
    user = next(NAMES)
    settings = KerberosSettings("kafka", str(realm.kdc.keytab(user, user)))
    exchange = Gssapi(user, _Context(load_gssapi(), tickets(settings)().value, "kafka@127.0.0.1"))
    assert exchange.first()
    with pytest.raises(ValueError, match="the broker did not prove that it has the service's key"):
        exchange.respond(answer)
