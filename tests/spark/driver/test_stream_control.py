"""Which control record a flow of a stream follows while its target is edited."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.client import Admin
from mirror.config.load import load
from mirror.errors import KafkaError
from mirror.relay.progress import status_values
from mirror.relay.progress.control_record import RunControl
from mirror.relay.progress.status_values import RunState
from mirror.spark.driver import stream_flow
from mirror.spark.driver.stream_flow import StreamFlow
from mirror.spark.run_control import RunControlClient
from mirror.spark.supervision import control_record_thread
from mirror.spark.supervision.config_file import LoadedFlow
from mirror.spark.supervision.control_record_thread import ControlRecordThread
from mirror.spark.supervision.flow_states import NEW, FlowState, Held, OtherRunClaimed, Resumed
from tests.polling import eventually
from tests.spark.driver.test_stream_site import PREPARING, RUNNING, Site
from tests.spark.fakes import Cluster, SilentWriter
from tests.spark.supervision.stand_in import CLUSTERS, flow

if TYPE_CHECKING:
    from mirror.spark.supervision.flow_states import Event, Supervised

RESTARTING = replace(RUNNING, then=FlowState.PREPARING)
HELD = replace(RUNNING, state=FlowState.HELD, reason="mirror stop has stopped it")
TAKEN = replace(HELD, by_other_run=True)


class Stream:
    """A flow to cluster b:1, which an edit gives the target c:1."""

    def __init__(self, folder: Path) -> None:
        for address in ("b:1", "c:1"):
            Cluster(address).make()
        self._path = folder / "mirror.toml"
        self.old = self._settings(CLUSTERS)
        self.new = self._settings(CLUSTERS.replace("b:1", "c:1"))
        self.posted: list[Event] = []
        self.flow: StreamFlow = Site(folder).add("f", self.posted.append)

    def _settings(self, clusters: str) -> LoadedFlow:
        self._path.write_text(clusters + flow("f"))
        config = load(self._path)
        return LoadedFlow(config, config.flows["f"])

    def change(self, settings: LoadedFlow, *states: Supervised) -> None:
        for before, now in pairwise(states):
            self.flow.on_change(settings, before, now)

    def run(self) -> str:
        """Have a run claim the flow on b:1."""
        self.change(self.old, NEW, PREPARING)
        control = self.flow._control
        assert control is not None
        run = control.claim(control.begin()).run
        self.change(self.old, PREPARING, RUNNING)
        return run

    def client(self, address: str, run: str = "") -> RunControlClient:
        return RunControlClient(Admin({"bootstrap.servers": address}), "f", run)

    def found(self, address: str) -> RunControl:
        return self.client(address).read() or RunControl(run="", host="", since_ms=0)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setattr(control_record_thread, "POLL_INTERVAL_MS", 5)
    monkeypatch.setattr(stream_flow, "StatusWriter", SilentWriter)
    stream = Stream(tmp_path)
    yield stream
    stream.flow.leave()


def test_a_run_whose_target_is_edited_is_controlled_until_its_tasks_have_ended(stream: Stream) -> None:
    run = stream.run()
    stream.change(stream.new, RUNNING, RESTARTING)
    stream.client("b:1").stop()
    eventually(lambda: Held() in stream.posted, what="the command")
    assert (stream.found("b:1").run, stream.found("b:1").ended) == (run, False)
    stream.change(stream.new, RESTARTING, PREPARING)
    eventually(lambda: stream.found("b:1").ended, what="the end of the run on its target of before")


def test_the_state_is_reported_again_after_a_run_that_had_the_flow_for_a_moment(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[tuple[str, str]] = []

    def put(_: object, key: object, state: RunState) -> None:
        assert key == status_values.RUN
        states.append((state.run, state.state))

    monkeypatch.setattr(SilentWriter, "put", put)
    run = stream.run()
    reported = len(states)
    other = stream.client("b:1", "run9")
    other.want(ended=True)
    other.claim()
    eventually(lambda: len(states) > reported, what="the state, again")
    assert states[-1] == (run, "running")
    eventually(lambda: stream.found("b:1").run == run, what="the record")


def test_a_target_that_does_not_answer_is_left_without_waiting_for_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, left = threading.Event(), threading.Event()
    close_now = ControlRecordThread.close

    def close(control: ControlRecordThread) -> None:
        assert answered.wait(30)
        close_now(control)
        left.set()

    stream.run()
    with monkeypatch.context() as patched:
        patched.setattr(ControlRecordThread, "close", close)
        stream.change(stream.new, RESTARTING, PREPARING)
        assert not left.is_set()
        answered.set()
        assert left.wait(30)


def test_a_held_flow_whose_target_is_edited_is_held_there(stream: Stream) -> None:
    stream.run()
    stream.change(stream.old, RUNNING, HELD)
    stream.change(stream.new, HELD, HELD)
    eventually(lambda: stream.client("c:1").resume() is not None, what="the record that holds it")
    eventually(lambda: stream.posted[-1:] == [Resumed()], what="the command")


def test_a_flow_that_was_taken_over_is_free_on_another_target(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.run()
    stream.client("b:1", "run-9").claim()
    eventually(lambda: any(isinstance(event, OtherRunClaimed) for event in stream.posted), what="the other run")
    stream.change(stream.old, RUNNING, TAKEN)
    before, leave = stream.flow._control, StreamFlow._leave
    assert before is not None
    with monkeypatch.context() as patched:
        patched.setattr(StreamFlow, "_leave", lambda *_: None)  # as if its thread came late
        stream.change(stream.new, TAKEN, TAKEN)
        with pytest.raises(KafkaError, match="has ended"):
            before.request().result(30)
    assert stream.posted[-1] == Resumed()
    leave(before, None)
    assert stream.found("c:1").run == ""
