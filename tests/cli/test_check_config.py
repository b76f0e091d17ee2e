"""``mirror check-config``: what it finds beyond the values of keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app

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
        shown = (
            f"{path}: clusters.a.\"sasl.oauthbearer.token.provider\" = '{name}': cannot be loaded: there is no module"
        )
        assert shown in " ".join(result.output.split())
