"""What another user of the host has put, or may put, where this process writes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror import local_users
from mirror.local_users import all_may_read, open_own, own_folder, readers_of
from tests.other_user import NOBODY, OtherUser


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> OtherUser:
    return OtherUser(monkeypatch)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest's own are private."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def squashed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on a server that gives all files to one user, who is neither this process's nor root."""
    me = os.geteuid()
    owner = me or NOBODY
    os.chown(folder, owner, -1)
    os.seteuid(owner)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    yield folder
    os.seteuid(me)


@pytest.fixture
def without_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that refuses to change modes, such as vfat."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- folders


def test_a_new_folder_is_for_this_user_alone(tmp_path: Path) -> None:
    own_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    own_folder(tmp_path / "a" / "b")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, other: OtherUser) -> None:
    path = tmp_path / "report"
    path.mkdir(mode=0o700)
    other.owns(path)
    with pytest.raises(PermissionError, match=r"it belongs to .*, who could replace what is in it: change its owner"):
        own_folder(path)


def test_a_link_of_another_user_to_a_folder_of_this_user_is_refused(tmp_path: Path, other: OtherUser) -> None:
    """In a sticky folder anyone may make it, and old runs in the folder that it leads to would be deleted."""
    (tmp_path / "precious").mkdir(mode=0o700)
    link = tmp_path / "ledger"
    link.symlink_to(tmp_path / "precious")
    own_folder(link)
    other.owns(link)
    with pytest.raises(PermissionError, match="it belongs to"):
        own_folder(link)


@pytest.mark.parametrize(
    ("before", "others", "after"),
    [(0o777, 0, 0o770), (0o755, 0, 0o750), (0o757, 0o005, 0o755), (0o755, 0o005, 0o755), (0o2770, 0, 0o2770)],
)
def test_a_folder_of_this_user_loses_what_others_must_not_do(
    tmp_path: Path, before: int, others: int, after: int
) -> None:
    path = tmp_path / "report"
    path.mkdir()
    path.chmod(before)
    own_folder(path, others=others)
    assert mode(path) == after


def test_a_sticky_folder_keeps_its_mode(tmp_path: Path) -> None:
    """All users of the host need that of /tmp, which is a folder of this user if that is root."""
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    own_folder(path)
    assert mode(path) == 0o1777


def test_a_sticky_folder_of_another_user_is_refused(tmp_path: Path, other: OtherUser) -> None:
    """Who owns it may replace what is in it."""
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    other.owns(path)
    with pytest.raises(PermissionError, match="it belongs to"):
        own_folder(path)


def test_a_folder_whose_owner_the_server_decides_is_this_users(squashed: Path) -> None:
    path = squashed / "report"
    for _ in range(2):
        own_folder(path)
    assert path.stat().st_uid != os.geteuid()
    path.chmod(0o777)
    own_folder(path)
    assert mode(path) == 0o770
    link = squashed / "link"
    link.symlink_to(path)
    own_folder(link)


@pytest.mark.usefixtures("without_modes")
def test_a_folder_of_this_user_is_used_where_there_are_no_modes(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.mkdir(mode=0o755)
    own_folder(path)
    assert mode(path) == 0o755


def roots(bits: int) -> os.stat_result:
    """The status of a folder of root with these permissions."""
    return os.stat_result((stat.S_IFDIR | bits, 1, 1, 2, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("bits", [0o755, 0o2775, 0o1777], ids=oct)
def test_a_folder_of_root_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """Of root, such as a volume of Kubernetes with fsGroup, also where this process runs as another user."""
    _see(monkeypatch, roots(bits))
    own_folder(tmp_path)


def test_a_folder_of_root_in_which_every_user_may_replace_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _see(monkeypatch, roots(0o777))
    with pytest.raises(PermissionError, match="every user could replace what is in it: change its mode"):
        own_folder(tmp_path)


def test_a_volume_is_used_as_it_was_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emptyDir has mode 0777; it is for one pod."""
    _see(monkeypatch, roots(0o777))
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path.resolve())
    own_folder(tmp_path)


def test_a_mount_from_the_same_device_is_a_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emptyDir in another one, or a folder of the host of which Docker binds two: st_dev does not tell."""
    volume, beside = tmp_path / "a \\volume", tmp_path / "a "
    for path in (volume, beside):
        path.mkdir()
        path.chmod(0o777)
    name = str(volume).replace("\\", r"\134").replace(" ", r"\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"29 1 254:0 / / rw - ext4 /dev/vda rw\n36 29 254:0 /b {name} rw shared:1 - ext4 /dev/vda rw\n")
    monkeypatch.setattr(local_users, "_MOUNTS", mounts)
    (tmp_path / "link").symlink_to(volume)
    own_folder(tmp_path / "link")
    own_folder(beside)
    assert (mode(volume), mode(beside)) == (0o777, 0o770)


def test_without_the_list_of_mounts_only_other_devices_are_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_users, "_MOUNTS", tmp_path / "none")
    tmp_path.chmod(0o777)
    own_folder(tmp_path)
    assert mode(tmp_path) == 0o770


def _see(monkeypatch: pytest.MonkeyPatch, found: os.stat_result) -> None:
    """Have this process be no root, and see such a folder. Nothing may change it."""
    me = os.geteuid() or 1000
    monkeypatch.setattr(os, "geteuid", lambda: me)
    monkeypatch.setattr(Path, "stat", lambda _, **__: found)
    monkeypatch.setattr(Path, "lstat", lambda _: found)
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    monkeypatch.setattr(Path, "chmod", lambda *_, **__: pytest.fail("the mode of a folder of root was changed"))


@pytest.mark.parametrize(("folder_mode", "expected"), [(0o700, 0o700), (0o2770, 0o750), (0o755, 0o750), (0o711, 0o710)])
def test_the_group_that_may_read_a_folder_may_read_what_is_made_in_it(
    tmp_path: Path, folder_mode: int, expected: int
) -> None:
    tmp_path.chmod(folder_mode)
    assert readers_of(tmp_path) == expected


# --- files


def test_no_other_user_can_lock_a_file_of_this_user(folder: Path, other: OtherUser) -> None:
    path = folder / "lock"
    path.touch(mode=0o644)  # an earlier version made it so
    path.chmod(0o644)
    os.close(open_own(path, os.O_RDWR | os.O_CREAT))
    assert mode(path) == 0o600
    if os.geteuid() == 0:
        with other.acts(), pytest.raises(PermissionError):
            os.open(path, os.O_RDONLY)
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("precious")
    (tmp_path / "spark.log").symlink_to(tmp_path / "keys")
    refused = "it is a symbolic link, which is not followed: remove it"
    with pytest.raises(PermissionError, match=refused) as caught:
        open_own(tmp_path / "spark.log", os.O_WRONLY | os.O_CREAT)
    assert caught.value.filename == str(tmp_path / "spark.log")
    assert (tmp_path / "keys").read_text() == "precious"


def test_a_file_of_another_user_is_refused_and_nothing_of_it_changed(tmp_path: Path, other: OtherUser) -> None:
    path = tmp_path / "run.lock"
    path.write_text("theirs")
    path.chmod(0o666)
    other.owns(path)
    with pytest.raises(PermissionError, match=r"it belongs to .*: remove it"):
        open_own(path, os.O_RDWR | os.O_CREAT)
    assert (path.read_text(), mode(path)) == ("theirs", 0o666)


def test_a_file_whose_owner_the_server_decides_is_this_users(squashed: Path) -> None:
    path = squashed / "run.lock"
    os.close(open_own(path, os.O_RDWR | os.O_CREAT))
    assert path.stat().st_uid != os.geteuid()
    path.chmod(0o644)
    os.close(open_own(path, os.O_RDWR))
    assert mode(path) == 0o600


@pytest.mark.usefixtures("without_modes")
def test_a_file_of_this_user_is_used_where_there_are_no_modes(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.close(descriptor)
    os.close(open_own(path, os.O_RDWR))
    assert mode(path) == 0o644


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_WRONLY])
def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "spark.log")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "spark.log"))):
        open_own(tmp_path / "spark.log", flags | os.O_CREAT)


def test_a_file_that_everyone_may_read_is_found_unless_its_folder_is_closed(folder: Path) -> None:
    path = folder / "password"
    path.touch()
    path.chmod(0o644)
    assert all_may_read(path)
    folder.chmod(0o700)
    assert not all_may_read(path)
    folder.chmod(0o755)
    path.chmod(0o640)
    assert not all_may_read(path)
    assert not all_may_read(folder / "none")


# --- sockets
