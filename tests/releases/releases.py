"""Other releases of Apache Kafka for tests: real brokers from Maven Central, pinned by checksum.

    with releases.cluster("2.1.1") as cluster: ...

or, in a test, ``new_cluster(release="2.1.1")``. Each release has a list of its jars, ``kafka-VERSION.sha256``, which
``python -m tests.releases.pin VERSION`` makes. ``python -m tests.releases.releases [VERSION...]`` downloads them
(``oldest``: those of the oldest release).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mirror.errors import SandboxError
from mirror.sandbox.cluster import Cluster
from mirror.sandbox.distribution import LATEST as MAIN
from mirror.sandbox.distribution import Distribution
from mirror.sandbox.fetch import KAFKA_VERSION, fetch, pinned_jars
from mirror.sandbox.folders import cache_folder
from tests import jvm

_HERE: Final = Path(__file__).parent
_LOG4J_1_OPTIONS: Final = (
    f"-Dlog4j.configuration=file:{_HERE / 'log4j.properties'}",
    # ZooKeeper 3.4 registers Log4j 1 with JMX by classes that reload4j has not.
    "-Dzookeeper.jmx.log4j.disable=true",
)
_IVY: Final = """<ivy-module version="2.0">
  <info organisation="kafka-spark-mirror" module="brokers-{version}"/>
  <dependencies defaultconf="default">
    <dependency org="org.apache.kafka" name="kafka_{scala}" rev="{version}"/>
    {logging}
  </dependencies>
</ivy-module>
"""
_LOG4J_1: Final = '<dependency org="org.slf4j" name="slf4j-reload4j" rev="1.7.36"/>'
_LOG4J_2: Final = '<dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4"/>'
"""The brokers log through SLF4J, and bring nothing that writes the log. Before 4.0 they also call Log4j 1 itself."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release: what Ivy has to resolve, and how it runs."""

    version: str
    scala: str = "2.13"
    zookeeper: bool = False
    java_options: tuple[str, ...] = ()
    log4j_2: bool = False
    """Whether the brokers are configured by Log4j 2 (since 4.0, KIP-653)."""

    @property
    def pins(self) -> Path:
        return _HERE / f"kafka-{self.version}.sha256"

    @property
    def name(self) -> str:
        return f"Apache Kafka {self.version}"

    @property
    def distribution(self) -> Distribution:
        logging = MAIN.java_options if self.log4j_2 else _LOG4J_1_OPTIONS
        return Distribution(jars=self.jars, java_options=(*logging, *self.java_options), zookeeper=self.zookeeper)

    def write_ivy(self, folder: Path) -> Path:
        """Write what Ivy is to resolve into a file in ``folder``, which is returned."""
        path = folder / "ivy.xml"
        logging = _LOG4J_2 if self.log4j_2 else _LOG4J_1
        path.write_text(_IVY.format(version=self.version, scala=self.scala, logging=logging), encoding="utf-8")
        return path

    def jars(self, on_progress: Callable[[str], None] = lambda _: None) -> list[Path]:
        """Return the class path. Its jars are downloaded the first time."""
        home = cache_folder() / f"kafka-{self.version}"
        with tempfile.TemporaryDirectory(prefix="mirror-ivy-") as folder:
            ivy = self.write_ivy(Path(folder))
            return fetch(home, ivy=ivy, pinned=pinned_jars(self.pins), what=self.name, on_progress=on_progress)


_OTHERS: Final = (
    # The oldest that MirrorMaker 2 of Kafka 4 reads (KIP-896). ZooKeeper 3.4 takes the name of a host from a text that
    # has become another one in Java 14 (ZOOKEEPER-3779): the file says where that "host" is.
    Release("2.1.1", scala="2.12", zookeeper=True, java_options=(f"-Djdk.net.hosts.file={_HERE / 'hosts'}",)),
    Release("2.4.1", zookeeper=True),
    Release("2.8.2", zookeeper=True),
    Release("3.3.2"),
    Release("3.9.1"),
    Release("4.4.0", log4j_2=True),
)
OTHERS: Final = {one.version: one for one in _OTHERS}
MAIN_VERSION: Final = KAFKA_VERSION
"""The release of all other tests."""
VERSIONS: Final = tuple(sorted((*OTHERS, MAIN_VERSION), key=lambda version: [int(part) for part in version.split(".")]))
"""All releases that are tested, the oldest first."""
TARGETS: Final = tuple(version for version in VERSIONS if not version.startswith("2."))
"""Those to which flows may copy."""
OLDEST: Final = VERSIONS[0]
TRANSACTION_LEVELS: Final = {version: (1, 2) for version in VERSIONS if version.startswith("4.")}
"""The levels of the feature ``transaction.version`` (KIP-890) of the releases that have it."""


def authorizer(version: str, **more: str) -> dict[str, str]:
    """Return the properties of brokers with the authorizer of their time; who has not logged in may do everything."""
    name = {
        "2.1.1": "kafka.security.auth.SimpleAclAuthorizer",
        "2.4.1": "kafka.security.authorizer.AclAuthorizer",
        "2.8.2": "kafka.security.authorizer.AclAuthorizer",
    }.get(version, "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    return {"authorizer.class.name": name, "super.users": "User:ANONYMOUS", **more}


def distribution(version: str) -> Distribution:
    """Return what runs the brokers of the release ``version``, one of :data:`VERSIONS`."""
    return MAIN if version == MAIN_VERSION else OTHERS[version].distribution


def cluster(
    version: str,
    brokers: int = 1,
    *,
    properties: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
    features: Mapping[str, int] | None = None,
) -> Cluster:
    """Return a cluster of the release ``version``, one of :data:`VERSIONS`, that has not been started."""
    return Cluster(
        brokers,
        distribution=distribution(version),
        properties=properties,
        listeners=listeners,
        features=features,
        heap=jvm.BROKER if version == MAIN_VERSION else jvm.PLAIN_BROKER,
    )


if __name__ == "__main__":
    try:
        for wanted in sys.argv[1:] or OTHERS:
            OTHERS[OLDEST if wanted == "oldest" else wanted].jars(print)
    except SandboxError as error:
        sys.exit(f"{error}")
