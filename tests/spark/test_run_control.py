"""The control record of a run, which several threads of its process change while other processes do, too."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from mirror.errors import KafkaTimeout
from mirror.relay.progress.control import RunControl
from mirror.spark import run_control
from mirror.spark.run_control import RunControlClient, RunRecord
from tests.spark.fakes import FOLDER, Admin, Cluster

if TYPE_CHECKING:
    from mirror import client

OPTIONS = {"bootstrap.servers": "b:1"}


@pytest.fixture(autouse=True)
def _target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    Cluster("b:1", tmp_path).make()


def _client(record: RunRecord | None = None) -> RunControlClient:
    return RunControlClient(cast("client.Admin", Admin(OPTIONS)), "f", record=record)


class Held(RunControlClient):
    """Its next commit waits until it is released."""

    def __init__(self, record: RunRecord) -> None:
        super().__init__(cast("client.Admin", Admin(OPTIONS)), "f", record=record)
        self.begun = threading.Event()
        self.released = threading.Event()

    def _commit(self, control: RunControl, timeout_ms: int = 0) -> None:
        self.begun.set()
        assert self.released.wait(60)
        super()._commit(control, timeout_ms)


class Recorded(Held):
    """Commits are kept in order."""

    def __init__(self, record: RunRecord, commits: list[RunControl]) -> None:
        super().__init__(record)
        self._commits = commits

    def _commit(self, control: RunControl, timeout_ms: int = 0) -> None:
        super()._commit(control, timeout_ms)
        self._commits.append(control)


def _read() -> RunControl:
    found = _client().read()
    assert found is not None
    return found


@pytest.mark.parametrize("waits", [True, False])
def test_a_thread_that_is_late_does_not_undo_the_end_of_the_run(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    """It has read the record, and commits it when the run ends, which waits for it for a while."""
    monkeypatch.setattr(run_control, "_END_TIMEOUT_MS", 60_000 if waits else 50)
    record, commits = RunRecord("run-1"), list[RunControl]()
    _client(record).claim()
    late, last = Recorded(record, commits), Recorded(record, commits)
    last.released.set()
    watch = threading.Thread(target=late.announce_assignments, args=(4,))
    end = threading.Thread(target=last.end)
    watch.start()
    assert late.begun.wait(60)
    end.start()
    end.join(0.2 if waits else 60)
    assert end.is_alive() == waits
    late.released.set()
    for thread in (watch, end):
        thread.join(60)
        assert not thread.is_alive()
    assert [each.ended for each in commits] == [False, True], (
        "the end is the last commit, no matter which process makes it"
    )
    assert _read() == commits[-1]
    assert _read().version == 4


def test_two_threads_of_a_run_lose_none_of_their_changes() -> None:
    record = RunRecord("run-1")
    _client(record).claim()
    late = Held(record)
    watch = threading.Thread(target=late.announce_assignments, args=(4,))

    def begin_job() -> None:
        record.want(job=2)
        _client(record).sync()

    other = threading.Thread(target=begin_job)
    watch.start()
    assert late.begun.wait(60)
    other.start()
    late.released.set()
    for thread in (watch, other):
        thread.join(60)
        assert not thread.is_alive()
    assert (_read().job, _read().version) == (2, 4)


def test_a_request_that_could_not_be_committed_is_committed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    record = RunRecord("run-1")
    client_ = _client(record)
    client_.claim()
    with monkeypatch.context() as patched:
        patched.setattr(RunControlClient, "_commit", _fail)
        with pytest.raises(KafkaTimeout):
            client_.announce_assignments(4)
    client_.sync()
    assert _read().version == 4


def _fail(*_: object) -> None:
    raise KafkaTimeout("the coordinator does not answer")


def test_what_mirror_stop_overwrites_is_committed_again() -> None:
    record = RunRecord("run-1")
    client_ = _client(record)
    client_.claim()
    read_before = _read()
    client_.announce_assignments(4)
    _client()._commit(read_before.stopped())
    assert _read().version == 0
    assert client_.sync().stop
    assert (_read().version, _read().stop) == (4, True)


def test_each_claim_has_the_next_generation() -> None:
    first, second = RunRecord("run-9"), RunRecord("run-1")
    _client(first).claim()
    _client(first).claim()
    assert _read().generation == first.wanted.generation == 1
    _client(second).claim()
    assert (_read().run, _read().generation) == ("run-1", 2)
    fenced = _client(first).sync().fenced_by
    assert fenced is not None, "although its own name is that of a later run"
    assert fenced.run == "run-1"


def test_a_run_that_was_replaced_cannot_take_the_flow_back() -> None:
    """It has read its own record before the claim, and commits it again after that."""
    first, second = RunRecord("run-1"), RunRecord("run-2")
    _client(first).claim()
    late = Held(first)
    renewal = threading.Thread(target=late.announce_assignments, args=(4,))
    renewal.start()
    assert late.begun.wait(60)
    _client(second).claim()
    late.released.set()
    renewal.join(60)
    assert not renewal.is_alive()
    assert _read().run == "run-1"
    took_over = _client(second).sync().took_over
    assert took_over is not None
    assert took_over.run == "run-1"
    assert (_read().run, _read().generation) == ("run-2", 2)
    assert _client(first).sync().fenced_by == _read()


def test_the_first_renewal_claims_the_flow_if_the_claim_has_failed() -> None:
    _client(RunRecord("run-1")).claim()
    record = RunRecord("run-2")
    _client(record).sync()
    assert (_read().run, _read().generation, record.wanted.generation) == ("run-2", 2, 2)


def test_another_process_of_a_run_has_its_generation() -> None:
    _client(RunRecord("run-0")).claim()
    _client(RunRecord("run-1")).claim()
    other_process = RunRecord("run-1")
    _client(other_process).sync()
    assert other_process.wanted.generation == _read().generation == 2


def test_the_end_of_a_run_says_which_other_run_has_taken_over() -> None:
    first, second = _client(RunRecord("run-1")), _client(RunRecord("run-2"))
    first.claim()
    second.claim()
    other = first.end()
    assert other is not None
    assert other.run == "run-2"
    assert _read().run == "run-2"
    assert not _read().ended
    assert second.end() is None
    assert _read().ended
