"""Java's stores become PEM files, by the JDK's own keytool."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mirror.cli.app import app
from mirror.config.load import load
from mirror.errors import MigrationError
from mirror.migration.stores import find_keytool
from mirror.migration.written_files import write_private
from tests.other_user import OtherUser

STORE, KEY = "store-4711", "key-0815"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a JKS key store (its key has a password of its own), a PKCS12 one, and a JKS trust store."""
    folder = tmp_path_factory.mktemp("stores")
    pair: list[str | Path] = [
        "-genkeypair",
        "-alias",
        "Client",
        "-keyalg",
        "EC",
        "-dname",
        "CN=client",
        "-validity",
        "2",
    ]
    keytool(*pair, "-keystore", folder / "k.jks", "-storetype", "JKS", "-storepass", STORE, "-keypass", KEY)
    keytool(*pair, "-keystore", folder / "k.p12", "-storetype", "PKCS12", "-storepass", STORE)
    export: list[str | Path] = [
        "-exportcert",
        "-rfc",
        "-alias",
        "Client",
        "-storepass",
        STORE,
        "-file",
        folder / "c.pem",
    ]
    keytool(*export, "-keystore", folder / "k.p12")
    trusted: list[str | Path] = [
        "-importcert",
        "-noprompt",
        "-alias",
        "ca",
        "-file",
        folder / "c.pem",
        "-storepass",
        STORE,
    ]
    keytool(*trusted, "-keystore", folder / "t.jks", "-storetype", "JKS")
    return folder


def keytool(*command: str | Path) -> None:
    subprocess.run([find_keytool(), *command], check=True, capture_output=True)


def run(stores: Path, tmp_path: Path, lines: str) -> Result:
    source = tmp_path / "mm2.properties"
    source.write_text(
        "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
        f"b.security.protocol = SSL\n{lines}".replace("STORES", str(stores))
    )
    arguments = ["import", str(source), "--write", str(tmp_path / "new.toml"), "--convert-stores"]
    return CliRunner().invoke(app, arguments)


TRUST = f"b.ssl.truststore.location = STORES/t.jks\nb.ssl.truststore.password = {STORE}\n"


@pytest.mark.parametrize(
    "keys",
    [
        f"b.ssl.keystore.location = STORES/k.jks\nb.ssl.keystore.password = {STORE}\nb.ssl.key.password = {KEY}\n",
        f"b.ssl.keystore.location = STORES/k.p12\nb.ssl.keystore.type = PKCS12\nb.ssl.keystore.password = {STORE}\n",
    ],
    ids=["JKS", "PKCS12"],
)
def test_stores_become_files_that_tls_reads(stores: Path, tmp_path: Path, keys: str) -> None:
    result = run(stores, tmp_path, TRUST + keys)
    assert result.exit_code == 0, result.output
    options = load(tmp_path / "new.toml", environ={}).clusters["b"].client_options()
    context = ssl.create_default_context(cafile=str(options["ssl.truststore.location"]))
    context.load_cert_chain(str(options["ssl.keystore.location"]))
    files = list((tmp_path / "new-certificates").iterdir())
    assert len(files) == 2
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert STORE not in result.output + (tmp_path / "new.toml").read_text()


@pytest.mark.parametrize(("store", "type_"), [("t.jks", "truststore"), ("k.p12", "keystore")])
def test_a_store_named_like_an_option_of_the_jvm_is_a_file(
    stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, type_: str
) -> None:
    """-J-agentlib would run commands; this option keeps keytool from starting."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(stores / store, tmp_path / "-J-no.such.option")
    lines = f"b.ssl.{type_}.location = -J-no.such.option\nb.ssl.{type_}.password = {STORE}\n"
    result = run(stores, tmp_path, lines + (f"b.ssl.{type_}.type = PKCS12\n" if type_ == "keystore" else ""))
    assert result.exit_code == 0, result.output
    (converted,) = (tmp_path / "new-certificates").iterdir()
    assert "BEGIN CERTIFICATE" in converted.read_text()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("b.ssl.truststore.location = STORES/t.jks\n", "without its password: set ssl.truststore.password"),
        (TRUST.replace(STORE, "${file:/x:y}"), "its password is a reference"),
        (TRUST.replace(STORE, "wrong-4711"), "password was incorrect"),
        (TRUST.replace("t.jks", "none.jks"), "there is no store"),
        (TRUST.replace("t.jks", "c.pem"), "is not read"),
        (f"b.ssl.keystore.location = STORES/t.jks\nb.ssl.keystore.password = {STORE}\n", "no private key"),
    ],
)
def test_what_is_missing_is_one_clear_error(stores: Path, tmp_path: Path, lines: str, words: str) -> None:
    result = run(stores, tmp_path, lines)
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert words in line
    assert "4711" not in line
    assert not (tmp_path / "new.toml").exists()


def test_without_a_jdk_it_says_what_to_install() -> None:
    with pytest.raises(MigrationError, match="install a JDK"):
        find_keytool({"PATH": "/nowhere"})


def test_secrets_are_not_written_to_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns the folder could replace the secrets."""
    path = tmp_path / "mirror-secrets" / "clusters__a__sasl_password"
    path.parent.mkdir()
    path.parent.chmod(0o777)
    write_private(path, b"x")
    assert path.parent.stat().st_mode & 0o777 == 0o770
    OtherUser(monkeypatch).owns(path.parent)
    with pytest.raises(MigrationError, match=rf"^{path.parent} cannot be used: it belongs to .*: change its owner"):
        write_private(path, b"x")
