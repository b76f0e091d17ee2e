"""The daemon from which Spark forks the Python workers of a job, with the modules of a copy already imported.

Spark starts it instead of ``pyspark.daemon``, because of the setting ``spark.python.daemon.module``. Otherwise each
worker imports them with its first task, which costs 0.4 of 0.5 s of CPU.
"""

from __future__ import annotations

import gc
from typing import Final

from pyspark import daemon

from mirror.config import load
from mirror.relay.task import copy_ranges
from mirror.spark.tasks import copy_task
from mirror.telemetry import task_telemetry

IMPORTED: Final = (load, copy_ranges, copy_task, task_telemetry)
"""Nothing that starts threads when it is imported: a fork of a process with threads may leave a lock taken for ever."""

if __name__ == "__main__":
    gc.freeze()  # the collector of a worker would write to all objects, and so copy the pages that workers share
    daemon.manager()
