"""How plain Spark is started as a copier, and with which settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mirror.sandbox.fetch import pinned_jars
from tests.e2e import engines
from tests.e2e.engines import spark_kafka_jars

AVAILABLE_NOW: Final = {"availableNow": True}
"""What there is, and the end."""
MICRO_BATCHES: Final = {"processingTime": "0 seconds"}
"""Each one begins when the last one has ended."""
REAL_TIME: Final = {"realTime": "5 minutes"}
"""Real-time mode, with Spark's default time between two commits of positions."""
REAL_TIME_SHORTEST: Final = {"realTime": "5 seconds"}
"""With the shortest one that Spark allows."""
HEAP: Final = "2g"
"""As much as MirrorMaker 2 has by its own script."""
_MIB: Final = 1 << 20
_CONSUMERS: Final = 64
"""Spark's default of spark.kafka.consumer.cache.capacity."""
_PROGRAM: Final = Path(__file__).with_name("copier.py")
_LOCAL: Final = {
    "spark.driver.memory": HEAP,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class PlainSpark:
    """One query, from ``source``'s topic to ``target``'s (bootstrap addresses).

    The target's topic must exist, with as many partitions: otherwise a broker that creates topics makes it with its own
    number of them, and the first record of another partition fails the query.
    """

    source: str
    target: str
    topic: str
    copy: str
    checkpoint: str
    """A folder that its executors reach."""
    trigger: dict[str, bool] | dict[str, str]
    """One of this module's, by the names of PySpark's argument."""
    master: str = "local[*]"
    """Real-time mode needs a slot for each partition."""
    codec: str = ""
    """Set for a copy of much: batches of 256 KiB with this codec, linger 20 ms, as MirrorMaker 2 tuned."""
    most_offsets: int = 0
    """Of a micro-batch (maxOffsetsPerTrigger); 0: unlimited. Spark refuses it in real-time mode: left out there."""
    consumers: int = 0
    """How many an executor keeps from one micro-batch to the next, Spark's 64 or more. It makes another one each time
    for each partition that it has none for, and for a moment has one more for each of its slots."""


def command(copier: PlainSpark) -> list[str]:
    """The words that start it. The jars of the connector are downloaded the first time."""
    return [sys.executable, str(_PROGRAM), json.dumps(settings(copier, spark_kafka_jars()))]


def settings(copier: PlainSpark, jars: Sequence[Path]) -> dict[str, Any]:
    """What the program gets: settings of the session, of reading and of writing, and the trigger. Pure."""
    session = {
        "spark.master": copier.master,
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }
    if copier.consumers > _CONSUMERS:
        session["spark.kafka.consumer.cache.capacity"] = str(copier.consumers)
    if copier.master.startswith("local"):
        session |= _LOCAL
    return {
        "session": session,
        "reading": _reading(copier),
        "writing": _writing(copier),
        "trigger": copier.trigger,
    }


def pinned_version(jar: str) -> str:
    """The version of one of the connector's jars, by the beginning of its name."""
    (name,) = (
        name for name in pinned_jars(Path(engines.__file__).with_name("spark_kafka.sha256")) if name.startswith(jar)
    )
    return name.removesuffix(".jar").rpartition("-")[2]


def _reading(copier: PlainSpark) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": copier.source,
        "subscribe": copier.topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        # Records of aborted transactions must not be copied.
        "kafka.isolation.level": "read_committed",
    }
    if copier.codec:
        options |= {"kafka.max.partition.fetch.bytes": str(4 * _MIB), "kafka.max.poll.records": "5000"}
    if copier.most_offsets and "realTime" not in copier.trigger:
        options["maxOffsetsPerTrigger"] = str(copier.most_offsets)
    return options


def _writing(copier: PlainSpark) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": copier.target,
        "topic": copier.copy,
        "checkpointLocation": copier.checkpoint,
    }
    if copier.codec:
        options |= {
            "kafka.batch.size": str(256 * 1024),
            "kafka.linger.ms": "20",
            "kafka.compression.type": copier.codec,
            "kafka.max.request.size": str(4 * _MIB),
            "kafka.buffer.memory": str(64 * _MIB),
        }
    return options
