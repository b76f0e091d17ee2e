"""A secret is never shown, wherever a mistake puts it."""

from __future__ import annotations

import logging
import traceback

import pytest
from pydantic import SecretStr

from mirror.config.key_names import is_secret
from mirror.config.models import ClusterConfig, MirrorConfig
from mirror.config.problems import shown
from mirror.errors import ConfigError

from .conftest import CLUSTERS, FLOW, Load

SECRET = "hunter2"

SLIPS = [
    '[clusters.paris]\n"sasl.password" = "hunter2"',
    '[clusters.paris]\n"sasl.password" = ["hunter2"]',
    '[clusters.paris]\n"sasl.password" = { value = "hunter2" }',
    '[clusters.paris]\n"sasl.pasword" = "hunter2"',
    '[clusters.paris]\n"sasl.pwrd" = "hunter2"',
    '[clusters.paris]\n"sasl.pwrd" = ["hunter2"]',
    '[clusters.paris]\nsasl.password = "hunter2"',
    '[clusters.paris]\n"ssl.keystore.key" = "hunter2"',
    '[clusters.paris]\n"sasl.jaas.config" = "Login required password=hunter2;"',
    '[clusters.paris]\n"bootstrap.servers" = "user:hunter2@paris"',
    '[clusters.paris]\n"bootstrap.servers" = 5\n"sasl.password" = "hunter2"',
    '[clusters]\nparis = "hunter2"',
    '[clusters]\npassword = "hunter2"',
    'password = "hunter2"',
    'clusters = "hunter2"',
    '[flows.a]\npassword = "hunter2"',
    '[flows.a]\npassword = ["hunter2"]',
    '[flows.a.sasl]\npassword = "hunter2"',
    '[flows.a.producer]\n"sasl.password" = "hunter2"',
    '[flows.a.consumer]\n"ssl.key.password" = "hunter2"',
    '[flows.a]\nsource = { password = "hunter2" }\ntarget = ["user:hunter2@x"]',
    '[clusters.paris]\n"sasl.password" = hunter2',
    '[clusters.paris]\n"sasl.password" = "hunter2',
    '"sasl.password" = "hunter2"\n"sasl.password" = "hunter2"',
    *(
        f'[{table}]\n"{key}" = "hunter2"'
        for table in ("clusters.paris", "flows.a", "flows.a.consumer", "flows.a.producer", "flows.a.groups")
        for key in (
            "sasl.pass",
            "sasl.username.pass",
            "sasl.login",
            "sasl.key",
            "sasl.oauthbearer.assertion",
            "ssl.key",
            "ssl.key.pass",
            "ssl.keystore",
            "ssl.keystore.pass",
            "ssl.keystore.pem",
            "ssl.truststore.pass",
            "api.key",
        )
    ),
    '[flows.a.consumer]\nfetch-max = ["hunter2"]',
    '[flows.a]\ntopicz = "hunter2"',
]


@pytest.mark.parametrize("toml", SLIPS)
def test_no_error_shows_a_secret(read: Load, toml: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(toml)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in repr(caught.value.problems)


@pytest.mark.parametrize(
    ("toml", "shown_value"),
    [
        ('[clusters.paris]\n"securty.protocol" = "SSL"', "***"),
        ('[clusters.paris]\n"bootstrap.server" = "paris:1"', "***"),
        ('[clusters.paris]\n"retries.of.mine" = 5', "5"),
        ('[clusters.paris]\n"what" = "hunter2"', "***"),
        ('[clusters.paris]\n"sasl.passwd" = 7', "***"),
        ('[flows.a.consumer]\n"sasl-pass" = 7', "***"),
        ('[flows.a.groups]\n"ssl.key.pass" = 7', "***"),
        ("[flows.a.groups]\nsynk = true", "true"),
        ('[flows.a]\ntopicz = ["orders"]', "***"),
    ],
)
def test_of_unknown_keys_only_numbers_are_shown_and_none_of_a_secret_s_name(
    read: Load, toml: str, shown_value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(toml)
    (problem,) = [one for one in caught.value.problems if "unknown key" in one.allowed]
    assert problem.value == shown_value


@pytest.mark.parametrize("name", ["SASL_PASSWORD", "SASL_PASWORD", "SSL_KEYSTORE_KEY", "SASL_JAAS_CONFIG"])
def test_no_error_shows_an_override(read: Load, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    environ = {f"MIRROR_CLUSTERS__PARIS__{name}": SECRET}
    with pytest.raises(ConfigError) as caught:
        read(CLUSTERS + FLOW, environ, {f"clusters__berlin__{name.lower()}": SECRET})
    assert len(caught.value.problems) == 2
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in caplog.text


def test_the_settings_library_s_debug_log_shows_no_secret(
    read: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PYDANTIC_SETTINGS_DEBUG", "1")
    with pytest.raises(ConfigError):
        read(CLUSTERS + '"sasl.password" = "hunter2"\n' + FLOW, {"MIRROR_CLUSTERS__PARIS__SASL_PASSWORD": SECRET})
    assert SECRET not in caplog.text


def test_secrets_are_hidden_from_all_but_the_client(read: Load) -> None:
    cluster = ClusterConfig.model_validate(
        {"name": "paris", "options": {"sasl.password": SecretStr(SECRET), "client.id": "x"}}
    )
    config = MirrorConfig(clusters={"paris": cluster}, flows=read().flows)
    assert SECRET not in repr(config) + str(config) + config.model_dump_json() + repr(config.described())
    assert config.described()["clusters"]["paris"] == {"sasl.password": "***", "client.id": "x"}
    assert cluster.client_options() == {"sasl.password": SECRET, "client.id": "x"}


def test_headers_from_the_secrets_folder_are_secrets_whatever_their_names(read: Load) -> None:
    secrets = {"flows__paris_berlin__headers": f'{{"x-key": "{SECRET}"}}'}
    config = read(CLUSTERS + FLOW + 'headers.via = "paris"', None, secrets)
    flow = config.flows["paris-berlin"]
    assert config.described()["flows"]["paris-berlin"]["headers"] == {"via": "paris", "x-key": "***"}
    assert dict(flow.copy_policy().headers)["x-key"] == SECRET.encode()
    assert SECRET not in repr(config) + str(flow) + config.model_dump_json() + repr(flow.copy_policy())


def test_a_user_s_name_for_a_cluster_makes_no_secret() -> None:
    assert not is_secret(("clusters", "token-service", "bootstrap.servers"))
    assert is_secret(("clusters", "token-service", "sasl.password"))
    assert is_secret(("clusters", "password"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\nb\x1b[31m", r'"a\nb\u001b[31m"'),
        ("x" * 200, '"' + "x" * 76 + "..."),
        ({"password": SECRET}, "a table"),
        ([{"password": SECRET}, 1], "[a table, 1]"),
        ("user:hunter2@host:1", '"***@host:1"'),
        (2**64, "(an integer too large)"),
        (True, "true"),
    ],
)
def test_how_values_are_shown(value: object, expected: str) -> None:
    assert shown(value) == expected
