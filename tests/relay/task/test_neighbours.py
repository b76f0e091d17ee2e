"""Processes of a host that ask each other to yield partitions; here both ends are in one process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.cluster.types import TopicPartition
from mirror.producer.batch.queue import AdoptedState, ProducerId
from mirror.relay.model.way import Way
from mirror.relay.partition.writers.continuation import Continuation, YieldedFence
from mirror.relay.progress.committed import ProgressTotals, Searched
from mirror.relay.progress.target_log import TargetMark
from mirror.relay.task import neighbours as module
from mirror.relay.task.neighbours import (
    CopyServer,
    Neighbours,
    folder_of,
    remove_folder,
    remove_unused_folders,
    serve_neighbours,
)
from mirror.relay.task.running_copies import CedeRequests, RunningCopies
from tests.other_user import OtherUser
from tests.polling import eventually
from tests.relay.copy_harness import progress_at

TARGET, OTHER = TopicPartition("paris.t", 0), TopicPartition("paris.t", 1)
PROGRESS = replace(
    progress_at(6, topic_id=str(uuid.UUID(int=1))),
    way=Way.SEQUENCES,
    generation=5,
    producer_id=7,
    attempt=2,
    time_ms=1_000,
    unreported=ProgressTotals(5, 3, 50),
    target=TargetMark(topic_id="a", end=50, leader_epoch=3, producer_id=7),
    searched=Searched(40, 3),
)
GIVEN = Continuation(PROGRESS, YieldedFence(AdoptedState(ProducerId(7, 3), 5, uuid.UUID(int=2)), 2, 500))


class Site:
    """A process that copies TARGET under a lease, and a run that it belongs to."""

    def __init__(self) -> None:
        self.run = f"run-{uuid.uuid4()}"
        self.copies = RunningCopies()
        self.requests = CedeRequests(lambda: None)
        self.copies.add("cluster", "flow", [TARGET], self.requests)
        assert folder_of(self.run) is None, "nothing is created by asking"
        folder = folder_of(self.run, create=True)
        assert folder is not None
        self.folder = folder
        self.server = CopyServer(folder, self.copies)

    def asked(self) -> list[tuple[TopicPartition, Future[Continuation | None]]]:
        """What its task is asked for, as soon as it is."""
        taken: list[tuple[TopicPartition, Future[Continuation | None]]] = []

        def asked() -> bool:
            taken.extend(self.requests.take())
            return bool(taken)

        eventually(asked, within_s=10, what="a request")
        return taken

    def close(self) -> None:
        self.server.close()
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        site = Site()
        yield site
        site.close()


def test_continuation_is_passed_on_as_it_is(site: Site) -> None:
    with Neighbours(site.run, "flow", own=True) as neighbours:
        earlier = neighbours.take(TARGET)
        assert earlier is not None
        asked = earlier()
        ((target, answer),) = site.asked()
        assert target == TARGET
        answer.set_result(GIVEN)
        assert asked.result(10) == GIVEN
        assert neighbours.take(TARGET) is None, "it is asked once"


def test_partitions_of_no_process_and_of_other_flows_are_not_asked_for(site: Site) -> None:
    with Neighbours(site.run, "flow", own=True) as neighbours:
        assert neighbours.take(OTHER) is None
    with Neighbours(site.run, "another", own=True) as neighbours:
        assert neighbours.take(TARGET) is None
    with Neighbours(f"{site.run}-2", "flow", own=True) as neighbours:
        assert neighbours.take(TARGET) is None
    with Neighbours(site.run, "flow") as neighbours:
        assert neighbours.take(TARGET) is None, "this process knows its own copies"


def test_process_that_dies_answers_that_the_next_attempt_has_to_fence(site: Site) -> None:
    with Neighbours(site.run, "flow", own=True) as neighbours:
        earlier = neighbours.take(TARGET)
        assert earlier is not None
        asked = earlier()
        neighbours.close()  # both ends of the connection close
        assert asked.result(10) is None


def test_task_that_ends_answers_that_the_next_attempt_has_to_fence(site: Site) -> None:
    with Neighbours(site.run, "flow", own=True) as neighbours:
        earlier = neighbours.take(TARGET)
        assert earlier is not None
        site.requests.end()
        assert earlier().result(10) is None


def test_copy_that_yielded_to_another_process_is_not_asked_again(site: Site) -> None:
    with Neighbours(site.run, "flow", own=True) as one, Neighbours(site.run, "flow", own=True) as two:
        first, second = one.take(TARGET), two.take(TARGET)
        assert first is not None
        assert second is not None
        asked = first()
        assert len(site.asked()) == 1
        assert second().result(10) is None
        site.requests.end()
        assert asked.result(10) is None


def test_socket_of_a_killed_process_is_removed(site: Site) -> None:
    path = site.folder / "1"
    killed = socket.socket(socket.AF_UNIX)
    killed.bind(str(path))
    killed.close()
    with Neighbours(site.run, "flow", own=True) as neighbours:
        assert neighbours.take(TARGET) is not None, "the others are asked"
    assert not path.exists()


def test_nonsense_is_not_believed(site: Site) -> None:
    site.server.close()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(site.folder / "nonsense"))
    listener.listen()
    listener.settimeout(10)
    with Neighbours("", "flow") as without_run:
        assert without_run.take(TARGET) is None

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            stream.readline()
            stream.write(json.dumps({"held": [[*TARGET, 1]]}).encode() + b"\n")
            stream.flush()
            stream.readline()
            stream.write(b'{"target": ["paris.t", 0], "continuation": {"producer": [7]}}\n')
            stream.flush()
            stream.readline()

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        with Neighbours(site.run, "flow", own=True) as neighbours:
            earlier = neighbours.take(TARGET)
            assert earlier is not None
            assert earlier().result(10) is None
        answered.result(10)
    listener.close()


@pytest.mark.parametrize("asked", [1, 2_000], ids=["one request", "more than the socket holds"])
def test_frozen_process_holds_up_no_partition(asked: int, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.5)
    targets = [TopicPartition("paris.t", number) for number in range(asked)]
    site.server.close()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(site.folder / "frozen"))
    listener.listen()
    listener.settimeout(10)

    def say_what_it_holds() -> socket.socket:
        connection, _ = listener.accept()
        with connection.makefile("rwb") as stream:
            stream.readline()
            stream.write(json.dumps({"held": [[*target, 1] for target in targets]}).encode() + b"\n")
            stream.flush()
        return connection

    with ThreadPoolExecutor(2) as pool:
        said = pool.submit(say_what_it_holds)
        with Neighbours(site.run, "flow", own=True) as neighbours:
            connection = said.result(10)
            asks = [ask for target in targets if (ask := neighbours.take(target)) is not None]
            answers = pool.submit(lambda: [ask() for ask in asks]).result(10)
            assert [answer.result(10) for answer in answers] == [None] * asked
        connection.close()
    listener.close()


def test_socket_that_a_cleaner_has_removed_is_made_again(site: Site) -> None:
    site.server.close()
    serve_neighbours(site.run, site.copies)
    remove_folder(site.run)
    serve_neighbours(site.run, site.copies)
    with Neighbours(site.run, "flow", own=True) as neighbours:
        assert neighbours.take(TARGET) is not None


def test_folder_of_an_ended_run_is_removed(site: Site) -> None:
    remove_folder(site.run)
    assert not site.folder.exists()
    site.folder.mkdir()


def folder_of_other_run(*, killed: bool = True, age_s: int = 7_200) -> Path:
    """The folder of another run of this user, whose process was ``killed``, and that is unchanged for so long."""
    folder = folder_of(f"run-{uuid.uuid4()}", create=True)
    assert folder is not None
    if killed:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "1"))
    make_older(folder, age_s)
    return folder


def make_older(folder: Path, age_s: int) -> None:
    os.utime(folder, (time.time() - age_s,) * 2)


def test_folders_of_ended_runs_are_removed_when_a_run_begins_to_listen(site: Site) -> None:
    site.server.close()
    ended = [folder_of_other_run(), folder_of_other_run(killed=False)]
    serve_neighbours(site.run, site.copies)
    eventually(lambda: not any(folder.exists() for folder in ended), within_s=10, what="their removal")
    with Neighbours(site.run, "flow", own=True) as neighbours:
        assert neighbours.take(TARGET) is not None


def test_folders_that_may_be_in_use_are_left_alone(site: Site) -> None:
    listening, recent, file, public = (folder_of_other_run(age_s=age_s) for age_s in (7_200, 1_800, 7_200, 7_200))
    server = CopyServer(listening, site.copies)
    (file / "notes").touch()
    public.chmod(0o755)
    for folder in (site.folder, listening, file):
        make_older(folder, 7_200)
    remove_unused_folders(site.folder)
    assert [folder for folder in (site.folder, listening, recent, file, public) if not folder.exists()] == []
    assert (file / "1").exists()
    server.close()


def test_folder_of_another_user_is_left_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, user = folder_of_other_run(), os.getuid()
    for name in ("getuid", "geteuid"):
        monkeypatch.setattr(os, name, lambda: user + 1)
    renamed = folder.rename(folder.with_name(folder.name.replace(f"-{user}-", f"-{user + 1}-")))
    remove_unused_folders(site.folder)
    assert renamed.exists()


def test_folder_that_others_may_enter_is_not_used(site: Site) -> None:
    Path(site.folder).chmod(0o755)
    assert folder_of(site.run) is None
    with Neighbours(site.run, "flow", own=True) as neighbours:
        assert neighbours.take(TARGET) is None


def test_another_user_is_answered_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (site.folder.parent, site.folder, site.server.path):
        path.chmod(0o777)
    assert OtherUser(monkeypatch).received(site.server.path, '{"flow": "flow"}\n') == b""


def test_the_process_of_another_user_is_asked_for_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = site.folder / "99", OtherUser(monkeypatch)
    for each in (site.folder.parent, site.folder):
        each.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as listener:
        with other.acts():
            listener.bind(str(path))
            listener.listen()
        path.chmod(0o777)
        site.folder.chmod(0o700)
        monkeypatch.setattr(module, "is_private", lambda _: True)  # as if the folder had been open for a moment
        with Neighbours(site.run, "flow", own=True):
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(30)
                with contextlib.suppress(ConnectionResetError):
                    assert accepted.recv(1) == b""
    path.unlink()


def test_a_server_without_a_free_file_or_thread_answers_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([RuntimeError("can't start new thread")])

    class Thread(threading.Thread):
        def start(self) -> None:
            if (error := next(failures, None)) is not None:
                raise error
            super().start()

    monkeypatch.setattr(threading, "Thread", Thread)
    answers = []
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(site.server.path))
            with contextlib.suppress(OSError):
                connection.sendall(b'{"flow": "flow"}\n')
                answers.append(connection.makefile("rb").readline())
    assert answers[-1].startswith(b'{"held": [["paris.t", ')
