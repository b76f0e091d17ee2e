"""How MirrorMaker 2 logs in at services, by Java's login modules and callback handlers."""

from __future__ import annotations

import pytest

from mirror.migration.findings import Kind
from mirror.migration.importing import import_source
from mirror.migration.sources import read

FILE = "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
MSK = "software.amazon.msk.auth.iam"
OF_KAFKA = "org.apache.kafka.common.security.oauthbearer"


@pytest.mark.parametrize(
    ("lines", "mechanism"),
    [
        (
            (
                f"b.sasl.jaas.config = {MSK}.IAMLoginModule required;\n"
                f"b.sasl.client.callback.handler.class = {MSK}.IAMClientCallbackHandler\n"
            ),
            "AWS_MSK_IAM",
        ),
        (
            (
                f"b.sasl.jaas.config = {OF_KAFKA}.OAuthBearerLoginModule required;\n"
                f"b.sasl.login.callback.handler.class = {OF_KAFKA}.OAuthBearerLoginCallbackHandler\n"
                "b.sasl.oauthbearer.token.endpoint.url = file:///run/secrets/token\n"
            ),
            "OAUTHBEARER",
        ),
    ],
)
def test_a_login_that_the_mechanism_is_enough_for(lines: str, mechanism: str) -> None:
    text = f"{FILE}b.security.protocol = SASL_SSL\nb.sasl.mechanism = {mechanism}\n{lines}"
    found = import_source(read(text.encode(), "mm2"), name="mm2")
    assert found.file is not None
    assert f'"sasl.mechanism" = "{mechanism}"' in found.file.text
    (handler,) = [one for one in found.findings if "callback.handler" in one.key]
    assert handler.kind is Kind.NOT_NEEDED


def test_a_handler_of_google_s_becomes_the_provider() -> None:
    lines = (
        "b.security.protocol = SASL_SSL\nb.sasl.mechanism = OAUTHBEARER\n"
        f"b.sasl.jaas.config = {OF_KAFKA}.OAuthBearerLoginModule required;\n"
        "b.sasl.login.callback.handler.class = com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler\n"
    )
    found = import_source(read(f"{FILE}{lines}".encode(), "mm2"), name="mm2")
    assert found.file is not None
    assert '"sasl.oauthbearer.token.provider" = "gcp"' in found.file.text
    assert not [one for one in found.findings if "callback.handler" in one.key]


def test_a_handler_that_is_not_known_is_named() -> None:
    lines = "b.security.protocol = SASL_SSL\nb.sasl.mechanism = AWS_MSK_IAM\n"
    text = f"{FILE}{lines}b.sasl.client.callback.handler.class = com.example.Handler\n"
    found = import_source(read(text.encode(), "mm2"), name="mm2")
    (handler,) = [one for one in found.findings if "callback.handler" in one.key]
    assert handler.kind is not Kind.NOT_NEEDED


KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


def test_kerberos_which_is_java_s_default() -> None:
    lines = (
        "b.security.protocol = SASL_SSL\nb.sasl.kerberos.service.name = kafka\n"
        f'b.sasl.jaas.config = {KRB5} useKeyTab=true storeKey=true keyTab="/k" principal="me@R";\n'
        "b.sasl.kerberos.ticket.renew.jitter = 0.1\n"
    )
    found = import_source(read(f"{FILE}{lines}".encode(), "mm2"), name="mm2")
    assert found.file is not None
    assert '"sasl.mechanism" = "GSSAPI"' in found.file.text
    assert '"sasl.kerberos.service.name" = "kafka"' in found.file.text
    kinds = {one.key: one.kind for one in found.findings if "kerberos" in one.key}
    assert kinds == {"b.sasl.kerberos.ticket.renew.jitter": Kind.NO_EQUIVALENT}


def test_a_login_by_kerberos_that_is_in_a_file_of_the_jvm_is_left_to_do() -> None:
    lines = "b.security.protocol = SASL_SSL\nb.sasl.mechanism = GSSAPI\nb.sasl.kerberos.service.name = kafka\n"
    found = import_source(read(f"{FILE}{lines}".encode(), "mm2"), name="mm2")
    assert found.file is not None
    (login,) = [one for one in found.findings if one.key == "b.sasl.mechanism"]
    assert login.kind is Kind.TO_DO


@pytest.mark.parametrize(
    "lines",
    [
        "b.sasl.jaas.config = ${file:/s:jaas}\n",
        "b.sasl.jaas.config = ${file:/s:jaas}\nb.sasl.kerberos.service.name = kafka\n",
        f'b.sasl.jaas.config = {KRB5} useKeyTab=true keyTab="${{file:/s:keytab}}" serviceName="kafka";\n',
    ],
)
def test_a_reference_in_a_login_line_of_kerberos(lines: str) -> None:
    text = f"{FILE}config.providers = file\nb.security.protocol = SASL_SSL\n{lines}"
    found = import_source(read(text.encode(), "mm2"), name="mm2")
    assert found.file is not None
