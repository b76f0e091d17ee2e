"""The progress bar: how far the flow is by what the target has committed, asked once a second while Spark works."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mirror.client import Admin, TopicPartition
from mirror.errors import KafkaError
from mirror.relay.progress import ProgressStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from rich.console import Console

    from mirror.relay.ranges import Range
    from mirror.spark.ledger import Ledger

PLAN_S: Final = 0.2
POLL_S: Final = 1.0


def copied(ranges: Sequence[Range], committed: Mapping[TopicPartition, int]) -> int:
    """Records of ``ranges`` that lie behind the committed offsets (target topic and partition -> next offset)."""
    return sum(
        min(max(committed.get(TopicPartition(each.target_topic, each.partition), each.start), each.start), each.end)
        - each.start
        for each in ranges
    )


class Watcher:
    """Shows a flow's progress bar on ``console`` while the block runs; does nothing where that is no terminal.

    It has a thread and an Admin of its own, and reads only: what it cannot read it does not show.
    """

    def __init__(self, flow: str, ledger: Ledger, target_options: Mapping[str, object], console: Console) -> None:
        self._flow: Final = flow
        self._ledger: Final = ledger
        self._options: Final = target_options
        self._console: Final = console
        self._done: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name="mirror-progress", daemon=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("records"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=4,
        ) as bar:
            shown = bar.add_task(self._flow, total=None)
            while not self._done.wait(PLAN_S):
                if plan := self._ledger.plan():
                    self._follow(plan.ranges, bar, shown)
                    return

    def _follow(self, ranges: Sequence[Range], bar: Progress, shown: TaskID) -> None:
        bar.update(shown, total=sum(each.end - each.start for each in ranges))
        if not ranges:
            return
        partitions = {TopicPartition(each.target_topic, each.partition) for each in ranges}
        with Admin(self._options) as admin:
            store = ProgressStore(admin, self._flow)
            while not self._done.wait(POLL_S):
                try:
                    progress = store.read(partitions)
                except KafkaError:
                    # A target that does not answer now shows in the results; the bar just stands still.
                    continue
                bar.update(shown, completed=copied(ranges, {tp: each.offset for tp, each in progress.items()}))
