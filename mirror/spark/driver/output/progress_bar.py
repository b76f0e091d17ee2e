"""Show how far a scheduled run is, from the progress on the target: a bar on a terminal, lines in a log."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.progress.committed import ProgressStore
from mirror.spark.driver.output import progress_lines
from mirror.spark.driver.output.error_report import error_lines
from mirror.spark.driver.output.progress_lines import Cadence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from mirror.relay.model.ranges import Range
    from mirror.spark.driver.output.console import Consoles
    from mirror.spark.ledger.ledger import Ledger
    from mirror.spark.ledger.plan import Plan

PLAN_S: Final = 0.2
POLL_S: Final = 1.0
"""The interval between two updates of the bar."""
_MIN_INTERVALS: Final = 20
"""The pause between two reads of the progress is at least this many times as long as a read takes."""


def copied(ranges: Sequence[Range], committed: Mapping[TopicPartition, int]) -> int:
    """Count the records of ``ranges`` below the committed offsets (target topic and partition -> next offset)."""
    return sum(
        min(max(committed.get(_target(range_), range_.start), range_.start), range_.end) - range_.start
        for range_ in ranges
    )


class _Records(ProgressColumn):
    """``1,234/200,000 records``, with the rate once there is one."""

    def render(self, task: Task) -> Text:
        """Return the column for one bar."""
        if task.total is None:
            return Text("planning")
        rate = f", {progress_lines.per_second(task.speed)}/s" if task.speed else ""
        return Text(f"{task.completed:,.0f}/{task.total:,.0f} records{rate}", style="progress.download")


class ProgressBar:
    """Shows on stderr how far a flow is while the block runs.

    It has a thread and an Admin of its own, changes nothing, and does not show what it cannot read.
    """

    def __init__(self, flow: str, ledger: Ledger, target_options: Mapping[str, object], consoles: Consoles) -> None:
        self._flow: Final = flow
        self._ledger: Final = ledger
        self._options: Final = target_options
        self._consoles: Final = consoles
        self._done: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name="mirror-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        try:
            self._show()
        except Exception as error:  # noqa: BLE001 - raised in a thread, it would be lost
            self._consoles.warning(
                f"flow {self._flow}: the progress is no longer shown: {'; '.join(error_lines(error))}"
            )

    def _show(self) -> None:
        if (plan := self._planned()) is None:
            return
        self._consoles.progress(f"flow {self._flow}: {progress_lines.planned(plan, follows=False)}")
        if not plan.ranges:
            return
        if self._consoles.err.is_terminal:
            self._show_bar(plan.ranges)
        else:
            self._write_lines(plan.ranges)

    def _planned(self) -> Plan | None:
        while not self._done.wait(PLAN_S):
            if plan := self._ledger.plan():
                return plan
        return self._ledger.plan()  # a run with nothing to copy may be over before the first poll

    def _show_bar(self, ranges: Sequence[Range]) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), _Records(), TimeRemainingColumn())
        with Progress(*columns, console=self._consoles.err, transient=True, refresh_per_second=4) as bar:
            shown: TaskID = bar.add_task(self._flow, total=_total(ranges))
            self._follow(ranges, POLL_S, lambda done: bar.update(shown, completed=done))

    def _write_lines(self, ranges: Sequence[Range]) -> None:
        total, began_s = _total(ranges), time.monotonic()
        cadence = Cadence(round(began_s * 1000))

        def write(done: int) -> None:
            now_s = time.monotonic()
            if done < total and cadence.due(round(now_s * 1000)):
                line = progress_lines.copied(done, total, done / (now_s - began_s))
                self._consoles.progress(f"flow {self._flow}: {line}")

        self._follow(ranges, progress_lines.FIRST_INTERVAL_MS / 1000, write)

    def _follow(self, ranges: Sequence[Range], every_s: float, on_progress: Callable[[int], None]) -> None:
        partitions = {_target(range_) for range_ in ranges}
        with Admin(self._options) as admin:
            store = ProgressStore(admin, self._flow)
            wait_s = every_s
            while not self._done.wait(wait_s):
                began_s = time.monotonic()
                try:
                    progress = store.read(partitions)
                except KafkaError:
                    # The results report a target that does not answer; the bar waits.
                    continue
                wait_s = max(every_s, (time.monotonic() - began_s) * _MIN_INTERVALS)
                on_progress(copied(ranges, {tp: position.offset for tp, position in progress.items()}))


def _total(ranges: Sequence[Range]) -> int:
    return sum(range_.end - range_.start for range_ in ranges)


def _target(range_: Range) -> TopicPartition:
    return TopicPartition(range_.target_topic, range_.partition)
