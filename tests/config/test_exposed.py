"""A warning if a password or token is sent without TLS to another host."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.config.exposed import readable_secrets, unencrypted_credentials
from mirror.config.load import load
from tests.security.certificates import Authority

SECRET = "m4rker-of-a-password"
LOGIN = {
    "PLAIN": ["sasl.username", "me", "sasl.password", SECRET],
    "SCRAM-SHA-512": ["sasl.username", "me", "sasl.password", SECRET],
    "OAUTHBEARER": [
        "sasl.oauthbearer.token.endpoint.url",
        "https://login.example.com/token",
        "sasl.oauthbearer.client.credentials.client.id",
        "me",
        "sasl.oauthbearer.client.credentials.client.secret",
        SECRET,
    ],
}


def configured(folder: Path, servers: str, protocol: str, mechanism: str) -> Path:
    keys = ["bootstrap.servers", servers, "security.protocol", protocol]
    if protocol.startswith("SASL"):
        keys += ["sasl.mechanism", mechanism, *LOGIN[mechanism]]
    lines = [f'"{key}" = "{value}"' for key, value in zip(keys[::2], keys[1::2], strict=True)]
    flow = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["x"]\n'
    path = folder / "mirror.toml"
    path.write_text("\n".join(["[clusters.a]", *lines, "[clusters.b]", '"bootstrap.servers" = "b:1"', flow]))
    return path


def lines_of(folder: Path, servers: str, protocol: str, mechanism: str) -> list[str]:
    return unencrypted_credentials(load(configured(folder, servers, protocol, mechanism), environ={}), ["a", "b", "a"])


@pytest.mark.parametrize(("mechanism", "what"), [("PLAIN", "password"), ("OAUTHBEARER", "token")])
def test_a_secret_without_tls_to_another_host(mechanism: str, what: str, tmp_path: Path) -> None:
    (line,) = lines_of(
        tmp_path, "localhost:1,k2.example.com:2,k1.example.com:3,k1.example.com:4", "SASL_PLAINTEXT", mechanism
    )
    assert line == (
        f"cluster a: the {what} of sasl.mechanism {mechanism} goes to k1.example.com, k2.example.com unencrypted:"
        " use security.protocol SASL_SSL"
    )


@pytest.mark.parametrize("servers", ["localhost:9092", "127.0.0.1:9092,[::1]:9092", "127.3.2.1:1,LOCALHOST:2"])
def test_a_secret_to_this_machine_may_be_unencrypted(servers: str, tmp_path: Path) -> None:
    assert lines_of(tmp_path, servers, "SASL_PLAINTEXT", "PLAIN") == []


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SASL_SSL", "PLAIN"), ("SASL_SSL", "OAUTHBEARER"), ("SASL_PLAINTEXT", "SCRAM-SHA-512"), ("PLAINTEXT", "PLAIN")],
)
def test_encrypted_or_unsent_secrets_are_not_reported(protocol: str, mechanism: str, tmp_path: Path) -> None:
    assert lines_of(tmp_path, "k1.example.com:2", protocol, mechanism) == []


@pytest.mark.parametrize("as_json", [False, True])
def test_check_config_warns_once_and_succeeds(as_json: bool, tmp_path: Path) -> None:
    path = configured(tmp_path, "k1.example.com:2", "SASL_PLAINTEXT", "PLAIN")
    result = CliRunner().invoke(app, ["check-config", "--config", str(path), *(["--json"] if as_json else [])])
    assert result.exit_code == 0
    assert result.stderr.count("unencrypted") == 1
    assert result.stderr.startswith("mirror: warning: cluster a: the password of sasl.mechanism PLAIN goes to")
    assert SECRET not in result.stdout + result.stderr


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_files_with_secrets_that_every_user_can_read_are_named(open_folder: Path) -> None:
    path = configured(open_folder, "a.example.com:1", "SASL_SSL", "PLAIN")
    key, secrets = open_folder / "key.pem", open_folder / "my secrets"
    secrets.mkdir(mode=0o755)
    secret = secrets / "clusters__a__ssl_key_password"
    path.write_text(path.read_text().replace("[clusters.b]", f'"ssl.keystore.location" = "{key}"\n[clusters.b]'))
    Authority(secrets.parent, "ca").identity("key", password=SECRET)
    secret.write_text(SECRET)
    for file in (path, key, secret):
        file.chmod(0o644)
    shown = CliRunner().invoke(app, ["check-config", "--config", str(path), "--secrets-dir", str(secrets)])
    assert shown.exit_code == 0
    named = f"{key}, {path}, {secret}: chmod o= {key} {path} '{secret}'"
    assert f"every user of this host can read the secrets in {named}" in " ".join(shown.stderr.split())
    assert SECRET not in shown.output
    for file in (path, key):
        file.chmod(0o640)
    secrets.chmod(0o700)
    assert readable_secrets(load(path, environ={}, secrets_dir=secrets)) == []


@pytest.mark.parametrize(
    ("lines", "file"),
    [
        ('"sasl.oauthbearer.token.endpoint.url" = "file://{}/token"', "token"),
        (
            (
                '"sasl.oauthbearer.token.endpoint.url" = "https://x/t"\n'
                '"sasl.oauthbearer.assertion.private.key.file" = "{}/key"'
            ),
            "key",
        ),
    ],
)
def test_files_of_tokens_and_of_their_keys_are_named(open_folder: Path, lines: str, file: str) -> None:
    """They may also be in the folder of secrets, where any other file is an error."""
    path, secrets = open_folder / "mirror.toml", open_folder / "secrets"
    secrets.mkdir(mode=0o755)
    (secrets / file).write_text(SECRET)
    (secrets / file).chmod(0o644)
    login = f'"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "OAUTHBEARER"\n{lines.format(secrets)}\n'
    flow = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["x"]\n'
    servers = '"bootstrap.servers" = "a:1"\n'
    path.write_text(f"[clusters.a]\n{servers}{login}[clusters.b]\n{servers.replace('a:1', 'b:1')}{flow}")
    path.chmod(0o600)
    (line,) = readable_secrets(load(path, environ={}, secrets_dir=secrets))
    assert line.startswith(f"every user of this host can read the secrets in {secrets / file}: ")


def test_a_file_without_secrets_may_be_read_by_every_user(open_folder: Path) -> None:
    path = configured(open_folder, "localhost:1", "PLAINTEXT", "")
    path.chmod(0o644)
    assert readable_secrets(load(path, environ={})) == []
