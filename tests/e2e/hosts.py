"""Hosts that share nothing: no disk, no user, no processes, no loopback interface, only a network.

Each is a set of Linux namespaces (mount, PID, network, UTS, IPC) with a root of its own, which does not have the
checkout. The network is a bridge in a namespace of its own, and one end of a cable in this process's. All of it ends
with this process, however that ends: the kernel kills the first process of each host, with it all others, and removes
interfaces and mounts with the last process that uses them.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from mirror.sandbox import process
from mirror.sandbox.java import find_java
from tests.polling import eventually

NEEDS: Final = (
    "these tests need Linux and root that may make namespaces, mounts and network interfaces (CAP_SYS_ADMIN and"
    " CAP_NET_ADMIN: a virtual machine or a privileged container)"
)
_FIRST_UID: Final = 20_000
"""Below 65,536: all that the mapping of a user namespace usually has."""
_WITHIN_S: Final = 30.0
_NAMESPACES: Final = ("--mount", "--net", "--pid", "--uts", "--ipc")
_PYTHON: Final = Path(sys.executable).resolve()
_ROOT: Final = r"""
set -e
host=$1 name=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$host/root"
cd "$host/root"
bring() { mkdir -p ".$2"; mount --bind "$1" ".$2"; mount -o remount,bind,ro ".$2"; }
for each in /bin /sbin /lib /lib32 /lib64; do
    if [ -L $each ]; then cp -P $each .; elif [ -d $each ]; then bring $each $each; fi
done
cp -r "$host/etc" .
while [ $# -gt 0 ]; do bring "$1" "$2"; shift 2; done
mkdir -p dev/shm home proc run tmp var/tmp
for each in null zero random urandom tty; do touch dev/$each; mount --bind /dev/$each dev/$each; done
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 none dev/shm
mount --bind "$host/home" home
mount --bind "$host/tmp" tmp
mount --bind "$host/tmp" var/tmp
mount -t proc proc proc
hostname "$name"
"""
_INIT: Final = """
import os, signal, sys
os.chroot(".")
os.chdir("/")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps what is orphaned
print("up", flush=True)
while True:
    signal.pause()
"""


class NamespacesDeniedError(Exception):
    """This machine or container does not allow what the hosts are made of."""


@dataclass
class Host:
    """A host that runs: its first process, its user, and ``home``, that user's folder as this process sees it."""

    name: str
    address: str
    uid: int
    folder: Path
    first: process.Process
    pid: int
    """Of the first process inside."""
    launched: list[process.Process] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home" / self.name

    @property
    def inner_home(self) -> Path:
        """The same folder, as the host sees it."""
        return Path("/home") / self.name

    def command(self, *words: str, environ: Mapping[str, str] | None = None) -> list[str]:
        """Return the command line that runs ``words`` here, as this host's user, in its home."""
        inside = ["--mount", "--net", "--pid", "--uts", "--ipc", "--root", f"--wd={self._home_by_pid()}"]
        user = [f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--no-new-privs"]
        names = {"HOME": str(self.inner_home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "USER": self.name}
        given = [f"{key}={value}" for key, value in {**names, **(environ or {})}.items()]
        enter = [_program("nsenter"), f"--target={self.pid}", *inside]
        return [*enter, "/usr/bin/setpriv", *user, "/usr/bin/env", "-i", *given, *words]

    def _home_by_pid(self) -> str:
        return f"/proc/{self.pid}/root{self.inner_home}"

    def write(self, path: str, text: str) -> None:
        """Write a file that only this host's user may read; ``path`` is absolute, or relative to that user's home."""
        file = Path(f"/proc/{self.pid}/root") / str(self.inner_home / path).lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        os.chown(file, self.uid, self.uid)
        file.write_text(text, encoding="utf-8")

    def launch(self, *words: str, environ: Mapping[str, str] | None = None) -> None:
        """Start a program in the background, which ends with the host; what it prints is in ``folder``."""
        log = self.folder / f"log-{len(self.launched)}"
        self.launched.append(process.launch(self.command(*words, environ=environ), output=log, outlives_owner=False))

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on it but its first process."""
        mine = _pid_namespace(self.pid)
        others = (each for each in psutil.process_iter() if mine is not None and each.pid != self.pid)
        return [each for each in others if _pid_namespace(each.pid) == mine]

    def kill(self) -> None:
        """SIGKILL all of its processes at once, and wait for their end. Its peers see closed connections."""
        if self.first.alive():
            os.kill(self.pid, signal.SIGKILL)  # with the first one, the kernel kills all others
        everything = (self.first, *self.launched)
        eventually(lambda: not any(one.alive() for one in everything), what=f"the end of host {self.name}")


@dataclass
class Network:
    """A network of hosts; ``address`` is this process's own in it, where brokers may listen."""

    folder: Path
    subnet: str
    switch: process.Process
    names: Sequence[str]
    hosts: list[Host] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.subnet}.1"

    def add(self, name: str, brought: Mapping[Path, Path] | None = None) -> Host:
        """Boot the host of this name. ``brought``: folders here, and where the host has them, beside the system's."""
        number = self.names.index(name) + 2
        boots = len(self.hosts)
        # Empty, also if a host of this name was lost.
        uid, folder = _FIRST_UID + number, self.folder / f"{boots}-{name}"
        for each in ("home", "root", "tmp"):
            (folder / each).mkdir(parents=True)
        home = folder / "home" / name
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        (folder / "tmp").chmod(0o1777)
        self._write_etc(folder / "etc", name, uid)
        pairs = {Path("/usr"): Path("/usr"), **_system(), **(brought or {})}
        words = [str(word) for pair in pairs.items() for word in pair]
        script = f'{_ROOT}\nexec "{_PYTHON}" -I -S -c "$INIT"'
        unshare = [_program("unshare"), *_NAMESPACES, "--fork", "--kill-child", "--propagation=private"]
        command = ["/usr/bin/env", f"INIT={_INIT}", *unshare, "/bin/sh", "-c", script, "sh", str(folder), name, *words]
        log = folder / "boot.log"
        first = process.launch(command, output=log, outlives_owner=False)
        eventually(
            lambda: not first.alive() or log.read_text().endswith("up\n"), within_s=_WITHIN_S, what=f"host {name}"
        )
        if not first.alive():
            raise NamespacesDeniedError(f"host {name} does not boot: {log.read_text().strip()}; {NEEDS}")
        (inner,) = psutil.Process(first.pid).children()
        host = Host(name, f"{self.subnet}.{number}", uid, folder, first, inner.pid)
        self.hosts.append(host)
        self._plug_in(host, f"port{boots}", f"02:00:00:00:00:{number:02x}")
        return host

    def _plug_in(self, host: Host, port: str, mac: str) -> None:
        inside = ("nsenter", f"--target={host.pid}", "--net", "ip")
        at_switch = ("nsenter", f"--target={self.switch.pid}", "--net", "ip")
        _run(*at_switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        _run(*at_switch, "link", "set", port, "master", "switch", "up")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "address", "add", f"{host.address}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "address", mac, "up")

    def _write_etc(self, etc: Path, name: str, uid: int) -> None:
        etc.mkdir()
        known = "".join(f"{self.subnet}.{number} {each}\n" for number, each in enumerate(self.names, 2))
        texts = {
            "hosts": f"127.0.0.1 localhost\n{self.address} brokers\n{known}",
            "passwd": f"root:x:0:0::/root:/bin/sh\n{name}:x:{uid}:{uid}::/home/{name}:/bin/sh\n",
            "group": f"root:x:0:\n{name}:x:{uid}:\n",
            "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        }
        for file, text in texts.items():
            (etc / file).write_text(text, encoding="utf-8")


def _system() -> dict[Path, Path]:
    """What a host has of this machine beside /usr: an interpreter, a JVM, and the system's settings of both."""
    found = [Path(sys.base_prefix).resolve(), find_java().path.resolve().parents[1], Path("/etc/alternatives")]
    found += [Path("/etc/ssl"), *Path("/etc").glob("java*")]
    outside = [path for path in found if path.is_dir() and not path.is_relative_to("/usr")]
    return {path: path for path in outside}


@contextlib.contextmanager
def network(folder: Path, names: Sequence[str]) -> Iterator[Network]:
    """A network without hosts; those that are added end with the block. Each of them resolves all ``names``.

    Raises NamespacesDeniedError where this machine or container does not allow namespaces and interfaces.
    """
    switch = process.launch(
        [_program("unshare"), "--net", "--", "/bin/sleep", "infinity"],
        output=folder / "switch.log",
        outlives_owner=False,
    )
    made = Network(folder, "", switch, names)
    try:
        eventually(lambda: not switch.alive() or _has_own_network(switch.pid), within_s=_WITHIN_S, what="a network")
        if not switch.alive():
            raise NamespacesDeniedError(f"{(folder / 'switch.log').read_text().strip()}; {NEEDS}")
        _connect(made)
        yield made
    finally:
        process.stop([one for host in made.hosts for one in (host.first, *host.launched)], grace_s=0)
        process.stop([switch], grace_s=0)


def _connect(made: Network) -> None:
    """Build the bridge, and connect this process's namespace with it by a cable that goes when the bridge does."""
    pid, cable = made.switch.pid, f"mirror{made.switch.pid}"
    inside = ("nsenter", f"--target={pid}", "--net", "ip")
    _run(*inside, "link", "add", "switch", "type", "bridge")
    _run(*inside, "link", "set", "switch", "up")
    _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "uplink", "netns", str(pid))
    _run(*inside, "link", "set", "uplink", "master", "switch", "up")
    taken = _run("ip", "-4", "address", "show")
    # For benchmarks of networks (RFC 2544): nothing else has these addresses.
    free = [f"198.18.{number}" for number in range(256) if f" 198.18.{number}." not in taken]
    made.subnet = random.SystemRandom().choice(free)
    _run("ip", "address", "add", f"{made.address}/24", "dev", cable)
    _run("ip", "link", "set", cable, "up")


def _has_own_network(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return not Path(f"/proc/{pid}/ns/net").samefile("/proc/self/ns/net")
    return False


def _pid_namespace(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:  # it has ended, or belongs to others
        return None


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise NamespacesDeniedError(f"there is no {name} (util-linux, iproute2); {NEEDS}")
    return found


def _run(program: str, *arguments: str) -> str:
    done = subprocess.run([_program(program), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespacesDeniedError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}; {NEEDS}")
    return done.stdout
