"""Passes partitions on between the processes of a host: Spark may run a task's next epoch in another one.

Each process with copies under a lease answers on a Unix socket, in a folder of the run that only its user can enter.
The protocol is a JSON object per line. What is not understood, or not answered, means that the next attempt fences.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import shutil
import socket
import stat
import tempfile
import threading
import time
import uuid
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from mirror.cluster.types import OffsetAndMetadata, TopicPartition
from mirror.local_users import is_private, is_same_user
from mirror.producer.batch.queue import AdoptedState, ProducerId
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.continuation import Continuation, YieldedFence
from mirror.relay.progress.committed import from_offset, to_offset
from mirror.relay.task.running_copies import RunningCopies

if TYPE_CHECKING:
    from mirror.relay.partition.writers.continuation import Earlier

_log: Final = logging.getLogger(__name__)
_PREFIX: Final = "mirror-copies-"
_MAX_PATH_BYTES: Final = 90
_PAUSE_S: Final = 0.1
_TIMEOUT_S: Final = 2.0
"""How long a process may take to say which partitions it has, and to yield one. It may be frozen, or swapped out."""
_UNUSED_FOR_S: Final = 3_600
"""How old a folder without a listening process has to be before it is removed: a process may be about to listen."""


def folder_of(run: str, *, create: bool = False) -> Path | None:
    """Return the folder of a run's sockets; None if there is none, or it cannot be used safely."""
    name = f"{_PREFIX}{os.getuid()}-{hashlib.sha256(run.encode()).hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(folder)) > _MAX_PATH_BYTES:
        folder = Path("/tmp", name)  # noqa: S108 - its owner and mode are checked
    try:
        if create:
            folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.info("no partition is passed on to other processes: %s", error)
        return None
    if not is_private(found):
        _log.warning("%s is not a private folder of this user: no partition is passed on to other processes", folder)
        return None
    return folder


def remove_folder(run: str) -> None:
    """Remove the folder of a run that has ended, with the sockets of processes that were killed."""
    if (folder := folder_of(run)) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def remove_unused_folders(current: Path) -> None:
    """Remove this user's folders, where ``current`` is, in which no process listens, and none has for an hour.

    They are of runs that have ended: :func:`remove_folder` reaches only the driver's host.
    """
    for folder in current.parent.glob(f"{_PREFIX}{os.getuid()}-*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if not is_private(found) or time.time() - found.st_mtime < _UNUSED_FOR_S:
                continue
            paths = list(folder.iterdir())
            if any(map(_may_listen, paths)):
                continue
            for path in paths:
                path.unlink()
            folder.rmdir()  # fails if a process has begun to listen meanwhile


def _may_listen(path: Path) -> bool:
    """Whether a process listens on this socket; also true if that is unknown, or it is no socket."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        return True
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


class CopyServer:
    """Answers the other processes of the host; one for each run and process. Its threads are daemons."""

    def __init__(self, folder: Path, copies: RunningCopies) -> None:
        """Raises OSError if there can be no socket."""
        self._copies: Final = copies
        self._closed: Final = threading.Event()
        self.path: Final = folder / str(os.getpid())
        self.path.unlink(missing_ok=True)
        self._listener: Final = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, name="mirror-copies", daemon=True).start()

    def close(self) -> None:
        """Answer nothing more."""
        self._closed.set()
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._closed.wait(_PAUSE_S)  # The listener is closed, or this process has too many open files.
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="mirror-copies", daemon=True).start()
            except RuntimeError:  # the system has no thread left: the other process fences what it asks for
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        # Answers come on network threads, which must not wait for a process that does not read.
        answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        sending = threading.Thread(target=_send_all, args=(connection, answers), name="mirror-copies", daemon=True)
        sending.start()
        with connection:
            try:
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    if not is_same_user(connection):
                        return
                    for line in connection.makefile("rb"):
                        self._on_request(json.loads(line), answers)
            finally:
                answers.put(None)
                sending.join()

    def _on_request(self, asked: dict[str, Any], answers: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        if "flow" in asked:
            held = self._copies.held(str(asked["flow"]))
            answers.put({"held": [[*target, since_ms] for target, since_ms in held.items()]})
            return
        flow, topic, number = asked["cede"]
        target = TopicPartition(str(topic), int(number))

        def on_yielded(yielded: Future[Continuation | None]) -> None:
            given = yielded.result()
            answers.put({"target": list(target), "continuation": None if given is None else _to_json(given)})

        self._copies.ask(str(flow), target).add_done_callback(on_yielded)


def _send_all(connection: socket.socket, answers: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    with contextlib.suppress(OSError):
        while (answer := answers.get()) is not None:
            connection.sendall(json.dumps(answer).encode() + b"\n")


_servers: Final[dict[tuple[int, str], CopyServer]] = {}
"""By process and run."""


def serve_neighbours(run: str, copies: RunningCopies) -> None:
    """Have the other processes of this host find the ``copies`` of a run, from now on."""
    key = os.getpid(), run
    if key in _servers and _servers[key].path.exists():
        return  # otherwise a cleaner of temporary files has removed it
    if not run or (folder := folder_of(run, create=True)) is None:
        return
    for other in [other for other in _servers if other[0] == key[0]]:
        _servers.pop(other).close()  # a worker of Spark serves one run
    try:
        _servers[key] = CopyServer(folder, copies)
    except OSError as error:
        _log.info("no partition is passed on to other processes: %s", error)
    # In a thread: a process that does not answer must not delay the end of the epoch.
    threading.Thread(target=remove_unused_folders, args=(folder,), name="mirror-copies", daemon=True).start()


class _Neighbour:
    """The connection to another process. It ends when that process does not read, or answer in time."""

    def __init__(self, connection: socket.socket, lines: Any) -> None:
        """``lines`` are the answers."""
        self._connection: Final = connection
        self._lock: Final = threading.Lock()
        self._pending: Final[dict[TopicPartition, tuple[Future[Continuation | None], float]]] = {}
        """With the time (monotonic s) when the answer is due."""
        self._limits = False
        """Whether a timer runs."""
        threading.Thread(target=self._read, args=(lines,), name="mirror-neighbour", daemon=True).start()

    def ask(self, flow: str, target: TopicPartition) -> Future[Continuation | None]:
        """Ask for ``target``; the future is done within ``_TIMEOUT_S``, and never fails."""
        answer: Future[Continuation | None] = Future()
        with self._lock:
            self._pending[target] = answer, time.monotonic() + _TIMEOUT_S
            limited, self._limits = self._limits, True
        if not limited:
            self._limit(_TIMEOUT_S)
        request = json.dumps({"cede": [flow, *target]}).encode() + b"\n"
        try:
            sent = self._connection.send(request, socket.MSG_DONTWAIT)
        except OSError:
            sent = 0
        if sent < len(request):  # the process does not read: the task's thread must not wait for it
            self.close()
            self._complete(target, None)
        return answer

    def close(self) -> None:
        """Ask for nothing more; what is asked for is answered with None."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # it ends the reading thread

    def _limit(self, within_s: float) -> None:
        timer = threading.Timer(within_s, self._on_limit)
        timer.daemon = True
        timer.start()

    def _on_limit(self) -> None:
        with self._lock:
            self._limits = bool(self._pending)
            due_s = min((due_s for _, due_s in self._pending.values()), default=0.0)
        if not self._limits:
            return
        if (left_s := due_s - time.monotonic()) > 0:
            self._limit(left_s)
            return
        _log.info("a process of this host does not answer: the partitions that it copies are fenced")
        self.close()

    def _read(self, lines: Any) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                while message := _parsed(lines):
                    topic, number = message["target"]
                    given = message["continuation"]
                    continuation = None if given is None else _from_json(given)
                    self._complete(TopicPartition(str(topic), int(number)), continuation)
        finally:
            self.close()  # first: what is asked for from now on cannot be sent
            with self._lock:
                left = list(self._pending)
            for target in left:
                self._complete(target, None)
            self._connection.close()

    def _complete(self, target: TopicPartition, given: Continuation | None) -> None:
        with self._lock:
            answer, _ = self._pending.pop(target, (None, 0.0))
        if answer is not None:
            answer.set_result(given)


class Neighbours:
    """The other processes of this host that copy partitions of a flow under leases."""

    def __init__(self, run: str, flow: str, *, own: bool = False) -> None:
        """``own``: ask this process, too."""
        self._flow: Final = flow
        self._connected: Final[list[_Neighbour]] = []
        self._held: Final[dict[TopicPartition, tuple[int, _Neighbour]]] = {}
        folder = folder_of(run) if run else None
        for path in _sockets(folder) if folder is not None else ():
            if own or path.name != str(os.getpid()):
                self._connect(path)

    def _connect(self, path: Path) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # its process was killed
            connection.close()
            return
        except OSError:
            connection.close()
            return
        try:
            if not is_same_user(connection):
                connection.close()
                return
            connection.sendall(json.dumps({"flow": self._flow}).encode() + b"\n")
            lines = connection.makefile("rb")
            held = {TopicPartition(str(topic), int(number)): int(at) for topic, number, at in _parsed(lines)["held"]}
        except (OSError, ValueError, KeyError, TypeError):
            connection.close()
            return
        connection.settimeout(None)
        neighbour = _Neighbour(connection, lines)
        self._connected.append(neighbour)
        for target, since_ms in held.items():
            if target not in self._held or self._held[target][0] < since_ms:
                self._held[target] = since_ms, neighbour

    def take(self, target: TopicPartition) -> Earlier | None:
        """Return a function that asks the process which copies ``target`` to yield; None if there is none. Once."""
        held = self._held.pop(target, None)
        return None if held is None else lambda: held[1].ask(self._flow, target)

    def close(self) -> None:
        """Ask no process any more: what is asked for is fenced."""
        for neighbour in self._connected:
            neighbour.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _sockets(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it was removed meanwhile: the run has ended
        return []


def _parsed(lines: Any) -> dict[str, Any]:
    line = lines.readline()
    return dict(json.loads(line)) if line else {}


def _to_json(given: Continuation) -> dict[str, Any]:
    fence = given.fence
    producer_id = given.progress.producer_id if fence is None else fence.state.identity.producer_id
    way = given.progress.way if fence is None else Way.SEQUENCES
    offset = to_offset(replace(given.progress, way=way, producer_id=producer_id))
    progress = [offset.offset, offset.leader_epoch, offset.metadata]
    return {"progress": progress, "fence": None if fence is None else _fence_to_json(fence)}


def _fence_to_json(fence: YieldedFence) -> dict[str, Any]:
    (producer_id, epoch), sequence, topic_id = fence.state
    return {
        "producer": [producer_id, epoch, sequence],
        "topic": None if topic_id is None else str(topic_id),
        "claim": fence.claim_epoch,
        "written": fence.written_ms,
    }


def _from_json(given: dict[str, Any]) -> Continuation:
    offset, leader_epoch, metadata = given["progress"]
    progress = from_offset(OffsetAndMetadata(int(offset), leader_epoch, str(metadata)))
    return Continuation(progress, None if given["fence"] is None else _fence_from_json(given["fence"]))


def _fence_from_json(given: dict[str, Any]) -> YieldedFence:
    producer_id, epoch, sequence = map(int, given["producer"])
    topic_id = None if given["topic"] is None else uuid.UUID(given["topic"])
    state = AdoptedState(ProducerId(producer_id, epoch), sequence, topic_id)
    return YieldedFence(state, int(given["claim"]), int(given["written"]))
