"""Files that several processes share: the old one or the whole new one, also after the machine went down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirror.spark.files import write_atomically


def test_what_is_renamed_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may write a name before the bytes behind it: then the name would lead to an empty file."""
    target, synced = tmp_path / "plan.json", list[tuple[int, bytes, bytes]]()
    write_atomically(target, b"old")
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, os.pread(descriptor, 100, 0), target.read_bytes()))

    monkeypatch.setattr("mirror.spark.files.os.fsync", watched)
    write_atomically(target, b"new")
    assert synced == [(target.stat().st_ino, b"new", b"old")]
