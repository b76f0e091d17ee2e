"""A source and a target cluster in the background, which outlive the command that starts them.

There is no state beside the clusters' own records (``cluster.json`` in their folders): what runs is asked of the
system, by process id and start time.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Never

from mirror.errors import SandboxError
from mirror.sandbox import process
from mirror.sandbox.cluster import RECORD_NAME, Cluster
from mirror.sandbox.folders import cache_folder, locked, remove_folder

NAMES: Final = ("source", "target")
_STOP_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Node:
    """A broker or controller process of a cluster, and whether it runs."""

    node_id: int
    process: process.Process
    running: bool


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of one of the two clusters. ``bootstrap_servers`` is ``host:port,...``."""

    name: str
    directory: Path
    bootstrap_servers: str
    nodes: tuple[Node, ...]

    @property
    def running(self) -> bool:
        """Whether all of it runs."""
        return bool(self.nodes) and all(node.running for node in self.nodes)


def default_directory() -> Path:
    """Where the pair lives if nothing else is said: one per user, found again from any folder."""
    return cache_folder() / "sandbox"


def up(directory: Path, brokers: int = 1, *, say: Callable[[str], None] = lambda _: None) -> list[Status]:
    """Start both clusters, with ``brokers`` brokers each, and leave them running.

    Their folders are ``source`` and ``target`` in ``directory``. Remains of a pair that does not run any more are
    replaced. Raises SandboxError where one runs there already or it cannot start; on every failure, Ctrl-C and SIGTERM
    too, what was started is stopped and deleted.
    """
    with locked(directory), _termination_raises():
        if any(node.running for one in _statuses(directory) for node in one.nodes):
            raise SandboxError(f"a sandbox runs already in {directory}: stop it (mirror sandbox down) or give another")
        _remove(directory)
        started: list[Cluster] = []
        try:
            for name in NAMES:
                say(f"starting {name}: {brokers} broker{'s' if brokers > 1 else ''}")
                cluster = Cluster(brokers, directory=directory / name, outlives_owner=True, say=say)
                started.append(cluster)
                cluster.start()
        except BaseException:
            for cluster in started:
                cluster.stop()
            raise
        return _statuses(directory)


def down(directory: Path) -> bool:
    """Stop what :func:`up` started in ``directory`` and delete its data; False where there was nothing.

    Raises SandboxError where a process cannot be stopped or a record cannot be read.
    """
    if not directory.is_dir():
        return False
    with locked(directory):
        found = _statuses(directory)
        process.stop([node.process for one in found for node in one.nodes], _STOP_WITHIN_S)
        _remove(directory)
        (directory / ".lock").unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()  # stays if it holds anything else
    return bool(found)


def status(directory: Path) -> list[Status]:
    """What :func:`up` started in ``directory``, and whether it (still) runs; empty where there is nothing.

    Raises SandboxError where a record cannot be read.
    """
    return _statuses(directory)


def _statuses(directory: Path) -> list[Status]:
    return [_read(name, directory / name) for name in NAMES if (directory / name / RECORD_NAME).exists()]


def _read(name: str, folder: Path) -> Status:
    path = folder / RECORD_NAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        servers = str(record["bootstrap_servers"])
        known = [(int(node["id"]), process.Process(int(node["pid"]), str(node["started"]))) for node in record["nodes"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SandboxError(f"{path} cannot be read ({error}): end its brokers by hand and delete {folder}") from error
    return Status(name, folder, servers, tuple(Node(node_id, one, one.alive()) for node_id, one in known))


def _remove(directory: Path) -> None:
    for name in NAMES:
        folder = directory / name
        # Only what a cluster made: the user may have given a folder of theirs.
        if (folder / RECORD_NAME).exists() or (folder.is_dir() and not any(folder.iterdir())):
            remove_folder(folder)


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that what was started gets stopped."""

    def unwind(number: int, _: FrameType | None) -> Never:
        raise SystemExit(128 + number)

    before = {sign: signal.signal(sign, unwind) for sign in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
