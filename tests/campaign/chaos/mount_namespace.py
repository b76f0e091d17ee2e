"""File systems that only the campaign sees: it runs in a mount namespace, which ends with its last process.

So no mount remains, however the campaign ends. This needs root, or a kernel that allows user namespaces.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from mirror.sandbox.cluster import Cluster

_INSIDE: Final = "MIRROR_FAULTS_NAMESPACE"
_VARIANTS: Final = (("--mount",), ("--mount", "--user", "--map-root-user"))
_CHUNK: Final = 1 << 20
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a mount point that every system has


def enter() -> str:
    """Restart this program inside a namespace. Returns an empty text inside, and where it is impossible, the reason."""
    if (reason := os.environ.get(_INSIDE)) is not None:
        return reason
    unshare = shutil.which("unshare") or ""
    for variant in _VARIANTS if unshare else ():
        # A trial: whether a file system can be mounted inside.
        script = 'mount -t tmpfs -o size=1m faults "$1"'
        command = [unshare, *variant, "sh", "-c", script, "sh", str(SHARED_MEMORY)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            again = [unshare, *variant, sys.executable, *sys.argv]
            os.execve(unshare, again, {**os.environ, _INSIDE: ""})  # noqa: S606 - no shell is needed
    return "neither root nor a user namespace (unshare --mount --user) may mount a file system here"


def mount(folder: Path, megabytes: int) -> None:
    """Mount an empty file system in memory of this size at most."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "faults", str(folder)], check=True)


class SmallDisk:
    """Moves the data of a broker to a file system of ``megabytes``. A context manager; it kills the broker."""

    def __init__(self, cluster: Cluster, broker: int, megabytes: int) -> None:
        self._cluster: Final = cluster
        self._broker: Final = broker
        self._megabytes: Final = megabytes
        self._data: Final = cluster.directory / f"broker-{broker}" / "data"
        self._filler: Final = self._data / "filler"

    def __enter__(self) -> Self:
        self._cluster.kill(self._broker)
        aside = self._data.with_name("aside")
        self._data.rename(aside)
        self._data.mkdir()
        mount(self._data, self._megabytes)
        shutil.copytree(aside, self._data, dirs_exist_ok=True)
        shutil.rmtree(aside)
        self._cluster.restart(self._broker)
        return self

    def __exit__(self, *_: object) -> None:
        if self._broker in self._cluster.pids:
            self._cluster.kill(self._broker)
        subprocess.run(["umount", "--lazy", str(self._data)], check=True)

    def fill(self) -> None:
        """Write until there is no room for another byte."""
        chunk = bytes(_CHUNK)
        with self._filler.open("wb", buffering=0) as file:
            while chunk:
                try:
                    file.write(chunk)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    chunk = chunk[: len(chunk) // 2]

    def clear(self) -> None:
        """Make room again; does nothing where the disk is not full."""
        self._filler.unlink(missing_ok=True)
