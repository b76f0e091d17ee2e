"""The folder of a stream's checkpoint is of one process, and does not outlive it for long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
