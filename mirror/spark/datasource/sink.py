"""Spark data source ``mirror``: copies the ranges that are written to it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from mirror.spark.datasource import rows
from mirror.spark.datasource.copy_task import copy_task
from mirror.spark.datasource.options import SINK_FORMAT, FlowOptions
from mirror.spark.datasource.task_environment import TaskEnvironment
from mirror.spark.datasource.task_spec import CopyTask
from mirror.spark.ledger.attempts import CopiedTask
from mirror.spark.ledger.parquet import write_copied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType


@dataclass
class TaskResults(WriterCommitMessage):
    """What one task has copied, as Spark brings it to the commit."""

    copied: CopiedTask | None = None
    """None for a task without rows, which Spark adds to a plan without tasks."""


class MirrorSink(DataSource):
    """``df.write.format("mirror")``, or ``writeStream``, with the options of :class:`FlowOptions`.

    The rows are those of ``mirror-ranges``, read with the same options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SINK_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> RangesWriter:  # noqa: ARG002  (PySpark's signature)
        """Return the batch writer."""
        return RangesWriter(FlowOptions.from_spark(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RangesStreamWriter:  # noqa: N802, ARG002  (PySpark's)
        """Return the streaming writer."""
        return RangesStreamWriter(FlowOptions.from_spark(self.options))


class RangesWriter(DataSourceArrowWriter):
    """Copies in the tasks, and writes their results into the ledger when Spark commits or aborts."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self.environment: Final = TaskEnvironment.of(os.environ)

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """Copy the ranges of this task's rows. An error of a copy is in its result, and is not raised."""
        self.environment.complete(os.environ)
        return copy_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the results of all tasks into the ledger. Runs on the driver's host, in a process of its own."""
        record(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the results into the ledger although a task was lost for good; nothing is undone."""
        record(self.options, messages)


class RangesStreamWriter(DataSourceStreamArrowWriter):
    """As :class:`RangesWriter`, for each epoch of a stream."""

    def __init__(self, options: FlowOptions) -> None:
        self.options: Final = options
        self.environment: Final = TaskEnvironment.of(os.environ)

    def write(self, iterator: Iterator[RecordBatch]) -> TaskResults:
        """As :meth:`RangesWriter.write`; ranges without an end are copied until the epoch ends."""
        self.environment.complete(os.environ)
        return copy_rows(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  (PySpark's)
        """As :meth:`RangesWriter.commit`, but a folder without room must not end the stream: its driver says so."""
        with contextlib.suppress(OSError):
            record(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002  (PySpark's)
        """As :meth:`commit`."""
        with contextlib.suppress(OSError):
            record(self.options, messages)


def copy_rows(options: FlowOptions, iterator: Iterator[RecordBatch]) -> TaskResults:
    """Copy the ranges of a task's rows."""
    parsed = [rows.read(row) for batch in iterator for row in batch.to_pylist()]
    if not parsed:
        return TaskResults()
    return TaskResults(copy_task(options, CopyTask(parsed[0][0], [range_ for _, range_ in parsed])))


def record(options: FlowOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Write the results of all tasks into the ledger."""
    write_copied(
        options.ledger, [message.copied for message in messages if isinstance(message, TaskResults) and message.copied]
    )
