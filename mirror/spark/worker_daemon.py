"""The daemon from which Spark forks the Python workers of a job, with the modules of a copy already imported.

Spark starts it instead of ``pyspark.daemon``, because of the setting ``spark.python.daemon.module``. Otherwise each
worker imports the modules with its first task, for 0.5 to 1 s of CPU: at the first edge of a stream's epochs, two tasks
took 2.8 s from the hand-over to the next epoch, now 1.5 s (two cores).
"""

from __future__ import annotations

import gc
from typing import Final

from pyspark import daemon, worker

from mirror.config import load
from mirror.relay.task import copy_ranges
from mirror.spark.datasource import sink, source
from mirror.telemetry import task

IMPORTED: Final = (worker, load, copy_ranges, sink, source, task)

if __name__ == "__main__":
    gc.freeze()  # the collector of a worker would write to all objects, and so copy the pages that workers share
    daemon.manager()
