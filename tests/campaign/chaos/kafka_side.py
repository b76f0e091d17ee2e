"""One of the two clusters of a campaign: its brokers, its proxy, and which of its brokers a fault affects now."""

from __future__ import annotations

import contextlib
import random
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from mirror.sandbox.node import CONTROLLER_ID
from tests.campaign.chaos.broker_network import NetworkedCluster
from tests.campaign.chaos.mount_namespace import SmallDisk
from tests.campaign.chaos.schedule import BROKERS
from tests.faults.proxy import Fault, Proxy
from tests.polling import eventually

INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
CALL_S: Final = 20.0
WITHIN_S: Final = 90.0
POLL_S: Final = 0.3
"""Every poll is made by a new client."""

Place = tuple[str, int]
"""A partition: its topic and number."""


class KafkaSide:
    """A cluster behind a proxy.

    ``affected`` are the brokers that a fault affects now. All calls go to the other brokers, by a new client for each
    call, which knows no other addresses. ``disk`` is None where no file system can be mounted.
    """

    def __init__(self, name: str, cluster: NetworkedCluster, proxy: Proxy, disk: SmallDisk | None) -> None:
        self.name: Final = name
        self.cluster: Final = cluster
        self.proxy: Final = proxy
        self.disk: Final = disk
        self.affected: Final = set[int]()
        self._faults: Final = list[Fault]()

    @property
    def address(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def healthy_address(self) -> str:
        """The brokers that no fault affects; all of them where every broker is affected."""
        servers = self.address.split(",")
        healthy = [server for broker, server in enumerate(servers, start=1) if broker not in self.affected]
        return ",".join(healthy or servers)

    def admin(self) -> AdminClient:
        """Return a new client. The caller must keep it until its calls are answered."""
        return AdminClient({"bootstrap.servers": self.healthy_address, "log_level": 0})

    # --- topics

    def create(
        self,
        topic: str,
        partitions: int,
        *,
        assignment: list[list[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until it is visible everywhere; ``assignment`` lists the replicas of each partition.

        A client that asked a broker which does not know the topic yet would fail, or wait for its next metadata.
        """
        admin = self.admin()
        replicas: dict[str, Any] = (
            {"replication_factor": BROKERS} if assignment is None else {"replica_assignment": assignment}
        )
        new = NewTopic(topic, partitions, config=dict(config or {}), **replicas)

        def created() -> bool:
            try:
                admin.create_topics([new])[topic].result(CALL_S)
            except TimeoutError:
                return False
            except KafkaException as error:
                # The topic is still being deleted, or brokers have just become unavailable.
                return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS" and self.partitions(topic) == partitions)
            return True

        eventually(created, within_s=WITHIN_S, every_s=POLL_S, what=f"topic {topic}")
        self._await_partitions(topic, partitions)

    def delete(self, *topics: str) -> None:
        """Delete the topics that exist, and wait until no healthy broker knows them."""
        existing = self.topics().keys() & set(topics)
        admin = self.admin()
        for future in admin.delete_topics(sorted(existing)).values() if existing else ():
            with contextlib.suppress(KafkaException, TimeoutError):
                future.result(CALL_S)
        eventually(
            lambda: self._everywhere(lambda known: not known.keys() & set(topics)),
            within_s=WITHIN_S,
            every_s=POLL_S,
            what=f"deletion of {topics}",
        )

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Give ``topic`` that many partitions, and wait until they are visible."""
        admin = self.admin()
        with contextlib.suppress(
            KafkaException, TimeoutError
        ):  # The request may have succeeded although its answer was lost.
            admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(CALL_S)
        self._await_partitions(topic, partitions)

    def _await_partitions(self, topic: str, partitions: int) -> None:
        def known_with_leaders(known: Mapping[str, Any]) -> bool:
            found = known[topic].partitions if topic in known else {}
            return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())

        eventually(
            lambda: self._everywhere(known_with_leaders),
            within_s=WITHIN_S,
            every_s=POLL_S,
            what=f"{partitions} partitions of {topic} at every broker",
        )

    def _everywhere(self, holds: Callable[[Mapping[str, Any]], bool]) -> bool:
        """Return whether ``holds`` is true of the topics of each healthy broker: they learn of changes one by one."""
        for server in self.healthy_address.split(","):
            admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
            try:
                if not holds(admin.list_topics(timeout=CALL_S).topics):
                    return False
            except KafkaException:
                return False
        return True

    def topics(self) -> Mapping[str, Any]:
        """Return the metadata of all topics by name; nothing where no broker answers."""
        try:
            return dict(self.admin().list_topics(timeout=CALL_S).topics)
        except KafkaException:
            return {}

    def partitions(self, topic: str) -> int:
        found = self.topics().get(topic)
        return 0 if found is None else len(found.partitions)

    def topic_id(self, topic: str) -> str:
        """Return the id of ``topic``, which exists: a broker that does not know it yet is asked again."""
        found = list[str]()

        def described() -> bool:
            admin = self.admin()
            with contextlib.suppress(KafkaException, TimeoutError):
                found.append(str(admin.describe_topics(TopicCollection([topic]))[topic].result(CALL_S).topic_id))
            return bool(found)

        eventually(described, within_s=WITHIN_S, every_s=POLL_S, what=f"the id of {topic}")
        return found[0]

    # --- replicas

    def metadata(self, topics: Iterable[str]) -> dict[Place, Any]:
        """Return the metadata of all partitions of those ``topics`` that exist, and of the internal ones."""
        found = self.topics()
        names = [name for name in (*topics, *INTERNAL) if name in found]
        return {(name, n): partition for name in names for n, partition in found[name].partitions.items()}

    def led_by(self, broker: int, topics: Iterable[str]) -> int:
        """Return how many partitions have ``broker`` as their leader."""
        return sum(partition.leader == broker for partition in self.metadata(topics).values())

    def out_of_sync(self, broker: int, topics: Iterable[str]) -> int:
        """Return how many partitions have a replica at ``broker`` that is not in sync."""
        found = self.metadata(topics).values()
        return sum(broker in partition.replicas and broker not in partition.isrs for partition in found)

    def move_leaders(self, topics: Iterable[str], rng: random.Random) -> int:
        """Shuffle each partition's replicas, elect the preferred leaders, and return how many leaders changed."""
        topics = list(topics)
        before = self.metadata(topics)
        wanted = {place: rng.sample(sorted(found.replicas), len(found.replicas)) for place, found in before.items()}
        eventually(
            lambda: self._reassign(wanted), within_s=WITHIN_S, every_s=POLL_S, what="another order of the replicas"
        )
        admin = self.admin()
        with contextlib.suppress(KafkaException, TimeoutError):  # Some leaders stay, and some cannot be elected now.
            admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(*place) for place in before]).result(CALL_S)
        after = self.metadata(topics)
        return sum(place in after and after[place].leader != found.leader for place, found in before.items())

    def _reassign(self, wanted: Mapping[Place, list[int]]) -> bool:
        """Return whether the request succeeded: another fault may affect the broker that this client chooses."""
        with warnings.catch_warnings():  # It reads its own files by a deprecated function of Python.
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka import TopicPartition as KafkaPythonPartition  # type: ignore[import-untyped]
            from kafka.admin import KafkaAdminClient  # type: ignore[import-untyped]
            from kafka.errors import KafkaError  # type: ignore[import-untyped]
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.healthy_address)
        except KafkaError:
            return False
        try:
            admin.alter_partition_reassignments(
                {KafkaPythonPartition(*place): replicas for place, replicas in wanted.items()}
            )
        except KafkaError:
            return False
        finally:
            admin.close()
        return True

    # --- faults

    def add_faults(self, *faults: Fault) -> None:
        """Have the proxy inject these faults, in addition to those that it injects already."""
        self._faults.extend(faults)
        self.proxy.fault(*self._faults)

    def remove_faults(self, *faults: Fault) -> None:
        for fault in faults:
            self._faults.remove(fault)
        self.proxy.fault(*self._faults)

    def partition(self, broker: int, *, brokers: bool, controller: bool) -> None:
        """Hold back everything between ``broker`` and the other brokers, the controller, or both."""
        others = [other for other in range(1, BROKERS + 1) if other != broker] if brokers else []
        self.cluster.network.partition(broker, [*others, *([CONTROLLER_ID] if controller else [])])

    def log_size(self, broker: int) -> int:
        """Return how many bytes ``broker`` has logged so far."""
        return (self.cluster.directory / f"broker-{broker}" / "server.log").stat().st_size

    def logged(self, broker: int, since: int, pattern: str) -> list[str]:
        """Return what ``broker`` has logged from byte ``since`` on that matches ``pattern``."""
        path = self.cluster.directory / f"broker-{broker}" / "server.log"
        return re.findall(pattern, path.read_bytes()[since:].decode(errors="replace"))

    # --- recovery

    def heal(self) -> list[str]:
        """End all faults, and return a line for each broker that had died although no fault affected it."""
        self._faults.clear()
        self.proxy.heal()
        self.cluster.network.heal()
        if self.disk is not None:
            self.disk.clear()
        died = []
        for broker in range(1, BROKERS + 1):
            if broker not in self.cluster.pids:
                if broker not in self.affected:
                    died.append(f"{self.name} broker {broker} had died")
                self.cluster.restart(broker)
            elif broker in self.affected:
                self.cluster.resume(broker)
        self.affected.clear()
        return died
