"""A checkpoint is written beside the one of the source, whole or such that no Spark goes on with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.positions.continuing import UNFINISHED, CheckpointFolder
from mirror.positions.files import LocalFiles
from mirror.positions.spark_log import parse_offsets
from tests.positions.golden import TWO, moved, read


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A checkpoint with earlier batches, state, a source that is not Kafka's, and Hadoop's checksums."""
    folder = tmp_path / "old"
    shutil.copytree(TWO, folder)
    for number in (1, 0):
        for part in ("offsets", "commits"):
            (folder / part / f"{number}").rename(folder / part / f"{number + 6}")
    for name in ("offsets/5", "commits/5", "offsets/.7.crc", ".metadata.crc", "state/0/1/8.delta", "sources/2/9"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    for number in (6, 7):
        with (folder / f"offsets/{number}").open("a") as file:
            file.write('\n{"logOffset":9}')
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {f"{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _write(old: Path, new: Path, files: LocalFiles | None = None) -> int:
    folder = CheckpointFolder(files or LocalFiles(), f"{old}/")
    found = folder.read()
    return folder.write(found, moved(found.wanted), f"{new}/")


def test_the_new_checkpoint_has_what_spark_needs_and_the_old_one_does_not_change(old: Path, tmp_path: Path) -> None:
    before, new = _files(old), tmp_path / "new" / "cp"
    count = _write(old, new)
    found = _files(new)
    same = {"metadata", "commits/6", "commits/7", "state/0/1/8.delta", "sources/2/9"}
    assert found.keys() == same | {"offsets/6", "offsets/7"}
    assert count == len(found)
    assert {name: found[name] for name in same} == {name: before[name] for name in same}
    assert {(one.topic, one.offset) for one in read(new).needed} == {("a.orders", 107), ("a.clicks", 114)}
    assert _files(old) == before


class Interrupted(LocalFiles):
    """Fails at one of its steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise FlowError("interrupted")

    def create(self, path: str, content: bytes) -> None:
        self._step()
        super().create(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self._step()
        super().replace(path, content)

    def copy(self, source: str, target: str) -> None:
        self._step()
        super().copy(source, target)


@pytest.mark.parametrize("steps", range(1, 8))
def test_an_interrupted_checkpoint_is_one_that_spark_refuses(old: Path, tmp_path: Path, steps: int) -> None:
    new = tmp_path / "new"
    with pytest.raises(FlowError, match="interrupted"):
        _write(old, new, Interrupted(steps))
    assert (new / "offsets/7").read_bytes() == UNFINISHED
    with pytest.raises(FlowError, match="begins with 'unfinished"):
        parse_offsets(UNFINISHED, "offsets/7")
    with pytest.raises(FlowError, match="has something in it"):
        _write(old, new)


def test_so_many_steps_are_the_whole(old: Path, tmp_path: Path) -> None:
    assert _write(old, tmp_path / "new", Interrupted(8)) == 7


class Running(LocalFiles):
    """The query commits a batch while files are copied."""

    def __init__(self, old: Path) -> None:
        self._old = old

    def walk(self, folder: str) -> Iterable[str]:
        found = [*super().walk(folder)]
        for part in ("offsets", "commits"):
            shutil.copyfile(self._old / part / "7", self._old / part / "8")
        return found


def test_a_query_that_runs_is_refused(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(FlowError, match="has gone on meanwhile: stop it"):
        _write(old, new, Running(old))
    assert (new / "offsets/7").read_bytes() == UNFINISHED


@pytest.mark.parametrize("name", ["old", "old/new"])
def test_a_checkpoint_within_the_old_one_is_refused(old: Path, tmp_path: Path, name: str) -> None:
    before = _files(old)
    with pytest.raises(FlowError, match="name a folder beside it"):
        _write(old, tmp_path / name)
    assert _files(old) == before


def test_a_checkpoint_without_the_id_of_the_query_is_refused(old: Path) -> None:
    (old / "metadata").unlink()
    with pytest.raises(FlowError, match="old/metadata is missing"):
        CheckpointFolder(LocalFiles(), f"{old}").read()


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, words in (("nothing", "no query has planned a batch there"), ("file", "file/offsets: Not a directory")):
        with pytest.raises(FlowError, match=words):
            CheckpointFolder(LocalFiles(), f"{tmp_path / name}").read()
