"""The single rounds of a flow: those before its copies, and that of a scheduled run after them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from mirror.alignment.sync_state import SyncState
from mirror.errors import Fenced, KafkaError
from mirror.groups.commit_decision import Reason
from mirror.groups.positions import GroupsReport, GroupState
from mirror.groups.summary import GroupsSummary
from mirror.runtime.clock import SystemClock
from mirror.spark.driver import flow_rounds
from mirror.spark.driver.flow_rounds import FlowRounds
from mirror.spark.driver.rounds.outages import Outages
from mirror.spark.driver.rounds.reconciling import CreatedTopics
from mirror.spark.ledger.results import FlowReport
from mirror.telemetry.run_telemetry import RunTelemetry
from mirror.telemetry.settings import TelemetrySettings
from tests.spark.planning.test_range_planner import flow
from tests.spark.preflight.test_flow_checks import config_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.spark.driver.output.flow_lines import FlowLines


class Site:
    def __init__(self, folder: Path, **more: Any) -> None:
        one = flow(**more)
        self.report, self.warned = FlowReport("f", datetime.now(UTC)), list[str]()
        self.groups, self.sync = list[GroupsSummary](), list[SyncState]()
        self.rounds = FlowRounds(
            config_of(one),
            one,
            self.report,
            RunTelemetry(TelemetrySettings(disabled=True), folder, SystemClock()),
            lines=cast("FlowLines", SimpleNamespace(warn=self.warned.append, tell=lambda _: None)),
            outages=cast("Outages", None),
        )
        self.rounds.report_to(self.groups.append, self.sync.append)


def test_an_unexpected_error_of_the_groups_is_reported_and_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("what")

    monkeypatch.setattr(flow_rounds, "CheckpointedRounds", fail)
    site = Site(tmp_path, groups={"sync": True})
    site.rounds.bring_groups()
    assert site.report.groups is not None
    assert site.report.groups.problems == ("ZeroDivisionError: what",)
    assert site.warned == ["consumer groups: ZeroDivisionError: what"]


def test_groups_that_another_run_writes_are_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Rounds:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def round(self, **_: object) -> GroupsReport:
            raise Fenced("another one", 90)

        def fenced(self, error: Fenced) -> GroupsReport:
            return GroupsReport({"billing": GroupState("billing", (), Reason.OTHER_RUN, str(error))})

    monkeypatch.setattr(flow_rounds, "CheckpointedRounds", Rounds)
    site = Site(tmp_path, groups={"sync": True})
    site.rounds.bring_groups()
    assert site.report.groups is not None
    assert [(held.group, held.reasons) for held in site.report.groups.held] == [("billing", ("other-run",))]
    assert site.groups == [site.report.groups]


def test_a_failure_at_the_start_is_reported_and_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("what")

    monkeypatch.setattr(flow_rounds, "Reconciling", fail)
    site = Site(tmp_path, configs="sync", acls={})
    site.rounds.align(CreatedTopics())
    found = site.report.to_json()
    assert [found[kind]["problems"] for kind in ("configs", "acls")] == [["ZeroDivisionError: what"]] * 2
    assert site.warned == ["topics and ACLs: ZeroDivisionError: what"]
    without = Site(tmp_path, configs="create")
    without.rounds.align(CreatedTopics())
    found = without.report.to_json()
    assert (found["configs"], found["acls"]) == (None, None)


def test_a_cluster_that_hangs_for_topics_holds_up_no_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions that are committed last are on the target when the run ends, also then."""
    hangs, committed = threading.Event(), threading.Semaphore(0)

    class Rounds:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def round(self, **_: object) -> GroupsReport:
            committed.release()
            return GroupsReport()

        def has_news(self) -> bool:
            return False

        def network_ms(self) -> int:
            return 0

    def hang(*_: object, **__: object) -> None:
        hangs.wait()
        raise KafkaError("no answer")

    monkeypatch.setattr(flow_rounds, "CheckpointedRounds", Rounds)
    monkeypatch.setattr(flow_rounds, "Reconciling", hang)
    site = Site(tmp_path, configs="sync", groups={"sync": True, "interval_ms": 3_600_000})
    with ExitStack() as stack:
        for each in site.rounds.opened(CreatedTopics()):
            stack.enter_context(each)
        stack.callback(hangs.set)
        assert committed.acquire(timeout=20)
        stack.pop_all().close()
    assert committed.acquire(timeout=20), "one round is last"
