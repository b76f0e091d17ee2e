"""Apache MirrorMaker 2, in a process of its own, between two clusters: the peer that copies are measured against."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mirror.sandbox.fetch import class_path, fetch, pinned_jars
from mirror.sandbox.folders import cache_folder
from mirror.sandbox.java import find_java
from mirror.sandbox.node import render
from mirror.sandbox.process import Process, launch, stop

VERSION: Final = "4.3.1"
_HERE: Final = Path(__file__).parent
HEAP: Final = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC")
GRACE_S: Final = 15.0
LOGGING: Final = f"-Dlog4j2.configurationFile={_HERE.parents[1] / 'mirror' / 'sandbox' / 'log4j2.properties'}"

NO_LINGER: Final = {"b.producer.linger.ms": "0"}
"""For the lowest latency. With exactly-once support each poll is a transaction already, and a fetch is answered with
the first record (fetch.min.bytes 1), both by default; the producer waits for 5 ms by default since Kafka 4.0."""


def properties(source: str, target: str, topics: str, *, exactly_once: bool, tasks: int) -> dict[str, str]:
    """What a user writes to copy ``topics`` from ``source`` to ``target`` (addresses) with MirrorMaker's defaults."""
    settings = {
        "clusters": "a, b",
        "a.bootstrap.servers": source,
        "b.bootstrap.servers": target,
        "a->b.enabled": "true",
        "b->a.enabled": "false",
        "a->b.topics": topics,
        "tasks.max": str(tasks),
        "a->b.emit.heartbeats.enabled": "false",
        "a->b.emit.checkpoints.enabled": "false",
        "a->b.sync.topic.configs.enabled": "false",
    }
    replicas = ("replication.factor", "offset-syncs.topic.replication.factor", "checkpoints.topic.replication.factor")
    settings |= dict.fromkeys((*replicas, "heartbeats.topic.replication.factor"), "1")
    stores = ("offset", "status", "config")
    settings |= {f"{kind}.storage.replication.factor": "1" for kind in stores}
    if exactly_once:
        settings |= {
            "b.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            # Records of open transactions must not be copied.
            "a.consumer.isolation.level": "read_committed",
        }
    return settings


def mirrormaker_jars() -> list[Path]:
    """MirrorMaker 2's class path; downloaded the first time."""
    return fetch(
        cache_folder() / f"mirrormaker-{VERSION}",
        ivy=_HERE / "mirrormaker.xml",
        pinned=pinned_jars(_HERE / "mirrormaker.sha256"),
    )


def mirrormaker_command(file: Path, java: Sequence[str]) -> list[str | Path]:
    """The words that start it with the properties in ``file``; ``java`` are options of its JVM."""
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return [find_java().path, *java, LOGGING, "-cp", class_path(mirrormaker_jars()), main, file]


@contextlib.contextmanager
def mirrormaker(folder: Path, settings: Mapping[str, str], *, heap: Sequence[str] = HEAP) -> Iterator[Process]:
    """Running while the block runs; ``folder`` gets its settings and log, ``heap`` are options of its JVM."""
    file = folder / "mm2.properties"
    file.write_text(render(settings), encoding="ascii")
    process = launch(mirrormaker_command(file, heap), output=folder / "mm2.log", outlives_owner=False)
    try:
        yield process
    finally:
        stop([process], GRACE_S)
