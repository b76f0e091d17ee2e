"""Java's stores stay what they are; their passwords become secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.cluster.settings import ClusterSettings
from mirror.config.load import load
from mirror.errors import MigrationError
from mirror.migration.written_files import write_private
from mirror.runtime.network.tls_contexts import make_context
from tests.other_user import OtherUser

STORES = Path(__file__).parents[1] / "runtime" / "java_stores"


@pytest.mark.parametrize(
    ("name", "kind"), [("client.jks", ""), ("client.jks", "jks"), ("client.p12", "PKCS12"), ("client.p12", "JKS")]
)
def test_stores_are_used_where_they_are(tmp_path: Path, name: str, kind: str) -> None:
    store = {"location": str(STORES / name), "type": kind, "password": "store-4711"}
    lines = [f"b.ssl.keystore.{part} = {value}" for part, value in store.items() if value]
    lines += [f"b.ssl.truststore.location = {STORES}/trust.jks", "b.ssl.truststore.password = store-4711"]
    source = tmp_path / "mm2.properties"
    source.write_text(
        "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
        "b.security.protocol = SSL\nb.ssl.key.password = key-0815\n" + "\n".join(lines)
    )
    result = CliRunner().invoke(app, ["import", str(source), "--write", str(tmp_path / "new.toml")])
    assert result.exit_code == 0, result.output
    written = (tmp_path / "new.toml").read_text()
    assert "4711" not in result.output + written
    assert "0815" not in result.output + written
    config = load(tmp_path / "new.toml", environ={}, secrets_dir=tmp_path / "new-secrets")
    make_context(ClusterSettings.parse(config.clusters["b"].client_options()).security.tls)


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
