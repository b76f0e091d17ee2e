"""The image of config/kubernetes, built without a registry, and programs that run in it.

buildah carries out the Dockerfile's instructions (Debian: ``apt-get install buildah debootstrap``; as root). The base
is Debian with its own Python, made by debootstrap, in the place of the one that the Dockerfile names.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.installation.lowest import ROOT

USER: Final = 1_000_720_000
"""As OpenShift chooses users: without an entry in passwd, in group 0."""
_RELEASE: Final = "bookworm"
_PACKAGES: Final = "python3,python3-venv,ca-certificates"
_OF_THIS_HOST: Final = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf", "etc/resolv.conf", "etc/hosts")
"""How this host reaches its package registries, and knows its own name, as a container does."""
_BASE: Final = "localhost/mirror-base"
_TAG: Final = "localhost/mirror"
_ENTER: Final = """
set -eu
root=$1 written=$2 user=$3 folder=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$written/tmp" "$root/tmp"
mount --bind "$written/reports" "$root/var/mirror"
exec chroot --userspec="$user:0" --groups=0 "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


class Image:
    """The image, whose content is below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        storage = ("--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs")
        self._buildah: Final = ["buildah", *map(str, storage)]
        self.reports: Final = folder / "reports"
        self._root = ""
        self._config: dict[str, Any] = {}

    def build(self) -> None:
        """Build it of what ``make dist`` has made."""
        base = self._folder / "base"
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _RELEASE, base], check=True)
        for name in _OF_THIS_HOST:
            if Path("/", name).exists():
                shutil.copy(Path("/", name), base / name)
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, str(base), "/")
        self._run("commit", "--quiet", "--rm", container, _BASE)
        shutil.rmtree(base)
        options = ("--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={_BASE}")
        self._run("build", *options, "--file", "config/kubernetes/Dockerfile", "--tag", _TAG, ".")
        self._config = json.loads(self._run("inspect", "--type", "image", _TAG))["OCIv1"]["config"]
        self._root = self._run("mount", self._run("from", _TAG))
        for folder in (self._folder / "tmp", self.reports):
            folder.mkdir()
            folder.chmod(0o777)

    def delete(self) -> None:
        """Delete it, and all that building it has left."""
        self._run("rm", "--all")
        self._run("rmi", "--all", "--force")

    def run(self, *arguments: str, variables: Sequence[str] = (), user: int = USER) -> subprocess.CompletedProcess[str]:
        """Run the entry point with these arguments and ``NAME=value`` variables, as a user without a name.

        Its root is read-only but for ``/tmp`` and ``/var/mirror``, two folders of this host, whose network it has.
        """
        paths = (self._root, self._folder, user, self._config["WorkingDir"])
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh", *map(str, paths)]
        environment = ["/usr/bin/env", "-i", *self._config["Env"], *variables]
        command = [*enter, *environment, *self._config["Entrypoint"], *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)

    def _run(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._buildah, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()
