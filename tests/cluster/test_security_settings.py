"""The keys of TLS and SASL: what is understood, what is refused, and that no secret is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.cluster.auth.jaas import parse_jaas
from mirror.cluster.auth.kerberos_settings import KerberosSettings
from mirror.cluster.auth.security import SaslSettings, TlsSettings
from mirror.cluster.settings import ClusterSettings
from mirror.errors import ConfigError
from mirror.timing import FOREVER_MS

SECRET = "hunter2"
SCRAM: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
OAUTH: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = {
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}
KERBEROS: dict[str, object] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
}
JAAS = "sasl.jaas.config"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
PROVIDER = "sasl.oauthbearer.token.provider"
URL = "sasl.oauthbearer.token.endpoint.url"
ASSERTION_KEY = "sasl.oauthbearer.assertion.private.key.file"
PASSPHRASE = "sasl.oauthbearer.assertion.private.key.passphrase"
TRUST = {"ssl.truststore.location": "ca.pem"}
MODULE = "org.apache.kafka.common.security"


def parse(options: dict[str, object]) -> ClusterSettings:
    return ClusterSettings.parse({"bootstrap.servers": "paris:9093", **options})


def problems(options: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(options)
    assert SECRET not in str(caught.value) + repr(caught.value.problems)
    return [f"{problem.key}: {problem.allowed}" for problem in caught.value.problems]


def test_nothing_said_is_plaintext() -> None:
    settings = parse({})
    assert (settings.security.protocol, settings.security.uses_tls, settings.security.sasl) == (
        "PLAINTEXT",
        False,
        None,
    )
    assert settings.connections_max_idle_ms == 540_000
    assert parse({"connections.max.idle.ms": -1}).connections_max_idle_ms == FOREVER_MS


def test_tls() -> None:
    security = parse(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.location": "client.pem",
            "ssl.key.password": SECRET,
            "ssl.endpoint.identification.algorithm": "",
        }
    ).security
    assert security.uses_tls
    assert security.tls == TlsSettings(
        truststore_location="ca.pem", keystore_location="client.pem", key_password=SECRET, check_host_name=False
    )


def test_java_stores() -> None:
    store = {"location": "s.jks", "type": "JKS", "password": SECRET}
    options = {f"ssl.{kind}.{part}": value for kind in ("truststore", "keystore") for part, value in store.items()}
    settings = parse({"security.protocol": "SSL", **options, "ssl.key.password": SECRET})
    assert settings.security.tls == TlsSettings(
        truststore_location="s.jks",
        truststore_type="JKS",
        truststore_password=SECRET,
        keystore_location="s.jks",
        keystore_type="JKS",
        keystore_password=SECRET,
        key_password=SECRET,
    )
    assert SECRET not in repr(settings)


def test_a_password_by_its_own_key_or_by_javas_line() -> None:
    own = parse({**SCRAM, "sasl.username": "tim", "sasl.password": SECRET})
    line = parse(
        {**SCRAM, "sasl.jaas.config": f'{MODULE}.scram.ScramLoginModule required username="tim" password="{SECRET}";'}
    )
    assert own == line
    assert own.security.sasl == SaslSettings("SCRAM-SHA-512", "tim", SECRET)
    assert hash(own) == hash(line)
    assert SECRET not in repr(own)


def test_a_delegation_token_by_javas_line() -> None:
    line = f'a.ScramLoginModule required username=id password="{SECRET}" tokenauth=True;'
    settings = parse({**SCRAM, JAAS: line})
    assert settings.security.sasl == SaslSettings("SCRAM-SHA-512", "id", SECRET, by_token=True)
    assert settings.warnings == ()
    assert SECRET not in repr(settings)


def test_a_token_endpoint_by_its_own_keys_or_by_javas_line() -> None:
    own = parse({**OAUTH, **ENDPOINT, "sasl.oauthbearer.scope": "kafka"})
    options = f'clientId="me" clientSecret="{SECRET}" scope="kafka" extension_logicalCluster="lkc-1"'
    line = parse(
        {
            **OAUTH,
            "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
            "sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required {options};",
        }
    )
    assert own.security.sasl is not None
    assert line.security.sasl is not None
    assert line.security.sasl.extensions == (("logicalCluster", "lkc-1"),)
    for sasl in (own.security.sasl, line.security.sasl):
        assert (sasl.client_id, sasl.client_secret, sasl.scope) == ("me", SECRET, "kafka")
    assert SECRET not in repr(own) + repr(line)


@pytest.mark.parametrize(
    "options",
    [
        {PROVIDER: "own.tokens:token"},
        {URL: "file:///run/secrets/token"},
        {URL: "https://a/t", ASSERTION_KEY: "k.pem", PASSPHRASE: SECRET},
        {URL: "https://a/t", "sasl.oauthbearer.assertion.file": "a.jwt"},
    ],
)
def test_sources_of_tokens(options: dict[str, object]) -> None:
    settings = parse({**OAUTH, **options})
    assert settings.security.sasl is not None
    assert (settings.security.sasl.assertion is None) == (options.get(URL) != "https://a/t")
    assert SECRET not in repr(settings)


def test_a_callback_without_a_hash() -> None:
    class Source:
        __hash__ = None  # type: ignore[assignment] # as of any class with an __eq__ of its own

        def token(self) -> tuple[str, int]:
            return "t", 1

    callback: Callable[[], tuple[str, int]] = Source().token
    settings = parse({**OAUTH, "sasl.oauthbearer.token.callback": callback})
    assert settings.security.sasl is not None
    assert settings.security.sasl.token_callback is callback
    assert hash(settings) == hash(parse({**OAUTH, "sasl.oauthbearer.token.callback": callback}))


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"sasl.password": SECRET}, "sasl.password: needs security.protocol SASL_SSL or SASL_PLAINTEXT"),
    ({"ssl.truststore.location": "ca.pem"}, "ssl.truststore.location: needs security.protocol SSL or SASL_SSL"),
    ({"security.protocol": "TLS"}, "security.protocol: must be 'PLAINTEXT' or 'SSL' or 'SASL_PLAINTEXT' or 'SASL_SSL'"),
    ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: required with SASL: PLAIN, SCRAM-SHA-256,"),
    ({**SCRAM, "sasl.password": SECRET}, "sasl.username: required with SCRAM-SHA-512"),
    ({**SCRAM, "sasl.username": "tim"}, "sasl.password: required with SCRAM-SHA-512"),
    ({**SCRAM, "sasl.username": "a\0b", "sasl.password": SECRET}, "sasl.username: must not contain a zero byte"),
    ({**SCRAM, JAAS: f"X required password={SECRET};"}, "sasl.jaas.config: only PlainLoginModule"),
    ({**SCRAM, JAAS: SECRET}, "sasl.jaas.config: must be: LoginModule required"),
    (
        {**OAUTH, JAAS: f'a.OAuthBearerLoginModule required oauth.client.secret="{SECRET}";'},
        "sasl.jaas.config: its options are those of another callback handler (oauth.*, unsecured*)",
    ),
    (
        {**OAUTH, JAAS: f'a.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{SECRET}";'},
        "sasl.jaas.config: its options are those of another callback handler (oauth.*, unsecured*)",
    ),
    ({**SCRAM, JAAS: f'a.PlainLoginModule required password="{SECRET}"'}, "sasl.jaas.config: after the options"),
    ({**SCRAM, JAAS: f"a.PlainLoginModule required password={SECRET};"}, "sasl.jaas.config: its login module is for"),
    (
        {**SCRAM, "sasl.username": "tim", JAAS: f'a.ScramLoginModule required username=tom password="{SECRET}";'},
        "sasl.username: is in sasl.jaas.config too: give it once",
    ),
    (OAUTH, "sasl.oauthbearer.token.endpoint.url: required with OAUTHBEARER"),
    ({**OAUTH, "sasl.oauthbearer.token.callback": "no"}, "sasl.oauthbearer.token.callback: must be a function"),
    ({**OAUTH, **ENDPOINT, "sasl.oauthbearer.token.callback": dict}, "sasl.oauthbearer.token.callback: contradicts"),
    ({**OAUTH, **ENDPOINT, "sasl.password": SECRET}, "sasl.password: OAUTHBEARER does not use it"),
    (
        {**SCRAM, "sasl.username": "u", "sasl.password": SECRET, "sasl.oauthbearer.scope": "x"},
        "sasl.oauthbearer.scope: SCRAM-SHA-512 does not use it",
    ),
    (
        {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https://a/b"},
        "sasl.oauthbearer.client.credentials.client.id: required",
    ),
    (
        {**OAUTH, **ENDPOINT, "sasl.oauthbearer.token.endpoint.url": "http://login.example.com/token"},
        "sasl.oauthbearer.token.endpoint.url: must begin with https://",
    ),
    (
        {**OAUTH, **ENDPOINT, "sasl.oauthbearer.token.endpoint.url": f"https://me:{SECRET}@login.example.com/"},
        "sasl.oauthbearer.token.endpoint.url: must not contain a name or password",
    ),
    (
        {**OAUTH, **ENDPOINT, "sasl.oauthbearer.token.endpoint.url": "https://[x/"},
        "sasl.oauthbearer.token.endpoint.url: must be a URL",
    ),
    ({"security.protocol": "SSL", "ssl.truststore.type": "BCFKS"}, "ssl.truststore.type: must be 'PEM' or 'JKS' or"),
    (
        {"security.protocol": "SSL", "ssl.keystore.password": SECRET},
        "ssl.keystore.password: belongs to a JKS or PKCS12 file: set ssl.keystore.location",
    ),
    (
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.password": SECRET,
        },
        "ssl.truststore.password: PEM files have none",
    ),
    (
        {"security.protocol": "SSL", "ssl.keystore.key": SECRET},
        "ssl.keystore.key: belongs together with ssl.keystore.certificate.chain",
    ),
    (
        {"security.protocol": "SSL", "ssl.truststore.location": "a", "ssl.truststore.certificates": "b"},
        "ssl.truststore.location: contradicts ssl.truststore.certificates",
    ),
    ({**OAUTH, PROVIDER: "no_function"}, f'{PROVIDER}: must be a function as "package.module:function"'),
    ({**OAUTH, **ENDPOINT, PROVIDER: "a.b:c"}, f"{PROVIDER}: contradicts sasl.oauthbearer.token.endpoint.url"),
    ({**OAUTH, URL: "file:token"}, f"{URL}: must be the absolute path of a file, as file:///"),
    ({**OAUTH, URL: "file://host/token"}, f"{URL}: must be the absolute path of a file, as file:///"),
    ({**OAUTH, **ENDPOINT, ASSERTION_KEY: "k.pem"}, "sasl.oauthbearer.client.credentials.client.id: contradicts"),
    ({**OAUTH, URL: "file:///t", ASSERTION_KEY: "k.pem"}, f"{ASSERTION_KEY}: needs sasl.oauthbearer.assertion.file or"),
    ({**OAUTH, **ENDPOINT, PASSPHRASE: SECRET}, f"{PASSPHRASE}: needs sasl.oauthbearer.assertion.file or"),
    (
        {**OAUTH, URL: "https://a/t", ASSERTION_KEY: "k.pem", "sasl.oauthbearer.assertion.file": "a.jwt"},
        "sasl.oauthbearer.assertion.file: contradicts sasl.oauthbearer.assertion.private.key.file",
    ),
    (
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", URL: "file:///t", **TRUST},
        "ssl.truststore.location: needs security.protocol SSL or SASL_SSL",
    ),
    (KERBEROS | {"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name: required with GSSAPI"),
    (KERBEROS | {"sasl.username": "me"}, "sasl.username: GSSAPI does not use it"),
    (KERBEROS | {"sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope: GSSAPI does not use it"),
    ({**SCRAM, "sasl.kerberos.keytab": "k"}, "sasl.kerberos.keytab: SCRAM-SHA-512 does not use it"),
    (
        KERBEROS | {"sasl.kerberos.principal": "you", JAAS: f"{KRB5} useTicketCache=true principal=me;"},
        "sasl.kerberos.principal: is in sasl.jaas.config too, with another value",
    ),
    (KERBEROS | {JAAS: f"{KRB5} useKeyTab=true;"}, f"{JAAS}: useKeyTab needs keyTab"),
    (KERBEROS | {JAAS: f"{KRB5} keyTab=k;"}, f"{JAAS}: needs useKeyTab=true and keyTab, or useTicketCache=true"),
    ({"sasl.pasword": SECRET}, "sasl.pasword: unknown key; did you mean 'sasl.password'?"),
    (
        {"bootstrap.servers": f"me:{SECRET}@paris:9093"},
        "bootstrap.servers: must be host:port; a user name and password",
    ),
    ({"bootstrap.servers": "::1:9092"}, "bootstrap.servers: must be host:port, an IPv6 address in brackets"),
]


@pytest.mark.parametrize(("options", "expected"), REFUSED)
def test_refused_in_a_line_that_shows_no_secret(options: dict[str, object], expected: str) -> None:
    found = problems(options)
    assert any(line.startswith(expected) for line in found), found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, KerberosSettings("kafka")),
        (
            {"sasl.kerberos.keytab": "FILE:/k", "sasl.kerberos.principal": "me"},
            KerberosSettings("kafka", "/k", "me"),
        ),
        (
            {JAAS: f'{KRB5} useKeyTab=true storeKey=true keyTab="/k" principal="me@R" serviceName="kafka";'},
            KerberosSettings("kafka", "/k", "me@R"),
        ),
        ({JAAS: f"{KRB5} useTicketCache=true renewTGT=true;"}, KerberosSettings("kafka")),
        ({JAAS: f'{KRB5} useTicketCache="TRUE" ticketCache="/c";'}, KerberosSettings("kafka", cache="/c")),
        ({JAAS: f"{KRB5} useTicketCache=true keyTab=/ignored;"}, KerberosSettings("kafka")),
    ],
)
def test_kerberos(options: dict[str, object], expected: KerberosSettings) -> None:
    settings = parse(KERBEROS | options)
    assert settings.security.sasl is not None
    assert settings.security.sasl.kerberos == expected
    assert settings.warnings == ()


def test_an_ipv6_address() -> None:
    assert parse({"bootstrap.servers": "[::1]:9092,paris:1"}).bootstrap == (("::1", 9092), ("paris", 1))


def test_the_login_line() -> None:
    line = parse_jaas("""a.b.PlainLoginModule  REQUIRED\n username='it\\'s' password="a\\"b;\\\\ c"\n;\n""")
    assert (line.family, dict(line.options)) == ("PLAIN", {"username": "it's", "password": 'a"b;\\ c'})
    assert "it's" not in repr(line)


def test_options_that_a_login_module_does_not_know_are_ignored_and_counted() -> None:
    """Brokers' options in a client's line (``user_NAME``), and those of Kerberos (``serviceName``)."""
    options = f'username="tim" password="{SECRET}" user_tim="{SECRET}" serviceName="kafka" tokenauth="false"'
    settings = parse({**SCRAM, JAAS: f"a.ScramLoginModule required {options};"})
    assert settings == parse({**SCRAM, "sasl.username": "tim", "sasl.password": SECRET})
    (warning,) = settings.warnings
    assert warning.startswith("sasl.jaas.config: 2 of its options mean nothing to its login module")
    assert SECRET not in warning + repr(settings)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "PlainLoginModule;",
        'PlainLoginModule required username="a;',
        "PlainLoginModule required username=a username=b;",
        "PlainLoginModule required username=a; PlainLoginModule required username=b;",
        "PlainLoginModule sometimes username=a;",
    ],
)
def test_what_is_no_login_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|takes|given twice|one ';'|only"):
        parse_jaas(text)
