"""``mirror check-config``: what it finds beyond the values of keys."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.extras import GSSAPI, install

LOGIN = '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "OAUTHBEARER"\n"sasl.oauthbearer.token.provider" = '


@pytest.mark.parametrize("name", ["checked_provider:token", "no_such_module:token"])
def test_a_token_provider_has_to_be_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "checked_provider.py").write_text("def token(request): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mirror.toml"
    flow = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["x"]\n'
    servers = '"bootstrap.servers" = "a:1"\n'
    path.write_text(f'[clusters.a]\n{servers}{LOGIN}"{name}"\n[clusters.b]\n"bootstrap.servers" = "b:1"\n{flow}')
    result = CliRunner().invoke(app, ["check-config", "--config", str(path)])
    assert result.exit_code == (1 if name.startswith("no_") else 0)
    if result.exit_code:
        key = 'clusters.a."sasl.oauthbearer.token.provider"'
        host = socket.gethostname()
        shown = f"{path}: {key} = '{name}': cannot be loaded on host {host}: there is no module"
        assert shown in " ".join(result.output.split())


def test_the_library_of_kerberos_has_to_be_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    path = tmp_path / "mirror.toml"
    login = '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "GSSAPI"\n"sasl.kerberos.service.name" = "kafka"\n'
    flow = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["x"]\n[clusters.b]\n"bootstrap.servers" = "b:1"\n'
    path.write_text(f'[clusters.a]\n"bootstrap.servers" = "a:1"\n{login}{flow}')
    result = CliRunner().invoke(app, ["check-config", "--config", str(path)])
    assert result.exit_code == 1
    shown = f"{path}: clusters.a.\"sasl.mechanism\" = 'GSSAPI': needs 'gssapi': {install(GSSAPI)}"
    assert shown in " ".join(result.output.split())


@pytest.mark.parametrize("key", ["ssl.truststore.location", "ssl.keystore.location"])
def test_a_store_that_is_missing_is_one_clear_error(tmp_path: Path, key: str) -> None:
    path, store = tmp_path / "mirror.toml", tmp_path / "none.pem"
    flow = '[flows.f]\nsource = "a"\ntarget = "b"\ntopics = ["x"]\n[clusters.b]\n"bootstrap.servers" = "b:1"\n'
    encrypted = f'"security.protocol" = "SSL"\n"{key}" = "{store}"\n'
    path.write_text(f'[clusters.a]\n"bootstrap.servers" = "a:1"\n{encrypted}{flow}')
    result = CliRunner().invoke(app, ["check-config", "--config", str(path)])
    assert (result.exit_code, result.stdout) == (1, "")
    said = f"mirror: {path}: clusters.a.\"{key}\" = '{store}': cannot be read: No such file or directory"
    assert " ".join(result.stderr.split()) == said
