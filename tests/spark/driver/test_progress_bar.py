"""What a run's progress costs its target: as often as there is a line, and a small part of the time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from mirror.relay.progress.committed import Progress, ProgressStore
from mirror.spark.driver.launch.submission import STDERR_PIPE, STDOUT_PIPE, TERMINALS
from mirror.spark.driver.output import progress_bar as module
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.output.progress_bar import ProgressBar
from mirror.spark.ledger.ledger import Ledger
from mirror.spark.ledger.plan import Plan
from tests.spark.fakes import FOLDER, Admin, Cluster
from tests.spark.planning.test_packing import backlog

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.client import TopicPartition

LOOKS = 3


class Over:
    """Stands for the end of the block: it comes after some looks, and no wait takes any time."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) > LOOKS + 1


def waits(folder: Path, monkeypatch: pytest.MonkeyPatch, *, read_s: float) -> list[float]:
    """Between looks of a watcher for whom a reading of all progress takes ``read_s`` seconds."""
    now_s = [100.0]

    def read(_self: ProgressStore, _tps: set[TopicPartition]) -> dict[TopicPartition, Progress]:
        now_s[0] += read_s
        return {}

    for variable in (STDOUT_PIPE, STDERR_PIPE):
        monkeypatch.setenv(variable, str(folder / variable))
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setattr(module, "Admin", Admin)
    monkeypatch.setattr(ProgressStore, "read", read)
    Cluster("b:1", folder).make()
    ledger = Ledger.open(folder, "f", "run")
    ledger.write_plan(Plan(flow="f", tasks=[[backlog(0, 5)]], results_without_task=[]))
    consoles = Consoles()
    watcher = ProgressBar("f", ledger, {"bootstrap.servers": "b:1"}, consoles)
    over = Over()
    monkeypatch.setattr(watcher, "_done", over)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    try:
        watcher._watch()
    finally:
        monkeypatch.undo()
        for console in (consoles._out, consoles.err):
            console.file.close()
    return over.waits[1:]


def test_progress_is_read_only_when_a_log_line_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(tmp_path, monkeypatch, read_s=0.01) == [10.0] * (LOOKS + 1)


def test_slow_progress_reads_are_made_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(tmp_path, monkeypatch, read_s=2.0) == [10.0, *[pytest.approx(40.0)] * LOOKS]


def test_a_bar_is_updated_every_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TERMINALS, "stderr")
    assert waits(tmp_path, monkeypatch, read_s=0.01) == [1.0] * (LOOKS + 1)


def test_a_plan_that_cannot_be_read_ends_the_progress_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.open(tmp_path, "f", "run")

    def broken(_: Ledger) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Ledger, "plan", broken)
    with ProgressBar("f", ledger, {"bootstrap.servers": "b:1"}, Consoles()):
        pass
    assert "mirror: warning: flow f: the progress is no longer shown: RuntimeError: a bug" in capsys.readouterr().err
