"""The records of a pair of clusters: reading, refusing and deleting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mirror.cli.app import app
from mirror.errors import SandboxError
from mirror.sandbox import pair
from mirror.sandbox.process import Process, launch, stop


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = launch(["/bin/sleep", "60"], output=tmp_path / "output", outlives_owner=False)
    yield process
    stop([process], grace_s=0)


def record(folder: Path, *processes: Process) -> None:
    folder.mkdir(parents=True)
    nodes = [{"id": at, "pid": one.pid, "started": one.started} for at, one in enumerate(processes, 1)]
    (folder / "cluster.json").write_text(json.dumps({"bootstrap_servers": "127.0.0.1:1", "nodes": nodes}))


def test_missing_folder_has_no_clusters(tmp_path: Path) -> None:
    assert pair.status(tmp_path / "none") == []
    assert pair.down(tmp_path / "none") is False
    assert not (tmp_path / "none").exists()


def test_a_folder_that_is_named_and_missing_cannot_be_stopped(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["sandbox", "down", "--dir", str(tmp_path / "typo")])
    assert found.exit_code == 1
    assert f"there is no folder {tmp_path / 'typo'}: no sandbox runs there" in " ".join(found.stderr.split())


def test_status_distinguishes_running_from_dead_processes(tmp_path: Path, sleeper: Process) -> None:
    folder = tmp_path / "pair"
    record(folder / "source", sleeper)
    record(folder / "target", Process(sleeper.pid, "earlier"))
    source, target = pair.status(folder)
    assert (source.name, source.running, source.bootstrap_servers) == ("source", True, "127.0.0.1:1")
    assert (target.name, target.running) == ("target", False)


def test_cluster_without_processes_does_not_run(tmp_path: Path) -> None:
    record(tmp_path / "source")
    assert [one.running for one in pair.status(tmp_path)] == [False]


def test_down_stops_only_recorded_processes(tmp_path: Path, sleeper: Process) -> None:
    folder = tmp_path / "pair"
    record(folder / "source", Process(sleeper.pid, "earlier"))
    (folder / "mine.txt").touch()
    assert pair.down(folder) is True
    assert sleeper.alive()
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]

    record(folder / "target", sleeper)
    assert pair.down(folder) is True
    assert not sleeper.alive()


def test_up_is_refused_while_a_pair_runs(tmp_path: Path, sleeper: Process) -> None:
    record(tmp_path / "target", sleeper)
    with pytest.raises(SandboxError, match=rf"runs already in {tmp_path}.*mirror sandbox down"):
        pair.up(tmp_path)
    assert sleeper.alive()


def test_up_does_not_touch_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "thesis.txt").touch()
    with pytest.raises(SandboxError, match=r"source is not empty"):
        pair.up(tmp_path)
    assert (tmp_path / "source" / "thesis.txt").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bootstrap_servers": "x", "nodes": [{"id": 1}]}'])
def test_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "cluster.json").write_text(text)
    with pytest.raises(SandboxError, match=r"source/cluster.json cannot be read") as caught:
        pair.status(tmp_path)
    assert "\n" not in str(caught.value)
