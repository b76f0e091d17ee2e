"""Files, folders and sockets of this host that other users must not replace, read or answer.

The rule for a folder whose content decides what a run does (reports, ledgers, secrets) is that of PostgreSQL for its
data folder, with room for volumes and groups:

- A new one is for this user alone (0700).
- One that exists belongs to this user or to root: its owner could replace everything in it. That also holds for a
  symbolic link to it. Where a server decides who owns a file (NFS with ``all_squash``, access points of EFS, CIFS with
  ``uid=``), whatever has the owner of this process's new files is this user's.
- Users outside its group may not write to it, unless it is sticky: then they cannot replace what is ours, and what they
  put there before is refused when it is opened. A folder of this user loses the permission; one of root's is refused.
  The mode of a sticky folder is not changed, since all users of the host need that of ``/tmp``; nor is one that a file
  system without modes (vfat, drvfs) refuses to change.
- The group may write to it. Nothing gives a group that by default, so its owner has decided it; Kubernetes makes
  volumes of root and ``fsGroup``, with mode 2775.
- A mount point is accepted as it is: the user who mounts a volume decides who may use it. An ``emptyDir`` has mode
  0777, and a folder of the host has an owner there whose id means nothing in the container.
- The folders above it are not checked. A user who may rename it can only put one of their own in its place.

No permission is changed of what does not belong to this user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import stat
import tempfile
from pathlib import Path
from typing import Final

REPORT_READERS: Final = 0o005
"""What users outside the group may do in an existing report folder: a web server may serve ``report.html``."""

_OTHERS: Final = 0o007
_OTHERS_MAY_WRITE: Final = 0o002
_READ: Final = 0o055
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOUNT_POINT: Final = 4
"""The field of a line (proc(5)). Blanks and backslashes in it are octal numbers."""
_OCTAL: Final = re.compile(rb"\\([0-3][0-7]{2})")


def own_folder(path: Path, *, mode: int = 0o700, others: int = 0) -> None:
    """Create the folder, or make sure that only users who may do so can replace what is in it.

    ``others`` are the permissions that an existing folder of this user may have for users outside its group. Raises
    OSError with the path, and what to do.
    """
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    found = path.stat()
    if _is_mount_point(path.resolve()):
        return
    for each, folder in ((path.lstat(), path.parent), (found, path)):
        if not _is_ours(each, folder):
            raise _refused(path, f"it belongs to {_name(each.st_uid)}, who could replace what is in it", "its owner")
    excess = found.st_mode & _OTHERS & ~others
    if not excess or found.st_mode & stat.S_ISVTX:
        return
    if _belongs_to_this_user(found, path):
        with contextlib.suppress(PermissionError):
            path.chmod(stat.S_IMODE(found.st_mode) & ~excess)
    elif excess & _OTHERS_MAY_WRITE:
        raise _refused(path, "every user could replace what is in it", "its mode (chmod o-w)")


def readers_of(folder: Path) -> int:
    """Return the mode for a new folder in ``folder``, which the same group may read. Raises OSError."""
    return 0o700 | (folder.stat().st_mode & _READ & ~_OTHERS)


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open or create a file of this user, or of root, and return its descriptor.

    No symbolic link is followed, and no other process is waited for. A file of this user that exists loses the
    permissions that are not in ``mode``. Raises OSError with the path, and what to do.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refused(path, "it is a symbolic link, which is not followed") from error
        raise
    try:
        _check_file(path, descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_file(path: Path, descriptor: int, mode: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "it is not a file")
    if not _is_ours(found, path.parent):
        raise _refused(path, f"it belongs to {_name(found.st_uid)}")
    if found.st_mode & 0o777 & ~mode and _belongs_to_this_user(found, path.parent):
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, found.st_mode & mode)


def all_may_read(path: Path) -> bool:
    """Return whether every user of this host may read a file; False if there is none."""
    try:
        real = path.resolve()
        return bool(real.stat().st_mode & 0o004) and all(above.stat().st_mode & 0o001 for above in real.parents)
    except OSError:
        return False


def _is_mount_point(real: Path) -> bool:
    if os.path.ismount(real):
        return True
    try:  # Of a mount from the same device, such as one that Docker binds, only the kernel's list knows.
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return False
    wanted = os.fsencode(real)
    return any(
        _OCTAL.sub(lambda found: bytes([int(found[1], 8)]), line.split()[_MOUNT_POINT]) == wanted for line in lines
    )


def _is_ours(found: os.stat_result, folder: Path) -> bool:
    return found.st_uid == 0 or _belongs_to_this_user(found, folder)


def _belongs_to_this_user(found: os.stat_result, folder: Path) -> bool:
    if found.st_uid in {os.geteuid(), 0}:
        return found.st_uid == os.geteuid()
    return found.st_uid == _owner_of_new_files(folder)


def _owner_of_new_files(folder: Path) -> int | None:
    """Return the user to whom the file system gives what this process creates; None if it can create nothing there."""
    try:
        with tempfile.TemporaryFile(dir=folder) as fresh:
            return os.fstat(fresh.fileno()).st_uid
    except OSError:
        return None


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user with id {uid}"


def _refused(path: Path, why: str, change: str = "") -> OSError:
    remedy = f"change {change}, or choose another folder" if change else "remove it"
    return PermissionError(errno.EPERM, f"{why}: {remedy}", str(path))
