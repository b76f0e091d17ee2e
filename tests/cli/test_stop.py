"""``mirror stop`` as it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from mirror.cli import stop
from mirror.cli.app import app
from mirror.relay.orders import Orders, place_of
from tests.spark import fakes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CONFIG = """
[clusters.a]
"bootstrap.servers" = "a:1"
[clusters.b]
"bootstrap.servers" = "b:1"
[flows.f]
source = "a"
target = "b"
topics = ["orders"]
"""


def test_what_another_client_wrote_is_shown_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may commit for the group of a flow's orders names the run and its host."""
    monkeypatch.setenv(fakes.FOLDER, str(tmp_path))
    monkeypatch.setattr(stop, "Admin", fakes.Admin)
    fakes.Cluster("b:1", tmp_path).make()
    (tmp_path / "mirror.toml").write_text(CONFIG, encoding="utf-8")
    group, tp = place_of("f")
    orders = Orders(run="r\x1b[31m", host="ev\x1b]0;title\x07\nf: nothing runs", since_ms=0, epoch=1)
    fakes.Admin({"bootstrap.servers": "b:1"}).commit_group_offsets(group, {tp: orders.to_offset()})
    result = CliRunner().invoke(app, ["stop", "--config", str(tmp_path / "mirror.toml"), "--no-wait"])
    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = result.stdout.splitlines()
    assert line.isprintable()
    assert line.startswith(r"f: run r\x1b[31m on ev\x1b]0;title\x07\nf: nothing runs, ")
