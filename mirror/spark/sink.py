"""Spark data source ``mirror``: writing ranges to it copies them.

A task copies the ranges of its rows and answers with their results; an error becomes a ``failed`` result, because a
raised one would make Spark repeat the whole task, with the neighbours that went well, and print its own traces. Only
a worker that dies is repeated by Spark; the new attempt goes on from the progress on the target.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from mirror.config.together import source_options, target_options
from mirror.errors import MirrorError
from mirror.relay.copy import copy_ranges
from mirror.relay.ranges import Outcome, Range, RangeResult
from mirror.spark.ledger import Attempt, Ledger
from mirror.spark.options import SINK_FORMAT, FlowOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

_RANGE_FIELDS: Final = [each.name for each in fields(Range)]


@dataclass
class TaskResults(WriterCommitMessage):
    """What one task did, range by range."""

    attempts: list[Attempt]


class MirrorSink(DataSource):
    """``df.write.format("mirror")`` with the options of :class:`FlowOptions`, over rows of ``mirror-ranges``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SINK_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> RangesWriter:  # noqa: ARG002  (PySpark's signature)
        """The batch writer."""
        return RangesWriter(FlowOptions.from_spark(self.options))


class RangesWriter(DataSourceArrowWriter):
    """Copies in the tasks; writes what they answered into the ledger when Spark commits or aborts."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """Copy the ranges of this task's rows. Does not raise for what a copy meets; the results say it."""
        rows: list[dict[str, Any]] = [row for batch in iterator for row in batch.to_pylist()]
        if not rows:
            return TaskResults([])
        ranges = [Range(**{name: row[name] for name in _RANGE_FIELDS}) for row in rows]
        context = TaskContext.get()
        attempt = context.attemptNumber() if context else 0
        task = rows[0]["task"]
        try:
            results = self._copy(ranges, rows[0]["tasks"])
        except Exception as error:  # noqa: BLE001  (a task that raises is repeated by Spark; the ledger keeps the trace)
            foreseen = isinstance(error, MirrorError)
            line = str(error) if foreseen else f"{type(error).__name__}: {error}"
            trace = None if foreseen else traceback.format_exc()
            return TaskResults([Attempt(task, attempt, failed(each, line), trace) for each in ranges])
        return TaskResults([Attempt(task, attempt, result) for result in results])

    def _copy(self, ranges: list[Range], tasks: int) -> list[RangeResult]:
        config, flow = self.options.load()
        return copy_ranges(
            ranges,
            source_options=source_options(config, flow),
            target_options=target_options(config, flow),
            policy=flow.copy_policy(tasks=tasks),
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks answered: their results go into the ledger. Runs on the driver's host, in a process of its own."""
        answered = [message for message in messages if isinstance(message, TaskResults)]
        Ledger(self.options.ledger).write_attempts(each for message in answered for each in message.attempts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task was lost for good: what the others answered goes into the ledger just the same; nothing is undone."""
        self.commit(messages)


def failed(each: Range, line: str) -> RangeResult:
    """The result of a range of which nothing was copied, for a reason of one line."""
    return RangeResult.begun(each, each.start, Outcome.FAILED, " ".join(line.split()))
