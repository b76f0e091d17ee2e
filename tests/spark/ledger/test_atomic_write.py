"""Atomic writes: a reader sees the old file or the whole new one, with the mode that the umask gives it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.spark.ledger.atomic_write import write_atomically


def test_a_file_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may write a name before the bytes behind it: then the name would lead to an empty file."""
    target, synced = tmp_path / "plan.json", list[tuple[int, bytes, bytes]]()
    write_atomically(target, b"old")
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(
            (os.fstat(descriptor).st_ino, Path(f"/proc/self/fd/{descriptor}").read_bytes(), target.read_bytes())
        )

    monkeypatch.setattr("mirror.spark.ledger.atomic_write.os.fsync", watched)
    write_atomically(target, b"new")
    assert synced == [(target.stat().st_ino, b"new", b"old")]


@pytest.fixture(params=[0o002, 0o022, 0o027, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_file_gets_the_mode_of_any_new_file(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "report" / "summary.json"
    for content in (b"{}", b"{ }"):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert [each.name for each in path.parent.iterdir()] == ["summary.json"]


def test_a_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "taken", b"1")
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]
