"""A source and a target cluster in the background, which outlive the command that starts them.

The only state are the clusters' own records (``cluster.json`` in their folders). Whether the processes in them run is
asked of the system, by process id and start time.
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
_STOP_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A broker or controller process of a cluster, and whether it runs."""

    node_id: int
    process: process.Process
    running: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The status of one of the two clusters."""

    name: str
    directory: Path
    bootstrap_servers: str
    """``host:port,...``."""
    nodes: tuple[NodeStatus, ...]

    @property
    def running(self) -> bool:
        """Whether all nodes run."""
        return bool(self.nodes) and all(node.running for node in self.nodes)


def default_directory() -> Path:
    """Return the default folder of the pair: one per user, independent of the current folder."""
    return cache_folder() / "sandbox"


def up(
    directory: Path, brokers: int = 1, *, on_progress: Callable[[str], None] = lambda _: None
) -> list[ClusterStatus]:
    """Start both clusters, with ``brokers`` brokers each, and leave them running.

    Their folders are ``source`` and ``target`` in ``directory``. Of a pair there of which only some processes run, the
    others are started again, with their data; one that no longer runs at all is replaced. Raises SandboxError if a pair
    runs there already or cannot start. When a new pair fails, also by Ctrl-C or SIGTERM, everything that was
    started is stopped and deleted.
    """
    with locked(directory), _termination_raises():
        found = _statuses(directory)
        if any(node.running for cluster in found for node in cluster.nodes):
            dead = [cluster for cluster in found if not cluster.running]
            if not dead or len(found) < len(NAMES):
                raise SandboxError(
                    f"a sandbox runs already in {directory}: stop it (mirror sandbox down) or give another folder"
                )
            for broken in dead:
                on_progress(f"starting {broken.name} again, with its data")
                again = Cluster(outlives_owner=True, on_progress=on_progress)
                again.start_dead(broken.directory, {node.node_id: node.process for node in broken.nodes})
            return _statuses(directory)
        _remove(directory)
        started: list[Cluster] = []
        try:
            for name in NAMES:
                on_progress(f"starting {name}: {brokers} broker{'s' if brokers > 1 else ''}")
                cluster = Cluster(brokers, directory=directory / name, outlives_owner=True, on_progress=on_progress)
                started.append(cluster)
                cluster.start()
        except BaseException:
            for cluster in started:
                cluster.stop()
            raise
        return _statuses(directory)


def down(directory: Path) -> bool:
    """Stop the clusters that :func:`up` started in ``directory`` and delete their data; return False if there are none.

    Raises SandboxError if a process cannot be stopped or a record cannot be read.
    """
    if not directory.is_dir():
        return False
    with locked(directory):
        found = _statuses(directory)
        process.stop([node.process for cluster in found for node in cluster.nodes], _STOP_TIMEOUT_S)
        _remove(directory)
        (directory / ".lock").unlink()
    with contextlib.suppress(OSError):
        directory.rmdir()  # the folder stays if it contains anything else
    return bool(found)


def status(directory: Path) -> list[ClusterStatus]:
    """Return the status of the clusters that :func:`up` started in ``directory``; empty if there are none.

    Raises SandboxError if a record cannot be read.
    """
    return _statuses(directory)


def _statuses(directory: Path) -> list[ClusterStatus]:
    return [_read(name, directory / name) for name in NAMES if (directory / name / RECORD_NAME).exists()]


def _read(name: str, folder: Path) -> ClusterStatus:
    path = folder / RECORD_NAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        servers = str(record["bootstrap_servers"])
        processes = [
            (int(node["id"]), process.Process(int(node["pid"]), str(node["started"]))) for node in record["nodes"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SandboxError(f"{path} cannot be read ({error}): end its brokers manually and delete {folder}") from error
    return ClusterStatus(
        name, folder, servers, tuple(NodeStatus(node_id, process, process.alive()) for node_id, process in processes)
    )


def _remove(directory: Path) -> None:
    for name in NAMES:
        folder = directory / name
        # Delete only folders of clusters: the user may have named a folder with other contents.
        if (folder / RECORD_NAME).exists() or (folder.is_dir() and not any(folder.iterdir())):
            remove_folder(folder)


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so that the started clusters are stopped."""

    def unwind(number: int, _: FrameType | None) -> Never:
        raise SystemExit(128 + number)

    before = {sign: signal.signal(sign, unwind) for sign in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
