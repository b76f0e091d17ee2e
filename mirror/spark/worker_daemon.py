"""The daemon from which Spark forks the Python workers of a job, with the modules of a copy already imported.

Spark starts it instead of ``pyspark.daemon``, because of the setting ``spark.python.daemon.module``. Otherwise each
worker imports them with its first task, at the first edge of a stream's epochs while the copies of the ended epoch need
the cores. It saves each worker 0.65 of 0.94 s of CPU.
"""

from __future__ import annotations

import gc
from typing import Final

from pyspark import daemon

from mirror.config import load
from mirror.relay.task import copy_ranges
from mirror.relay.task.running_copies import running_copies
from mirror.spark.datasource import copy_task
from mirror.telemetry import task

IMPORTED: Final = (load, copy_ranges, copy_task, task)
"""Not pyarrow and what imports it: its allocator and that of numpy start threads, and a fork of a process with threads
may leave a lock taken for ever."""


class WorkerCollector:
    """Stands in for the module ``gc`` of ``pyspark.daemon``, whose workers collect the garbage after each task.

    Copies that go on under a lease would stand still meanwhile: for a quarter of a second beside 150 partitions. What
    they leave is collected by :data:`mirror.runtime.memory.malloc_tuning.copy_collection`.
    """

    @staticmethod
    def collect() -> None:
        """Collect, unless copies run on in this process."""
        if not running_copies.any:
            gc.collect()


if __name__ == "__main__":
    daemon.gc = WorkerCollector  # type: ignore[assignment, attr-defined]
    gc.freeze()  # the collector of a worker would write to all objects, and so copy the pages that workers share
    daemon.manager()
