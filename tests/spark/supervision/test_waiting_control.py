"""A flow that waits is known as a run: `mirror stop` holds it, and other runs of the flow are noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest

from mirror import client
from mirror.config.load import load
from mirror.relay.progress.control import RunControl
from mirror.relay.progress.flow_topic import status_topic_of, topic_of
from mirror.spark.run_control import RunControlClient, RunRecord
from mirror.spark.supervision import waiting_control
from mirror.spark.supervision.config_file import FlowSettings
from mirror.spark.supervision.states import FlowState, Held, Resumed, Supervised, TakenOver
from mirror.spark.supervision.waiting_control import WaitingControl
from tests.spark.fakes import FOLDER, Admin, Cluster
from tests.spark.supervision.stand_in import CLUSTERS, flow

WAITING: Final = Supervised(FlowState.BACKING_OFF, 0)
STOPPED: Final = Supervised(FlowState.HELD, 0)
REPLACED: Final = Supervised(FlowState.HELD, 0, by_other_run=True)


class Site:
    def __init__(self, folder: Path) -> None:
        self.target = Cluster("b:1", folder).make()
        path = folder / "mirror.toml"
        path.write_text(CLUSTERS + flow("f"))
        config = load(path)
        self.settings = FlowSettings(config, config.flows["f"])
        self.now_ms = 0
        self.record = RunRecord("run1")
        self.now_ms = self.record.wanted.since_ms
        self.control = WaitingControl(self.settings, self.record, unix_ms=lambda: self.now_ms)

    def client(self, run: str = "") -> RunControlClient:
        return RunControlClient(cast("client.Admin", Admin({"bootstrap.servers": "b:1"})), "f", run)

    def found(self) -> RunControl:
        found = self.client().read()
        assert found is not None
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(waiting_control, "Admin", Admin)
    return Site(tmp_path)


def test_a_waiting_flow_is_known_as_a_run_and_mirror_stop_holds_it(site: Site) -> None:
    assert site.control.poll(WAITING) is None
    assert {topic_of("f"), status_topic_of("f")} <= Admin({"bootstrap.servers": "b:1"}).list_topics().keys()
    asked = site.client().stop()
    assert asked is not None
    assert (asked.run, asked.ended) == ("run1", False)
    assert site.control.poll(WAITING) == Held()
    assert site.found().ended


def test_a_flow_that_was_stopped_is_resumed_by_its_record_only(site: Site) -> None:
    site.control.poll(WAITING)
    site.client().stop()
    site.control.poll(WAITING)
    assert site.control.poll(STOPPED) is None
    site.now_ms += 10**7
    assert site.control.poll(STOPPED) is None
    assert site.client().resume() is not None
    assert site.control.poll(STOPPED) == Resumed()
    assert site.client().resume() is None, "nothing is stopped any more"


def test_a_waiting_flow_leaves_the_run_alone_that_copies_it(site: Site) -> None:
    site.client("run0").claim()
    assert site.control.poll(WAITING) is None
    assert site.found().run == "run0"
    site.now_ms += 61_000
    assert site.control.poll(WAITING) is None
    assert site.found().run == "run1", "the other run has died"


def test_a_waiting_flow_that_another_run_takes_over_is_held_until_that_run_ends(site: Site) -> None:
    site.control.poll(WAITING)
    other = site.client("run2")
    other.claim()
    event = site.control.poll(WAITING)
    assert isinstance(event, TakenOver)
    assert event.run == "run2"
    assert site.control.poll(REPLACED) is None
    other.end()
    assert site.control.poll(REPLACED) == Resumed()


def test_a_flow_that_was_taken_over_is_resumed_once_the_other_run_has_died(site: Site) -> None:
    site.client("run2").claim()
    site.now_ms += 59_000
    assert site.control.poll(REPLACED) is None
    site.now_ms += 2_000
    assert site.control.poll(REPLACED) == Resumed()


def test_a_target_that_is_away_is_asked_again(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "b-1.json"
    file.rename(tmp_path / "away")
    for state in (WAITING, STOPPED, REPLACED):
        assert site.control.poll(state) is None
    site.control.leave()
    (tmp_path / "away").rename(file)
    site.control.poll(WAITING)
    assert site.found().run == "run1"


def test_a_flow_that_leaves_is_known_to_have_ended(site: Site) -> None:
    site.control.leave()
    assert site.client().read() is None, "it was not known"
    site.control.poll(WAITING)
    site.control.leave()
    assert site.found().ended


def test_a_record_is_renewed_while_the_flow_waits(site: Site) -> None:
    site.control.poll(WAITING)
    before = site.found()
    site.client()._commit(replace(before, seen_ms=before.seen_ms - 11_000))
    site.control.poll(WAITING)
    assert site.found().seen_ms >= before.seen_ms
