"""Spark in this process's network namespace: ``python -m tests.benchmarks.loss.spark_cluster FOLDER EXECUTORS``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.benchmarks.loss.copiers import serve

if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
