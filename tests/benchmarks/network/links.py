"""A network namespace for a copier, which reaches each cluster over a link of its own.

The brokers and all other clients stay where they are: only what the copier sends and receives passes the links. A link
has a delay, a rate and losses, and can be cut: then packets vanish, as behind a router that has failed. Needs Linux,
root, and Go, which builds the program that joins both ends of a link (the kernel's netem is not in each kernel).

    PYTHONPATH=. python -m tests.benchmarks.network.links       # builds it, into build/link
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.sandbox import process
from tests.e2e.hosts import NamespacesDeniedError
from tests.polling import eventually

_HERE: Final = Path(__file__).parent
PROGRAM: Final = _HERE.parents[2] / "build" / "link"
_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET."""
_QUEUED_PACKETS: Final = "20000"
"""Of a device, before the program reads them: what is lost is lost by the program only."""
_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """What a link is like, in each direction. ``mbit`` 0: no bottleneck; ``loss``: the part of the packets."""

    delay_ms: float = 0.0
    mbit: float = 0.0
    loss: float = 0.0
    queue_ms: float = 100.0
    congestion: str = ""
    """The congestion control of both senders; empty: the system's."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link that is up. ``near``: the address at which the brokers listen; ``far``: the copier's."""

    near: str
    far: str
    program: subprocess.Popen[str]

    def cut(self) -> None:
        """Discard all packets from now on."""
        self._say("cut")

    def heal(self) -> None:
        """Let packets pass again."""
        self._say("heal")

    def counts(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return what has passed so far: towards the copier, and from it."""
        return self._say("counts")

    def _say(self, word: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(f"{word}\n")
        self.program.stdin.flush()
        to_copier, from_copier = json.loads(self.program.stdout.readline())
        return to_copier, from_copier


class Namespace:
    """The network namespace in which the copier runs; it has loopback addresses of its own."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread starts in the block is in the namespace, and so are the sockets that it opens."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(here)
        finally:
            os.close(there)
            os.close(here)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def network(folder: Path, lines: Sequence[Line]) -> Iterator[tuple[Namespace, list[Link]]]:
    """A namespace with a link for each of ``lines``; all of it ends with the block, or with this process.

    Raises NamespacesDeniedError where this machine or container does not allow namespaces and TUN devices.
    """
    build()
    holder = process.launch(
        ["/usr/bin/env", "unshare", "--net", "--", "/bin/sleep", "infinity"],
        output=folder / "namespace.log",
        outlives_owner=False,
    )
    programs: list[subprocess.Popen[str]] = []
    try:
        eventually(lambda: not holder.alive() or _is_apart(holder.pid), within_s=_WITHIN_S, what="a namespace")
        if not holder.alive():
            raise NamespacesDeniedError((folder / "namespace.log").read_text().strip())
        _run("nsenter", f"--target={holder.pid}", "--net", "ip", "link", "set", "lo", "up")
        links = [_link(number, line, holder.pid, programs) for number, line in enumerate(lines)]
        yield Namespace(holder.pid), links
    finally:
        for program in programs:
            program.kill()
            program.communicate()
        process.stop([holder], grace_s=0)


def _link(number: int, line: Line, pid: int, programs: list[subprocess.Popen[str]]) -> Link:
    names = (f"near{number}-{pid}"[:15], f"far{number}-{pid}"[:15])
    options = ["-delay", f"{line.delay_ms}ms", "-mbit", str(line.mbit), "-loss", str(line.loss)]
    options += ["-queue", f"{line.queue_ms}ms", "-seed", str(2 * number + 1)]
    program = subprocess.Popen(
        [str(PROGRAM), *options, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    programs.append(program)
    assert program.stdout is not None
    if program.stdout.readline() != "up\n":
        raise NamespacesDeniedError("no TUN devices: these measurements need root and /dev/net/tun")
    near, far = _addresses()
    inside = ("nsenter", f"--target={pid}", "--net")
    _run("ip", "link", "set", names[1], "netns", str(pid))
    for prefix, name, own, other in (((), names[0], near, far), (inside, names[1], far, near)):
        _run(*prefix, "ip", "link", "set", name, "txqueuelen", _QUEUED_PACKETS, "up")
        _run(*prefix, "ip", "address", "add", f"{own}/32", "dev", name)
        control = ("congctl", line.congestion) if line.congestion else ()
        _run(*prefix, "ip", "route", "add", f"{other}/32", "dev", name, "src", own, *control)
    return Link(near, far, program)


def _addresses() -> tuple[str, str]:
    """Two addresses for benchmarks of networks (RFC 2544) that nothing has."""
    taken = _run("ip", "-4", "address", "show") + _run("ip", "-4", "route", "show")
    for number in range(256):
        if f"198.19.{number}." not in taken:
            return f"198.19.{number}.1", f"198.19.{number}.2"
    raise NamespacesDeniedError("all addresses of 198.19.0.0/16 are taken")


def _is_apart(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return not Path(f"/proc/{pid}/ns/net").samefile("/proc/thread-self/ns/net")
    return False


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespacesDeniedError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def build() -> None:
    """Build the program, unless it is there and not older than its source."""
    source = _HERE / "link" / "main.go"
    if not PROGRAM.is_file() or PROGRAM.stat().st_mtime < source.stat().st_mtime:
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        go = ["go", "build", "-trimpath", "-o", str(PROGRAM), "."]
        subprocess.run(go, cwd=source.parent, check=True)


if __name__ == "__main__":
    build()
