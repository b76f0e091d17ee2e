"""The folder of a stream's checkpoint is of one process, and does not outlive it for long."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mirror.spark.driver.checkpoint import checkpoint_folder


def test_the_folder_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    with checkpoint_folder(tmp_path) as folder:
        assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
        (folder / "offsets").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_system_in_memory_it_is_a_temporary_folder(tmp_path: Path) -> None:
    with checkpoint_folder(tmp_path / "missing") as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    script = "import pathlib, sys; from mirror.spark.driver.checkpoint import checkpoint_folder as made\n"
    script += "with made(pathlib.Path(sys.argv[1])) as folder: print(folder, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        with checkpoint_folder(tmp_path):
            assert left.is_dir()
        other.kill()
        other.wait()
        assert left.is_dir()
        with checkpoint_folder(tmp_path) as mine:
            assert list(tmp_path.iterdir()) == [mine]


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked", "while it is locked"])
def test_a_new_folder_that_another_stream_removes_before_it_is_locked_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    made: list[Path] = []
    mkdtemp, flock = tempfile.mkdtemp, fcntl.flock

    def make(prefix: str, dir: Path) -> str:  # noqa: A002 - the name of the parameter
        made.append(Path(mkdtemp(prefix=prefix, dir=dir)))
        if moment == "before it is opened" and len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    def lock(handle: int, how: int) -> None:
        if len(made) == 1 and made[0].exists():
            made[0].rmdir()
            if moment == "while it is locked":
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        flock(handle, how)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    monkeypatch.setattr(fcntl, "flock", lock)
    with checkpoint_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert made[1:] == [folder]


def test_a_folder_that_is_always_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path / "none"))
    with pytest.raises(BlockingIOError, match="other processes remove each new folder"), checkpoint_folder(tmp_path):
        pass
