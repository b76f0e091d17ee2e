"""The control record of a run, which several threads of its process change while other processes do, too."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin
from mirror.errors import KafkaTimeout
from mirror.relay.progress.control_record import RunControl
from mirror.spark.run_control import RunControlClient
from tests.spark.fakes import Cluster

if TYPE_CHECKING:
    pass

OPTIONS = {"bootstrap.servers": "b:1"}


@pytest.fixture(autouse=True)
def _target() -> None:
    Cluster("b:1").make()


def _client(run: str = "") -> RunControlClient:
    return RunControlClient(Admin(OPTIONS), "f", run)


class Held(RunControlClient):
    """Its next commit waits until it is released."""

    def __init__(self, run: str) -> None:
        super().__init__(Admin(OPTIONS), "f", run)
        self.begun = threading.Event()
        self.released = threading.Event()
        self.released.set()

    def _commit(self, control: RunControl) -> None:
        self.begun.set()
        assert self.released.wait(60)
        super()._commit(control)


def _read() -> RunControl:
    found = _client().read()
    assert found is not None
    return found


def test_a_request_that_could_not_be_committed_is_committed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _client("run-1")
    run.claim()
    run.want(version=4)
    with monkeypatch.context() as patched:
        patched.setattr(RunControlClient, "_commit", _fail)
        with pytest.raises(KafkaTimeout):
            run.sync()
    run.sync()
    assert _read().version == 4


def _fail(*_: object) -> None:
    raise KafkaTimeout("the coordinator does not answer")


def test_what_mirror_stop_overwrites_is_committed_again() -> None:
    run = _client("run-1")
    run.claim()
    read_before = _read()
    run.want(version=4)
    run.sync()
    _client()._commit(read_before.stopped())
    assert _read().version == 0
    assert run.sync().stop
    assert (_read().version, _read().stop) == (4, True)


def test_each_claim_has_the_next_generation() -> None:
    first, second = _client("run-9"), _client("run-1")
    first.claim()
    first.claim()
    assert _read().generation == first.wanted.generation == 1
    second.claim()
    assert (_read().run, _read().generation) == ("run-1", 2)
    fenced = first.sync().fenced_by
    assert fenced is not None, "although its own name is that of a later run"
    assert fenced.run == "run-1"


def test_a_run_that_was_replaced_cannot_take_the_flow_back() -> None:
    """It has read its own record before the claim, and commits it again after that."""
    first, second = Held("run-1"), _client("run-2")
    first.claim()
    first.begun.clear()
    first.released.clear()
    first.want(version=4)
    renewal = threading.Thread(target=first.sync)
    renewal.start()
    assert first.begun.wait(60)
    second.claim()
    first.released.set()
    renewal.join(60)
    assert not renewal.is_alive()
    assert _read().run == "run-1"
    previous = second.sync().previous
    assert previous is not None
    assert previous.run == "run-1"
    assert (_read().run, _read().generation) == ("run-2", 2)
    assert first.sync().fenced_by == _read()


def test_the_end_of_a_run_that_was_replaced_does_not_end_the_other_one() -> None:
    first, second = _client("run-1"), _client("run-2")
    first.claim()
    second.claim()
    first.want(ended=True)
    fenced = first.sync().fenced_by
    assert fenced is not None
    assert (fenced.run, _read().run, _read().ended) == ("run-2", "run-2", False)
