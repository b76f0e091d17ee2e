"""Data folders that are formatted as the tool did it the last time."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.sandbox import formatting
from mirror.sandbox.formatting import format_as_kept, keep, kept_folder, new_id
from mirror.sandbox.node import Node

IDS = "#\n#Sat Nov 28 12:41:51 UTC 2026\nnode.id=7\ndirectory.id=d\nversion=1\ncluster.id=c\n"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(formatting, "cache_folder", lambda: tmp_path / "cache")


def by_tool(folder: Path, **more: str) -> Path:
    """What the tool writes, and ``more``."""
    folder.mkdir()
    for name, text in {"meta.properties": IDS, "bootstrap.checkpoint": "levels", **more}.items():
        (folder / name).write_text(text, encoding="ascii")
    return folder


def node(folder: Path, number: int) -> Node:
    (folder / str(number)).mkdir()
    return Node(number, broker=True, controller=True, folder=folder / str(number), ports={})


def ids(one: Node) -> dict[str, str]:
    return dict(line.split("=") for line in (one.data / "meta.properties").read_text(encoding="ascii").splitlines())


def test_nodes_have_the_same_levels_and_ids_of_their_own(tmp_path: Path) -> None:
    kept = kept_folder("jars", {}, ["num.io.threads"])
    assert kept is not None
    nodes, cluster = [node(tmp_path, 1), node(tmp_path, 2)], new_id()
    assert not format_as_kept(kept, nodes, cluster)
    keep(kept, by_tool(tmp_path / "tool"))
    keep(kept, by_tool(tmp_path / "again"))
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    assert format_as_kept(kept, nodes, cluster)
    found = [ids(one) for one in nodes]
    directories = {each.pop("directory.id") for each in found}
    assert found == [{"node.id": f"{one.node_id}", "version": "1", "cluster.id": cluster} for one in nodes]
    assert len(directories - {"d"}) == 2
    assert [(one.data / "bootstrap.checkpoint").read_text(encoding="ascii") for one in nodes] == ["levels"] * 2


def test_what_the_tool_reads_has_files_of_its_own() -> None:
    assert len({kept_folder("jars", {}, []), kept_folder("others", {}, []), kept_folder("jars", {"f": 1}, [])}) == 3
    for name in ("log.dirs", "metadata.log.dir", "inter.broker.protocol.version", "unstable.api.versions.enable"):
        assert kept_folder("jars", {}, [name]) is None


def test_files_that_are_not_known_are_not_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep(kept, by_tool(tmp_path / "tool", other="of another release"))
    assert not kept.exists()
