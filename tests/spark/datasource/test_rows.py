"""What a reader is in the tasks: something small, for each of them has a process of its own for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition

from mirror.spark.datasource.batch_reader import RangesReader
from mirror.spark.datasource.options import FlowOptions
from mirror.spark.datasource.rows import TaskPartition
from mirror.spark.datasource.stream_reader import RangesStreamReader
from mirror.spark.ledger.ledger import Ledger

IN_A_TASK = """
import pickle, sys
reader, *partitions = pickle.loads(sys.stdin.buffer.read())
print([list(reader.read(each)) for each in partitions])
print(sorted(name for name in sys.modules if name.startswith("mirror.") and name.count(".") >= 2))
"""


@pytest.mark.parametrize("kind", [RangesReader, RangesStreamReader])
def test_in_a_task_a_reader_returns_rows_and_imports_no_planning(
    kind: type[RangesReader | RangesStreamReader], tmp_path: Path
) -> None:
    reader = kind(FlowOptions(tmp_path / "mirror.toml", "f", Ledger.open(tmp_path, "f", "run-1").path, run="run-1"))
    sent = cloudpickle.dumps([reader, TaskPartition([(0, "a"), (1, "b")]), InputPartition(None)])  # type: ignore[no-untyped-call]
    result = subprocess.run([sys.executable, "-c", IN_A_TASK], input=sent, check=True, capture_output=True)
    rows, modules = result.stdout.decode().splitlines()
    assert rows == "[[(0, 'a'), (1, 'b')], []]"
    assert modules == (
        "['mirror.relay.model', 'mirror.relay.model.ranges', 'mirror.relay.model.timeline',"
        " 'mirror.spark.datasource', 'mirror.spark.datasource.rows', 'mirror.spark.datasource.task_spec']"
    )
