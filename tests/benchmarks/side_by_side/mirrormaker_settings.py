"""MirrorMaker 2's settings for a copy: as its documents begin, tuned, and tuned with exactly-once support.

Keys beside the defaults, and where they go: the tasks' producers take ``TARGET.producer.*``, since Connect's worker
belongs to the target (MirrorMakerConfig.workerConfig, Worker.baseProducerConfigs), their consumers
``SOURCE.consumer.*`` (MirrorConnectorConfig.sourceConsumerConfig), the connector ``SOURCE->TARGET.*``.
"""

from __future__ import annotations

from typing import Final

from tests.benchmarks.mirrormaker import properties

TARGET: Final = "target"
DEFAULT: Final = "mirrormaker-default"
TUNED: Final = "mirrormaker-tuned"
EXACTLY_ONCE: Final = "mirrormaker-exactly-once"
HEAP_GB: Final = 2
MANY: Final = 50
"""Partitions from which on each task's buffers (``buffer.memory``, fetches) would fill a heap of 2 GB."""
HEAP_OF_MANY_GB: Final = 6
_MIB: Final = 1 << 20


def heap_gb(partitions: int) -> int:
    """Of its JVM, at most: that of its own script, but for many partitions."""
    return HEAP_GB if partitions < MANY else HEAP_OF_MANY_GB


def java(partitions: int) -> tuple[str, ...]:
    """Options of its JVM: those of bin/connect-mirror-maker.sh and bin/kafka-run-class.sh, but for a larger heap."""
    return (
        *("-Xms256M", f"-Xmx{heap_gb(partitions)}G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
        "-Djava.awt.headless=true",
    )


def settings(
    copier: str,
    source: str,
    target: str,
    *,
    alias: str,
    topic: str,
    codec: str,
    partitions: int,
    replicas: int,
    transactional: bool,
) -> dict[str, str]:
    """The properties file; ``source`` and ``target`` are addresses, ``alias`` the source's name in topics.

    ``transactional``: the source has transactions, which all but the defaults read at read_committed.
    """
    flow = f"{alias}->{TARGET}."
    tasks = 1 if copier == DEFAULT else partitions  # 1 is the default
    found = {
        key.replace("a->b.", flow).replace("b->a.", f"{TARGET}->{alias}."): value
        for key, value in properties(source, target, topic, exactly_once=False, tasks=tasks).items()
        if not key.startswith(("a.", "b."))
    }
    found |= {
        "clusters": f"{alias}, {TARGET}",
        f"{alias}.bootstrap.servers": source,
        f"{TARGET}.bootstrap.servers": target,
        f"{flow}refresh.topics.interval.seconds": "5",
        f"{flow}refresh.groups.enabled": "false",
        f"{flow}sync.topic.acls.enabled": "false",
    }
    # Connect's own topics are on the target, with 25 and 5 partitions by default; the syncs' topic is on the source.
    found |= {f"{kind}.storage.replication.factor": str(replicas) for kind in ("offset", "status", "config")}
    if copier != DEFAULT:
        found |= _tuned(alias, codec)
        if transactional:
            found[f"{alias}.consumer.isolation.level"] = "read_committed"
    if copier == EXACTLY_ONCE:
        found |= _exactly_once(alias, flow)
    return found


def _tuned(alias: str, codec: str) -> dict[str, str]:
    return {
        f"{TARGET}.producer.batch.size": str(256 * 1024),
        f"{TARGET}.producer.linger.ms": "20",
        f"{TARGET}.producer.compression.type": codec,
        f"{TARGET}.producer.max.request.size": str(4 * _MIB),
        f"{TARGET}.producer.buffer.memory": str(64 * _MIB),
        f"{alias}.consumer.max.partition.fetch.bytes": str(4 * _MIB),
        f"{alias}.consumer.max.poll.records": "5000",
    }


def _exactly_once(alias: str, flow: str) -> dict[str, str]:
    return {
        f"{TARGET}.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        # Records of open transactions must not be copied.
        f"{alias}.consumer.isolation.level": "read_committed",
        # By default each poll is a transaction of its own.
        f"{flow}transaction.boundary": "interval",
        f"{flow}transaction.boundary.interval.ms": "1000",
    }
