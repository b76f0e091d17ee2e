"""Two clusters of three brokers, the proxies before them, a certificate that has expired, and a disk that fills up."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from mirror.client import TopicPartition
from mirror.sandbox.cluster import Cluster
from tests import jvm
from tests.campaign.faults.deal import BROKERS, SMALL_DISK
from tests.campaign.faults.namespace import SmallDisk
from tests.faults.proxy import Fault, Proxy
from tests.polling import eventually
from tests.security.certificates import Authority

TLS: Final = "TLS"
_DISK_MB: Final = 400
_WITHIN_S: Final = 90.0
_CALL_S: Final = 20.0
_LOOK_S: Final = 0.3
"""Each look is taken by a new client."""
_KEY_STORE: Final = "listener.name.tls.ssl.keystore.location"
_PROPERTIES: Final = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    # What a round has deleted makes room soon.
    "log.segment.delete.delay.ms": "1000",
    # Records are as old as their round says.
    "log.retention.ms": "-1",
}


class End:
    """One side: its brokers, its proxy, and who of them is harmed now.

    What is asked of it is asked of the brokers that are well, by a new client each time, which knows no others.
    """

    def __init__(self, name: str, cluster: Cluster, proxy: Proxy) -> None:
        self.name: Final = name
        self.cluster: Final = cluster
        self.proxy: Final = proxy
        self.down: Final = set[int]()
        self._faults: Final = list[Fault]()

    @property
    def address(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def well(self) -> str:
        """The brokers that are not harmed; all of them where none is well."""
        servers = self.address.split(",")
        left = [server for broker, server in enumerate(servers, start=1) if broker not in self.down]
        return ",".join(left or servers)

    def admin(self) -> AdminClient:
        """To be kept until it has answered."""
        return AdminClient({"bootstrap.servers": self.well, "log_level": 0})

    # --- topics

    def create(self, topic: str, partitions: int) -> None:
        admin = self.admin()

        def created() -> bool:
            try:
                admin.create_topics([NewTopic(topic, partitions, BROKERS)])[topic].result(_CALL_S)
            except KafkaException as error:
                # One that is being deleted, brokers that are just gone.
                return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS" and self.partitions(topic) == partitions)
            return True

        eventually(created, within_s=_WITHIN_S, every_s=_LOOK_S, what=f"topic {topic}")
        eventually(
            lambda: self.partitions(topic) == partitions, within_s=_WITHIN_S, every_s=_LOOK_S, what=f"topic {topic}"
        )

    def delete(self, *topics: str) -> None:
        """And wait until they are gone."""
        there = self.topics().keys() & set(topics)
        admin = self.admin()
        for future in admin.delete_topics(sorted(there)).values() if there else ():
            with contextlib.suppress(KafkaException):
                future.result(_CALL_S)
        eventually(
            lambda: not self.topics().keys() & set(topics),
            within_s=_WITHIN_S,
            every_s=_LOOK_S,
            what=f"{topics} deleted",
        )

    def grow(self, topic: str, partitions: int) -> None:
        admin = self.admin()
        with contextlib.suppress(KafkaException):  # asked for, and the answer was lost
            admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_CALL_S)
        eventually(
            lambda: self.partitions(topic) == partitions,
            within_s=_WITHIN_S,
            every_s=_LOOK_S,
            what=f"partitions of {topic}",
        )

    def topics(self) -> Mapping[str, Any]:
        try:
            return dict(self.admin().list_topics(timeout=_CALL_S).topics)
        except KafkaException:
            return {}

    def partitions(self, topic: str) -> int:
        found = self.topics().get(topic)
        return 0 if found is None else len(found.partitions)

    def move_leaders(self, topics: list[str], rng: Any) -> int:
        """Another order of each partition's replicas, and elections by it; how many partitions got another leader."""
        before = self._leaders(topics)
        wanted = {place: rng.sample(range(1, BROKERS + 1), BROKERS) for place in sorted(before)}
        eventually(
            lambda: self._reassigned(wanted), within_s=_WITHIN_S, every_s=_LOOK_S, what="other orders of the replicas"
        )
        asker, asked = self.admin(), [ConfluentPartition(*place) for place in before]
        with contextlib.suppress(KafkaException):  # whose leader stays, or cannot be elected now
            asker.elect_leaders(ElectionType.PREFERRED, asked).result(_CALL_S)
        after = self._leaders(topics)
        return sum(after.get(place) != leader for place, leader in before.items())

    def _leaders(self, topics: list[str]) -> dict[tuple[str, int], int]:
        told = self.topics()
        return {(name, n): one.leader for name in topics if name in told for n, one in told[name].partitions.items()}

    def _reassigned(self, wanted: Mapping[tuple[str, int], list[int]]) -> bool:
        """Whether it could be asked for: another harm may have taken the broker that this client asks first."""
        with warnings.catch_warnings():  # it reads its own files by a function that Python is giving up
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]
            from kafka.errors import KafkaError  # type: ignore[import-untyped]
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.well)
        except KafkaError:
            return False
        try:
            admin.alter_partition_reassignments({TopicPartition(*place): each for place, each in wanted.items()})
        except KafkaError:
            return False
        finally:
            admin.close()
        return True

    # --- harm of connections

    def fault(self, *faults: Fault) -> None:
        """These too, beside what is under way."""
        self._faults.extend(faults)
        self.proxy.fault(*self._faults)

    def unfault(self, *faults: Fault) -> None:
        for one in faults:
            self._faults.remove(one)
        self.proxy.fault(*self._faults)

    # --- health

    def heal(self) -> list[str]:
        """Everything is well again; which brokers had died that were not harmed now."""
        self._faults.clear()
        self.proxy.heal()
        said = []
        for broker in range(1, BROKERS + 1):
            if broker not in self.cluster.pids:
                if broker not in self.down:
                    said.append(f"{self.name} broker {broker} had died")
                self.cluster.restart(broker)
            elif broker in self.down:
                self.cluster.resume(broker)
        self.down.clear()
        return said

    def in_sync(self) -> bool:
        """Whether all replicas are."""
        told = [one for topic in self.topics().values() for one in topic.partitions.values()]
        return bool(told) and all(sorted(one.isrs) == sorted(one.replicas) for one in told)


class Stage:
    """Both sides; ``disk`` is None where no file system can be mounted."""

    def __init__(self, source: End, target: End, disk: SmallDisk | None, certificates: Mapping[str, Path]) -> None:
        self.source: Final = source
        self.target: Final = target
        self.disk: Final = disk
        self._certificates: Final = certificates

    def keys(self, end: End, *, tls: bool = False) -> dict[str, object]:
        """What a configuration says of a side."""
        if not tls:
            return {"bootstrap.servers": end.proxy.bootstrap_servers}
        return {
            "bootstrap.servers": end.cluster.bootstrap(TLS),
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self._certificates["authority"]),
        }

    def certify(self, broker: int, which: str) -> None:
        """The target's ``broker`` shows another certificate from now on: ``good``, or ``expired``."""
        entry = ConfigEntry(_KEY_STORE, str(self._certificates[which]), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin = self.target.admin()
        admin.incremental_alter_configs([resource])[resource].result(_CALL_S)


def _certificates(folder: Path) -> dict[str, Path]:
    authority = Authority(folder, "authority")
    # Of one name: a broker takes no other one while it runs.
    expired = folder / "expired.pem"
    shutil.copyfile(authority.identity("broker", "127.0.0.1", "localhost", expired=True).path, expired)
    good = authority.identity("broker", "127.0.0.1", "localhost").path
    return {"authority": authority.path, "good": good, "expired": expired}


@contextlib.contextmanager
def stage(folder: Path, *, mounts: bool) -> Iterator[Stage]:
    """Everything started, with all its files in ``folder``, and stopped in any case."""
    certificates = _certificates(folder)
    tls = {"listener.name.tls.ssl.keystore.type": "PEM", _KEY_STORE: str(certificates["good"])}
    with contextlib.ExitStack() as open_ones:
        enter = open_ones.enter_context
        source = enter(Cluster(BROKERS, directory=folder / "source", properties=_PROPERTIES, heap=jvm.BROKER))
        target = enter(
            Cluster(
                BROKERS,
                directory=folder / "target",
                properties={**_PROPERTIES, **tls},
                listeners={TLS: "SSL"},
                heap=jvm.BROKER,
            )
        )
        ends = [
            End(name, cluster, enter(Proxy(cluster.bootstrap_servers, keep_bytes=0)))
            for name, cluster in (("source", source), ("target", target))
        ]
        disk = enter(SmallDisk(target, SMALL_DISK, _DISK_MB)) if mounts else None
        yield Stage(ends[0], ends[1], disk, certificates)
