"""``mirror rehearse --reverse`` where a flow of the other direction copies back under the same topic names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.relay.model.way import Way
from tests.fakes.cluster import GroupOffset
from tests.relay.both_directions import FLOWS, TP, A, B, CopiesBothWays
from tests.relay.fake_pair import FakePair

_GROUP = "readers"


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CopiesBothWays:
    copies = CopiesBothWays(FakePair(monkeypatch), Way.SEQUENCES)
    config = copies.config('configs = "off"', "[flows.{flow}.groups]")
    (tmp_path / "mirror.toml").write_text(config, encoding="utf-8")
    return copies


def _ask(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    options = ["--config", str(folder / "mirror.toml"), "--flow", FLOWS[A]]
    found = CliRunner().invoke(app, ["rehearse", "--json", "--reverse", *options, *arguments])
    assert found.exit_code in {0, 3}, found.output
    return found.exit_code, json.loads(found.stdout)["flows"][0]


def _fail_over(copies: CopiesBothWays) -> None:
    """The group and the producers of ``a`` go to ``b``; what they write there is copied back."""
    copies.write(A, *(b"%d" % number for number in range(20)))
    copies.copy_from(A)
    for number in range(3):
        copies.write(B, b"newer %d" % number)
    copies.copy_from(B)
    for side, cluster in enumerate(copies.clusters):
        offset = cluster.log(TP.topic).end_offset
        cluster.groups[_GROUP][TP] = GroupOffset(offset, -1, "")
        assert copies.values(side)[-1] == b"newer 2"


def test_what_was_copied_back_is_no_last_record_of_the_old_cluster(copies: CopiesBothWays, tmp_path: Path) -> None:
    _fail_over(copies)
    status, found = _ask(tmp_path)
    assert (status, found["blockers"]) == (0, [])


def test_last_record_of_the_old_cluster_is_found_among_what_was_copied_back(
    copies: CopiesBothWays, tmp_path: Path
) -> None:
    copies.write(A, b"first")
    copies.copy_from(A)
    copies.write(A, b"only on a")
    copies.write(B, b"newer")
    copies.copy_from(B)
    status, found = _ask(tmp_path)
    (blocker,) = found["blockers"]
    assert (status, blocker["name"], "from offset 1 on" in blocker["reason"]) == (3, "both-0", True)
