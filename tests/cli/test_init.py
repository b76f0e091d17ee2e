"""A first configuration: from options or answers, checked before it is written, with no secret in it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app

SECURE = ["--source-protocol", "SASL_SSL", "--source-mechanism", "SCRAM-SHA-512", "--source-user", "reader"]


def _init(output: Path, *more: str) -> Result:
    ends = ["--source", "paris-1:9092", "--target", "berlin-1:9092", "--topic", "orders"]
    return CliRunner().invoke(app, ["init", *ends, "--output", str(output), *more])


def _check(file: Path, **environment: str) -> Result:
    return CliRunner().invoke(app, ["check-config", "--config", str(file)], env=environment)


def test_the_file_is_valid_and_the_output_says_how_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    result = _init(file, "--topic", "clicks-.*", "--source-name", "paris", "--target-name", "berlin.eu")
    assert (result.exit_code, result.stderr) == (0, "")
    flow = tomllib.loads(file.read_text())["flows"]["paris-berlin-eu"]
    assert (flow["source"], flow["target"], flow["topics"]) == ("paris", "berlin.eu", ["orders", "clicks-.*"])
    assert _check(file).exit_code == 0
    steps = [line.split("#")[0].strip() for line in result.stdout.partition("how to go on:")[2].splitlines()[1:]]
    assert steps == [f"export MIRROR_CONFIG={file}", "mirror doctor", "mirror plan", "mirror run", "mirror verify"]
    assert "--allow-principal User:... --operation Read --operation DescribeConfigs --topic orders\n" in result.stdout


@pytest.mark.parametrize(
    ("mechanism", "outside"),
    [
        ("PLAIN", {"SASL_PASSWORD": "x"}),
        ("SCRAM-SHA-512", {"SASL_PASSWORD": "x"}),
        (
            "OAUTHBEARER",
            {
                "SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "https://idp.example/token",
                "SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID": "x",
                "SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET": "x",
            },
        ),
    ],
)
def test_secrets_are_outside_of_the_file(mechanism: str, outside: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    result = _init(file, *SECURE, "--source-mechanism", mechanism)
    assert (result.exit_code, result.stderr) == (0, "")
    text, variables = file.read_text(), {f"MIRROR_CLUSTERS__SOURCE__{name}": value for name, value in outside.items()}
    for name in variables:
        assert f"is the variable {name}, or the file {name.removeprefix('MIRROR_').lower()} in" in text
        assert f"to set: {name} " in result.stdout
    assert _check(file).exit_code == 1
    assert _check(file, **variables).exit_code == 0
    assert "--allow-principal User:reader" in result.stdout


@pytest.mark.parametrize(("options", "ca"), [(["--source-ca", "ca.pem"], "ca.pem"), ([], None)])
def test_a_file_has_the_authority_of_its_certificates(options: list[str], ca: str | None, tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    assert _init(file, *SECURE, *options).exit_code == 0
    assert tomllib.loads(file.read_text())["clusters"]["source"].get("ssl.truststore.location") == ca
    assert ('# "ssl.truststore.location"' in file.read_text()) is (ca is None)


def test_a_file_that_exists_stays_as_it_is_and_nothing_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text("mine")
    result = CliRunner().invoke(app, ["init", "--output", str(file)])
    assert (result.exit_code, result.stdout, file.read_text()) == (1, "", "mine")
    assert result.stderr == f"mirror: {file}: exists; give another path with --output\n"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--topic", "(a"], "not a regular expression"),
        (["--target", "paris-1:9092"], "both ends are one cluster"),
        (["--target", "berlin-1"], "must be host:port"),
        (["--source-protocol", "TLS"], "security.protocol"),
        (["--source-name", "a b"], "a cluster's name is made of letters"),
    ],
)
def test_what_is_not_valid_is_not_written(more: list[str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    result = _init(file, *more)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    assert not file.exists()


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    arguments = ["init", "--source", "a:1", "--output", str(tmp_path / "mirror.toml")]
    result = CliRunner().invoke(app, arguments, input="b:1\n")
    assert result.exit_code == 2
    assert "--target: is missing, and no terminal is there" in result.stderr


def test_at_a_terminal_it_asks_for_what_is_not_given(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    ours, theirs = pty.openpty()
    arguments = ["init", "--source", "paris-1:9092", "--source-name", "paris", "--output", str(file)]
    command = [sys.executable, "-m", "mirror.cli", *arguments]
    with os.fdopen(ours, "wb", buffering=0) as terminal:
        process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True)
        os.close(theirs)
        terminal.write(b"berlin-1:9092\nberlin\nSASL\nSASL_SSL\n\nwriter\nca.pem\norders, clicks-.*\n")
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "to set: MIRROR_CLUSTERS__BERLIN__SASL_PASSWORD" in printed
    written = tomllib.loads(file.read_text())
    assert written["clusters"]["berlin"] == {
        "bootstrap.servers": "berlin-1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "writer",
        "ssl.truststore.location": "ca.pem",
    }
    assert written["flows"]["paris-berlin"]["topics"] == ["orders", "clicks-.*"]
