"""What a cluster runs: the jars of a Kafka release, and the metadata store that the release needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.sandbox.fetch import fetch

_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class Distribution:
    """A Kafka release as :class:`mirror.sandbox.cluster.Cluster` runs it."""

    jars: Callable[[Callable[[str], None]], list[Path]]
    """Returns the class path; is given what reports the progress of a download."""
    java_options: tuple[str, ...] = ()
    """Options of every JVM: how it logs to standard output, and what the release needs on a current JVM."""
    zookeeper: bool = False
    """Whether the brokers keep their metadata in ZooKeeper (before KIP-833), not in KRaft controllers."""


LATEST: Final = Distribution(
    jars=lambda on_progress: fetch(on_progress=on_progress),
    java_options=(f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",),
)
"""The release of :data:`mirror.sandbox.fetch.KAFKA_VERSION`."""
