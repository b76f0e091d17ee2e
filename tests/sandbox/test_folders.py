"""The sandbox's folders are shared between the processes of one user."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import SandboxError
from mirror.sandbox.folders import locked


def test_no_other_user_can_lock_a_folder(tmp_path: Path) -> None:
    """Who may read a file may lock it."""
    with locked(tmp_path / "cache"):
        assert (tmp_path / "cache" / ".lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_that_is_a_link_is_one_error(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "keys")
    with pytest.raises(SandboxError, match=rf"^cannot write to {tmp_path}: it is a symbolic link"), locked(tmp_path):
        pytest.fail("it is locked")
    assert not (tmp_path / "keys").exists()
