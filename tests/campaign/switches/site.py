"""Two clusters that obey ACLs, a stream that copies between them both ways, and the kills of their processes."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mirror.client import AclBinding, AclOperation, Admin, NewTopic, ResourceType
from mirror.sandbox.cluster import Cluster
from tests.alignment.permissions.guarded import Acl, acls, create, guarded
from tests.campaign.both_ways.stream import KEYS, BothWaysStream
from tests.campaign.chaos.reader import read
from tests.campaign.switches.verification import Logs
from tests.e2e.broker_side import Side
from tests.topic_creation import create_topics

A: Final = "a"
B: Final = "b"
PARTITIONS: Final = 2
DEADLINE_S: Final = 300
PROPERTIES: Final = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "log.retention.ms": "-1",
    "auto.leader.rebalance.enable": "false",
}
_SWITCH: Final = """[switches.{name}]
flows = ["{flow}"]
back = ["{back}"]
quiet-seconds = {quiet}
deadline-seconds = {deadline}
hook-seconds = 10
hook-switch = [{hook}]
"""
_CALL_S: Final = 20.0
_READ_WITHIN_S: Final = 90.0
_DOWN_S: Final = (1.0, 6.0)


def ends_of(number: int) -> tuple[str, str]:
    """Return the source and the target of switch ``number``: each one leads back from where the last one led."""
    return (A, B) if number % 2 == 0 else (B, A)


def switch_name(number: int) -> str:
    return f"s{number:02}"


def flow_name(source: str, target: str) -> str:
    return f"{source}-{target}"


class SwitchSite:
    """The clusters ``a`` and ``b``, their topics and ACLs, the stream, and the file of all switches."""

    def __init__(
        self, folder: Path, clusters: Mapping[str, Cluster], topics: Sequence[str], groups: Sequence[str]
    ) -> None:
        self.clusters: Final = clusters
        self.topics: Final = topics
        self._groups: Final = groups
        self._outages: Final[dict[str, threading.Thread]] = {}
        addresses = {name: cluster.bootstrap_servers for name, cluster in clusters.items()}
        flows = {flow_name(*ends): _flow(*ends, topics) for ends in (ends_of(0), ends_of(1))}
        self.stream: Final = BothWaysStream(folder / "stream", addresses, flows)
        self.config: Final = self.stream.site.config
        for name in clusters:
            with Admin({"bootstrap.servers": addresses[name]}) as admin:
                if name == A:
                    create_topics(admin, [NewTopic(topic, PARTITIONS) for topic in topics])
                create(admin, [*_grants(topics, groups)])

    def add_switches(self, count: int, hook: Path, quiet_s: int) -> None:
        """Write the tables of all switches: the stream reads the file from its start on."""
        with self.config.open("a", encoding="utf-8") as file:
            for number in range(count):
                ends = ends_of(number)
                values = {"name": switch_name(number), "flow": flow_name(*ends), "back": flow_name(*reversed(ends))}
                values |= {"quiet": str(quiet_s), "deadline": str(DEADLINE_S), "hook": json.dumps(str(hook))}
                file.write(_SWITCH.format(**values))

    def acls(self) -> dict[str, set[Acl]]:
        """Return the ACLs of each cluster, by confluent-kafka."""
        return {name: acls(cluster) for name, cluster in self.clusters.items()}

    def logs(self, cluster: str) -> Logs:
        """Return the values of all committed records of a cluster, by confluent-kafka."""
        places = [(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        found, missing = read(self.clusters[cluster].bootstrap_servers, places, _READ_WITHIN_S)
        assert not missing, f"{sorted(missing)[:5]} of {cluster} were not read to their ends"
        return {place: [(one.value or b"").decode() for one in records] for place, records in found.items()}

    def is_copied(self) -> bool:
        """Return whether the second cluster has all topics and groups of the first one."""
        self.stream.check()
        side = Side(self.clusters[B].bootstrap_servers)
        listed = side.admin.list_consumer_groups().result(_CALL_S).valid
        return side.topics() >= {*self.topics} and {one.group_id for one in listed} >= {*self._groups}

    # --- kills

    def kill_broker(self, name: str, rng: random.Random) -> bool:
        """SIGKILL a broker of that cluster, which comes back soon; return whether all had been there."""
        if (last := self._outages.get(name)) is not None and last.is_alive():
            return False
        cluster = self.clusters[name]
        broker, down_s = rng.choice(sorted(cluster.pids)), rng.uniform(*_DOWN_S)
        cluster.kill(broker)

        def come_back() -> None:
            time.sleep(down_s)
            cluster.restart(broker)

        self._outages[name] = threading.Thread(target=come_back, name=f"outage-{name}", daemon=True)
        self._outages[name].start()
        return True

    def kill_driver(self) -> None:
        """SIGKILL all processes of the stream, and start it again as its supervisor does."""
        self.stream.kill()
        self.stream.start()

    def await_brokers(self) -> None:
        """Wait until all brokers are back."""
        for thread in self._outages.values():
            thread.join(120)


def _flow(source: str, target: str, topics: Sequence[str]) -> str:
    name = flow_name(source, target)
    lines = f'source = "{source}"\ntarget = "{target}"\ntopics = {json.dumps(list(topics))}\n'
    own = f'naming = "identity"\norigin = "local"\norigin-from = "earliest"\n{KEYS}'
    return f"{lines}{own}[flows.{name}.groups]\n"


def _grants(topics: Sequence[str], groups: Sequence[str]) -> Iterator[AclBinding]:
    for topic in topics:
        yield AclBinding(ResourceType.TOPIC, topic, "User:alice", AclOperation.WRITE)
        yield AclBinding(ResourceType.TOPIC, topic, "User:bob", AclOperation.READ)
    for group in groups:
        yield AclBinding(ResourceType.GROUP, group, "User:bob", AclOperation.READ)
    for name in ("t00", "t01"):
        yield AclBinding(ResourceType.TRANSACTIONAL_ID, name, "User:alice", AclOperation.WRITE)


@contextlib.contextmanager
def open_clusters(brokers: Mapping[str, int]) -> Iterator[dict[str, Cluster]]:
    """Start the clusters with so many brokers each, and stop them in any case."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(guarded(count, _properties(count))) for name, count in brokers.items()}


def _properties(brokers: int) -> dict[str, str]:
    replicas = min(3, brokers)
    return PROPERTIES | {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(max(1, replicas - 1)),
    }
